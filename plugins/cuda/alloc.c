/* SPDX-License-Identifier: MIT */
/*
 * ALLOC: each allocation is a block of the driver's own. Device memory is taken in whole granules: that is
 * what the driver takes for a large block, and what a small one keeps from everybody else, so the books are
 * exact. The driver promises 256 bytes of alignment; for more, that much more is taken, and the address lies
 * within.
 *
 * Memory of any kind is recycled by the driver with its contents, so ZERO always costs a fill.
 */
#include "provider.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What an allocation starts at a multiple of, and takes a multiple of. */
struct unit {
    uint64_t alignment_bytes;
    uint64_t size_bytes;
};

static int32_t check_args(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                          uint64_t *ret_bytes, struct moor_abi_error *error)
{
    const struct cuda_device *device = context->device;
    int32_t status = moor_kit_check_alloc(args, CUDA_ALIGNMENT_BYTES, error);
    if (status == MOOR_OK)
        status = cuda_check_domain(device, args->domain, error);
    if (status != MOOR_OK)
        return status;
    uint64_t page = context->instance->page_bytes;
    struct unit unit = args->domain == CUDA_DOMAIN_DEVICE
                           ? (struct unit){CUDA_ALIGNMENT_BYTES, device->block_bytes}
                       : args->domain == CUDA_DOMAIN_PINNED ? (struct unit){page, page}
                                                            : (struct unit){CUDA_ALIGNMENT_BYTES, page};
    uint64_t extra =
        args->alignment_bytes > unit.alignment_bytes ? args->alignment_bytes - unit.alignment_bytes : 0;
    if (args->size_bytes > UINT64_MAX - extra ||
        moor_kit_round_up(args->size_bytes + extra, unit.size_bytes, ret_bytes) != MOOR_OK)
        return moor_kit_fail(error, MOOR_OVERFLOW, 0,
                             "%llu bytes, rounded and aligned, do not fit in 64 bits",
                             (unsigned long long)args->size_bytes);
    return MOOR_OK;
}

static int32_t footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    uint64_t bytes = 0;
    int32_t status = check_args(context, args, &bytes, error);
    if (status == MOOR_OK)
        *ret_bytes = bytes;
    return status;
}

/* One call of the driver's. */
static CUresult obtain_once(const struct cuda_device *device, uint32_t domain, uint64_t bytes,
                            uint64_t *ret_base)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    CUdeviceptr address = 0;
    void *memory = NULL;
    CUresult code;
    if (domain == CUDA_DOMAIN_PINNED) {
        code = driver->cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
        address = (CUdeviceptr)(uintptr_t)memory;
    } else if (domain == CUDA_DOMAIN_UNIFIED) {
        code = driver->cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);
    } else {
        code = driver->cuMemAlloc(&address, bytes);
    }
    if (code == CUDA_SUCCESS)
        *ret_base = address;
    return code;
}

static const char *const obtain_names[CUDA_DOMAIN_COUNT] = {"cuMemAlloc", "cuMemHostAlloc",
                                                            "cuMemAllocManaged"};

static int32_t obtain(struct cuda_device *device, uint32_t domain, uint64_t bytes, uint64_t *ret_base,
                      struct moor_abi_error *error)
{
    uint64_t trimmed = atomic_load(&device->pages.trimmed);
    CUresult code = obtain_once(device, domain, bytes, ret_base);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && domain != CUDA_DOMAIN_PINNED && cuda_pages_trim(device, trimmed))
        code = obtain_once(device, domain, bytes, ret_base);
    return cuda_check(device, code, MOOR_DEVICE_NOMEM, obtain_names[domain], error);
}

static int32_t give_back(struct cuda_device *device, uint32_t domain, uint64_t base,
                         struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    bool is_pinned = domain == CUDA_DOMAIN_PINNED;
    CUresult code = cuda_out_of_reach(device);
    if (code == CUDA_SUCCESS)
        code = is_pinned ? driver->cuMemFreeHost(cuda_pointer(base)) : driver->cuMemFree(base);
    return cuda_check_free(device, code, is_pinned ? "cuMemFreeHost" : "cuMemFree", error);
}

