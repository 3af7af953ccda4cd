/* SPDX-License-Identifier: MIT */
/*
 * The frame keeps its state at the start of the provider's own structs, so one pointer serves both: the
 * functions below read a struct moor_abi_instance as the struct moor_kit_instance that it begins with. There
 * is no other state. Counters are plain integers, because the header is also C++; they change through
 * __atomic built-ins alone.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <moorage/kit/check.h>
#include <moorage/kit/provider.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_TEXT_BYTES 160u /* room for the list of words in a message */

static struct moor_kit_instance *kit_of(struct moor_abi_instance *instance)
{
    assert(instance);
    return (struct moor_kit_instance *)(void *)instance;
}

int32_t moor_kit_check_index(const char *object, uint32_t index, uint32_t count, struct moor_abi_error *error)
{
    if (index < count)
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0, "%s %" PRIu32 ": there %s %" PRIu32, object, index,
                         count == 1 ? "is" : "are", count);
}

/* ---- settings ---- */

static int32_t read_number(const struct moor_kit_setting *setting, const char *text, uint64_t *ret_value,
                           struct moor_abi_error *error)
{
    assert(setting->least <= setting->most);
    bool is_power = setting->kind == MOOR_KIT_POWER_OF_TWO;
    uint64_t number = 0;
    if (moor_kit_parse_size(text, &number) || number < setting->least || number > setting->most ||
        (is_power && !moor_kit_is_power_of_two(number)))
        return moor_kit_fail(
            error, MOOR_INVALID, 0, "setting %s: '%s': a %s from %" PRIu64 " to %" PRIu64 " is needed",
            setting->name, text, is_power ? "power of two" : "number", setting->least, setting->most);
    *ret_value = number;
    return MOOR_OK;
}

static int32_t read_word(const struct moor_kit_setting *setting, const char *text, uint64_t *ret_value,
                         struct moor_abi_error *error)
{
    assert(setting->words && setting->words[0]);
    char list[WORDS_TEXT_BYTES] = "";
    for (uint64_t i = 0; setting->words[i]; i++) {
        if (strcmp(text, setting->words[i]) == 0) {
            *ret_value = i;
            return MOOR_OK;
        }
        size_t length = strlen(list);
        (void)snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "",
                       setting->words[i]); /* a long list is cut */
    }
    return moor_kit_fail(error, MOOR_INVALID, 0, "setting %s: '%s': one of %s is needed", setting->name, text,
                         list);
}

static int32_t read_text(const struct moor_kit_setting *setting, const char *text, const char **ret_text,
                         struct moor_abi_error *error)
{
    size_t length = strlen(text);
    if (length < setting->least || length > setting->most)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "setting %s: '%s': a text of %" PRIu64 " to %" PRIu64 " bytes is needed",
                             setting->name, text, setting->least, setting->most);
    *ret_text = text;
    return MOOR_OK;
}

static int32_t read_setting(const struct moor_abi_host *host, const struct moor_kit_setting *setting,
                            void *target, struct moor_abi_error *error)
{
    void *field = (char *)target + setting->offset_bytes;
    const char *text = host->config ? host->config(host->user, setting->name) : NULL;
    switch (setting->kind) {
    case MOOR_KIT_TEXT:
        *(const char **)field = NULL;
        return text ? read_text(setting, text, field, error) : MOOR_OK;
    case MOOR_KIT_WORD:
        *(uint64_t *)field = setting->absent;
        return text ? read_word(setting, text, field, error) : MOOR_OK;
    case MOOR_KIT_NUMBER:
    case MOOR_KIT_POWER_OF_TWO:
        break;
    }
    *(uint64_t *)field = setting->absent;
    return text ? read_number(setting, text, field, error) : MOOR_OK;
}

int32_t moor_kit_settings_read(const struct moor_abi_host *host, const struct moor_kit_setting *settings,
                               void *target, struct moor_abi_error *error)
{
    int32_t status = MOOR_OK;
    for (const struct moor_kit_setting *setting = settings; !status && setting && setting->name; setting++)
        status = read_setting(host, setting, target, error);
    return status;
}

/* ---- instances ---- */

static int32_t check_host(const struct moor_abi_host *host, uint32_t negotiated_minor,
                          struct moor_abi_error *error)
{
    if (!host || host->prefix.magic != MOOR_ABI_MAGIC || host->prefix.struct_size < MOOR_ABI_HOST_SIZE)
        return moor_kit_fail(error, MOOR_INVALID, 0, "host: NULL, no magic, or smaller than in 1.0");
    if (host->prefix.major != MOOR_ABI_MAJOR || negotiated_minor > MOOR_ABI_MINOR)
        return moor_kit_fail(error, MOOR_VERSION, 0,
                             "host: version %" PRIu32 ".%" PRIu32 " is requested; this provider has %u.%u",
                             host->prefix.major, negotiated_minor, MOOR_ABI_MAJOR, MOOR_ABI_MINOR);
    return MOOR_OK;
}

