/* SPDX-License-Identifier: MIT */
/* The entry, and BASE. There is no global state: an instance holds everything. */
#include "sim.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPABILITIES                                                                                         \
    (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED |               \
     MOOR_ABI_CAP_STATS)

/* ---- init and shutdown ---- */

/* Devices with one key share the first one's pool. */
static void assign_pools(struct moor_mock *mock)
{
    bool own = strcmp(mock->settings.pool, "own") == 0;
    for (uint64_t i = 0; i < mock->settings.devices; i++)
        mock->devices[i].pool = &mock->pools[own ? i : 0];
}

static void finish(struct moor_mock *mock)
{
    mock_shadow_finish(mock);
    mock_intervals_finish(&mock->spans);
    mock_places_finish(mock);
    pthread_cond_destroy(&mock->ran);
    pthread_mutex_destroy(&mock->lock);
    free(mock->queues);
    free(mock->slots);
    free(mock->free_slots);
    free(mock->events);
    free(mock->pools);
    free(mock->devices);
}

/* The rest of it is zero. False: no memory. */
static bool start(struct moor_mock *mock, const struct moor_abi_host *host)
{
    uint64_t count = mock->settings.devices + 1; /* calloc of none may answer NULL */
    mock->host = host;
    mock->random = mock->settings.seed ? mock->settings.seed : 1;
    mock->devices = calloc(count, sizeof(*mock->devices));
    mock->pools = calloc(count, sizeof(*mock->pools));
    mock->events = calloc(MOCK_EVENTS, sizeof(*mock->events));
    pthread_mutex_init(&mock->lock, NULL); /* does not fail on Linux with default attributes */
    mock_cond_init(&mock->ran);
    mock_shadow_init(mock);
    mock_places_init(mock);
    mock_control_init(mock);
    if (!mock->devices || !mock->pools || !mock->events)
        return false;
    assign_pools(mock);
    return true;
}

static int32_t init(const struct moor_abi_host *host, uint32_t negotiated_minor,
                    struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    if (!host || host->prefix.magic != MOOR_ABI_MAGIC || host->prefix.struct_size < MOOR_ABI_HOST_SIZE)
        return moor_kit_fail(error, MOOR_INVALID, 0, "host: NULL, no magic, or smaller than 1.0");
    if (host->prefix.major != MOOR_ABI_MAJOR || negotiated_minor > MOOR_ABI_MINOR)
        return moor_kit_fail(error, MOOR_VERSION, 0,
                             "version %" PRIu32 ".%" PRIu32 " was asked for; this is %u.%u",
                             host->prefix.major, negotiated_minor, MOOR_ABI_MAJOR, MOOR_ABI_MINOR);
    struct mock_settings settings = {0};
    int32_t status = mock_settings_read(host, &settings, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_instance *instance = calloc(1, sizeof(*instance));
    if (!instance)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for an instance");
    instance->mock.settings = settings;
    if (!start(&instance->mock, host)) {
        finish(&instance->mock);
        free(instance);
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for %" PRIu64 " devices",
                             settings.devices);
    }
    *ret_instance = instance;
    return MOOR_OK;
}

static int32_t shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    if (instance->mock.context_count > 0)
        return moor_kit_fail(error, MOOR_BUSY, 0, "%" PRIu32 " contexts are open",
                             instance->mock.context_count);
    finish(&instance->mock);
    free(instance);
    return MOOR_OK;
}

/* ---- what there is ---- */

static int32_t device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error)
{
    int32_t status = mock_begin(&instance->mock, MOCK_DEVICE_COUNT, error);
    if (status == MOOR_OK)
        *ret_count = (uint32_t)instance->mock.settings.devices;
    return status;
}

static int32_t check_device(const struct moor_mock *mock, uint32_t device, struct moor_abi_error *error)
{
    if (device < mock->settings.devices)
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0, "device %" PRIu32 " of %" PRIu64, device,
                         mock->settings.devices);
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = mock_begin(&instance->mock, MOCK_DEVICE_INFO, error);
    if (status == MOOR_OK)
        status = check_device(&instance->mock, device, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_device_info info = {.domain_count = 1, .capabilities = CAPABILITIES};
    (void)snprintf(info.key, sizeof(info.key), "mock-%" PRIu32, device);
    (void)snprintf(info.name, sizeof(info.name), "Mock device %" PRIu32, device);
    return moor_kit_fill_out(ret_info, &info, sizeof(info), MOOR_ABI_DEVICE_INFO_SIZE, "device_info", error);
}

