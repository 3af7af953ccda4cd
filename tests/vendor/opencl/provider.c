/* SPDX-License-Identifier: MIT */
/* The entry, the life of an instance, its devices and their contexts. */
#include "opencl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CAPABILITIES                                                                                         \
    (MOOR_ABI_CAP_ALLOC | MOOR_ABI_CAP_STREAM | MOOR_ABI_CAP_RELEASE | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_STATS)

static int32_t init(const struct moor_abi_host *host, uint32_t negotiated_minor,
                    struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    static const char *const kind_names[] = {"allocation"};
    (void)negotiated_minor; /* there is only 1.0 */
    struct moor_abi_instance *instance = calloc(1, sizeof(*instance));
    if (!instance)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no host memory for the instance");
    instance->host = host;
    int32_t status = moor_kit_handles_create(kind_names, 1, OCL_ALLOCATIONS_MAX, &instance->allocations);
    if (status != MOOR_OK)
        (void)moor_kit_fail(error, status, 0, "no host memory for handles");
    else
        status = ocl_devices_find(instance, error);
    if (status != MOOR_OK) {
        moor_kit_handles_destroy(instance->allocations);
        free(instance);
        return status;
    }
    *ret_instance = instance;
    return MOOR_OK;
}

static int32_t shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    (void)error;
    moor_kit_handles_destroy(instance->allocations);
    free(instance);
    return MOOR_OK;
}

static int32_t device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error)
{
    (void)error;
    *ret_count = instance->device_count;
    return MOOR_OK;
}

static int32_t check_device(const struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_error *error)
{
    if (device < instance->device_count)
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0, "device %" PRIu32 " of %" PRIu32, device,
                         instance->device_count);
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = check_device(instance, device, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_device_info info = {.domain_count = OCL_DOMAIN_COUNT, .capabilities = CAPABILITIES};
    (void)snprintf(info.key, sizeof(info.key), "%s", instance->devices[device].key);
    (void)snprintf(info.name, sizeof(info.name), "%s", instance->devices[device].name);
    return moor_kit_fill_out(ret_info, &info, sizeof(info), MOOR_ABI_DEVICE_INFO_SIZE, "device_info", error);
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = check_device(instance, device, error);
    if (status != MOOR_OK)
        return status;
    if (domain >= OCL_DOMAIN_COUNT)
        return moor_kit_fail(error, MOOR_INVALID, 0, "domain %" PRIu32 " of %d", domain, OCL_DOMAIN_COUNT);
    const struct ocl_device *found = &instance->devices[device];
    bool is_pinned = domain == OCL_PINNED_MEMORY;
    struct moor_abi_domain_info info = {
        .kind = is_pinned ? MOOR_ABI_DOMAIN_PINNED : MOOR_ABI_DOMAIN_DEVICE,
        .capabilities = CAPABILITIES,
        .flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN | MOOR_ABI_DOMAIN_ENFORCED |
                 (is_pinned ? MOOR_ABI_DOMAIN_HOST_ACCESS : MOOR_ABI_DOMAIN_OPAQUE),
        .total_bytes = found->total_bytes[domain],
        .alignment_bytes = found->alignment_bytes,
    };
    (void)snprintf(info.pool_key, sizeof(info.pool_key), "%s",
                   is_pinned || found->is_unified ? MOOR_ABI_POOL_HOST : found->key);
    return moor_kit_fill_out(ret_info, &info, sizeof(info), MOOR_ABI_DOMAIN_INFO_SIZE, "domain_info", error);
}

static void free_context(struct moor_abi_context *context)
{
    moor_kit_queue_destroy(context->queue);
    if (context->service)
        (void)clReleaseCommandQueue(context->service); /* ours, so valid; likewise below */
    if (context->native)
        (void)clReleaseContext(context->native);
    free(context);
}

static int32_t context_open(struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    int32_t status = check_device(instance, device, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_context *context = calloc(1, sizeof(*context));
    if (!context)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no host memory for a context");
    context->instance = instance;
    context->device = &instance->devices[device];
    cl_int code = CL_SUCCESS;
    context->native = clCreateContext(NULL, 1, &context->device->id, NULL, NULL, &code);
    if (code == CL_SUCCESS)
        context->service = clCreateCommandQueue(context->native, context->device->id, 0, &code);
    status = code == CL_SUCCESS ? ocl_queue_create(context, error) : ocl_fail(error, code, "a context");
    if (status != MOOR_OK) {
        free_context(context);
        return status;
    }
    *ret_context = context;
    return MOOR_OK;
}

static int32_t context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    (void)error;
    free_context(context);
    return MOOR_OK;
}

static int32_t context_native(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error)
{
    (void)error;
    *ret_native = (uintptr_t)context->native;
    return MOOR_OK;
}

static int32_t get_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                             const void **ret_table, struct moor_abi_error *error)
{
    (void)instance;
    (void)ret_table;
    return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "no extension %s %" PRIu32, name, version);
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
    .prefix = MOOR_ABI_PREFIX(CAPABILITIES, 0),
    .name = "opencl",
    .vendor = "Example Vendor",
    .version = "1.0",
    .base = &base_table,
    .alloc = &ocl_alloc_table,
    .stream = &ocl_stream_table,
    .release = &ocl_release_table,
    .copy = &ocl_copy_table,
    .stats = &ocl_stats_table,
};

MOOR_ABI_NOTE(CAPABILITIES, 0);

MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &provider;
}
