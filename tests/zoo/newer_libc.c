/* SPDX-License-Identifier: MIT */
/* Needs a function of a C library that is yet to come; linked with a stand-in for it. */
#include "zoo.h"

void zoo_function_of_the_future(void);

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo_function_of_the_future();
    return &zoo.provider;
}
