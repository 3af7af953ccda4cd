/* SPDX-License-Identifier: MIT */
/* The bit of capability COPY is set, but the table is missing. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.copy = 0;
    return &zoo.provider;
}
