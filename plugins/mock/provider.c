/* SPDX-License-Identifier: MIT */
/* The entry and BASE. There is no global state: an instance holds everything. */
#include "sim.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPABILITIES                                                                                         \
    (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED |               \
     MOOR_ABI_CAP_STATS)

/* ---- start and stop ---- */

/* Devices with one key share the first one's pool. */
static void assign_pools(struct moor_mock *mock)
{
    bool own = strcmp(mock->settings.pool, "own") == 0;
    for (uint64_t i = 0; i < mock->settings.devices; i++)
        mock->devices[i].pool = &mock->pools[own ? i : 0];
}

static bool stop(struct moor_abi_instance *instance)
{
    struct moor_mock *mock = &instance->mock;
    assert(mock->queues.count == 0 && mock->counts.releases == 0);
    mock_shadow_finish(mock);
    mock_intervals_finish(&mock->spans.all);
    mock_places_finish(mock);
    pthread_cond_destroy(&mock->time.ran);
    pthread_mutex_destroy(&mock->lock);
    free(mock->queues.list);
    free(mock->queues.slots);
    free(mock->queues.free_slots);
    free(mock->violations.events);
    free(mock->pools);
    free(mock->devices);
    return true;
}

static int32_t start(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    struct moor_mock *mock = &instance->mock;
    int32_t status = mock_settings_complete(&mock->settings, error);
    if (status)
        return status;
    uint64_t count = mock->settings.devices + 1; /* calloc of 0 may return NULL */
    instance->kit.device_count = (uint32_t)mock->settings.devices;
    mock->host = instance->kit.host;
    mock->time.random = mock->settings.seed ? mock->settings.seed : 1;
    mock->devices = calloc(count, sizeof *mock->devices);
    mock->pools = calloc(count, sizeof *mock->pools);
    mock->violations.events = calloc(MOCK_EVENTS, sizeof *mock->violations.events);
    pthread_mutex_init(&mock->lock, NULL); /* does not fail on Linux with default attributes */
    (void)moor_kit_cond_init(&mock->time.ran);
    mock_shadow_init(mock);
    mock_places_init(mock);
    mock_control_init(mock);
    if (!mock->devices || !mock->pools || !mock->violations.events) {
        (void)stop(instance);
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM,
                             "instance: no host memory for %" PRIu64 " devices", mock->settings.devices);
    }
    assign_pools(mock);
    return MOOR_OK;
}

/* ---- devices and domains ---- */

static int32_t device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error)
{
    int32_t status = mock_call_begin(&instance->mock, MOCK_DEVICE_COUNT, error);
    return status ? status : moor_kit_device_count(instance, ret_count, error);
}

static int32_t check_device(const struct moor_mock *mock, uint32_t device, struct moor_abi_error *error)
{
    return moor_kit_check_index("device", device, (uint32_t)mock->settings.devices, error);
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = mock_call_begin(&instance->mock, MOCK_DEVICE_INFO, error);
    if (!status)
        status = check_device(&instance->mock, device, error);
    if (status)
        return status;
    struct moor_abi_device_info info = {.domain_count = 1, .capabilities = CAPABILITIES};
    (void)snprintf(info.key, sizeof info.key, "mock-%" PRIu32, device);
    (void)snprintf(info.name, sizeof info.name, "Mock device %" PRIu32, device);
    return moor_kit_fill_out(ret_info, &info, sizeof info, MOOR_ABI_DEVICE_INFO_SIZE, "device_info", error);
}

static void write_pool_key(const struct moor_mock *mock, uint32_t device, char *key, size_t key_bytes)
{
    if (strcmp(mock->settings.pool, "own") == 0)
        (void)snprintf(key, key_bytes, "mock-%" PRIu32, device);
    else if (strcmp(mock->settings.pool, "host") == 0)
        (void)snprintf(key, key_bytes, "%s", MOOR_ABI_POOL_HOST);
    else
        (void)snprintf(key, key_bytes, "%s", mock->settings.pool); /* the setting's bounds make it fit */
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    const struct moor_mock *mock = &instance->mock;
    int32_t status = mock_call_begin(&instance->mock, MOCK_DOMAIN_INFO, error);
    if (!status)
        status = check_device(mock, device, error);
    if (!status)
        status = moor_kit_check_index("domain", domain, 1, error);
    if (status)
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
    write_pool_key(mock, device, info.pool_key, sizeof info.pool_key);
    return moor_kit_fill_out(ret_info, &info, sizeof info, MOOR_ABI_DOMAIN_INFO_SIZE, "domain_info", error);
}

/* ---- contexts ---- */

static int32_t open_context(struct moor_abi_context *context, struct moor_abi_error *error)
{
    (void)error;
    context->mock = &context->kit.instance->mock;
    return MOOR_OK;
}

static int32_t context_open(struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    int32_t status = check_device(&instance->mock, device, error);
    if (!status)
        status = mock_call_begin_on(&instance->mock, device, MOCK_CONTEXT_OPEN, error);
    return status ? status : moor_kit_context_open(instance, device, ret_context, error);
}

static int32_t context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    int32_t status = mock_call_begin(context->mock, MOCK_CONTEXT_CLOSE, error);
    return status ? status : moor_kit_context_close(context, error);
}

static int32_t context_native(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error)
{
    int32_t status = mock_call_begin(context->mock, MOCK_CONTEXT_NATIVE, error);
    return status ? status : moor_kit_no_native_context(context, ret_native, error);
}

static int32_t get_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                             const void **ret_table, struct moor_abi_error *error)
{
    if (name && strcmp(name, MOOR_MOCK_CONTROL) == 0 && version == MOOR_MOCK_CONTROL_VERSION)
        *ret_table = &instance->mock.control;
    else if (name && strcmp(name, MOOR_MOCK_DRIVE) == 0 && version == MOOR_MOCK_DRIVE_VERSION)
        *ret_table = &instance->mock.drive;
    else
        return moor_kit_no_extension(instance, name, version, ret_table, error);
    return MOOR_OK;
}

/* ---- the tables ---- */

MOOR_KIT_FRAME(kit, .settings = mock_settings_table, .start = start, .stop = stop, .open = open_context,
               .close = mock_queues_drain, .queue_callbacks = &mock_queue_callbacks);

static int32_t init(const struct moor_abi_host *host, uint32_t negotiated_minor,
                    struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    return moor_kit_init(&kit, host, negotiated_minor, ret_instance, error);
}

static MOOR_KIT_TABLE(base, base_table, .init = init, .shutdown = moor_kit_shutdown,
                      .device_count = device_count, .device_info = device_info, .domain_info = domain_info,
                      .context_open = context_open, .context_close = context_close,
                      .context_native = context_native, .get_extension = get_extension);

MOOR_KIT_PROVIDER(CAPABILITIES, MOOR_ABI_PROVIDER_SIMULATED, .name = "mock", .vendor = "Moorage",
                  .version = "0.1.0", .base = &base_table, .alloc = &mock_alloc_table,
                  .stream = &mock_stream_table, .release = &mock_release_table, .copy = &mock_copy_table,
                  .virtual_ = &mock_virtual_table, .shared = &mock_shared_table, .stats = &mock_stats_table);
