/* SPDX-License-Identifier: MIT */
/* The granule of the domain is 0 bytes. */
#include "granule.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo_set_granule(0);
    return &zoo.provider;
}
