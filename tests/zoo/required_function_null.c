/* SPDX-License-Identifier: MIT */
/* init, a required function, is NULL. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.init = 0;
    return &zoo.provider;
}
