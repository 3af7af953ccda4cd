/* SPDX-License-Identifier: MIT */
/* The size of the struct is 0. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.struct_size = 0;
    return &zoo.provider;
}
