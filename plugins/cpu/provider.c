/* SPDX-License-Identifier: MIT */
/*
 * The entry, and BASE: one device, the machine's processors, with two domains on one pool, the machine's
 * memory. There is no global state: an instance holds everything, contexts share its pool and its list of
 * pins.
 */
#include "cpu.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define DEVICE_CAPS                                                                                          \
    (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED |               \
     MOOR_ABI_CAP_PINNED | MOOR_ABI_CAP_STATS)
#define PINNED_CAPS (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_PINNED | MOOR_ABI_CAP_STATS)

#define GRANULE_KEY "granule_bytes"
#define TOTAL_KEY "total_bytes"
#define POOL_KEY "host-ram"

/* ---- init ---- */

/* A setting in bytes; `absent` if the host has none. */
static int32_t read_setting(const struct moor_abi_host *host, const char *key, uint64_t absent,
                            uint64_t *ret_bytes, struct moor_abi_error *error)
{
    const char *text = host->config ? host->config(host->user, key) : NULL;
    uint64_t bytes = absent;
    if (text && moor_kit_parse_size(text, &bytes) != MOOR_OK)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: '%s' is not a size", key, text);
    *ret_bytes = bytes;
    return MOOR_OK;
}

/* The first line of a file that starts with `key`, from behind its colon and blanks; without a key, the first
 * line. */
static bool read_line(const char *path, const char *key, char *text, size_t text_bytes)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    char line[256];
    bool found = false;
    while (!found && fgets(line, sizeof(line), file))
        found = strncmp(line, key, strlen(key)) == 0;
    (void)fclose(file); /* read only: nothing is lost */
    if (!found)
        return false;
    const char *value = *key ? strchr(line, ':') : line;
    value = value ? value + strspn(value, ": \t") : line;
    (void)snprintf(text, text_bytes, "%.*s", (int)strcspn(value, "\n"),
                   value); /* cut off where it is too long */
    return text[0] != '\0';
}

static void describe_device(struct moor_abi_instance *instance)
{
    char machine[48];
    (void)snprintf(instance->device_key, sizeof(instance->device_key), "cpu-%s",
                   read_line("/etc/machine-id", "", machine, sizeof(machine)) ? machine : "0");
    if (!read_line("/proc/cpuinfo", "model name", instance->device_name, sizeof(instance->device_name)))
        (void)snprintf(instance->device_name, sizeof(instance->device_name), "CPU");
}

static int32_t configure(struct moor_abi_instance *instance, uint64_t *ret_total_bytes,
                         struct moor_abi_error *error)
{
    uint64_t granule = 0;
    int32_t status = read_setting(instance->host, GRANULE_KEY, CPU_HUGE_BYTES, &granule, error);
    if (status != MOOR_OK)
        return status;
    if (!cpu_is_power_of_two(granule) || granule < CPU_GRANULE_MIN_BYTES || granule > CPU_GRANULE_MAX_BYTES)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: %llu is not a power of two from 64KiB to 1GiB",
                             GRANULE_KEY, (unsigned long long)granule);
    instance->granule_bytes = granule;
    status = read_setting(instance->host, TOTAL_KEY, UINT64_MAX, ret_total_bytes, error);
    if (status == MOOR_OK && *ret_total_bytes == 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: 0", TOTAL_KEY);
    if (*ret_total_bytes == UINT64_MAX)
        *ret_total_bytes = 0; /* what the system says */
    return status;
}

static int32_t init(const struct moor_abi_host *host, uint32_t negotiated_minor,
                    struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    if (!host || host->prefix.magic != MOOR_ABI_MAGIC || host->prefix.struct_size < MOOR_ABI_HOST_SIZE)
        return moor_kit_fail(error, MOOR_INVALID, 0, "host: NULL, no magic, or smaller than 1.0");
    if (host->prefix.major != MOOR_ABI_MAJOR || negotiated_minor > MOOR_ABI_MINOR)
        return moor_kit_fail(error, MOOR_VERSION, 0, "version %u.%u was asked for; this is %u.%u",
                             host->prefix.major, negotiated_minor, MOOR_ABI_MAJOR, MOOR_ABI_MINOR);
    struct moor_abi_instance *instance = calloc(1, sizeof(*instance));
    if (!instance)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for an instance");
    instance->host = host;
    instance->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t total_bytes = 0;
    int32_t status = configure(instance, &total_bytes, error);
    if (status == MOOR_OK)
        status = cpu_pool_init(&instance->pool, total_bytes, error);
    if (status != MOOR_OK) {
        free(instance);
        return status;
    }
    pthread_mutex_init(&instance->pins.lock, NULL); /* does not fail on Linux with default attributes */
    describe_device(instance);
    *ret_instance = instance;
    return MOOR_OK;
}

static int32_t shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    unsigned int contexts = atomic_load(&instance->context_count);
    if (contexts)
        return moor_kit_fail(error, MOOR_BUSY, 0, "%u contexts are open", contexts);
    cpu_pool_finish(&instance->pool);
    pthread_mutex_destroy(&instance->pins.lock);
    free(instance);
    return MOOR_OK;
}

/* ---- what there is ---- */

static int32_t device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error)
{
    (void)instance;
    (void)error;
    *ret_count = 1;
    return MOOR_OK;
}

