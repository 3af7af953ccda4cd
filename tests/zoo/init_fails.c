/* SPDX-License-Identifier: MIT */
/* init fails with a native code and a text. */
#include "zoo.h"

static int32_t init(const struct moor_abi_host *host, uint32_t minor, struct moor_abi_instance **ret_instance,
                    struct moor_abi_error *error)
{
    error->native_code = 4711;
    strcpy(error->text, "the driver is missing");
    return MOOR_DEVICE_LOST;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.init = init;
    return &zoo.provider;
}
