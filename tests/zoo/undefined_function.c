/* SPDX-License-Identifier: MIT */
/* The file calls a function that no library defines. Lazy binding hides this: only RTLD_NOW finds it at
 * load. */
#include "zoo.h"

void zoo_undefined_function(void);

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo_undefined_function();
    return &zoo.provider;
}
