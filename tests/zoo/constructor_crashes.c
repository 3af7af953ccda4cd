/* SPDX-License-Identifier: MIT */
/* Its constructor writes to where nothing is. */
#include "zoo.h"

#include <stdint.h>

__attribute__((constructor)) static void misbehave(void)
{
    *(volatile int *)(uintptr_t)0x10000 = 1;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
