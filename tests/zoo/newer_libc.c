/* SPDX-License-Identifier: MIT */
/* The file needs a function of a C library version that does not exist. The link uses future_libc. */
#include "zoo.h"

void zoo_function_of_the_future(void);

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo_function_of_the_future();
    return &zoo.provider;
}
