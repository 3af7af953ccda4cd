/* SPDX-License-Identifier: MIT */
/* Calls ZOO_NEEDED, a function that no library defines when the file is loaded. */
#include "zoo.h"

void ZOO_NEEDED(void);

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    ZOO_NEEDED();
    return &zoo.provider;
}
