/* SPDX-License-Identifier: MIT */
/* reap returns each completion twice. */
#include "zoo.h"

static int32_t reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error)
{
    (void)zoo_reap(context, completions, stride, 1, deadline_ns, ret_count, error);
    if (*ret_count == 1 && capacity >= 2) {
        memcpy((char *)completions + stride, completions, sizeof *completions);
        *ret_count = 2;
    }
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.release.reap = reap;
    return &zoo.provider;
}
