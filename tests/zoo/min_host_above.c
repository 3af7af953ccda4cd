/* SPDX-License-Identifier: MIT */
/* The table requires minor 7 of the host, but the note does not say so. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.minor = 7;
    zoo.provider.prefix.min_host_minor = 7;
    return &zoo.provider;
}
