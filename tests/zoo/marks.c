/* SPDX-License-Identifier: MIT */
/* Nothing is wrong with it, and it tells that its code has run; tests break copies of it. */
#include "mark.h"
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
