/* SPDX-License-Identifier: MIT */
/* Its domain can back ranges, in granules of no bytes. */
#include "granule.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo_set_granule(0);
    return &zoo.provider;
}