static void write_pool_key(const struct moor_mock *mock, uint32_t device, char *key, size_t key_bytes)
{
    if (strcmp(mock->settings.pool, "own") == 0)
        (void)snprintf(key, key_bytes, "mock-%" PRIu32, device);
    else if (strcmp(mock->settings.pool, "host") == 0)
        (void)snprintf(key, key_bytes, "%s", MOOR_ABI_POOL_HOST);
    else
        (void)snprintf(key, key_bytes, "%s", mock->settings.pool); /* it fits, or init had refused it */
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    const struct moor_mock *mock = &instance->mock;
    int32_t status = mock_begin(&instance->mock, MOCK_DOMAIN_INFO, error);
    if (status == MOOR_OK)
        status = check_device(mock, device, error);
    if (status == MOOR_OK)
        status = mock_check_domain(domain, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_domain_info info = {
        .kind = MOOR_ABI_DOMAIN_DEVICE,
        .capabilities = CAPABILITIES,
        .flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN | MOOR_ABI_DOMAIN_ENFORCED,
        .total_bytes = mock->settings.total_bytes,
        .granule_min_bytes = mock->settings.granule_min_bytes,
        .granule_recommended_bytes = mock->settings.granule_bytes,
        .alignment_bytes = mock->settings.alignment_bytes,
    };
    if (mock_has_contents(mock) && mock->settings.host_access)
        info.flags |= MOOR_ABI_DOMAIN_HOST_ACCESS;
    write_pool_key(mock, device, info.pool_key, sizeof(info.pool_key));
    return moor_kit_fill_out(ret_info, &info, sizeof(info), MOOR_ABI_DOMAIN_INFO_SIZE, "domain_info", error);
}

/* ---- contexts ---- */

static int32_t create_context(struct moor_mock *mock, uint32_t device, struct moor_abi_context **ret_context,
                              struct moor_abi_error *error)
{
    static const char *const kind_names[MOCK_KIND_COUNT] = {
        [MOCK_ALLOCATION] = "allocation", [MOCK_RANGE] = "range", [MOCK_SEGMENT] = "segment"};
    struct moor_abi_context *context = calloc(1, sizeof(*context));
    if (!context)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a context");
    context->mock = mock;
    context->device = device;
    int32_t status =
        moor_kit_handles_create(kind_names, MOCK_KIND_COUNT, MOOR_KIT_HANDLES_MAX, &context->handles);
    if (status == MOOR_OK)
        status = mock_release_queue_create(context);
    if (status != MOOR_OK) {
        moor_kit_handles_destroy(context->handles);
        free(context);
        return moor_kit_fail(error, status, 0, "no memory for the handles and the queue of a context");
    }
    *ret_context = context;
    return MOOR_OK;
}

static void count_context(struct moor_mock *mock, uint32_t change)
{
    mock_lock(mock);
    mock->context_count += change; /* which wraps, to go down */
    mock_unlock(mock);
}

static int32_t context_open(struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    struct moor_mock *mock = &instance->mock;
    int32_t status = check_device(mock, device, error);
    if (status == MOOR_OK)
        status = mock_begin_on(mock, device, MOCK_CONTEXT_OPEN, error);
    if (status == MOOR_OK)
        status = create_context(mock, device, ret_context, error);
    if (status == MOOR_OK)
        count_context(mock, 1);
    return status;
}

static int32_t context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    int32_t status = mock_begin(mock, MOCK_CONTEXT_CLOSE, error);
    if (status != MOOR_OK)
        return status;
    uint64_t queued = moor_kit_queue_length(context->releases);
    uint32_t handles = moor_kit_handles_length(context->handles);
    if (queued || context->stream_count || handles)
        return moor_kit_fail(error, MOOR_BUSY, 0,
                             "%" PRIu32 " handles, %" PRIu32 " streams and %" PRIu64
                             " queued releases are left",
                             handles, context->stream_count, queued);
    mock_queues_settle(context);
    moor_kit_queue_destroy(context->releases);
    moor_kit_handles_destroy(context->handles);
    free(context);
    count_context(mock, UINT32_MAX);
    return MOOR_OK;
}

static int32_t context_native(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error)
{
    (void)ret_native;
    int32_t status = mock_begin(context->mock, MOCK_CONTEXT_NATIVE, error);
    return status == MOOR_OK
               ? moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "a simulated device has no API of its own")
               : status;
}

static int32_t get_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                             const void **ret_table, struct moor_abi_error *error)
{
    if (name && strcmp(name, MOOR_MOCK_CONTROL) == 0 && version == MOOR_MOCK_CONTROL_VERSION)
        *ret_table = &instance->mock.control;
    else if (name && strcmp(name, MOOR_MOCK_DRIVE) == 0 && version == MOOR_MOCK_DRIVE_VERSION)
        *ret_table = &instance->mock.drive;
    else
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "no extension %s %" PRIu32, name ? name : "",
                             version);
    return MOOR_OK;
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
    .prefix = MOOR_ABI_PREFIX(CAPABILITIES, MOOR_ABI_PROVIDER_SIMULATED),
    .name = "mock",
    .vendor = "Moorage",
    .version = "0.1.0",
    .base = &base_table,
    .alloc = &mock_alloc_table,
    .stream = &mock_stream_table,
    .release = &mock_release_table,
    .copy = &mock_copy_table,
    .virtual_ = &mock_virtual_table,
    .shared = &mock_shared_table,
    .stats = &mock_stats_table,
};

MOOR_ABI_NOTE(CAPABILITIES, MOOR_ABI_PROVIDER_SIMULATED);

MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &provider;
}
