/* SPDX-License-Identifier: MIT */
/* The table of PINNED is present, but the bit of the capability is not set. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.capabilities &= ~MOOR_ABI_CAP_PINNED;
    return &zoo.provider;
}
