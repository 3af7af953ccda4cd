/* SPDX-License-Identifier: MIT */
/* The file exports a function besides its entry. A function of the host with the same name would replace
 * it. */
#include "zoo.h"

MOOR_ABI_EXPORT int zoo_visible_function(void);
int zoo_visible_function(void)
{
    return 1;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.provider.name = zoo_visible_function() == 1 ? "zoo" : "interposed";
    return &zoo.provider;
}
