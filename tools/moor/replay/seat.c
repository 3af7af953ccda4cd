/* SPDX-License-Identifier: MIT */
/*
 * A request's memory, from its start until its fence has passed; the same in both modes.
 *
 * Every block of a seat is its own or somebody else's: its own until it is published, and again when it is
 * taken back. At the end the seat lets go of what is somebody else's at once, and what is its own goes behind
 * the decode fence.
 *
 * Simulated fences are real ones: a finished request puts a host function on the decode stream that stands at
 * a gate until the simulation opens it, and whose work uses the seat's own blocks. One stream and one fence
 * time for all: gates are opened in the order in which they were submitted. A device without asynchronous
 * work would stand at the gate inside the call; there the gate lets it pass, and the blocks are kept until
 * their fence time instead.
 */
#include "replay/seat.h"
#include "tool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define PRIVATE_IDENTITY (UINT64_C(1) << 63) /* of private blocks: apart from all ids */

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

/* ---- a seat's end ---- */

/* All that is the seat's own, without waiting. What does not go is found when closing. */
static void release(struct replay_seat *seat)
{
    struct replay_memory *memory = seat->memory;
    for (uint64_t i = 0; i < seat->admission.total_blocks; i++) {
        if (seat->owned[i])
            (void)memory->backend->drop(memory->runtime, seat->handles[i]);
        seat->owned[i] = false;
    }
    (void)moor_range_release(memory->runtime, seat->range);
    (void)moor_grant_release(memory->runtime, seat->grant);
    seat->range = 0;
    seat->grant = 0;
}

static void destroy(struct replay_seat *seat)
{
    DL_DELETE(seat->memory->seats, seat);
    pthread_cond_destroy(&seat->gate.opened);
    pthread_mutex_destroy(&seat->gate.mutex);
    free(seat->handles);
    free(seat->owned);
    free(seat);
}

/* A seat whose fence does not pass is left alone: its gate may still be in use. */
void replay_seats_abandon(struct replay_memory *memory)
{
    struct replay_seat *seat = NULL;
    struct replay_seat *next = NULL;
    DL_FOREACH(memory->seats, seat)
    {
        gate_open(&seat->gate);
        release(seat);
    }
    DL_FOREACH_SAFE(memory->seats, seat, next)
    {
        if (!seat->submitted || moor_fence_wait(&seat->fence, moor_clock_ns() + REPLAY_WAIT_NS) == MOOR_OK)
            destroy(seat);
    }
}

/* ---- blocks ---- */

/* What a block's contents are made from: its prefix where others may know it, else the request and the slot.
 */
static uint64_t block_identity(const struct replay_seat *seat, uint64_t block)
{
    const struct replay_admission *admission = &seat->admission;
    if (block < admission->id_count)
        return (uint64_t)admission->ids[block];
    return PRIVATE_IDENTITY | (admission->row << 32) | block;
}

static bool make_blocks(struct replay_seat *seat, uint64_t first, uint64_t end, struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    for (uint64_t i = first; i < end; i++)
        seat->owned[i] = true;
    if (first < end && !memory->backend->make(seat, first, end, failure))
        return false;
    for (uint64_t i = first; i < end; i++) {
        struct moor_view view;
        if (!memory->backend->view(seat, i, i + 1, &view, failure) ||
            !replay_toucher_write(&memory->toucher, &view, block_identity(seat, i), failure))
            return false;
    }
    return replay_toucher_wait(&memory->toucher, failure);
}

static bool verify_hits(struct replay_seat *seat, struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    for (uint64_t i = 0; i < seat->admission.hit_blocks; i++) {
        struct moor_view view;
        if (!memory->backend->view(seat, i, i + 1, &view, failure) ||
            !replay_toucher_verify(&memory->toucher, &view, block_identity(seat, i), failure))
            return false;
    }
    return true;
}

/* ---- from start to end ---- */

static bool fill(struct replay_seat *seat, struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    const struct replay_admission *admission = &seat->admission;
    if (memory->backend->place != NULL && !memory->backend->place(seat, failure))
        return false;
    if (!verify_hits(seat, failure))
        return false;
    uint64_t needed_bytes = (admission->total_blocks - admission->hit_blocks) * memory->footprint_bytes;
    if (needed_bytes > 0 && moor_grant_reserve(memory->holder, needed_bytes, MOOR_NO_WAIT, &seat->grant) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "the model has room and the governor has not");
    return make_blocks(seat, admission->hit_blocks, admission->prompt_blocks, failure);
}

