/* SPDX-License-Identifier: MIT */
/* The entry returns an unmapped address. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return (const struct moor_abi_provider *)UINT64_C(0x10000);
}
