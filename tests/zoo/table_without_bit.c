/* SPDX-License-Identifier: MIT */
/* A table is there whose capability is not set. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.capabilities &= ~MOOR_ABI_CAP_PINNED;
    return &zoo.provider;
}
