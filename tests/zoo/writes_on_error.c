/* SPDX-License-Identifier: MIT */
/* allocate fails, but writes to its output. */
#include "zoo.h"

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    memset((char *)ret_allocation + 8, 0xee, sizeof *ret_allocation - 8);
    return MOOR_DEVICE_NOMEM;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.alloc.allocate = allocate;
    return &zoo.provider;
}
