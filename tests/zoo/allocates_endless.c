/* SPDX-License-Identifier: MIT */
/* An allocation claims UINT64_MAX bytes, past the end of the address space. */
#include "zoo.h"

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    (void)zoo_allocate(context, args, ret_allocation, error);
    ret_allocation->actual_bytes = UINT64_MAX;
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.alloc.allocate = allocate;
    return &zoo.provider;
}
