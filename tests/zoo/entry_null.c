/* SPDX-License-Identifier: MIT */
/* The entry returns NULL. */
#include "zoo.h"

#include <stddef.h>

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return NULL;
}
