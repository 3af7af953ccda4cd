/* SPDX-License-Identifier: MIT */
/* The file needs a variable that no library defines. */
#include "zoo.h"

extern const struct moor_abi_provider zoo_undefined_data;

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo_undefined_data;
}
