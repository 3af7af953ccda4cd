/* SPDX-License-Identifier: MIT */
/* The name of the provider is NULL. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.name = 0;
    return &zoo.provider;
}
