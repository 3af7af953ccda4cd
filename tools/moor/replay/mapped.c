/* SPDX-License-Identifier: MIT */
/*
 * Blocks in a range of addresses, one granule slot for each block of the request. With sharing, prompt blocks
 * are segments: a segment is mapped writable in the sequence that fills it, sealed when published, and mapped
 * read-only in every later sequence with that prefix. Blocks that only this request can use are committed in
 * the range: its generated blocks, and with policy none all blocks.
 */
#include "replay/sequence.h"
#include "tool.h"

#include <inttypes.h>
#include <stdlib.h>

#define STEPS_MAX 1024 /* steps of one transaction */

/* Uses the coarsest granule that divides a block, because every granule is a map. */
static uint64_t granule_of(const struct replay_memory *memory)
{
    return memory->config->block_bytes & -memory->config->block_bytes;
}

static bool measure(struct replay_memory *memory, uint64_t *ret_bytes, struct tool_failure *failure)
{
    const struct moor_abi_domain_info *info = &memory->domain_info;
    if (!(info->capabilities & MOOR_ABI_CAP_VIRTUAL))
        return tool_fail(failure, TOOL_REFUSED, MOOR_UNSUPPORTED,
                         "the device's memory lacks VIRTUAL: use --mode eager");
    if (memory->config->policy != REPLAY_NONE && !(info->capabilities & MOOR_ABI_CAP_SHARED))
        return tool_fail(failure, TOOL_REFUSED, MOOR_UNSUPPORTED,
                         "the device's memory lacks SHARED: use --policy none or --mode eager");
    if (granule_of(memory) < info->granule_min_bytes)
        return tool_fail(failure, TOOL_REFUSED, MOOR_UNSUPPORTED,
                         "blocks of %" PRIu64 " bytes are not whole granules of %" PRIu64
                         ": use --mode eager",
                         memory->config->block_bytes, info->granule_min_bytes);
    *ret_bytes = memory->config->block_bytes;
    return true;
}

static bool place(struct replay_sequence *sequence, struct tool_failure *failure)
{
    struct replay_memory *memory = sequence->memory;
    const struct replay_admission *admission = &sequence->admission;
    uint64_t block_bytes = memory->config->block_bytes;
    struct moor_range_options options = {.granule_bytes = granule_of(memory)};
    if (moor_range_reserve(memory->binding, admission->total_blocks * block_bytes, &options,
                           &sequence->range) != MOOR_OK ||
        moor_range_get_view(memory->runtime, sequence->range, &sequence->view) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "reserving addresses");
    for (uint64_t i = 0; i < admission->hit_blocks; i++)
        if (moor_segment_map(memory->runtime, sequence->handles[i], sequence->range, i * block_bytes,
                             MOOR_ACCESS_READ) != MOOR_OK)
            return tool_fail_last(failure, TOOL_FAILED, "mapping a shared block");
    return true;
}

/* Makes blocks as segments and maps each in its slot. Each transaction is all or nothing; the whole call need
 * not be. */
static bool create_segments(struct replay_sequence *sequence, uint64_t first, uint64_t end,
                            struct tool_failure *failure)
{
    struct replay_memory *memory = sequence->memory;
    uint64_t block_bytes = memory->config->block_bytes;
    struct moor_step *steps = tool_allocate(STEPS_MAX, sizeof *steps);
    bool done = true;
    while (done && first < end) {
        size_t count = 0;
        for (; count < STEPS_MAX && first + count < end; count++)
            steps[count] = (struct moor_step){.kind = MOOR_STEP_CREATE,
                                              .binding = memory->binding,
                                              .range = sequence->range,
                                              .offset_bytes = (first + count) * block_bytes,
                                              .length_bytes = block_bytes,
                                              .grant = sequence->grant};
        if (moor_transact(memory->runtime, steps, count, NULL) != MOOR_OK)
            done = tool_fail_last(failure, TOOL_FAILED, "making prompt blocks");
        for (size_t i = 0; done && i < count; i++)
            sequence->handles[first + i] = steps[i].segment;
        first += count;
    }
    free(steps);
    return done;
}

static bool make(struct replay_sequence *sequence, uint64_t first, uint64_t end, struct tool_failure *failure)
{
    struct replay_memory *memory = sequence->memory;
    uint64_t block_bytes = memory->config->block_bytes;
    if (memory->config->policy != REPLAY_NONE && first < sequence->admission.prompt_blocks)
        return create_segments(sequence, first, end, failure);
    if (moor_range_commit(memory->runtime, sequence->range, first * block_bytes, (end - first) * block_bytes,
                          sequence->grant) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "committing blocks that were granted");
    return true;
}

static bool view(const struct replay_sequence *sequence, uint64_t first, uint64_t end,
                 struct moor_view *ret_view, struct tool_failure *failure)
{
    uint64_t block_bytes = sequence->memory->config->block_bytes;
    if (moor_view_slice(&sequence->view, first * block_bytes, (end - first) * block_bytes, ret_view) !=
        MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "view of a block");
    return true;
}

static bool seal(struct replay_sequence *sequence, uint64_t block, struct tool_failure *failure)
{
    /* The seal does not wait: the prefill is done, and the touched blocks have been waited for. */
    if (moor_segment_seal(sequence->memory->runtime, sequence->handles[block], MOOR_NO_WAIT) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "sealing a published block");
    return true;
}

static bool part(struct replay_sequence *sequence, uint64_t block, struct tool_failure *failure)
{
    uint64_t block_bytes = sequence->memory->config->block_bytes;
    if (moor_range_unmap(sequence->memory->runtime, sequence->range, block * block_bytes, block_bytes) !=
        MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "unmapping a shared block");
    return true;
}

const struct replay_backend replay_mapped = {
    .name = "virtual",
    .measure = measure,
    .place = place,
    .make = make,
    .view = view,
    .seal = seal,
    .part = part,
    .drop = moor_segment_release,
};
