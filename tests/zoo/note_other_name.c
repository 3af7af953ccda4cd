/* SPDX-License-Identifier: MIT */
/* The type of the only note is right, but the name is not Moorage's. */
#define ZOO_OWN_NOTE
#include "mark.h"
#include "zoo.h"

ZOO_NOTE note = {8, 40, MOOR_ABI_NOTE_TYPE, "Moorish",
                 ZOO_DESCRIPTION(MOOR_ABI_MAGIC, 1, 0, 0, MOOR_ABI_CAPS_1_0)};

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
