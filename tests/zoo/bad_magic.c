/* SPDX-License-Identifier: MIT */
/* The magic number of the struct is wrong. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.magic = MOOR_ABI_MAGIC + 1;
    return &zoo.provider;
}
