/* SPDX-License-Identifier: MIT */
/*
 * ALLOC and STATS. Each allocation is a cl_mem.
 *
 * Device memory has no address in OpenCL 1.2, so it gets an opaque one. Pinned memory is mapped for its whole
 * life, and its address is the host's. Commands use it by that pointer alone, because a mapped cl_mem must
 * not be used; so it has no native name.
 *
 * clCreateBuffer promises no memory: drivers take it at the first use. Writing all of it causes that use
 * here, so the memory reads as zero with and without ZERO.
 */
#include "opencl.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns true for an address of device memory; the arguments of `fill` have no direction. */
bool ocl_is_device_address(uint64_t address)
{
    return (address & MOOR_KIT_ADDRESS_OPAQUE) != 0;
}

int32_t ocl_allocation_locate(struct moor_abi_instance *instance, uint64_t address, uint64_t size_bytes,
                              struct moor_abi_context **ret_context, cl_mem *ret_memory,
                              uint64_t *ret_offset_bytes, struct moor_abi_error *error)
{
    void *record = NULL;
    uint64_t handle = 0;
    int32_t status = moor_kit_handles_locate(instance->allocations, address, size_bytes, 0, &record, &handle,
                                             ret_offset_bytes, error);
    if (status)
        return status;
    const struct ocl_allocation *allocation = record;
    *ret_context = allocation->context;
    *ret_memory = allocation->memory;
    cl_int code = clRetainMemObject(allocation->memory);
    moor_kit_handles_put(instance->allocations, handle);
    return code == CL_SUCCESS ? MOOR_OK : ocl_fail(error, code, "clRetainMemObject");
}

/* ---- sizes ---- */

/* Pinned memory is larger by its alignment, because OpenCL promises no alignment of a map. */
static int32_t footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    uint64_t alignment_bytes = context->device->alignment_bytes;
    int32_t status = moor_kit_check_alloc(args, alignment_bytes, error);
    if (!status)
        status = moor_kit_check_index("domain", args->domain, OCL_DOMAIN_COUNT, error);
    if (status)
        return status;
    uint64_t slack_bytes = args->domain == OCL_PINNED_MEMORY ? args->alignment_bytes : 0;
    if (args->size_bytes > UINT64_MAX - slack_bytes ||
        moor_kit_round_up(args->size_bytes + slack_bytes, alignment_bytes, ret_bytes) != MOOR_OK)
        return moor_kit_fail(error, MOOR_OVERFLOW, 0, "size %" PRIu64 ", alignment %" PRIu64,
                             args->size_bytes, args->alignment_bytes);
    return MOOR_OK;
}

static int32_t check_limits(const struct ocl_device *device, const struct moor_abi_alloc_args *args,
                            uint64_t bytes, struct moor_abi_error *error)
{
    if (bytes > device->memory[args->domain].total_bytes)
        return moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0, "%" PRIu64 " bytes of %" PRIu64, bytes,
                             device->memory[args->domain].total_bytes);
    if (bytes > device->allocation_bytes_max)
        return moor_kit_fail(error, MOOR_LIMIT, CL_INVALID_BUFFER_SIZE,
                             "%" PRIu64 " bytes: one buffer has %" PRIu64 " at most", bytes,
                             device->allocation_bytes_max);
    if (args->domain == OCL_DEVICE_MEMORY && args->alignment_bytes > MOOR_KIT_ADDRESS_SPAN_BYTES)
        return moor_kit_fail(error, MOOR_LIMIT, 0, "alignment %" PRIu64 ": at most %" PRIu64,
                             args->alignment_bytes, MOOR_KIT_ADDRESS_SPAN_BYTES);
    return MOOR_OK;
}

/* Charges the bytes before the memory is taken: the device never holds more than it has. */
static int32_t charge(struct moor_abi_context *context, enum ocl_domain domain, uint64_t bytes,
                      struct moor_abi_error *error)
{
    int32_t status = moor_kit_budget_take(&context->device->memory[domain], bytes, error);
    if (!status)
        moor_kit_held_add(context, domain, bytes);
    return status;
}

static void refund(struct moor_abi_context *context, enum ocl_domain domain, uint64_t bytes)
{
    moor_kit_held_sub(context, domain, bytes);
    moor_kit_budget_return(&context->device->memory[domain], bytes);
}

/* ---- the memory ---- */

static cl_int zero_device(const struct ocl_allocation *allocation)
{
    const cl_uint zero = 0;
    cl_event filled;
    cl_int code = clEnqueueFillBuffer(allocation->context->service, allocation->memory, &zero, sizeof zero, 0,
                                      allocation->bytes, 0, NULL, &filled);
    return code == CL_SUCCESS ? ocl_finish_event(filled) : code;
}

