/* SPDX-License-Identifier: MIT */
/* A second sound provider, in a file of its own: tests put it in the place of good. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
