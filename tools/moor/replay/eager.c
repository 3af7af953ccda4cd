/* SPDX-License-Identifier: MIT */
/*
 * Blocks as buffers: what a host does without virtual memory. A seat is a table of them, as a paged attention
 * kernel reads it, and a shared block is one buffer in several tables. Whose it is follows from the prefix
 * index, which counts the requests that use it: the index owns what is published, and a seat the rest.
 */
#include "replay/seat.h"
#include "tool.h"

static bool measure(struct replay_memory *memory, uint64_t *ret_bytes, struct tool_failure *failure)
{
    if (moor_binding_get_footprint(memory->binding, memory->config->block_bytes, NULL, ret_bytes) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "the size of a block");
    return true;
}

static bool make(struct replay_seat *seat, uint64_t first, uint64_t end, struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    struct moor_buffer_options options = {.grant = seat->grant};
    for (uint64_t i = first; i < end; i++)
        if (moor_buffer_allocate(memory->binding, memory->config->block_bytes, &options, &seat->handles[i]) !=
            MOOR_OK)
            return tool_fail_last(failure, TOOL_FAILED, "allocating a block that was granted");
    return true;
}

/* No two lie together. */
static bool view(const struct replay_seat *seat, uint64_t first, uint64_t end, struct moor_view *ret_view,
                 struct tool_failure *failure)
{
    (void)end;
    if (moor_buffer_get_view(seat->memory->runtime, seat->handles[first], ret_view) != MOOR_OK)
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
