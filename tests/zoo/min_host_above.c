/* SPDX-License-Identifier: MIT */
/* Needs a newer host, as its table says; its note does not. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.minor = 7;
    zoo.provider.prefix.min_host_minor = 7;
    return &zoo.provider;
}
