/* SPDX-License-Identifier: MIT */
/* init fails with an error text that has no NUL. */
#include "zoo.h"

static int32_t init(const struct moor_abi_host *host, uint32_t minor, struct moor_abi_instance **ret_instance,
                    struct moor_abi_error *error)
{
    memset(error->text, 'x', sizeof error->text);
    return MOOR_DEVICE_LOST;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.init = init;
    return &zoo.provider;
}
