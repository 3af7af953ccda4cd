/* SPDX-License-Identifier: MIT */
/* The granule of the domain is not a power of two. */
#include "granule.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo_set_granule(12288);
    return &zoo.provider;
}
