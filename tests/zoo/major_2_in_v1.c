/* SPDX-License-Identifier: MIT */
/* The entry is that of major 1, but the struct claims major 2. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.major = 2;
    return &zoo.provider;
}
