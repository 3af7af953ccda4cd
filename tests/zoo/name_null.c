/* SPDX-License-Identifier: MIT */
/* It has no name. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.name = 0;
    return &zoo.provider;
}
