/* SPDX-License-Identifier: MIT */
/* A sound provider with a constructor that leaves a mark, which proves that its code ran. Tests damage
 * copies of it. */
#include "mark.h"
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