static cl_int map_pinned(struct ocl_allocation *allocation)
{
    cl_int code = CL_SUCCESS;
    void *mapped = clEnqueueMapBuffer(allocation->context->service, allocation->memory, CL_TRUE,
                                      CL_MAP_READ | CL_MAP_WRITE, 0, allocation->bytes, 0, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return code;
    memset(mapped, 0, allocation->bytes);
    allocation->mapped = mapped;
    return CL_SUCCESS;
}

static cl_int unmap_pinned(struct ocl_allocation *allocation)
{
    cl_event unmapped;
    cl_int code = clEnqueueUnmapMemObject(allocation->context->service, allocation->memory,
                                          allocation->mapped, 0, NULL, &unmapped);
    if (code != CL_SUCCESS)
        return code;
    allocation->mapped = NULL; /* the command ends the mapping, also if it fails */
    return ocl_finish_event(unmapped);
}

static int32_t take_memory(struct ocl_allocation *allocation, struct moor_abi_error *error)
{
    bool is_pinned = allocation->domain == OCL_PINNED_MEMORY;
    cl_int code = CL_SUCCESS;
    allocation->memory = clCreateBuffer(allocation->context->native,
                                        CL_MEM_READ_WRITE | (is_pinned ? CL_MEM_ALLOC_HOST_PTR : 0),
                                        allocation->bytes, NULL, &code);
    if (code != CL_SUCCESS)
        return ocl_fail(error, code, "clCreateBuffer");
    code = is_pinned ? map_pinned(allocation) : zero_device(allocation);
    if (code == CL_SUCCESS)
        return MOOR_OK;
    (void)clReleaseMemObject(allocation->memory); /* cannot fail: the provider's own, and unused */
    return ocl_fail(error, code, "the first use of a buffer");
}

static int32_t return_memory(struct ocl_allocation *allocation, struct moor_abi_error *error)
{
    cl_int code = allocation->mapped ? unmap_pinned(allocation) : CL_SUCCESS;
    if (code != CL_SUCCESS)
        return ocl_fail(error, code, "clEnqueueUnmapMemObject");
    code = clReleaseMemObject(allocation->memory);
    return code == CL_SUCCESS ? MOOR_OK : ocl_fail(error, code, "clReleaseMemObject");
}

/* ---- the table ---- */

static uint64_t address_of(const struct ocl_allocation *allocation, uint64_t handle, uint64_t alignment_bytes)
{
    if (allocation->domain == OCL_DEVICE_MEMORY)
        return moor_kit_handles_address(handle);
    return ((uintptr_t)allocation->mapped + alignment_bytes - 1) & ~(alignment_bytes - 1);
}

static int32_t make(struct ocl_allocation *allocation, uint64_t *ret_handle, struct moor_abi_error *error)
{
    struct moor_abi_context *context = allocation->context;
    int32_t status = charge(context, allocation->domain, allocation->bytes, error);
    if (status)
        return status;
    status = take_memory(allocation, error);
    if (status)
        goto refund_bytes;
    uint64_t span_bytes = allocation->domain == OCL_DEVICE_MEMORY ? allocation->bytes : 0;
    status = moor_kit_handles_add(context->kit.instance->allocations, 0, allocation, span_bytes, ret_handle,
                                  error);
    if (!status)
        return MOOR_OK;

    (void)return_memory(allocation, error); /* the first failure is reported */
refund_bytes:
    refund(context, allocation->domain, allocation->bytes);
    return status;
}

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    uint64_t bytes = 0;
    int32_t status = moor_kit_check_out(ret_allocation, MOOR_ABI_ALLOCATION_SIZE, "allocation", error);
    if (!status)
        status = footprint(context, args, &bytes, error);
    if (!status)
        status = check_limits(context->device, args, bytes, error);
    if (status)
        return status;
    struct ocl_allocation *allocation = malloc(sizeof *allocation);
    if (!allocation)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no host memory for an allocation's record");
    *allocation =
        (struct ocl_allocation){.context = context, .domain = (enum ocl_domain)args->domain, .bytes = bytes};
    uint64_t handle = 0;
    status = make(allocation, &handle, error);
    if (status) {
        free(allocation);
        return status;
    }
    struct moor_abi_allocation made = {
        .handle = handle,
        .address = address_of(allocation, handle, args->alignment_bytes),
        .actual_bytes = bytes,
        .native = allocation->domain == OCL_DEVICE_MEMORY ? (uintptr_t)allocation->memory : 0,
    };
    return moor_kit_fill_out(ret_allocation, &made, sizeof made, MOOR_ABI_ALLOCATION_SIZE, "allocation",
                             error);
}

int32_t ocl_allocation_free(struct ocl_allocation *allocation, struct moor_abi_error *error)
{
    int32_t status = return_memory(allocation, error);
    if (!status)
        refund(allocation->context, allocation->domain, allocation->bytes);
    return status;
}

/* OpenCL does not report free memory. */
static int32_t stats(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                     struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_index("domain", domain, OCL_DOMAIN_COUNT, error);
    if (status)
        return status;
    struct moor_abi_stats result = {
        .valid = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_HELD,
        .total_bytes = context->device->memory[domain].total_bytes,
        .held_bytes = moor_kit_held(context, domain),
    };
    return moor_kit_fill_out(ret_stats, &result, sizeof result, MOOR_ABI_STATS_SIZE, "stats", error);
}

MOOR_KIT_TABLE(alloc, ocl_alloc_table, .footprint = footprint, .allocate = allocate);

MOOR_KIT_TABLE(stats, ocl_stats_table, .stats = stats);
