/* SPDX-License-Identifier: MIT */
/* Its note is of our major, its only entry of another. */
#include "zoo.h"

MOOR_ABI_EXPORT const void *moor_provider_entry_v2(void);
const void *moor_provider_entry_v2(void)
{
    return &zoo.provider;
}
