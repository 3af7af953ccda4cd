/* SPDX-License-Identifier: MIT */
/* The constructor changes the working directory. */
#include "zoo.h"

#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void misbehave(void)
{
    if (chdir("/proc") != 0)
        abort();
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
