/* SPDX-License-Identifier: MIT */
/* Built for a newer minor of this major: accepted, its news masked. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    /* What a later header might append: sizes, a bit, a flag and a field that is reserved now. */
    zoo.provider.prefix.minor = 7;
    zoo.provider.prefix.capabilities |= UINT64_C(1) << 40;
    zoo.provider.prefix.flags |= UINT64_C(1) << 9;
    zoo.provider.reserved[0] = 1;
    zoo.alloc.reserved = 1;
    return &zoo.provider;
}
