/* SPDX-License-Identifier: MIT */
/*
 * The entry and BASE: one device, the machine's processors, with two domains on one pool, the machine's
 * memory. There is no global state: an instance holds everything, and its contexts share the pool and the
 * list of pins.
 */
#include "cpu.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define DEVICE_CAPS                                                                                          \
    (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED |               \
     MOOR_ABI_CAP_PINNED | MOOR_ABI_CAP_STATS)
#define PINNED_CAPS (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_PINNED | MOOR_ABI_CAP_STATS)

/* ---- init ---- */

/* Reads the first line of a file that starts with `key`, from behind its colon and blanks; without a key, the
 * first line. */
static bool read_line(const char *path, const char *key, char *text, size_t text_bytes)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    char line[256];
    bool found = false;
    while (!found && fgets(line, sizeof line, file))
        found = strncmp(line, key, strlen(key)) == 0;
    (void)fclose(file); /* read only: nothing is lost */
    if (!found)
        return false;
    const char *value = *key ? strchr(line, ':') : line;
    value = value ? value + strspn(value, ": \t") : line;
    (void)snprintf(text, text_bytes, "%.*s", (int)strcspn(value, "\n"), value); /* a longer line is cut */
    return text[0] != '\0';
}

static void describe_device(struct moor_abi_instance *instance)
{
    char machine[48];
    (void)snprintf(instance->device_key, sizeof instance->device_key, "cpu-%s",
                   read_line("/etc/machine-id", "", machine, sizeof machine) ? machine : "0");
    if (!read_line("/proc/cpuinfo", "model name", instance->device_name, sizeof instance->device_name))
        (void)snprintf(instance->device_name, sizeof instance->device_name, "CPU");
}

static int32_t start(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    instance->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    assert(moor_kit_is_power_of_two(instance->page_bytes) && instance->page_bytes <= CPU_GRANULE_MIN_BYTES);
    int32_t status = cpu_pool_init(&instance->pool, instance->total_bytes, error);
    if (status)
        return status;
    pthread_mutex_init(&instance->pins.lock, NULL); /* does not fail on Linux with default attributes */
    describe_device(instance);
    instance->kit.device_count = 1;
    return MOOR_OK;
}

static bool stop(struct moor_abi_instance *instance)
{
    assert(!instance->pins.first);
    cpu_pool_finish(&instance->pool);
    pthread_mutex_destroy(&instance->pins.lock);
    return true;
}

/* ---- devices and domains ---- */

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_index("device", device, 1, error);
    if (status)
        return status;
    struct moor_abi_device_info info = {
        .struct_size = MOOR_ABI_DEVICE_INFO_SIZE,
        .domain_count = CPU_DOMAIN_COUNT,
        .capabilities = DEVICE_CAPS,
    };
    memcpy(info.key, instance->device_key, sizeof info.key);
    memcpy(info.name, instance->device_name, sizeof info.name);
    return moor_kit_fill_out(ret_info, &info, MOOR_ABI_DEVICE_INFO_SIZE, MOOR_ABI_DEVICE_INFO_SIZE,
                             "device info", error);
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_index("device", device, 1, error);
    if (!status)
        status = moor_kit_check_index("domain", domain, CPU_DOMAIN_COUNT, error);
    if (status)
        return status;
    struct moor_abi_domain_info info = {
        .struct_size = MOOR_ABI_DOMAIN_INFO_SIZE,
        .kind = domain == CPU_DOMAIN_DEVICE ? MOOR_ABI_DOMAIN_DEVICE : MOOR_ABI_DOMAIN_PINNED,
        .capabilities = domain == CPU_DOMAIN_DEVICE ? DEVICE_CAPS : PINNED_CAPS,
        .flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN | MOOR_ABI_DOMAIN_ENFORCED | MOOR_ABI_DOMAIN_HOST_ACCESS,
        .total_bytes = instance->pool.total_bytes,
        .alignment_bytes = CPU_ALIGNMENT_BYTES,
        .pool_key = MOOR_ABI_POOL_HOST,
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

static int32_t open_context(struct moor_abi_context *context, struct moor_abi_error *error)
{
    (void)error;
    context->segments.file = -1;
    pthread_mutex_init(&context->segments.lock, NULL); /* does not fail on Linux with default attributes */
    return MOOR_OK;
}

static void close_context(struct moor_abi_context *context)
{
    assert(atomic_load(&context->segment_huge_bytes) == 0);
    if (context->segments.file >= 0)
        (void)close(context->segments.file); /* empty: every segment was freed */
    pthread_mutex_destroy(&context->segments.lock);
}

/* ---- release: the kit has the rest ---- */

static int32_t free_now(struct moor_abi_context *context, void *record,
                        const struct moor_abi_release *release, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error)
{
    switch (release->kind) {
    case MOOR_ABI_RELEASE_ALLOCATION:
        return cpu_allocation_free(context, record, ret_actual_bytes, error);
    case MOOR_ABI_RELEASE_RANGE:
        return cpu_range_free(context, record, error);
    case MOOR_ABI_RELEASE_SEGMENT:
        return cpu_segment_free(context, record, ret_actual_bytes, error);
    case MOOR_ABI_RELEASE_PIN:
        return cpu_pin_free(context, record, error);
    default:
        return cpu_range_free_part(context, record, release, ret_actual_bytes, error);
    }
}

/* ---- the tables ---- */

#define FIELD(field_) offsetof(struct moor_abi_instance, field_)

static const struct moor_kit_setting settings[] = {
    {"granule_bytes", MOOR_KIT_POWER_OF_TWO, FIELD(granule_bytes), CPU_HUGE_BYTES, CPU_GRANULE_MIN_BYTES,
     CPU_GRANULE_MAX_BYTES, NULL},
    {"total_bytes", MOOR_KIT_NUMBER, FIELD(total_bytes), 0, 1, UINT64_MAX, NULL},
    {0},
};

MOOR_KIT_FRAME(kit, .settings = settings, .start = start, .stop = stop, .open = open_context,
               .close = close_context,
               .release = {DEVICE_CAPS, 0, cpu_stream_check_recorded, cpu_stream_watermark, free_now});

MOOR_KIT_BASE_TABLE(base_table, kit, .device_info = device_info, .domain_info = domain_info,
                    .context_open = moor_kit_context_open, .context_close = moor_kit_context_close,
                    .context_native = moor_kit_no_native_context, .get_extension = moor_kit_no_extension);

MOOR_KIT_PROVIDER(DEVICE_CAPS, 0, .name = "cpu", .vendor = "Moorage", .version = "0.1.0", .base = &base_table,
                  .alloc = &cpu_alloc_table, .stream = &cpu_stream_table, .release = &moor_kit_release_table,
                  .copy = &cpu_copy_table, .virtual_ = &cpu_virtual_table, .shared = &cpu_shared_table,
                  .pinned = &cpu_pinned_table, .stats = &cpu_stats_table);
