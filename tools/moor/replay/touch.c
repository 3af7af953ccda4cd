/* SPDX-License-Identifier: MIT */
/*
 * Writes blocks and reads them back. Memory that the host reaches by address is accessed directly. Other
 * memory is filled and copied through its own stream, because the decode stream waits at gates.
 */
#include "replay/touch.h"
#include "tool.h"

#include <inttypes.h>
#include <stdlib.h>

#define PAGE_BYTES 4096u

void replay_toucher_init(struct replay_toucher *toucher, const struct replay_config *config, bool host_access,
                         struct moor_stream *stream)
{
    *toucher = (struct replay_toucher){.host_access = host_access, .stream = stream};
    if (config->touch == REPLAY_TOUCH_NONE)
        return;
    toucher->span_bytes = config->block_bytes;
    if (config->touch == REPLAY_TOUCH_PAGE && toucher->span_bytes > PAGE_BYTES)
        toucher->span_bytes = PAGE_BYTES;
    if (!host_access)
        toucher->buffer = tool_allocate(toucher->span_bytes, 1);
}

void replay_toucher_finish(struct replay_toucher *toucher)
{
    free(toucher->buffer);
    *toucher = (struct replay_toucher){0};
}

/* The finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
 * Never 0, the value of unwritten memory. */
static uint32_t pattern_of(uint64_t identity)
{
    uint64_t z = identity + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(z ^ (z >> 31)) | 1u;
}

bool replay_toucher_wait(struct replay_toucher *toucher, struct tool_failure *failure)
{
    struct moor_fence fence;
    if (toucher->host_access || toucher->span_bytes == 0)
        return true;
    if (moor_stream_record(toucher->stream, &fence) != MOOR_OK ||
        moor_fence_wait(&fence, moor_clock_ns() + REPLAY_WAIT_NS) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "waiting for touched blocks");
    return true;
}

bool replay_toucher_write(struct replay_toucher *toucher, const struct moor_view *block, uint64_t identity,
                          struct tool_failure *failure)
{
    uint32_t pattern = pattern_of(identity);
    struct moor_view span;
    if (toucher->span_bytes == 0)
        return true;
    if (toucher->host_access) {
        uint32_t *words = (uint32_t *)(uintptr_t)block->address;
        for (size_t i = 0; i < toucher->span_bytes / sizeof *words; i++)
            words[i] = pattern;
        return true;
    }
    if (moor_view_slice(block, 0, toucher->span_bytes, &span) != MOOR_OK ||
        moor_fill(toucher->stream, &span, pattern, sizeof pattern) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "writing a block");
    return true;
}

bool replay_toucher_verify(struct replay_toucher *toucher, const struct moor_view *block, uint64_t identity,
                           struct tool_failure *failure)
{
    uint32_t pattern = pattern_of(identity);
    const uint32_t *words = (const uint32_t *)(uintptr_t)block->address;
    if (toucher->span_bytes == 0)
        return true;
    if (!toucher->host_access) {
        struct moor_view span;
        struct moor_view buffer = moor_view_host(toucher->buffer, toucher->span_bytes);
        if (moor_view_slice(block, 0, toucher->span_bytes, &span) != MOOR_OK ||
            moor_copy(toucher->stream, &buffer, &span) != MOOR_OK)
            return tool_fail_last(failure, TOOL_FAILED, "reading a block back");
        if (!replay_toucher_wait(toucher, failure))
            return false;
        words = toucher->buffer;
    }
    for (size_t i = 0; i < toucher->span_bytes / sizeof *words; i++)
        if (words[i] != pattern)
            return tool_fail(failure, TOOL_FAILED, MOOR_CORRUPT,
                             "a shared block reads 0x%08" PRIx32 " at byte %zu instead of 0x%08" PRIx32,
                             words[i], i * sizeof *words, pattern);
    return true;
}
