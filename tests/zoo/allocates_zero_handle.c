/* SPDX-License-Identifier: MIT */
/* An allocation succeeds with handle 0. */
#include "zoo.h"

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    (void)zoo_allocate(context, args, ret_allocation, error);
    struct zoo_block *block = (struct zoo_block *)(uintptr_t)ret_allocation->handle;
    free(block->memory); /* without a handle, the core cannot release it */
    free(block);
    ret_allocation->handle = 0;
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.alloc.allocate = allocate;
    return &zoo.provider;
}
