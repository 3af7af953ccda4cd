/* SPDX-License-Identifier: MIT */
/* The provider's reap is the function ZOO_ANIMAL. */
#include "zoo.h"

#define REAP(name_)                                                                                          \
    static int32_t name_(struct moor_abi_context *context, struct moor_abi_completion *completions,          \
                         uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,      \
                         struct moor_abi_error *error)

/* Adds a completion for a release that was never submitted. */
REAP(completes_the_unknown)
{
    (void)zoo_reap(context, completions, stride, capacity - 1, deadline_ns, ret_count, error);
    struct moor_abi_completion stray = {.cookie = UINT64_C(0x5a5a5a5a5a5a5a5a), .actual_bytes = 4096};
    if (*ret_count > 0)
        memcpy((char *)completions + (size_t)(*ret_count)++ * stride, &stray, sizeof stray);
    return MOOR_OK;
}

/* Returns a count above the capacity of the array. */
REAP(completes_too_many)
{
    (void)zoo_reap(context, completions, stride, capacity, deadline_ns, ret_count, error);
    if (*ret_count > 0)
        *ret_count = UINT32_MAX;
    return MOOR_OK;
}

REAP(completes_twice)
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
    zoo.release.reap = ZOO_ANIMAL;
    return &zoo.provider;
}
