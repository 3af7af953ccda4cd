/* SPDX-License-Identifier: MIT */
/* Needs a library that is not there. */
#include "zoo.h"

void zoo_gone(void);

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo_gone();
    return &zoo.provider;
}
