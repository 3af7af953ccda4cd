/* SPDX-License-Identifier: MIT */
/* Prints to standard output and warns through the host's log during init. */
#include "zoo.h"

#include <stdio.h>

static int32_t init(const struct moor_abi_host *host, uint32_t minor, struct moor_abi_instance **ret_instance,
                    struct moor_abi_error *error)
{
    puts("printed by the provider");
    host->log(host->user, MOOR_ABI_LOG_WARNING, "the provider is not quite itself");
    host->log(host->user, MOOR_ABI_LOG_INFO, "nobody needs to know this");
    return zoo_init(host, minor, ret_instance, error);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.init = init;
    return &zoo.provider;
}
