/* SPDX-License-Identifier: MIT */
/* shutdown fails with a text. */
#include "zoo.h"

static int32_t shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    strcpy(error->text, "objects are still alive");
    return MOOR_PROVIDER;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.shutdown = shutdown;
    return &zoo.provider;
}
