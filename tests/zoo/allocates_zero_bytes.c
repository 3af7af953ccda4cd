/* SPDX-License-Identifier: MIT */
/* An allocation succeeds with 0 actual bytes. */
#include "zoo.h"

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    (void)zoo_allocate(context, args, ret_allocation, error);
    ret_allocation->actual_bytes = 0;
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.alloc.allocate = allocate;
    return &zoo.provider;
}
