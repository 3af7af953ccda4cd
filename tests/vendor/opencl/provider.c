/* SPDX-License-Identifier: MIT */
/* The entry, the life of an instance, its devices and their contexts. */
#include "opencl.h"
#include <stdio.h>

#define CAPABILITIES                                                                                         \
    (MOOR_ABI_CAP_ALLOC | MOOR_ABI_CAP_STREAM | MOOR_ABI_CAP_RELEASE | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_STATS)

static int32_t start(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    static const char *const kind_names[] = {"allocation"};
    int32_t status = moor_kit_handles_create(kind_names, 1, OCL_ALLOCATIONS_MAX, &instance->allocations);
    if (status)
        return moor_kit_fail(error, status, 0, "instance: no host memory for its handles");
    status = ocl_devices_find(instance, error);
    if (status)
        moor_kit_handles_destroy(instance->allocations);
    return status;
}

static bool stop(struct moor_abi_instance *instance)
{
    moor_kit_handles_destroy(instance->allocations);
    return true;
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_index("device", device, instance->kit.device_count, error);
    if (status)
        return status;
    struct moor_abi_device_info info = {.domain_count = OCL_DOMAIN_COUNT, .capabilities = CAPABILITIES};
    (void)snprintf(info.key, sizeof info.key, "%s", instance->devices[device].key);
    (void)snprintf(info.name, sizeof info.name, "%s", instance->devices[device].name);
    return moor_kit_fill_out(ret_info, &info, sizeof info, MOOR_ABI_DEVICE_INFO_SIZE, "device_info", error);
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_index("device", device, instance->kit.device_count, error);
    if (!status)
        status = moor_kit_check_index("domain", domain, OCL_DOMAIN_COUNT, error);
    if (status)
        return status;
    const struct ocl_device *found = &instance->devices[device];
    bool is_pinned = domain == OCL_PINNED_MEMORY;
    struct moor_abi_domain_info info = {
        .kind = is_pinned ? MOOR_ABI_DOMAIN_PINNED : MOOR_ABI_DOMAIN_DEVICE,
        .capabilities = CAPABILITIES,
        .flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN | MOOR_ABI_DOMAIN_ENFORCED |
                 (is_pinned ? MOOR_ABI_DOMAIN_HOST_ACCESS : MOOR_ABI_DOMAIN_OPAQUE),
        .total_bytes = found->memory[domain].total_bytes,
        .alignment_bytes = found->alignment_bytes,
    };
    (void)snprintf(info.pool_key, sizeof info.pool_key, "%s",
                   is_pinned || found->is_unified ? MOOR_ABI_POOL_HOST : found->key);
    return moor_kit_fill_out(ret_info, &info, sizeof info, MOOR_ABI_DOMAIN_INFO_SIZE, "domain_info", error);
}

static void close_context(struct moor_abi_context *context)
{
    if (context->service)
        (void)clReleaseCommandQueue(
            context->service); /* the provider's own, so it is valid; as is the context */
    if (context->native)
        (void)clReleaseContext(context->native);
}

static int32_t open_context(struct moor_abi_context *context, struct moor_abi_error *error)
{
    context->device = &context->kit.instance->devices[context->kit.device];
    cl_int code = CL_SUCCESS;
    context->native = clCreateContext(NULL, 1, &context->device->id, NULL, NULL, &code);
    if (code == CL_SUCCESS)
        context->service = clCreateCommandQueue(context->native, context->device->id, 0, &code);
    if (code == CL_SUCCESS)
        return MOOR_OK;
    close_context(context);
    return ocl_fail(error, code, "a context");
}

static int32_t context_native(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error)
{
    (void)error;
    *ret_native = (uintptr_t)context->native;
    return MOOR_OK;
}

#define FIELD(field_) offsetof(struct moor_abi_instance, field_)

static const struct moor_kit_setting settings[] = {
    {"platform", MOOR_KIT_TEXT, FIELD(platform), 0, 0, UINT64_MAX, NULL},
    {"devices", MOOR_KIT_NUMBER, FIELD(devices_max), OCL_DEVICES_MAX, 0, OCL_DEVICES_MAX, NULL},
    {0},
};

MOOR_KIT_FRAME(kit, .settings = settings, .start = start, .stop = stop, .open = open_context,
               .close = close_context, .queue_callbacks = &ocl_queue_callbacks);

MOOR_KIT_BASE_TABLE(base_table, kit, .device_info = device_info, .domain_info = domain_info,
                    .context_open = moor_kit_context_open, .context_close = moor_kit_context_close,
                    .context_native = context_native, .get_extension = moor_kit_no_extension);

MOOR_KIT_PROVIDER(CAPABILITIES, 0, .name = "opencl", .vendor = "Example Vendor", .version = "1.0",
                  .base = &base_table, .alloc = &ocl_alloc_table, .stream = &ocl_stream_table,
                  .release = &ocl_release_table, .copy = &ocl_copy_table, .stats = &ocl_stats_table);
