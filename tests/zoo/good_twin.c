/* SPDX-License-Identifier: MIT */
/* Like good: a second file to put in its place. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
