/* SPDX-License-Identifier: MIT */
/* The note names major 2, but the entry is that of major 1. */
#define ZOO_OWN_NOTE
#include "mark.h"
#include "zoo.h"

ZOO_NOTE note = {8, 40, MOOR_ABI_NOTE_TYPE, MOOR_ABI_NOTE_NAME,
                 ZOO_DESCRIPTION(MOOR_ABI_MAGIC, 2, 0, 0, MOOR_ABI_CAPS_1_0)};

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
