/* SPDX-License-Identifier: MIT */
/* The constructor calls a function of the loading program. ZOO_CALL_BACK in the environment holds its
 * address. */
#include "zoo.h"

#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void call_back(void)
{
    const char *address = getenv("ZOO_CALL_BACK");
    void *function = NULL;
    if (address != NULL && sscanf(address, "%p", &function) == 1)
        ((void (*)(void))(uintptr_t)function)();
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
