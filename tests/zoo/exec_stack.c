/* SPDX-License-Identifier: MIT */
/* The link options request an executable stack. */
#include "mark.h"
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