static int32_t check_device(uint32_t device, struct moor_abi_error *error)
{
    return device == 0 ? MOOR_OK : moor_kit_fail(error, MOOR_INVALID, 0, "device %u: there is 1", device);
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = check_device(device, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_device_info info = {
        .struct_size = MOOR_ABI_DEVICE_INFO_SIZE,
        .domain_count = CPU_DOMAIN_COUNT,
        .capabilities = DEVICE_CAPS,
    };
    memcpy(info.key, instance->device_key, sizeof(info.key));
    memcpy(info.name, instance->device_name, sizeof(info.name));
    return moor_kit_fill_out(ret_info, &info, MOOR_ABI_DEVICE_INFO_SIZE, MOOR_ABI_DEVICE_INFO_SIZE,
                             "device info", error);
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = check_device(device, error);
    if (status != MOOR_OK)
        return status;
    if (domain >= CPU_DOMAIN_COUNT)
        return moor_kit_fail(error, MOOR_INVALID, 0, "domain %u: there are %u", domain, CPU_DOMAIN_COUNT);
    struct moor_abi_domain_info info = {
        .struct_size = MOOR_ABI_DOMAIN_INFO_SIZE,
        .kind = domain == CPU_DOMAIN_DEVICE ? MOOR_ABI_DOMAIN_DEVICE : MOOR_ABI_DOMAIN_PINNED,
        .capabilities = domain == CPU_DOMAIN_DEVICE ? DEVICE_CAPS : PINNED_CAPS,
        .flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN | MOOR_ABI_DOMAIN_ENFORCED | MOOR_ABI_DOMAIN_HOST_ACCESS,
        .total_bytes = instance->pool.total_bytes,
        .alignment_bytes = CPU_ALIGNMENT_BYTES,
        .pool_key = POOL_KEY,
    };
    if (domain == CPU_DOMAIN_DEVICE) {
        info.granule_min_bytes = CPU_GRANULE_MIN_BYTES;
        info.granule_recommended_bytes = instance->granule_bytes;
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        info.flags |= MOOR_ABI_DOMAIN_VA_LIMIT_KNOWN;
        info.address_space_bytes = limit.rlim_cur;
    }
    return moor_kit_fill_out(ret_info, &info, MOOR_ABI_DOMAIN_INFO_SIZE, MOOR_ABI_DOMAIN_INFO_SIZE,
                             "domain info", error);
}

/* ---- contexts ---- */

static const char *const kind_names[CPU_KIND_COUNT] = {
    [CPU_ALLOCATION] = "allocation", [CPU_RANGE] = "range", [CPU_SEGMENT] = "segment", [CPU_PIN] = "pin"};

static int32_t context_open(struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    int32_t status = check_device(device, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_context *context = calloc(1, sizeof(*context));
    if (!context)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a context");
    context->instance = instance;
    context->segments.file = -1;
    status = moor_kit_handles_create(kind_names, CPU_KIND_COUNT, MOOR_KIT_HANDLES_MAX, &context->handles);
    if (status == MOOR_OK)
        status = cpu_release_queue_create(context);
    if (status != MOOR_OK) {
        moor_kit_handles_destroy(context->handles);
        free(context);
        return moor_kit_fail(error, status, 0, "no memory for the handles and the queue of a context");
    }
    pthread_mutex_init(&context->segments.lock, NULL); /* does not fail on Linux with default attributes */
    atomic_fetch_add(&instance->context_count, 1);
    *ret_context = context;
    return MOOR_OK;
}

static int32_t context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    uint64_t queued = moor_kit_queue_length(context->queue);
    unsigned int streams = atomic_load(&context->stream_count);
    uint32_t handles = moor_kit_handles_length(context->handles);
    if (queued || streams || handles)
        return moor_kit_fail(error, MOOR_BUSY, 0, "%u handles, %u streams and %llu queued releases are left",
                             handles, streams, (unsigned long long)queued);
    moor_kit_queue_destroy(context->queue);
    if (context->segments.file >= 0)
        (void)close(context->segments.file); /* empty: every segment has gone */
    pthread_mutex_destroy(&context->segments.lock);
    moor_kit_handles_destroy(context->handles);
    atomic_fetch_sub(&context->instance->context_count, 1);
    free(context);
    return MOOR_OK;
}

static int32_t context_native(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error)
{
    (void)context;
    (void)ret_native;
    return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "host memory has no device API");
}

static int32_t get_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                             const void **ret_table, struct moor_abi_error *error)
{
    (void)instance;
    (void)ret_table;
    return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "there is no extension '%s' version %u",
                         name ? name : "", version);
}

static const struct moor_abi_base_table base_table = {
    .struct_size = MOOR_ABI_BASE_TABLE_SIZE,
    .init = init,
    .shutdown = shutdown,
    .device_count = device_count,
    .device_info = device_info,
    .domain_info = domain_info,
    .context_open = context_open,
    .context_close = context_close,
    .context_native = context_native,
    .get_extension = get_extension,
};

static const struct moor_abi_provider provider = {
    .prefix = MOOR_ABI_PREFIX(DEVICE_CAPS, 0),
    .name = "cpu",
    .vendor = "Moorage",
    .version = "0.1.0",
    .base = &base_table,
    .alloc = &cpu_alloc_table,
    .stream = &cpu_stream_table,
    .release = &cpu_release_table,
    .copy = &cpu_copy_table,
    .virtual_ = &cpu_virtual_table,
    .shared = &cpu_shared_table,
    .pinned = &cpu_pinned_table,
    .stats = &cpu_stats_table,
};

MOOR_ABI_NOTE(DEVICE_CAPS, 0);

MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &provider;
}
