/* SPDX-License-Identifier: MIT */
/* Calls exit(0) during init. */
#include "zoo.h"

static int32_t init(const struct moor_abi_host *host, uint32_t minor, struct moor_abi_instance **ret_instance,
                    struct moor_abi_error *error)
{
    (void)host, (void)minor, (void)ret_instance, (void)error;
    exit(0);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.init = init;
    return &zoo.provider;
}
