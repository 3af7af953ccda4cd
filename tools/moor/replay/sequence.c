/* SPDX-License-Identifier: MIT */
/*
 * The memory of a request, from its start until its fence has passed, for both modes.
 *
 * A sequence owns a block until the block is published, and again after it is taken back. At the end the
 * sequence drops the shared blocks at once, and releases its own blocks behind the decode fence.
 *
 * Simulated fences are real fences. A finished request submits a host function to the decode stream. The
 * function waits at a gate until the simulation opens it, and its work uses the sequence's own blocks. All
 * sequences share one stream and one fence delay, so the gates are opened in submission order. A synchronous
 * device would block inside the submission. There the gate returns at once, and the sequence keeps its blocks
 * until the fence time.
 */
#include "replay/sequence.h"
#include "tool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define PRIVATE_IDENTITY (UINT64_C(1) << 63) /* marks private blocks; ids stay below */

/* ---- gates ---- */

static void gate_pass(void *user)
{
    struct replay_gate *gate = user;
    if (pthread_equal(pthread_self(), gate->submitter)) {
        gate->ran_inline = true;
        return;
    }
    pthread_mutex_lock(&gate->mutex);
    while (!gate->open)
        pthread_cond_wait(&gate->opened, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

static void gate_open(struct replay_gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    gate->open = true;
    pthread_cond_broadcast(&gate->opened);
    pthread_mutex_unlock(&gate->mutex);
}

/* ---- the end of a sequence ---- */

/* Releases the sequence's own blocks without waiting. Failures are reported by replay_memory_close. */
static void release(struct replay_sequence *sequence)
{
    struct replay_memory *memory = sequence->memory;
    for (uint64_t i = 0; i < sequence->admission.total_blocks; i++) {
        if (sequence->owned[i])
            (void)memory->backend->drop(memory->runtime, sequence->handles[i]);
        sequence->owned[i] = false;
    }
    (void)moor_range_release(memory->runtime, sequence->range);
    (void)moor_grant_release(memory->runtime, sequence->grant);
    sequence->range = 0;
    sequence->grant = 0;
}

static void destroy(struct replay_sequence *sequence)
{
    DL_DELETE(sequence->memory->sequences, sequence);
    pthread_cond_destroy(&sequence->gate.opened);
    pthread_mutex_destroy(&sequence->gate.mutex);
    free(sequence->handles);
    free(sequence->owned);
    free(sequence);
}

/* Leaks a sequence if its fence does not pass: the device may still use the gate. */
void replay_sequences_abandon(struct replay_memory *memory)
{
    struct replay_sequence *sequence = NULL;
    struct replay_sequence *next = NULL;
    DL_FOREACH(memory->sequences, sequence)
    {
        gate_open(&sequence->gate);
        release(sequence);
    }
    DL_FOREACH_SAFE(memory->sequences, sequence, next)
    {
        if (!sequence->submitted ||
            moor_fence_wait(&sequence->fence, moor_clock_ns() + REPLAY_WAIT_NS) == MOOR_OK)
            destroy(sequence);
    }
}

/* ---- blocks ---- */

/* Returns the seed of a block's contents: its id if it has one, else the request and the block number. */
static uint64_t block_identity(const struct replay_sequence *sequence, uint64_t block)
{
    const struct replay_admission *admission = &sequence->admission;
    if (block < admission->id_count)
        return (uint64_t)admission->ids[block];
    return PRIVATE_IDENTITY | (admission->row << 32) | block;
}

static bool make_blocks(struct replay_sequence *sequence, uint64_t first, uint64_t end,
                        struct tool_failure *failure)
{
    struct replay_memory *memory = sequence->memory;
    for (uint64_t i = first; i < end; i++)
        sequence->owned[i] = true;
    if (first < end && !memory->backend->make(sequence, first, end, failure))
        return false;
    for (uint64_t i = first; i < end; i++) {
        struct moor_view view;
        if (!memory->backend->view(sequence, i, i + 1, &view, failure) ||
            !replay_toucher_write(&memory->toucher, &view, block_identity(sequence, i), failure))
            return false;
    }
    return replay_toucher_wait(&memory->toucher, failure);
}

static bool verify_hits(struct replay_sequence *sequence, struct tool_failure *failure)
{
    struct replay_memory *memory = sequence->memory;
    for (uint64_t i = 0; i < sequence->admission.hit_blocks; i++) {
        struct moor_view view;
        if (!memory->backend->view(sequence, i, i + 1, &view, failure) ||
            !replay_toucher_verify(&memory->toucher, &view, block_identity(sequence, i), failure))
            return false;
    }
    return true;
}

/* ---- from start to end ---- */

static bool fill(struct replay_sequence *sequence, struct tool_failure *failure)
{
    struct replay_memory *memory = sequence->memory;
    const struct replay_admission *admission = &sequence->admission;
    if (memory->backend->place != NULL && !memory->backend->place(sequence, failure))
        return false;
    if (!verify_hits(sequence, failure))
        return false;
    uint64_t needed_bytes = (admission->total_blocks - admission->hit_blocks) * memory->footprint_bytes;
    if (needed_bytes > 0 &&
        moor_grant_reserve(memory->holder, needed_bytes, MOOR_NO_WAIT, &sequence->grant) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "reservation refused although the model has free blocks");
    return make_blocks(sequence, admission->hit_blocks, admission->prompt_blocks, failure);
}

bool replay_sequence_start(struct replay_memory *memory, const struct replay_admission *admission,
                           struct replay_sequence **ret_sequence, struct tool_failure *failure)
{
    struct replay_sequence *sequence = tool_allocate(1, sizeof *sequence);
    sequence->memory = memory;
    sequence->admission = *admission;
    sequence->admission.hit_handles = NULL; /* borrowed for this call */
    sequence->handles = tool_allocate(admission->total_blocks, sizeof *sequence->handles);
    sequence->owned = tool_allocate(admission->total_blocks, sizeof *sequence->owned);
    for (uint64_t i = 0; i < admission->hit_blocks; i++)
        sequence->handles[i] = admission->hit_handles[i];
    pthread_mutex_init(&sequence->gate.mutex, NULL);
    pthread_cond_init(&sequence->gate.opened, NULL);
    DL_APPEND(memory->sequences, sequence);
    if (!fill(sequence, failure)) {
        release(sequence);
        destroy(sequence);
        return false;
    }
    *ret_sequence = sequence;
    return true;
}

bool replay_sequence_grow(struct replay_sequence *sequence, uint64_t block, struct tool_failure *failure)
{
    return make_blocks(sequence, block, block + 1, failure);
}

bool replay_sequence_publish(struct replay_sequence *sequence, uint64_t block, replay_handle *ret_handle,
                             struct tool_failure *failure)
{
    const struct replay_backend *backend = sequence->memory->backend;
    if (backend->seal != NULL && !backend->seal(sequence, block, failure))
        return false;
    sequence->owned[block] = false;
    *ret_handle = sequence->handles[block];
    return true;
}

void replay_sequence_take_back(struct replay_sequence *sequence, uint64_t block, replay_handle handle)
{
    sequence->handles[block] = handle;
    sequence->owned[block] = true;
}

/* A grant must equal the bytes that the request used. */
static bool check_grant_used_up(struct replay_sequence *sequence, struct tool_failure *failure)
{
    uint64_t remaining = 0;
    if (sequence->grant == 0)
        return true;
    if (moor_grant_get_remaining(sequence->memory->runtime, sequence->grant, &remaining) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "grant");
    if (remaining != 0)
        return tool_fail(failure, TOOL_FAILED, MOOR_CORRUPT,
                         "grant: a finished request left %" PRIu64 " bytes", remaining);
    return true;
}

static bool part_with_shared(struct replay_sequence *sequence, struct tool_failure *failure)
{
    const struct replay_backend *backend = sequence->memory->backend;
    for (uint64_t i = 0; backend->part != NULL && i < sequence->admission.total_blocks; i++)
        if (!sequence->owned[i] && !backend->part(sequence, i, failure))
            return false;
    return true;
}

/* Declares that the gate's work uses every block that the sequence owns. */
static bool mark_owned(struct replay_sequence *sequence, struct tool_failure *failure)
{
    struct replay_memory *memory = sequence->memory;
    uint64_t total_blocks = sequence->admission.total_blocks;
    for (uint64_t first = 0; first < total_blocks; first++) {
        uint64_t end = first;
        while (end < total_blocks && sequence->owned[end])
            end++;
        while (first < end) {
            struct moor_view view;
            if (!memory->backend->view(sequence, first, end, &view, failure))
                return false;
            if (moor_stream_used(memory->decode, &view) != MOOR_OK)
                return tool_fail_last(failure, TOOL_FAILED, "marking the last use of a block");
            first += view.size_bytes / memory->config->block_bytes;
        }
    }
    return true;
}

/* Submits the gate, the uses of its work, and the fence. A passed fence implies that the uses are over. */
static bool submit_gate(struct replay_sequence *sequence, struct tool_failure *failure)
{
    struct moor_stream *decode = sequence->memory->decode;
    sequence->gate.submitter = pthread_self();
    if (moor_stream_host_function(decode, gate_pass, &sequence->gate, NULL, 0) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "decode gate");
    sequence->submitted = true;
    if (!mark_owned(sequence, failure))
        return false;
    if (moor_stream_record(decode, &sequence->fence) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "decode fence");
    return true;
}

bool replay_sequence_finish(struct replay_sequence *sequence, struct tool_failure *failure)
{
    /* Drop the shared blocks before the gate is submitted, so that none of them gets a use behind the
     * gate. */
    if (!check_grant_used_up(sequence, failure) || !part_with_shared(sequence, failure) ||
        !submit_gate(sequence, failure))
        return false;
    if (!sequence->gate.ran_inline)
        release(sequence);
    return true;
}

bool replay_sequence_end(struct replay_sequence *sequence, struct tool_failure *failure)
{
    struct replay_memory *memory = sequence->memory;
    gate_open(&sequence->gate);
    if (moor_fence_wait(&sequence->fence, moor_clock_ns() + REPLAY_WAIT_NS) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "waiting for the decode fence");
    release(sequence); /* releases the blocks if the gate ran inline, else nothing is left */
    destroy(sequence);
    return replay_memory_reap(memory, failure);
}
