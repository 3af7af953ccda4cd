/* SPDX-License-Identifier: MIT */
/* The note lists fewer capabilities than the table. */
#define ZOO_OWN_NOTE
#include "zoo.h"

ZOO_NOTE note = {8, 40, MOOR_ABI_NOTE_TYPE, MOOR_ABI_NOTE_NAME,
                 ZOO_DESCRIPTION(MOOR_ABI_MAGIC, 1, 0, 0, MOOR_ABI_CAPS_REQUIRED)};

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
