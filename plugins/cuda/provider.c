/* SPDX-License-Identifier: MIT */
/*
 * The entry, and BASE: the devices that the driver shows, each with its own memory, pinned host memory and,
 * where it is asked for, memory that migrates. An instance holds everything; the process keeps nothing but
 * the driver's library. Without a driver that can be used there is an instance without devices.
 */
#include "provider.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICE_CAPS                                                                                          \
    (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED |               \
     MOOR_ABI_CAP_PINNED | MOOR_ABI_CAP_STATS)
#define VIRTUAL_CAPS (MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED)
#define HOST_CAPS (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_STATS)

#define DRIVER_DEFAULT "libcuda.so.1"

/* ---- settings ---- */

static const char *get_setting(const struct moor_abi_host *host, const char *key)
{
    return host->config ? host->config(host->user, key) : NULL;
}

/* A setting in bytes; unchanged if the host has none. */
static int32_t read_bytes(const struct moor_abi_host *host, const char *key, uint64_t least, uint64_t most,
                          uint64_t *bytes, struct moor_abi_error *error)
{
    const char *text = get_setting(host, key);
    uint64_t value = 0;
    if (!text)
        return MOOR_OK;
    if (moor_kit_parse_size(text, &value) != MOOR_OK)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: '%s' is not a size", key, text);
    if (value < least || value > most)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: '%s' is not from %llu to %llu bytes", key, text,
                             (unsigned long long)least, (unsigned long long)most);
    *bytes = value;
    return MOOR_OK;
}

/* One of some words; the first if the host has no setting. */
static int32_t read_word(const struct moor_abi_host *host, const char *key, const char *const *words,
                         uint32_t count, uint32_t *ret_index, struct moor_abi_error *error)
{
    const char *text = get_setting(host, key);
    for (uint32_t i = 0; i < count; i++) {
        if (!text || strcmp(text, words[i]) == 0) {
            *ret_index = i;
            return MOOR_OK;
        }
    }
    return moor_kit_fail(error, MOOR_INVALID, 0, "%s: '%s' is none of its values", key, text);
}

static int32_t configure(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    static const char *const timelines[] = {"auto", "memory", "events"}; /* as enum cuda_timeline */
    static const char *const answers[] = {"no", "yes"};
    const struct moor_abi_host *host = instance->host;
    instance->pool_bytes = CUDA_POOL_BYTES;
    instance->staging_bytes = CUDA_STAGING_BYTES;
    uint32_t timeline = 0;
    uint32_t unified = 0;
    int32_t status = read_bytes(host, "granule_bytes", instance->page_bytes, CUDA_GRANULE_MAX_BYTES,
                                &instance->granule_bytes, error);
    if (status == MOOR_OK && instance->granule_bytes && !cuda_is_power_of_two(instance->granule_bytes))
        status = moor_kit_fail(error, MOOR_INVALID, 0, "granule_bytes: '%s' is not a power of two",
                               get_setting(host, "granule_bytes"));
    if (status == MOOR_OK)
        status = read_bytes(host, "pool_bytes", 0, UINT64_MAX, &instance->pool_bytes, error);
    if (status == MOOR_OK)
        status = read_bytes(host, "staging_bytes", CUDA_STAGING_MIN_BYTES, CUDA_STAGING_MAX_BYTES,
                            &instance->staging_bytes, error);
    if (status == MOOR_OK)
        status = read_word(host, "timeline", timelines, 3, &timeline, error);
    if (status == MOOR_OK)
        status = read_word(host, "unified", answers, 2, &unified, error);
    instance->timeline = (enum cuda_timeline)timeline;
    instance->wants_unified = unified == 1;
    return status;
}

/* ---- init ---- */

static void look_at_device(struct moor_abi_instance *instance, uint32_t index)
{
    struct cuda_device *device = &instance->devices[index];
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    device->instance = instance;
    pthread_mutex_init(&device->lock, NULL); /* does not fail on Linux with default attributes */
    cuda_pages_init(&device->pages, instance->pool_bytes);
    device->status = cuda_check(device, instance->driver.cuDeviceGet(&device->device, (int)index),
                                MOOR_HOST_NOMEM, "cuDeviceGet", &error);
    if (device->status == MOOR_OK)
        device->status = cuda_device_describe(device, &error);
    if (device->status == MOOR_OK && instance->timeline == CUDA_TIMELINE_MEMORY && !device->has_words)
        device->status =
            moor_kit_fail(&error, MOOR_UNSUPPORTED, 0, "timeline: 'memory', which the device does not have");
    if (device->status != MOOR_OK)
        (void)snprintf(device->failure, sizeof(device->failure), "%s", error.text);
}

/* Streams of all devices wait for each other, so either all of them have words or none. */
static void agree_on_timeline(struct moor_abi_instance *instance)
{
    bool has_words = instance->timeline != CUDA_TIMELINE_EVENTS;
    for (uint32_t i = 0; i < instance->device_count; i++)
        has_words = has_words && (instance->devices[i].has_words || instance->devices[i].status != MOOR_OK);
    for (uint32_t i = 0; i < instance->device_count; i++)
        instance->devices[i].has_words = has_words;
}

