/* SPDX-License-Identifier: MIT */
/* base, a required table, is missing. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.base = 0;
    return &zoo.provider;
}
