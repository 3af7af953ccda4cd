/* SPDX-License-Identifier: MIT */
/* STREAM, a required capability, is missing, and so is its table. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.prefix.capabilities &= ~MOOR_ABI_CAP_STREAM;
    zoo.provider.stream = 0;
    return &zoo.provider;
}