bool replay_seat_start(struct replay_memory *memory, const struct replay_admission *admission,
                       struct replay_seat **ret_seat, struct tool_failure *failure)
{
    struct replay_seat *seat = tool_allocate(1, sizeof *seat);
    seat->memory = memory;
    seat->admission = *admission;
    seat->admission.hit_handles = NULL; /* borrowed for this call */
    seat->handles = tool_allocate(admission->total_blocks, sizeof *seat->handles);
    seat->owned = tool_allocate(admission->total_blocks, sizeof *seat->owned);
    for (uint64_t i = 0; i < admission->hit_blocks; i++)
        seat->handles[i] = admission->hit_handles[i];
    pthread_mutex_init(&seat->gate.mutex, NULL);
    pthread_cond_init(&seat->gate.opened, NULL);
    DL_APPEND(memory->seats, seat);
    if (!fill(seat, failure)) {
        release(seat);
        destroy(seat);
        return false;
    }
    *ret_seat = seat;
    return true;
}

bool replay_seat_grow(struct replay_seat *seat, uint64_t block, struct tool_failure *failure)
{
    return make_blocks(seat, block, block + 1, failure);
}

bool replay_seat_publish(struct replay_seat *seat, uint64_t block, replay_handle *ret_handle,
                         struct tool_failure *failure)
{
    const struct replay_backend *backend = seat->memory->backend;
    if (backend->seal != NULL && !backend->seal(seat, block, failure))
        return false;
    seat->owned[block] = false;
    *ret_handle = seat->handles[block];
    return true;
}

void replay_seat_take_back(struct replay_seat *seat, uint64_t block, replay_handle handle)
{
    seat->handles[block] = handle;
    seat->owned[block] = true;
}

/* A grant is exactly what the request came to need. */
static bool check_grant_used_up(struct replay_seat *seat, struct tool_failure *failure)
{
    uint64_t remaining = 0;
    if (seat->grant == 0)
        return true;
    if (moor_grant_get_remaining(seat->memory->runtime, seat->grant, &remaining) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "grant");
    if (remaining != 0)
        return tool_fail(failure, TOOL_FAILED, MOOR_CORRUPT,
                         "a finished request left %" PRIu64 " bytes of its grant", remaining);
    return true;
}

static bool part_with_shared(struct replay_seat *seat, struct tool_failure *failure)
{
    const struct replay_backend *backend = seat->memory->backend;
    for (uint64_t i = 0; backend->part != NULL && i < seat->admission.total_blocks; i++)
        if (!seat->owned[i] && !backend->part(seat, i, failure))
            return false;
    return true;
}

/* Tells that the gate's work uses every block of the seat's own. */
static bool mark_owned(struct replay_seat *seat, struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    uint64_t total_blocks = seat->admission.total_blocks;
    for (uint64_t first = 0; first < total_blocks; first++) {
        uint64_t end = first;
        while (end < total_blocks && seat->owned[end])
            end++;
        while (first < end) {
            struct moor_view view;
            if (!memory->backend->view(seat, first, end, &view, failure))
                return false;
            if (moor_stream_used(memory->decode, &view) != MOOR_OK)
                return tool_fail_last(failure, TOOL_FAILED, "marking the last use of a block");
            first += view.size_bytes / memory->config->block_bytes;
        }
    }
    return true;
}

/* The gate, the uses of its work, and the fence behind it: where the fence has passed, so have the uses. */
static bool submit_gate(struct replay_seat *seat, struct tool_failure *failure)
{
    struct moor_stream *decode = seat->memory->decode;
    seat->gate.submitter = pthread_self();
    if (moor_stream_host_function(decode, gate_pass, &seat->gate, NULL, 0) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "decode gate");
    seat->submitted = true;
    if (!mark_owned(seat, failure))
        return false;
    if (moor_stream_record(decode, &seat->fence) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "decode fence");
    return true;
}

bool replay_seat_finish(struct replay_seat *seat, struct tool_failure *failure)
{
    /* Shared blocks first, so that no use of what is behind the gate can be taken for one of theirs. */
    if (!check_grant_used_up(seat, failure) || !part_with_shared(seat, failure) ||
        !submit_gate(seat, failure))
        return false;
    if (!seat->gate.ran_inline)
        release(seat);
    return true;
}

bool replay_seat_leave(struct replay_seat *seat, struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    gate_open(&seat->gate);
    if (moor_fence_wait(&seat->fence, moor_clock_ns() + REPLAY_WAIT_NS) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "waiting for the decode fence");
    release(seat); /* nothing is left of it unless the gate ran inline */
    destroy(seat);
    return replay_memory_settle(memory, failure);
}
