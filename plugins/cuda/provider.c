/* SPDX-License-Identifier: MIT */
/*
 * The entry, and BASE: the devices that the driver shows, each with its own memory, pinned host memory and,
 * if the host asks for it, unified memory. An instance holds everything; the process keeps only the driver's
 * library. Without a usable driver there is an instance without devices.
 */
#include "context.h"
#include "memory.h"
#include "stream.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICE_CAPS                                                                                          \
    (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED |               \
     MOOR_ABI_CAP_PINNED | MOOR_ABI_CAP_STATS)
#define VIRTUAL_CAPS (MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED)
#define HOST_CAPS (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_STATS)

#define DRIVER_DEFAULT "libcuda.so.1"

/* ---- instances ---- */

static int32_t start(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    const char *path = instance->settings.driver ? instance->settings.driver : DRIVER_DEFAULT;
    bool is_usable = false;
    instance->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    int32_t status = cuda_driver_open(path, &instance->driver, &is_usable, instance->no_device_reason,
                                      sizeof instance->no_device_reason, error);
    if (status == MOOR_OK && is_usable)
        status = cuda_devices_find(instance, error);
    if (status)
        return status;
    if (instance->kit.device_count == 0)
        cuda_log(instance, MOOR_ABI_LOG_WARNING, "%s", instance->no_device_reason);
    pthread_mutex_init(&instance->open.lock, NULL); /* does not fail on Linux with default attributes */
    return MOOR_OK;
}

static bool stop(struct moor_abi_instance *instance)
{
    if (!cuda_devices_finish(instance)) {
        /* Streams of the host's may still use memory of ours: a leak is better than a use after free. */
        cuda_log(instance, MOOR_ABI_LOG_WARNING,
                 "shutdown: work of a destroyed stream does not end: the memory that it uses is never freed");
        return false;
    }
    pthread_mutex_destroy(&instance->open.lock);
    free(instance->devices);
    return true;
}

/* ---- devices and domains ---- */

static uint64_t caps_of(const struct cuda_device *device)
{
    return device->traits.granule_min_bytes ? DEVICE_CAPS : DEVICE_CAPS & ~(uint64_t)VIRTUAL_CAPS;
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t index,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    struct cuda_device *device = NULL;
    int32_t status = cuda_device_get(instance, index, &device, error);
    if (status)
        return status;
    struct moor_abi_device_info info = {
        .struct_size = MOOR_ABI_DEVICE_INFO_SIZE,
        .domain_count = cuda_domain_count(device),
        .capabilities = caps_of(device),
    };
#ifdef MOOR_ABI_DEVICE_SIMULATED
    if (instance->driver.is_simulated)
        info.flags |= MOOR_ABI_DEVICE_SIMULATED;
#endif
    memcpy(info.key, device->traits.key, sizeof info.key);
    memcpy(info.name, device->traits.name, sizeof info.name);
    return moor_kit_fill_out(ret_info, &info, MOOR_ABI_DEVICE_INFO_SIZE, MOOR_ABI_DEVICE_INFO_SIZE,
                             "device info", error);
}

static void describe_device_domain(const struct cuda_device *device, struct moor_abi_domain_info *info)
{
    const struct cuda_traits *traits = &device->traits;
    info->kind = MOOR_ABI_DOMAIN_DEVICE;
    info->capabilities = caps_of(device) & ~(uint64_t)MOOR_ABI_CAP_PINNED;
    info->flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN | MOOR_ABI_DOMAIN_ENFORCED;
    info->total_bytes = traits->total_bytes;
    info->granule_min_bytes = traits->granule_min_bytes;
    info->granule_recommended_bytes = traits->granule_bytes;
    if (!traits->is_integrated)
        memcpy(info->pool_key, traits->key, sizeof info->pool_key);
}

/* The two domains of the machine's memory: only the system refuses it, so no total is enforced. */
static void describe_host_domain(const struct cuda_device *device, uint32_t domain,
                                 struct moor_abi_domain_info *info)
{
    bool is_pinned = domain == CUDA_DOMAIN_PINNED;
    long pages = sysconf(_SC_PHYS_PAGES);
    info->kind = is_pinned ? MOOR_ABI_DOMAIN_PINNED : MOOR_ABI_DOMAIN_UNIFIED;
    info->capabilities = HOST_CAPS | (is_pinned ? MOOR_ABI_CAP_PINNED : 0);
    if (is_pinned || device->traits.unified_is_shared)
        info->flags |= MOOR_ABI_DOMAIN_HOST_ACCESS;
    if (pages > 0) {
        info->flags |= MOOR_ABI_DOMAIN_TOTAL_KNOWN;
        info->total_bytes = (uint64_t)pages * device->instance->page_bytes;
    }
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t index, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    struct cuda_device *device = NULL;
    int32_t status = cuda_device_get(instance, index, &device, error);
    if (status == MOOR_OK)
        status = cuda_check_domain(device, domain, error);
    if (status)
        return status;
    struct moor_abi_domain_info info = {
        .struct_size = MOOR_ABI_DOMAIN_INFO_SIZE,
        .alignment_bytes = CUDA_ALIGNMENT_BYTES,
        .pool_key = MOOR_ABI_POOL_HOST,
    };
    if (domain == CUDA_DOMAIN_DEVICE)
        describe_device_domain(device, &info);
    else
        describe_host_domain(device, domain, &info);
    return moor_kit_fill_out(ret_info, &info, MOOR_ABI_DOMAIN_INFO_SIZE, MOOR_ABI_DOMAIN_INFO_SIZE,
                             "domain info", error);
}

