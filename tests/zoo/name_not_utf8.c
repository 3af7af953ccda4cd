/* SPDX-License-Identifier: MIT */
/* Its name is Latin-1. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.name = "K\xe4se";
    return &zoo.provider;
}
