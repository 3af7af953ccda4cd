/* SPDX-License-Identifier: MIT */
/* The file has no note. */
#define ZOO_OWN_NOTE
#include "mark.h"
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
