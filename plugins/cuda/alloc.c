/* SPDX-License-Identifier: MIT */
/*
 * ALLOC: each allocation is one block of the driver's. Device memory is taken in whole blocks of block_bytes:
 * the driver takes that much for a large block, and gives the remainder of a small one to no other caller, so
 * the held bytes are exact. The driver promises an alignment of 256 bytes; for an alignment of A > 256 the
 * block is A - 256 bytes larger and the allocation starts within it.
 *
 * The driver recycles memory of each kind with its contents, so ZERO always costs a fill.
 */
#include "memory.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A block of a domain starts at a multiple of the first and has a multiple of the second as its size. */
struct unit {
    uint64_t alignment_bytes;
    uint64_t size_bytes;
};

static struct unit unit_of(const struct cuda_device *device, uint32_t domain)
{
    uint64_t page = device->instance->page_bytes;
    if (domain == CUDA_DOMAIN_PINNED)
        return (struct unit){page, page};
    return (struct unit){CUDA_ALIGNMENT_BYTES,
                         domain == CUDA_DOMAIN_DEVICE ? device->traits.block_bytes : page};
}

static int32_t footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_alloc(args, CUDA_ALIGNMENT_BYTES, error);
    if (status == MOOR_OK)
        status = cuda_check_domain(context->device, args->domain, error);
    if (status)
        return status;
    struct unit unit = unit_of(context->device, args->domain);
    uint64_t extra =
        args->alignment_bytes > unit.alignment_bytes ? args->alignment_bytes - unit.alignment_bytes : 0;
    if (args->size_bytes > UINT64_MAX - extra ||
        moor_kit_round_up(args->size_bytes + extra, unit.size_bytes, ret_bytes))
        return moor_kit_fail(error, MOOR_OVERFLOW, 0,
                             "allocation: %llu bytes, rounded and aligned, do not fit in 64 bits",
                             (unsigned long long)args->size_bytes);
    return MOOR_OK;
}

/* Makes one call of the driver's. */
static CUresult create_block(const struct cuda_device *device, enum cuda_domain domain, uint64_t bytes,
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

static const char *const create_names[CUDA_DOMAIN_COUNT] = {
    [CUDA_DOMAIN_DEVICE] = "cuMemAlloc",
    [CUDA_DOMAIN_PINNED] = "cuMemHostAlloc",
    [CUDA_DOMAIN_UNIFIED] = "cuMemAllocManaged",
};

static int32_t create_block_or_trim(struct cuda_device *device, enum cuda_domain domain, uint64_t bytes,
                                    uint64_t *ret_base, struct moor_abi_error *error)
{
    uint64_t trimmed = atomic_load(&device->pages.trim.count);
    CUresult code = create_block(device, domain, bytes, ret_base);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && domain != CUDA_DOMAIN_PINNED && cuda_pages_trim(device, trimmed))
        code = create_block(device, domain, bytes, ret_base);
    return cuda_check(device, code, MOOR_DEVICE_NOMEM, create_names[domain], error);
}

static int32_t free_block(struct cuda_device *device, const struct cuda_allocation *allocation,
                          struct moor_abi_error *error)
{
    CUresult reach = cuda_out_of_reach(device);
    if (allocation->domain == CUDA_DOMAIN_PINNED)
        return CUDA_FREE(device, reach, error, cuMemFreeHost, cuda_pointer(allocation->base));
    return CUDA_FREE(device, reach, error, cuMemFree, allocation->base);
}

static int32_t create_memory(struct cuda_device *device, const struct moor_abi_alloc_args *args,
                             struct cuda_allocation *allocation, uint64_t *ret_address,
                             struct moor_abi_error *error)
{
    int32_t status =
        create_block_or_trim(device, allocation->domain, allocation->bytes, &allocation->base, error);
    if (status)
        return status;
    uint64_t address = (allocation->base + args->alignment_bytes - 1) & ~(args->alignment_bytes - 1);
    uint64_t zero_bytes = allocation->base + allocation->bytes - address;
    if (address - allocation->base > allocation->bytes - args->size_bytes)
        status = moor_kit_fail(error, MOOR_PROVIDER, 0, "%s: 0x%llx is less aligned than the driver promises",
                               create_names[args->domain], (unsigned long long)allocation->base);
    else if ((args->flags & MOOR_ABI_ALLOC_ZERO) && args->domain == CUDA_DOMAIN_PINNED)
        memset(cuda_pointer(address), 0, zero_bytes);
    else if (args->flags & MOOR_ABI_ALLOC_ZERO)
        status = cuda_zero(device, address, zero_bytes, error);
    if (status == MOOR_OK)
        *ret_address = address;
    else
        (void)free_block(device, allocation, NULL); /* the first failure is reported */
    return status;
}

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    uint64_t bytes = 0;
    int32_t status = footprint(context, args, &bytes, error);
    if (status)
        return status;
    assert(bytes >= args->size_bytes);
    struct moor_abi_allocation result = {.struct_size = MOOR_ABI_ALLOCATION_SIZE, .actual_bytes = bytes};
    status = moor_kit_check_out(ret_allocation, MOOR_ABI_ALLOCATION_SIZE, "allocation", error);
    if (status)
        return status;

    struct cuda_allocation *allocation = calloc(1, sizeof *allocation);
    if (!allocation)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "allocation: no memory for its record");
    allocation->domain = (enum cuda_domain)args->domain;
    allocation->bytes = bytes;
    struct cuda_scope scope;
    status = cuda_enter(device, &scope, error);
    if (status)
        goto free_record;
    status = create_memory(device, args, allocation, &result.address, error);
    if (status)
        goto leave;
    status = moor_kit_handles_add(context->kit.handles, MOOR_KIT_ALLOCATION, allocation, 0,
                                  &allocation->handle, error);
    if (status)
        goto free_block;
    cuda_leave(&scope);
    moor_kit_held_add(context, args->domain, bytes);
    result.handle = allocation->handle;
    result.native = result.address;
    return moor_kit_fill_out(ret_allocation, &result, MOOR_ABI_ALLOCATION_SIZE, MOOR_ABI_ALLOCATION_SIZE,
                             "allocation", error);

free_block:
    (void)free_block(device, allocation, NULL); /* the first failure is reported */
leave:
    cuda_leave(&scope);
free_record:
    free(allocation);
    return status;
}

int32_t cuda_allocation_free(struct moor_abi_context *context, struct cuda_allocation *allocation,
                             uint64_t *ret_bytes, struct moor_abi_error *error)
{
    int32_t status = free_block(context->device, allocation, error);
    if (status)
        return status;
    moor_kit_held_sub(context, allocation->domain, allocation->bytes);
    *ret_bytes = allocation->bytes;
    moor_kit_handles_remove(context->kit.handles, allocation->handle);
    free(allocation);
    return MOOR_OK;
}

MOOR_KIT_TABLE(alloc, cuda_alloc_table, .footprint = footprint, .allocate = allocate);
