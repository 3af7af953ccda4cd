/* SPDX-License-Identifier: MIT */
/* Calls a function that nobody defines; linked lazily, so that only RTLD_NOW finds out. */
#include "zoo.h"

void zoo_function_of_nobody(void);

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo_function_of_nobody();
    return &zoo.provider;
}
