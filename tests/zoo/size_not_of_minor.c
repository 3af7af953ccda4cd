/* SPDX-License-Identifier: MIT */
/* The size of its struct is not that of its minor. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.struct_size = MOOR_ABI_PROVIDER_SIZE + 8;
    return &zoo.provider;
}
