/* SPDX-License-Identifier: MIT */
/* The code holds an address that the linker must write at load time. The link options allow this. */
#include "mark.h"
#include "zoo.h"

__asm__(".text\n.balign 8\n.quad moor_provider_entry_v1\n");

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
