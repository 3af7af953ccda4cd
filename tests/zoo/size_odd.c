/* SPDX-License-Identifier: MIT */
/* The size of the struct is not a multiple of 8. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.struct_size = MOOR_ABI_PROVIDER_SIZE + 4;
    return &zoo.provider;
}
