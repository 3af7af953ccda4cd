/* SPDX-License-Identifier: MIT */
/* The entry returns an address that is misaligned for the struct. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    uintptr_t address = (uintptr_t)&zoo.provider + 4;
    return (const struct moor_abi_provider *)address;
}
