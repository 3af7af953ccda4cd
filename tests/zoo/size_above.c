/* SPDX-License-Identifier: MIT */
/* The size of the struct is above the limit of 64 KiB. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.struct_size = UINT32_C(65536) + 8;
    return &zoo.provider;
}
