/* SPDX-License-Identifier: MIT */
/* The size of the struct is UINT32_MAX. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.struct_size = UINT32_MAX;
    return &zoo.provider;
}
