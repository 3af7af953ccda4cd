/* SPDX-License-Identifier: MIT */
/* It takes nothing back. */
#include "zoo.h"

static int32_t release(struct moor_abi_context *context, const struct moor_abi_release *release_args,
                       struct moor_abi_error *error)
{
    strcpy(error->text, "it has grown on me");
    return MOOR_PROVIDER;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.release.release = release;
    return &zoo.provider;
}
