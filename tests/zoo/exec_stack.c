/* SPDX-License-Identifier: MIT */
/* Linked to ask for an executable stack. */
#include "mark.h"
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
