/* SPDX-License-Identifier: MIT */
/* A reserved field of a table is not zero. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.pinned.reserved = 1;
    return &zoo.provider;
}
