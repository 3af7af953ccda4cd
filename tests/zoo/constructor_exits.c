/* SPDX-License-Identifier: MIT */
/* The constructor calls exit(0), which looks like success. */
#include "zoo.h"

#include <stdlib.h>

__attribute__((constructor)) static void misbehave(void)
{
    exit(0);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
