/* SPDX-License-Identifier: MIT */
/* All allocations have the same address. */
#include "zoo.h"

static uint64_t first;

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    (void)zoo_allocate(context, args, ret_allocation, error);
    if (first == 0)
        first = ret_allocation->address;
    ret_allocation->address = first;
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    first = 0;
    zoo.alloc.allocate = allocate;
    return &zoo.provider;
}
