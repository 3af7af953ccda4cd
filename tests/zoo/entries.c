/* SPDX-License-Identifier: MIT */
/* Entries that return no usable struct. */
#include "zoo.h"

static uintptr_t entry_null(void)
{
    return 0;
}

/* The address is unmapped. */
static uintptr_t entry_wild(void)
{
    return UINT64_C(0x10000);
}

static uintptr_t entry_misaligned(void)
{
    return (uintptr_t)&zoo.provider + 4;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return (const struct moor_abi_provider *)ZOO_ANIMAL();
}
