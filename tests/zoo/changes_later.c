/* SPDX-License-Identifier: MIT */
/* init clears the provider's tables. The core must work from its copy. */
#include "zoo.h"

static int32_t init(const struct moor_abi_host *host, uint32_t minor, struct moor_abi_instance **ret_instance,
                    struct moor_abi_error *error)
{
    memset(&zoo.base, 0, sizeof zoo - offsetof(struct zoo, base));
    return zoo_init(host, minor, ret_instance, error);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    static struct zoo whole;
    if (whole.provider.name == NULL)
        whole = zoo;
    zoo = whole; /* for the next load */
    zoo.base.init = init;
    return &zoo.provider;
}
