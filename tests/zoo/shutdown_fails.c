/* SPDX-License-Identifier: MIT */
/* Does not end, and says so. */
#include "zoo.h"

static int32_t shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    strcpy(error->text, "the animals are still inside");
    return MOOR_PROVIDER;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.shutdown = shutdown;
    return &zoo.provider;
}
