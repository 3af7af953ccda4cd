/* SPDX-License-Identifier: MIT */
/* The name of the provider has no NUL within 4096 bytes. */
#include "zoo.h"

static char endless[4096];

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    memset(endless, 'x', sizeof endless);
    zoo.provider.name = endless;
    return &zoo.provider;
}
