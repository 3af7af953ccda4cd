/* SPDX-License-Identifier: MIT */
/*
 * ALLOC: each allocation is a mapping of whole pages, and its memory exists when the call returns. An
 * allocation of 2 MiB or more starts at a multiple of 2 MiB, so that the kernel can use large pages. Fresh
 * mappings read as zero, with or without ALLOC_ZERO.
 */
#include "cpu.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int32_t footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    uint64_t bytes = 0;
    int32_t status = moor_kit_check_alloc(args, CPU_ALIGNMENT_BYTES, error);
    if (!status)
        status = moor_kit_check_index("domain", args->domain, CPU_DOMAIN_COUNT, error);
    if (status)
        return status;
    if (moor_kit_round_up(args->size_bytes, context->kit.instance->page_bytes, &bytes) ||
        bytes > UINT64_MAX - args->alignment_bytes)
        return moor_kit_fail(error, MOOR_OVERFLOW, 0,
                             "%llu bytes are requested: rounded and aligned, they do not fit in 64 bits",
                             (unsigned long long)args->size_bytes);
    *ret_bytes = bytes;
    return MOOR_OK;
}

static int32_t lock_pages(uint64_t address, uint64_t bytes, struct moor_abi_error *error)
{
    if (mlock(cpu_pointer(address), bytes) == 0)
        return MOOR_OK;
    int code = errno;
    if (code == EPERM || code == ENOMEM)
        return moor_kit_fail(error, MOOR_LIMIT, code, "mlock of %llu bytes: %s; RLIMIT_MEMLOCK is reached",
                             (unsigned long long)bytes, strerrorname_np(code));
    return cpu_pages_fail(error, MOOR_DEVICE_NOMEM, code, "mlock", bytes);
}

/* Maps the memory of one allocation, all of it or nothing. */
static int32_t obtain(const struct moor_abi_alloc_args *args, uint64_t bytes, uint64_t page_bytes,
                      uint64_t *ret_address, struct moor_abi_error *error)
{
    bool large = bytes >= CPU_HUGE_BYTES;
    uint64_t alignment = large ? CPU_HUGE_BYTES : page_bytes;
    assert(bytes >= args->size_bytes && bytes % page_bytes == 0);
    if (args->alignment_bytes > alignment)
        alignment = args->alignment_bytes;
    uint64_t address = 0;
    int32_t status = cpu_pages_reserve(bytes, alignment, large, &address, error);
    if (status)
        return status;
    status = cpu_pages_back(address, bytes, error);
    if (!status && args->domain == CPU_DOMAIN_PINNED)
        status = lock_pages(address, bytes, error);
    if (status) {
        (void)cpu_pages_unmap(address, bytes,
                              NULL); /* cannot fail for a fresh mapping; the first failure is reported */
        return status;
    }
    *ret_address = address;
    return MOOR_OK;
}

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    uint64_t bytes = 0;
    int32_t status = footprint(context, args, &bytes, error);
    if (status)
        return status;
    struct moor_abi_allocation result = {.struct_size = MOOR_ABI_ALLOCATION_SIZE, .actual_bytes = bytes};
    status = moor_kit_check_out(ret_allocation, MOOR_ABI_ALLOCATION_SIZE, "allocation", error);
    if (status)
        return status;

    struct cpu_allocation *allocation = calloc(1, sizeof *allocation);
    if (!allocation)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "allocation: no host memory for its record");
    struct cpu_pool *pool = &context->kit.instance->pool;
    status = cpu_pool_take(pool, bytes, error);
    if (status)
        goto free_record;
    status = obtain(args, bytes, context->kit.instance->page_bytes, &allocation->address, error);
    cpu_pool_confirm(pool, bytes);
    if (status)
        goto return_bytes;
    allocation->domain = args->domain;
    allocation->bytes = bytes;
    result.address = allocation->address;
    status = moor_kit_handles_add(context->kit.handles, MOOR_KIT_ALLOCATION, allocation, 0,
                                  &allocation->handle, error);
    if (status)
        goto unmap;
    moor_kit_held_add(context, args->domain, bytes);
    result.handle = allocation->handle;
    return moor_kit_fill_out(ret_allocation, &result, MOOR_ABI_ALLOCATION_SIZE, MOOR_ABI_ALLOCATION_SIZE,
                             "allocation", error);

unmap:
    (void)cpu_pages_unmap(allocation->address, bytes, NULL); /* see obtain */
return_bytes:
    cpu_pool_return(pool, bytes);
free_record:
    free(allocation);
    return status;
}

int32_t cpu_allocation_free(struct moor_abi_context *context, struct cpu_allocation *allocation,
                            uint64_t *ret_bytes, struct moor_abi_error *error)
{
    int32_t status = cpu_pages_unmap(allocation->address, allocation->bytes, error);
    if (status)
        return status;
    moor_kit_held_sub(context, allocation->domain, allocation->bytes);
    cpu_pool_return(&context->kit.instance->pool, allocation->bytes);
    *ret_bytes = allocation->bytes;
    moor_kit_handles_remove(context->kit.handles, allocation->handle);
    free(allocation);
    return MOOR_OK;
}

MOOR_KIT_TABLE(alloc, cpu_alloc_table, .footprint = footprint, .allocate = allocate);
