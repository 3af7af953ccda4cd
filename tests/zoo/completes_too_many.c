/* SPDX-License-Identifier: MIT */
/* reap returns a count above the capacity of the array. */
#include "zoo.h"

static int32_t reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error)
{
    (void)zoo_reap(context, completions, stride, capacity, deadline_ns, ret_count, error);
    if (*ret_count > 0)
        *ret_count = UINT32_MAX;
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.release.reap = reap;
    return &zoo.provider;
}
