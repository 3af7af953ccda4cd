/* SPDX-License-Identifier: MIT */
/* What the host says of the device, by one table. README.md says what each setting means. */
#include "sim.h"
#include <inttypes.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)
#define NS_MAX (UINT64_C(1000000000) * 1000)
#define WORDS_MAX 2

static const struct setting {
    const char *key;
    size_t offset; /* of its field */
    uint64_t least, most, absent;
    bool power_of_two;
    const char *words[WORDS_MAX]; /* a choice: its value is the index */
} settings[] = {
#define NUMBER(field_, least_, most_, absent_)                                                               \
    {                                                                                                        \
#field_, offsetof(struct mock_settings, field_), least_, most_, absent_, false,                      \
        {                                                                                                    \
            NULL, NULL                                                                                       \
        }                                                                                                    \
    }
#define POWER(field_, least_, most_, absent_)                                                                \
    {                                                                                                        \
#field_, offsetof(struct mock_settings, field_), least_, most_, absent_, true,                       \
        {                                                                                                    \
            NULL, NULL                                                                                       \
        }                                                                                                    \
    }
#define CHOICE(field_, first_, second_, absent_)                                                             \
    {                                                                                                        \
#field_, offsetof(struct mock_settings, field_), 0, 1, absent_, false,                               \
        {                                                                                                    \
            first_, second_                                                                                  \
        }                                                                                                    \
    }
    NUMBER(devices, 0, MOCK_DEVICES_MAX, 1),
    NUMBER(total_bytes, 256, INT64_MAX, GIB),
    POWER(granule_bytes, MOCK_PAGE_BYTES, GIB << 10, UINT64_C(2) << 20),
    POWER(granule_min_bytes, MOCK_PAGE_BYTES, GIB << 10, UINT64_C(64) << 10),
    POWER(alignment_bytes, 1, GIB, 256),
    CHOICE(contents, "real", "none", MOCK_CONTENTS_REAL),
    NUMBER(host_access, 0, 1, 1),
    CHOICE(clock, "real", "virtual", MOCK_CLOCK_REAL),
    CHOICE(order, "any", "fifo", MOCK_ORDER_ANY),
    CHOICE(reuse, "lifo", "never", MOCK_REUSE_LIFO),
    NUMBER(strict, 0, 1, 0),
    CHOICE(violations, "log", "abort", MOCK_VIOLATIONS_LOG),
    NUMBER(seed, 0, UINT64_MAX, 1),
    NUMBER(cost_call_ns, 0, NS_MAX, 0),
    NUMBER(cost_copy_ns_per_mib, 0, NS_MAX, 0),
    NUMBER(cost_fill_ns_per_mib, 0, NS_MAX, 0),
    NUMBER(cost_kernel_ns, 0, NS_MAX, 0),
    NUMBER(cost_host_function_ns, 0, NS_MAX, 0),
#undef NUMBER
#undef POWER
#undef CHOICE
};

static int32_t read_choice(const struct setting *setting, const char *text, uint64_t *ret_value,
                           struct moor_abi_error *error)
{
    for (uint64_t i = 0; i < WORDS_MAX; i++) {
        if (strcmp(text, setting->words[i]) == 0) {
            *ret_value = i;
            return MOOR_OK;
        }
    }
    return moor_kit_fail(error, MOOR_INVALID, 0, "setting %s: '%s' is neither %s nor %s", setting->key, text,
                         setting->words[0], setting->words[1]);
}

static int32_t read_number(const struct setting *setting, const char *text, uint64_t *ret_value,
                           struct moor_abi_error *error)
{
    uint64_t number = 0;
    int32_t status = moor_kit_parse_size(text, &number);
    if (status == MOOR_OK && (number < setting->least || number > setting->most))
        status = MOOR_INVALID;
    if (status != MOOR_OK)
        return moor_kit_fail(error, status, 0, "setting %s: '%s' is not within %" PRIu64 " and %" PRIu64,
                             setting->key, text, setting->least, setting->most);
    if (setting->power_of_two && !mock_is_power_of_two(number))
        return moor_kit_fail(error, MOOR_INVALID, 0, "setting %s: '%s' is no power of two", setting->key,
                             text);
    *ret_value = number;
    return MOOR_OK;
}

static int32_t read_pool(const struct moor_abi_host *host, const char **ret_pool,
                         struct moor_abi_error *error)
{
    const struct moor_abi_domain_info *info = NULL;
    const char *pool = host->config(host->user, "pool");
    if (pool && (*pool == '\0' || strlen(pool) >= sizeof(info->pool_key)))
        return moor_kit_fail(error, MOOR_INVALID, 0, "setting pool: '%s' is not of 1 to %zu bytes", pool,
                             sizeof(info->pool_key) - 1);
    *ret_pool = pool ? pool : "own";
    return MOOR_OK;
}

int32_t mock_settings_read(const struct moor_abi_host *host, struct mock_settings *ret_settings,
                           struct moor_abi_error *error)
{
    struct mock_settings values = {0};
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        const struct setting *setting = &settings[i];
        uint64_t *value = (uint64_t *)(void *)((char *)&values + setting->offset);
        const char *text = host->config(host->user, setting->key);
        *value = setting->absent;
        int32_t status = MOOR_OK;
        if (text)
            status = setting->words[0] ? read_choice(setting, text, value, error)
                                       : read_number(setting, text, value, error);
        if (status != MOOR_OK)
            return status;
    }
    int32_t status = read_pool(host, &values.pool, error);
    if (status != MOOR_OK)
        return status;
    if (values.granule_min_bytes > values.granule_bytes && !host->config(host->user, "granule_min_bytes"))
        values.granule_min_bytes = values.granule_bytes;
    if (values.granule_min_bytes > values.granule_bytes)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "setting granule_min_bytes: %" PRIu64 " is above granule_bytes",
                             values.granule_min_bytes);
    *ret_settings = values;
    return MOOR_OK;
}
