/* SPDX-License-Identifier: MIT */
/* init writes to unmapped memory. */
#include "zoo.h"

static int32_t init(const struct moor_abi_host *host, uint32_t minor, struct moor_abi_instance **ret_instance,
                    struct moor_abi_error *error)
{
    *(volatile int *)(uintptr_t)0x10000 = 1;
    return zoo_init(host, minor, ret_instance, error);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.init = init;
    return &zoo.provider;
}
