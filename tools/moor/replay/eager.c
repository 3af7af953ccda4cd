/* SPDX-License-Identifier: MIT */
/*
 * Blocks as buffers, for devices without virtual memory. A sequence is a table of buffers, as a paged
 * attention kernel reads it, and a shared block is one buffer in several tables. The prefix index counts the
 * users of a published block and owns it; a sequence owns its other blocks.
 */
#include "replay/sequence.h"
#include "tool.h"

static bool measure(struct replay_memory *memory, uint64_t *ret_bytes, struct tool_failure *failure)
{
    if (moor_binding_get_footprint(memory->binding, memory->config->block_bytes, NULL, ret_bytes) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "the size of a block");
    return true;
}

static bool make(struct replay_sequence *sequence, uint64_t first, uint64_t end, struct tool_failure *failure)
{
    struct replay_memory *memory = sequence->memory;
    struct moor_buffer_options options = {.grant = sequence->grant};
    for (uint64_t i = first; i < end; i++)
        if (moor_buffer_allocate(memory->binding, memory->config->block_bytes, &options,
                                 &sequence->handles[i]) != MOOR_OK)
            return tool_fail_last(failure, TOOL_FAILED, "allocating a block that was granted");
    return true;
}

/* Buffers are never adjacent: the view has one block. */
static bool view(const struct replay_sequence *sequence, uint64_t first, uint64_t end,
                 struct moor_view *ret_view, struct tool_failure *failure)
{
    (void)end;
    if (moor_buffer_get_view(sequence->memory->runtime, sequence->handles[first], ret_view) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "view of a block");
    return true;
}

const struct replay_backend replay_eager = {
    .name = "eager",
    .measure = measure,
    .make = make,
    .view = view,
    .drop = moor_buffer_release,
};
