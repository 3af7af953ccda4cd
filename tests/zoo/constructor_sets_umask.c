/* SPDX-License-Identifier: MIT */
/* The constructor changes the umask. */
#include "zoo.h"

#include <sys/stat.h>

__attribute__((constructor)) static void misbehave(void)
{
    (void)umask(0);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
