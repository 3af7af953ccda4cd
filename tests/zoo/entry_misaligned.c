/* SPDX-License-Identifier: MIT */
/* Its entry returns an address that no struct can have. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    uintptr_t address = (uintptr_t)&zoo.provider + 4;
    return (const struct moor_abi_provider *)address;
}
