/* SPDX-License-Identifier: MIT */
/* The provider's allocate is the function ZOO_ANIMAL. */
#include "zoo.h"

#define ALLOCATE(name_)                                                                                      \
    static int32_t name_(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,           \
                         struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)

/* UINT64_MAX bytes reach past the end of the address space. */
ALLOCATE(allocates_endless)
{
    (void)zoo_allocate(context, args, ret_allocation, error);
    ret_allocation->actual_bytes = UINT64_MAX;
    return MOOR_OK;
}

ALLOCATE(allocates_misaligned)
{
    (void)zoo_allocate(context, args, ret_allocation, error);
    ret_allocation->address += 8;
    return MOOR_OK;
}

static uint64_t first_address;

/* All allocations have the same address. */
ALLOCATE(allocates_twice_the_same)
{
    (void)zoo_allocate(context, args, ret_allocation, error);
    if (first_address == 0)
        first_address = ret_allocation->address;
    ret_allocation->address = first_address;
    return MOOR_OK;
}

ALLOCATE(allocates_zero_bytes)
{
    (void)zoo_allocate(context, args, ret_allocation, error);
    ret_allocation->actual_bytes = 0;
    return MOOR_OK;
}

ALLOCATE(allocates_zero_handle)
{
    (void)zoo_allocate(context, args, ret_allocation, error);
    struct zoo_block *block = (struct zoo_block *)(uintptr_t)ret_allocation->handle;
    free(block->memory); /* without a handle, the core cannot release it */
    free(block);
    ret_allocation->handle = 0;
    return MOOR_OK;
}

/* Fails, but writes to its output. */
ALLOCATE(writes_on_error)
{
    memset((char *)ret_allocation + 8, 0xee, sizeof *ret_allocation - 8);
    return MOOR_DEVICE_NOMEM;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    first_address = 0;
    zoo.alloc.allocate = ZOO_ANIMAL;
    return &zoo.provider;
}
