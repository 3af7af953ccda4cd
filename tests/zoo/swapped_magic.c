/* SPDX-License-Identifier: MIT */
/* The magic number of the struct is byte-swapped. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.magic = __builtin_bswap64(MOOR_ABI_MAGIC);
    return &zoo.provider;
}
