/* SPDX-License-Identifier: MIT */
/* Each release fails. */
#include "zoo.h"

static int32_t release(struct moor_abi_context *context, const struct moor_abi_release *release_args,
                       struct moor_abi_error *error)
{
    strcpy(error->text, "the memory cannot be freed");
    return MOOR_PROVIDER;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.release.release = release;
    return &zoo.provider;
}
