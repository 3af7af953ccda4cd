/* SPDX-License-Identifier: MIT */
/* A reserved field of the provider struct is not zero. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.reserved[1] = 1;
    return &zoo.provider;
}
