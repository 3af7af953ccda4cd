/* SPDX-License-Identifier: MIT */
/* A sound provider. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
