/* SPDX-License-Identifier: MIT */
/* Its domain can back ranges, in granules that are no power of two. */
#include "granule.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo_set_granule(12288);
    return &zoo.provider;
}
