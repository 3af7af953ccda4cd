/* SPDX-License-Identifier: MIT */
/* The size of a table is 0. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.release.struct_size = 0;
    return &zoo.provider;
}
