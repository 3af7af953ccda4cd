/* SPDX-License-Identifier: MIT */
/* Note and entry are those of major 0. */
#define ZOO_OWN_NOTE
#include "zoo.h"

ZOO_NOTE note = {8, 40, MOOR_ABI_NOTE_TYPE, MOOR_ABI_NOTE_NAME,
                 ZOO_DESCRIPTION(MOOR_ABI_MAGIC, 0, 0, 0, MOOR_ABI_CAPS_1_0)};

MOOR_ABI_EXPORT const void *moor_provider_entry_v0(void);
const void *moor_provider_entry_v0(void)
{
    return &zoo.provider;
}
