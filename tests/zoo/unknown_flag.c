/* SPDX-License-Identifier: MIT */
/* A flag is set that the provider's minor does not define. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.flags |= UINT64_C(1) << 9;
    return &zoo.provider;
}
