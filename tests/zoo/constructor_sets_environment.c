/* SPDX-License-Identifier: MIT */
/* The constructor sets an environment variable. */
#include "zoo.h"

#include <stdlib.h>

__attribute__((constructor)) static void misbehave(void)
{
    (void)setenv("ZOO_WAS_HERE", "1", 1);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
