/* SPDX-License-Identifier: MIT */
/* The note names major 1, but the only entry is that of major 2. */
#include "zoo.h"

MOOR_ABI_EXPORT const void *moor_provider_entry_v2(void);
const void *moor_provider_entry_v2(void)
{
    return &zoo.provider;
}
