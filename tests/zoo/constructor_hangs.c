/* SPDX-License-Identifier: MIT */
/* The constructor never returns. */
#include "zoo.h"

#include <unistd.h>

__attribute__((constructor)) static void misbehave(void)
{
    for (;;)
        (void)pause();
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