int32_t moor_kit_init(const struct moor_kit_provider *provider, const struct moor_abi_host *host,
                      uint32_t negotiated_minor, struct moor_abi_instance **ret_instance,
                      struct moor_abi_error *error)
{
    assert(provider->instance_bytes >= sizeof(struct moor_kit_instance) && provider->start);
    assert(provider->context_bytes >= sizeof(struct moor_kit_context));
    int32_t status = check_host(host, negotiated_minor, error);
    if (status)
        return status;
    struct moor_abi_instance *instance = calloc(1, provider->instance_bytes);
    if (!instance)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "instance: no host memory");
    kit_of(instance)->host = host;
    kit_of(instance)->provider = provider;
    status = moor_kit_settings_read(host, provider->settings, instance, error);
    if (!status)
        status = provider->start(instance, error);
    if (status) {
        free(instance);
        return status;
    }
    *ret_instance = instance;
    return MOOR_OK;
}

int32_t moor_kit_shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    const struct moor_kit_instance *kit = kit_of(instance);
    /* Acquire: pairs with the last context_close, and shows its writes to the instance. */
    uint32_t contexts = __atomic_load_n(&kit->context_count, __ATOMIC_ACQUIRE);
    if (contexts)
        return moor_kit_fail(error, MOOR_BUSY, 0, "shutdown: %" PRIu32 " contexts are open: close them first",
                             contexts);
    if (!kit->provider->stop || kit->provider->stop(instance))
        free(instance);
    return MOOR_OK;
}

int32_t moor_kit_device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                              struct moor_abi_error *error)
{
    (void)error;
    *ret_count = kit_of(instance)->device_count;
    return MOOR_OK;
}

/* ---- contexts ---- */

static int32_t open_context(struct moor_abi_context *context, const struct moor_kit_instance *instance,
                            struct moor_abi_error *error)
{
    const struct moor_kit_provider *provider = instance->provider;
    int32_t status =
        moor_kit_context_init(context, &provider->release, provider->queue_callbacks, instance->host, error);
    if (status)
        return status;
    status = provider->open ? provider->open(context, error) : MOOR_OK;
    if (status)
        moor_kit_context_finish(context);
    return status;
}

int32_t moor_kit_context_open(struct moor_abi_instance *instance, uint32_t device,
                              struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    struct moor_kit_instance *kit = kit_of(instance);
    int32_t status = moor_kit_check_index("device", device, kit->device_count, error);
    if (status)
        return status;
    struct moor_abi_context *context = calloc(1, kit->provider->context_bytes);
    if (!context)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "context: no host memory");
    struct moor_kit_context *head = (struct moor_kit_context *)(void *)context;
    head->instance = instance;
    head->device = device;
    status = open_context(context, kit, error);
    if (status) {
        free(context);
        return status;
    }
    (void)__atomic_add_fetch(&kit->context_count, 1,
                             __ATOMIC_RELAXED); /* the core calls shutdown after this */
    *ret_context = context;
    return MOOR_OK;
}

int32_t moor_kit_context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    struct moor_kit_context *head = (struct moor_kit_context *)(void *)context;
    struct moor_kit_instance *kit = kit_of(head->instance);
    int32_t status = moor_kit_context_check_empty(context, error);
    if (status)
        return status;
    if (kit->provider->close)
        kit->provider->close(context);
    moor_kit_context_finish(context);
    free(context);
    uint32_t left = __atomic_fetch_sub(&kit->context_count, 1, __ATOMIC_RELEASE); /* see moor_kit_shutdown */
    assert(left > 0);
    return MOOR_OK;
}

/* ---- absent functions ---- */

int32_t moor_kit_no_native_context(struct moor_abi_context *context, uint64_t *ret_native,
                                   struct moor_abi_error *error)
{
    (void)context;
    (void)ret_native;
    return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "native context: the device has no API of its own");
}

int32_t moor_kit_no_native_stream(struct moor_abi_stream *stream, uint64_t *ret_native,
                                  struct moor_abi_error *error)
{
    (void)stream;
    (void)ret_native;
    return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "native stream: the device has no API of its own");
}

int32_t moor_kit_no_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                              const void **ret_table, struct moor_abi_error *error)
{
    (void)instance;
    (void)ret_table;
    return moor_kit_fail(error, MOOR_UNSUPPORTED, 0,
                         "extension '%s' version %" PRIu32 ": the provider has none", name ? name : "",
                         version);
}