static int32_t context_native(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error)
{
    (void)error;
    *ret_native = (uint64_t)(uintptr_t)context->device->context.primary;
    return MOOR_OK;
}

static int32_t context_open(struct moor_abi_instance *instance, uint32_t index,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    struct cuda_device *device = NULL;
    int32_t status = cuda_device_get(instance, index, &device, error);
    return status ? status : moor_kit_context_open(instance, index, ret_context, error);
}

/* ---- release: the kit checks and queues ---- */

static int32_t free_in_scope(struct moor_abi_context *context, void *record,
                             const struct moor_abi_release *release, uint64_t *ret_bytes,
                             struct moor_abi_error *error)
{
    switch (release->kind) {
    case MOOR_ABI_RELEASE_ALLOCATION:
        return cuda_allocation_free(context, record, ret_bytes, error);
    case MOOR_ABI_RELEASE_RANGE:
        return cuda_range_free(context, record, error);
    case MOOR_ABI_RELEASE_SEGMENT:
        return cuda_segment_free(context, record, ret_bytes, error);
    case MOOR_ABI_RELEASE_PIN:
        return cuda_pin_free(context, record, error);
    default:
        return cuda_range_free_part(context, record, release, ret_bytes, error);
    }
}

static int32_t free_now(struct moor_abi_context *context, void *record,
                        const struct moor_abi_release *release, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error)
{
    struct cuda_scope scope;
    /* Records of a lost device, or of a driver that has gone, are freed outside a scope: see
     * cuda_check_free. */
    int32_t status = cuda_enter_lost(context->device, &scope, error);
    bool is_entered = status == MOOR_OK;
    if (is_entered || status == MOOR_DEVICE_LOST)
        status = free_in_scope(context, record, release, ret_actual_bytes, error);
    if (is_entered)
        cuda_leave(&scope);
    return status;
}

/* ---- the tables ---- */

#define FIELD(field_) offsetof(struct moor_abi_instance, settings.field_)

static const char *const timelines[] = {[CUDA_TIMELINE_AUTO] = "auto",
                                        [CUDA_TIMELINE_MEMORY] = "memory",
                                        [CUDA_TIMELINE_EVENTS] = "events",
                                        NULL};
static const char *const no_or_yes[] = {"no", "yes", NULL};

static const struct moor_kit_setting settings[] = {
    {"driver", MOOR_KIT_TEXT, FIELD(driver), 0, 0, UINT64_MAX, NULL},
    {"granule_bytes", MOOR_KIT_POWER_OF_TWO, FIELD(granule_bytes), 0, CUDA_GRANULE_MIN_BYTES,
     CUDA_GRANULE_MAX_BYTES, NULL},
    {"pool_bytes", MOOR_KIT_NUMBER, FIELD(pool_bytes), CUDA_POOL_BYTES, 0, UINT64_MAX, NULL},
    {"staging_bytes", MOOR_KIT_NUMBER, FIELD(staging_bytes), CUDA_STAGING_BYTES, CUDA_STAGING_MIN_BYTES,
     CUDA_STAGING_MAX_BYTES, NULL},
    {"timeline", MOOR_KIT_WORD, FIELD(timeline), CUDA_TIMELINE_AUTO, 0, 0, timelines},
    {"unified", MOOR_KIT_WORD, FIELD(wants_unified), 0, 0, 0, no_or_yes},
    {0},
};

MOOR_KIT_FRAME(kit, .settings = settings, .start = start, .stop = stop, .open = cuda_context_open,
               .close = cuda_context_close,
               .release = {DEVICE_CAPS, CUDA_POLL_NS, cuda_stream_check_recorded, cuda_stream_watermark,
                           free_now});

MOOR_KIT_BASE_TABLE(base_table, kit, .device_info = device_info, .domain_info = domain_info,
                    .context_open = context_open, .context_close = moor_kit_context_close,
                    .context_native = context_native, .get_extension = moor_kit_no_extension);

MOOR_KIT_PROVIDER(DEVICE_CAPS, 0, .name = "cuda", .vendor = "Moorage", .version = "0.1.0",
                  .base = &base_table, .alloc = &cuda_alloc_table, .stream = &cuda_stream_table,
                  .release = &moor_kit_release_table, .copy = &cuda_copy_table,
                  .virtual_ = &cuda_virtual_table, .shared = &cuda_shared_table, .pinned = &cuda_pinned_table,
                  .stats = &cuda_stats_table);
