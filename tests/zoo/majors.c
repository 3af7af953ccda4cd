/* SPDX-License-Identifier: MIT */
/* A note of the major ZOO_MAJOR, and the only entry is ZOO_ENTRY, that of another major than 1. */
#define ZOO_OWN_NOTE
#include "zoo.h"

ZOO_NOTE note = {8, 40, MOOR_ABI_NOTE_TYPE, MOOR_ABI_NOTE_NAME,
                 ZOO_DESCRIPTION(MOOR_ABI_MAGIC, ZOO_MAJOR, 0, 0, MOOR_ABI_CAPS_1_0)};

MOOR_ABI_EXPORT const void *ZOO_ENTRY(void);
const void *ZOO_ENTRY(void)
{
    return &zoo.provider;
}
