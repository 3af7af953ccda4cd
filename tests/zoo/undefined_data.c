/* SPDX-License-Identifier: MIT */
/* Needs a variable that nobody defines. */
#include "zoo.h"

extern const struct moor_abi_provider zoo_data_of_nobody;

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo_data_of_nobody;
}
