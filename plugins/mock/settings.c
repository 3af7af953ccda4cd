/* SPDX-License-Identifier: MIT */
/* The table of settings, and the settings that depend on each other. */
#include "settings.h"
#include "sim.h"
#include <inttypes.h>

#define GIB (UINT64_C(1) << 30)
#define NS_MAX (UINT64_C(1000000000) * 1000)
#define POOL_KEY_BYTES_MAX (sizeof((struct moor_abi_domain_info *)0)->pool_key - 1)

#define FIELD(field_) offsetof(struct moor_abi_instance, mock.settings.field_)
#define NUMBER(field_, least_, most_, absent_)                                                               \
    {                                                                                                        \
#field_, MOOR_KIT_NUMBER, FIELD(field_), absent_, least_, most_, NULL                                \
    }
#define POWER(field_, least_, most_, absent_)                                                                \
    {                                                                                                        \
#field_, MOOR_KIT_POWER_OF_TWO, FIELD(field_), absent_, least_, most_, NULL                          \
    }
#define WORD(field_)                                                                                         \
    {                                                                                                        \
#field_, MOOR_KIT_WORD, FIELD(field_), 0, 0, 0, field_##_words                                       \
    }
#define COST(field_)                                                                                         \
    {                                                                                                        \
        "cost_" #field_, MOOR_KIT_NUMBER, FIELD(cost.field_), 0, 0, NS_MAX, NULL                             \
    }

/* The words of settings, in the order of their enums; the first one is the default. */
static const char *const contents_words[] = {"real", "none", NULL};
static const char *const clock_words[] = {"real", "virtual", NULL};
static const char *const order_words[] = {"any", "fifo", NULL};
static const char *const reuse_words[] = {"lifo", "never", NULL};
static const char *const violations_words[] = {"log", "abort", NULL};

const struct moor_kit_setting mock_settings_table[] = {
    NUMBER(devices, 0, MOCK_DEVICES_MAX, 1),
    NUMBER(total_bytes, 256, INT64_MAX, GIB),
    POWER(granule_bytes, MOCK_PAGE_BYTES, GIB << 10, UINT64_C(2) << 20),
    POWER(granule_min_bytes, MOCK_PAGE_BYTES, GIB << 10, 0), /* absent: see mock_settings_complete */
    POWER(alignment_bytes, 1, GIB, 256),
    WORD(contents),
    NUMBER(host_access, 0, 1, 1),
    WORD(clock),
    WORD(order),
    WORD(reuse),
    NUMBER(strict, 0, 1, 0),
    WORD(violations),
    NUMBER(seed, 0, UINT64_MAX, 1),
    COST(call_ns),
    COST(copy_ns_per_mib),
    COST(fill_ns_per_mib),
    COST(kernel_ns),
    COST(host_function_ns),
    {"pool", MOOR_KIT_TEXT, FIELD(pool), 0, 1, POOL_KEY_BYTES_MAX, NULL},
    {0},
};

int32_t mock_settings_complete(struct mock_settings *settings, struct moor_abi_error *error)
{
    const uint64_t least_bytes = UINT64_C(64) << 10;
    if (!settings->pool)
        settings->pool = "own";
    if (settings->granule_min_bytes == 0)
        settings->granule_min_bytes =
            settings->granule_bytes < least_bytes ? settings->granule_bytes : least_bytes;
    if (settings->granule_min_bytes > settings->granule_bytes)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "setting granule_min_bytes: %" PRIu64 " is above granule_bytes, %" PRIu64,
                             settings->granule_min_bytes, settings->granule_bytes);
    return MOOR_OK;
}
