/* SPDX-License-Identifier: MIT */
/* One of its tables says that it has no size. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.release.struct_size = 0;
    return &zoo.provider;
}
