/* SPDX-License-Identifier: MIT */
/* The name of the provider is Latin-1, not UTF-8. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.name = "K\xe4se";
    return &zoo.provider;
}
