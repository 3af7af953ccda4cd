/* SPDX-License-Identifier: MIT */
/* init succeeds, but returns a NULL instance. */
#include "zoo.h"

static int32_t init(const struct moor_abi_host *host, uint32_t minor, struct moor_abi_instance **ret_instance,
                    struct moor_abi_error *error)
{
    *ret_instance = NULL;
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.init = init;
    return &zoo.provider;
}
