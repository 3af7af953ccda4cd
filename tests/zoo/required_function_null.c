/* SPDX-License-Identifier: MIT */
/* A function that every provider has is NULL. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.init = 0;
    return &zoo.provider;
}