static int32_t find_devices(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    int count = 0;
    CUresult code = instance->driver.cuDeviceGetCount(&count);
    if (code != CUDA_SUCCESS)
        return cuda_fail(&instance->driver, MOOR_PROVIDER, code, "cuDeviceGetCount", error);
    if (count <= 0) {
        (void)snprintf(instance->why_none, sizeof(instance->why_none), "no CUDA device");
        return MOOR_OK;
    }
    uint32_t used = (uint32_t)count < CUDA_DEVICES_MAX ? (uint32_t)count : CUDA_DEVICES_MAX;
    instance->devices = calloc(used, sizeof(*instance->devices));
    if (!instance->devices)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for %u devices", used);
    instance->device_count = used;
    for (uint32_t i = 0; i < used; i++)
        look_at_device(instance, i);
    agree_on_timeline(instance);
    return MOOR_OK;
}

static int32_t start(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    instance->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    int32_t status = configure(instance, error);
    if (status != MOOR_OK)
        return status;
    const char *path = get_setting(instance->host, "driver");
    bool is_usable = false;
    status = cuda_driver_open(path ? path : DRIVER_DEFAULT, &instance->driver, &is_usable, instance->why_none,
                              sizeof(instance->why_none), error);
    if (status == MOOR_OK && is_usable)
        status = find_devices(instance, error);
    if (status == MOOR_OK && instance->device_count == 0)
        cuda_log(instance, MOOR_ABI_LOG_WARNING, "%s", instance->why_none);
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
    int32_t status = start(instance, error);
    if (status != MOOR_OK) {
        free(instance);
        return status;
    }
    pthread_mutex_init(&instance->lock, NULL); /* does not fail on Linux with default attributes */
    *ret_instance = instance;
    return MOOR_OK;
}

static int32_t shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    unsigned int contexts = atomic_load(&instance->context_count);
    if (contexts)
        return moor_kit_fail(error, MOOR_BUSY, 0, "%u contexts are open", contexts);
    bool is_drained = true;
    for (uint32_t i = 0; i < instance->device_count; i++)
        is_drained = cuda_device_drain(&instance->devices[i]) && is_drained;
    if (!is_drained) {
        /* Streams of the host's may still use what is ours: better kept than pulled away. */
        cuda_log(instance, MOOR_ABI_LOG_WARNING,
                 "work behind the end of a stream does not end: what it uses is never freed");
        return MOOR_OK;
    }
    for (uint32_t i = 0; i < instance->device_count; i++) {
        struct cuda_device *device = &instance->devices[i];
        cuda_device_finish(device);
        cuda_pages_finish(&device->pages);
        pthread_mutex_destroy(&device->lock);
    }
    pthread_mutex_destroy(&instance->lock);
    free(instance->devices);
    free(instance);
    return MOOR_OK;
}

/* ---- what there is ---- */

static int32_t device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error)
{
    (void)error;
    *ret_count = instance->device_count;
    return MOOR_OK;
}

static int32_t get_device(struct moor_abi_instance *instance, uint32_t index, struct cuda_device **ret_device,
                          struct moor_abi_error *error)
{
    if (instance->device_count == 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "device %u: there is none: %s", index,
                             instance->why_none);
    if (index >= instance->device_count)
        return moor_kit_fail(error, MOOR_INVALID, 0, "device %u: there are %u", index,
                             instance->device_count);
    struct cuda_device *device = &instance->devices[index];
    if (device->status != MOOR_OK)
        return moor_kit_fail(error, device->status, 0, "device %u: %s", index, device->failure);
    *ret_device = device;
    return MOOR_OK;
}

static uint64_t caps_of(const struct cuda_device *device)
{
    return device->granule_min_bytes ? DEVICE_CAPS : DEVICE_CAPS & ~(uint64_t)VIRTUAL_CAPS;
}

static uint32_t domains_of(const struct cuda_device *device)
{
    return device->has_unified ? CUDA_DOMAIN_COUNT : CUDA_DOMAIN_UNIFIED;
}

int32_t cuda_check_domain(const struct cuda_device *device, uint32_t domain, struct moor_abi_error *error)
{
    if (domain < domains_of(device))
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0, "domain %u: there are %u", domain, domains_of(device));
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t index,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    struct cuda_device *device = NULL;
    int32_t status = get_device(instance, index, &device, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_device_info info = {
        .struct_size = MOOR_ABI_DEVICE_INFO_SIZE,
        .domain_count = domains_of(device),
        .capabilities = caps_of(device),
    };
#ifdef MOOR_ABI_DEVICE_SIMULATED
    if (instance->driver.simulated)
        info.flags |= MOOR_ABI_DEVICE_SIMULATED;
#endif
    memcpy(info.key, device->key, sizeof(info.key));
    memcpy(info.name, device->name, sizeof(info.name));
    return moor_kit_fill_out(ret_info, &info, MOOR_ABI_DEVICE_INFO_SIZE, MOOR_ABI_DEVICE_INFO_SIZE,
                             "device info", error);
}

