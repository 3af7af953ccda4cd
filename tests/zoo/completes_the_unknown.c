/* SPDX-License-Identifier: MIT */
/* reap returns an extra completion for a release that was never submitted. */
#include "zoo.h"

static int32_t reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error)
{
    (void)zoo_reap(context, completions, stride, capacity - 1, deadline_ns, ret_count, error);
    struct moor_abi_completion stray = {.cookie = UINT64_C(0x5a5a5a5a5a5a5a5a), .actual_bytes = 4096};
    if (*ret_count > 0)
        memcpy((char *)completions + (size_t)(*ret_count)++ * stride, &stray, sizeof stray);
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.release.reap = reap;
    return &zoo.provider;
}
