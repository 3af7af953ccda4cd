/* SPDX-License-Identifier: MIT */
/* The constructor calls abort(). */
#include "zoo.h"

#include <stdlib.h>

__attribute__((constructor)) static void misbehave(void)
{
    abort();
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