static void describe_own(const struct cuda_device *device, struct moor_abi_domain_info *info)
{
    info->kind = MOOR_ABI_DOMAIN_DEVICE;
    info->capabilities = caps_of(device) & ~(uint64_t)MOOR_ABI_CAP_PINNED;
    info->flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN | MOOR_ABI_DOMAIN_ENFORCED;
    info->total_bytes = device->total_bytes;
    info->granule_min_bytes = device->granule_min_bytes;
    info->granule_recommended_bytes = device->granule_bytes;
    if (!device->is_integrated)
        memcpy(info->pool_key, device->key, sizeof(info->pool_key));
}

/* The machine's memory, which the system hands out: nobody but the system refuses. */
static void describe_host(const struct cuda_device *device, uint32_t domain,
                          struct moor_abi_domain_info *info)
{
    bool is_pinned = domain == CUDA_DOMAIN_PINNED;
    long pages = sysconf(_SC_PHYS_PAGES);
    info->kind = is_pinned ? MOOR_ABI_DOMAIN_PINNED : MOOR_ABI_DOMAIN_UNIFIED;
    info->capabilities = HOST_CAPS | (is_pinned ? MOOR_ABI_CAP_PINNED : 0);
    if (is_pinned || device->unified_is_shared)
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
    int32_t status = get_device(instance, index, &device, error);
    if (status == MOOR_OK)
        status = cuda_check_domain(device, domain, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_domain_info info = {
        .struct_size = MOOR_ABI_DOMAIN_INFO_SIZE,
        .alignment_bytes = CUDA_ALIGNMENT_BYTES,
        .pool_key = MOOR_ABI_POOL_HOST,
    };
    if (domain == CUDA_DOMAIN_DEVICE)
        describe_own(device, &info);
    else
        describe_host(device, domain, &info);
    return moor_kit_fill_out(ret_info, &info, MOOR_ABI_DOMAIN_INFO_SIZE, MOOR_ABI_DOMAIN_INFO_SIZE,
                             "domain info", error);
}

/* ---- contexts ---- */

static const char *const kind_names[CUDA_KIND_COUNT] = {
    [CUDA_ALLOCATION] = "allocation", [CUDA_RANGE] = "range", [CUDA_SEGMENT] = "segment", [CUDA_PIN] = "pin"};

static void free_context(struct moor_abi_context *context)
{
    moor_kit_queue_destroy(context->queue);
    moor_kit_handles_destroy(context->handles);
    free(context);
}

static int32_t context_open(struct moor_abi_instance *instance, uint32_t index,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    struct cuda_device *device = NULL;
    int32_t status = get_device(instance, index, &device, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_context *context = calloc(1, sizeof(*context));
    if (!context)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a context");
    context->instance = instance;
    context->device = device;
    status = moor_kit_handles_create(kind_names, CUDA_KIND_COUNT, MOOR_KIT_HANDLES_MAX, &context->handles);
    if (status == MOOR_OK)
        status = cuda_release_queue_create(context);
    if (status != MOOR_OK) {
        free_context(context);
        return moor_kit_fail(error, status, 0, "no memory for the handles and the queue of a context");
    }
    pthread_mutex_lock(&instance->lock);
    status = cuda_device_open(device, error);
    if (status == MOOR_OK) {
        context->next = instance->contexts;
        instance->contexts = context;
    }
    pthread_mutex_unlock(&instance->lock);
    if (status != MOOR_OK) {
        free_context(context);
        return status;
    }
    atomic_fetch_add(&instance->context_count, 1);
    *ret_context = context;
    return MOOR_OK;
}

static int32_t context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    struct moor_abi_instance *instance = context->instance;
    uint64_t queued = moor_kit_queue_length(context->queue);
    unsigned int streams = atomic_load(&context->stream_count);
    uint32_t handles = moor_kit_handles_length(context->handles);
    if (queued || streams || handles)
        return moor_kit_fail(error, MOOR_BUSY, 0, "%u handles, %u streams and %llu queued releases are left",
                             handles, streams, (unsigned long long)queued);
    pthread_mutex_lock(&instance->lock);
    struct moor_abi_context **place = &instance->contexts;
    while (*place != context)
        place = &(*place)->next;
    *place = context->next;
    cuda_device_close(context->device);
    pthread_mutex_unlock(&instance->lock);
    free_context(context);
    atomic_fetch_sub(&instance->context_count, 1);
    return MOOR_OK;
}

static int32_t context_native(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error)
{
    (void)error;
    *ret_native = (uint64_t)(uintptr_t)context->device->primary;
    return MOOR_OK;
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
    .name = "cuda",
    .vendor = "Moorage",
    .version = "0.1.0",
    .base = &base_table,
    .alloc = &cuda_alloc_table,
    .stream = &cuda_stream_table,
    .release = &cuda_release_table,
    .copy = &cuda_copy_table,
    .virtual_ = &cuda_virtual_table,
    .shared = &cuda_shared_table,
    .pinned = &cuda_pinned_table,
    .stats = &cuda_stats_table,
};

MOOR_ABI_NOTE(DEVICE_CAPS, 0);

MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &provider;
}