static int32_t make(struct cuda_device *device, const struct moor_abi_alloc_args *args, uint64_t bytes,
                    struct cuda_allocation *allocation, uint64_t *ret_address, struct moor_abi_error *error)
{
    int32_t status = obtain(device, args->domain, bytes, &allocation->base, error);
    if (status != MOOR_OK)
        return status;
    uint64_t address = (allocation->base + args->alignment_bytes - 1) & ~(args->alignment_bytes - 1);
    if (address - allocation->base > bytes - args->size_bytes)
        status = moor_kit_fail(error, MOOR_PROVIDER, 0,
                               "%s gave 0x%llx, which is less aligned than the driver promises",
                               obtain_names[args->domain], (unsigned long long)allocation->base);
    else if ((args->flags & MOOR_ABI_ALLOC_ZERO) && args->domain == CUDA_DOMAIN_PINNED)
        memset(cuda_pointer(address), 0, allocation->base + bytes - address);
    else if (args->flags & MOOR_ABI_ALLOC_ZERO)
        status = cuda_zero(device, address, allocation->base + bytes - address, error);
    if (status == MOOR_OK)
        *ret_address = address;
    else
        (void)give_back(device, args->domain, allocation->base, NULL); /* the first failure is what is told */
    return status;
}

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    uint64_t bytes = 0;
    int32_t status = check_args(context, args, &bytes, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_allocation result = {.struct_size = MOOR_ABI_ALLOCATION_SIZE, .actual_bytes = bytes};
    status = moor_kit_check_out(ret_allocation, MOOR_ABI_ALLOCATION_SIZE, "allocation", error);
    if (status != MOOR_OK)
        return status;

    struct cuda_allocation *allocation = calloc(1, sizeof(*allocation));
    if (!allocation)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for an allocation's record");
    allocation->domain = args->domain;
    allocation->bytes = bytes;
    struct cuda_scope scope;
    status = cuda_enter(device, &scope, error);
    if (status != MOOR_OK)
        goto free_record;
    status = make(device, args, bytes, allocation, &result.address, error);
    if (status != MOOR_OK)
        goto leave;
    status =
        moor_kit_handles_add(context->handles, CUDA_ALLOCATION, allocation, 0, &allocation->handle, error);
    if (status != MOOR_OK)
        goto give_back;
    cuda_leave(&scope);
    atomic_fetch_add(&context->held_bytes[args->domain], bytes);
    result.handle = allocation->handle;
    result.native = result.address;
    return moor_kit_fill_out(ret_allocation, &result, MOOR_ABI_ALLOCATION_SIZE, MOOR_ABI_ALLOCATION_SIZE,
                             "allocation", error);

give_back:
    (void)give_back(device, args->domain, allocation->base, NULL); /* the first failure is what is told */
leave:
    cuda_leave(&scope);
free_record:
    free(allocation);
    return status;
}

int32_t cuda_allocation_free(struct moor_abi_context *context, struct cuda_allocation *allocation,
                             uint64_t *ret_bytes, struct moor_abi_error *error)
{
    int32_t status = give_back(context->device, allocation->domain, allocation->base, error);
    if (status != MOOR_OK)
        return status;
    atomic_fetch_sub(&context->held_bytes[allocation->domain], allocation->bytes);
    *ret_bytes = allocation->bytes;
    moor_kit_handles_remove(context->handles, allocation->handle);
    free(allocation);
    return MOOR_OK;
}

const struct moor_abi_alloc_table cuda_alloc_table = {
    .struct_size = MOOR_ABI_ALLOC_TABLE_SIZE,
    .footprint = footprint,
    .allocate = allocate,
};
