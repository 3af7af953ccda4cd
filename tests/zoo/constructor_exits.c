/* SPDX-License-Identifier: MIT */
/* Its constructor ends the process, as if all were well. */
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
