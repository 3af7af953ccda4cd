/* SPDX-License-Identifier: MIT */
/* Its entry returns an address where nothing is. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return (const struct moor_abi_provider *)UINT64_C(0x10000);
}
