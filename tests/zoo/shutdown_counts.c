/* SPDX-License-Identifier: MIT */
/* shutdown aborts the process when it is called more often than init. */
#include "zoo.h"

static _Atomic int started;

static int32_t init(const struct moor_abi_host *host, uint32_t minor, struct moor_abi_instance **ret_instance,
                    struct moor_abi_error *error)
{
    atomic_fetch_add(&started, 1);
    return zoo_init(host, minor, ret_instance, error);
}

static int32_t shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    if (atomic_fetch_sub(&started, 1) <= 0)
        abort();
    return zoo_shutdown(instance, error);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.init = init;
    zoo.base.shutdown = shutdown;
    return &zoo.provider;
}
