/* SPDX-License-Identifier: MIT */
/* The file links to a library that the loader cannot find. */
#include "zoo.h"

void zoo_gone(void);

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo_gone();
    return &zoo.provider;
}
