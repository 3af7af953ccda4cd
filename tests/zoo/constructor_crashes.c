/* SPDX-License-Identifier: MIT */
/* The constructor writes to unmapped memory. */
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
