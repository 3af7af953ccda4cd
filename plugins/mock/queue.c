/* SPDX-License-Identifier: MIT */
/*
 * Queues: the ordered work that streams submit. execute.c and clock.c execute it, thread.c has the life of
 * queues.
 */
#include "sim.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- slots and the list of queues ---- */

static int32_t take_slot(struct moor_mock *mock, uint32_t *ret_slot, struct moor_abi_error *error)
{
    if (mock->queues.free_slot_count > 0) {
        *ret_slot = mock->queues.free_slots[--mock->queues.free_slot_count];
        return MOOR_OK;
    }
    if (mock->queues.slot_count == mock->queues.slot_capacity) {
        uint32_t capacity = mock->queues.slot_capacity ? 2 * mock->queues.slot_capacity : 16;
        struct mock_slot *slots = realloc(mock->queues.slots, capacity * sizeof *slots);
        if (slots)
            mock->queues.slots = slots;
        uint32_t *free_slots = realloc(mock->queues.free_slots, capacity * sizeof *free_slots);
        if (free_slots)
            mock->queues.free_slots = free_slots;
        if (!slots || !free_slots)
            return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "streams: no host memory for %" PRIu32,
                                 capacity);
        mock->queues.slot_capacity = capacity;
    }
    mock->queues.slots[mock->queues.slot_count] = (struct mock_slot){0};
    *ret_slot = mock->queues.slot_count++;
    return MOOR_OK;
}

int32_t mock_queue_add(struct moor_mock *mock, struct mock_queue *queue, struct moor_abi_error *error)
{
    if (mock->queues.count == mock->queues.capacity) {
        uint32_t capacity = mock->queues.capacity ? 2 * mock->queues.capacity : 16;
        struct mock_queue **queues = realloc(mock->queues.list, capacity * sizeof(struct mock_queue *));
        if (!queues)
            return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "streams: no host memory for %" PRIu32,
                                 capacity);
        mock->queues.list = queues;
        mock->queues.capacity = capacity;
    }
    int32_t status = take_slot(mock, &queue->slot, error);
    if (!status) {
        queue->number = ++mock->queues.made;
        mock->queues.list[mock->queues.count++] = queue;
    }
    return status;
}

void mock_queue_remove(struct moor_mock *mock, struct mock_queue *queue)
{
    uint32_t i = 0;
    while (mock->queues.list[i] != queue)
        i++;
    assert(i < mock->queues.count && queue->ring.count == 0);
    memmove(&mock->queues.list[i], &mock->queues.list[i + 1],
            (mock->queues.count - i - 1) * sizeof(struct mock_queue *));
    mock->queues.count--;
    struct mock_slot *slot = &mock->queues.slots[queue->slot];
    slot->seen = slot->submitted;
    assert(mock->queues.free_slot_count < mock->queues.slot_count);
    mock->queues.free_slots[mock->queues.free_slot_count++] = queue->slot;
}

struct mock_queue *mock_queue_find(struct moor_mock *mock, uint64_t number)
{
    for (uint32_t i = 0; i < mock->queues.count; i++) {
        if (mock->queues.list[i]->number == number)
            return mock->queues.list[i];
    }
    return NULL;
}

/* ---- operations ---- */

struct mock_op *mock_queue_head(struct mock_queue *queue)
{
    assert(queue->ring.count > 0);
    return &queue->ring.ops[queue->ring.first];
}

void mock_stream_unref(struct moor_abi_stream *stream)
{
    assert(stream->references > 0);
    if (--stream->references > 0)
        return;
    moor_kit_timeline_destroy(stream->timeline);
    free(stream->records);
    free(stream);
}

void mock_queue_wake(struct mock_queue *queue)
{
    if (!mock_is_virtual(queue->context->mock))
        (void)pthread_cond_signal(&queue->thread.moved);
}

static void wake_waits(struct moor_mock *mock)
{
    for (uint32_t i = 0; i < mock->queues.count && !mock_is_virtual(mock); i++) {
        struct mock_queue *queue = mock->queues.list[i];
        if (queue->ring.count > 0 && mock_queue_head(queue)->kind == MOCK_OP_WAIT)
            mock_queue_wake(queue);
    }
}

static void finish_op(const struct mock_op *op)
{
    if (op->kind == MOCK_OP_WAIT)
        mock_stream_unref(op->fence.stream);
    else if (op->kind == MOCK_OP_CALL)
        mock_clock_unref(op->call.before.clock);
    else if (op->kind == MOCK_OP_KERNEL)
        free(op->kernel.accesses);
}

void mock_queue_pop(struct mock_queue *queue)
{
    finish_op(mock_queue_head(queue));
    queue->ring.first = (queue->ring.first + 1) & (queue->ring.capacity - 1);
    queue->ring.count--;
}

int32_t mock_queue_make_room(struct mock_queue *queue, struct moor_abi_error *error)
{
    if (queue->ring.count < queue->ring.capacity)
        return MOOR_OK;
    if (queue->ring.capacity >= MOCK_OPS_MAX)
        return moor_kit_fail(error, MOOR_LIMIT, 0, "stream: %" PRIu32 " operations wait, and no more fit",
                             queue->ring.count);
    uint32_t capacity = queue->ring.capacity ? queue->ring.capacity * 2 : 16;
    struct mock_op *ring = malloc(capacity * sizeof *ring);
    if (!ring)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM,
                             "stream: no host memory for %" PRIu32 " operations", capacity);
    for (uint32_t i = 0; i < queue->ring.count; i++)
        ring[i] = queue->ring.ops[(queue->ring.first + i) & (queue->ring.capacity - 1)];
    free(queue->ring.ops);
    queue->ring.ops = ring;
    queue->ring.capacity = capacity;
    queue->ring.first = 0;
    return MOOR_OK;
}

void mock_queue_push(struct mock_queue *queue, const struct mock_op *op)
{
    struct moor_mock *mock = queue->context->mock;
    assert(queue->ring.count < queue->ring.capacity && !queue->over && !queue->lost);
    struct mock_op *place =
        &queue->ring.ops[(queue->ring.first + queue->ring.count) & (queue->ring.capacity - 1)];
    *place = *op;
    place->number = ++mock->queues.op_count;
    place->submitted_ns = mock_now(mock);
    queue->ring.count++;
    mock_queue_wake(queue);
}

void mock_stream_reaches(struct moor_abi_stream *stream, uint64_t value)
{
    assert(value > stream->reached && value <= stream->recorded);
    stream->reached = value;
    moor_kit_timeline_signal(stream->timeline, value);
    moor_kit_queue_wake(stream->kit.context->kit.queue);
    wake_waits(stream->kit.context->mock);
}

void mock_queue_lose(struct mock_queue *queue)
{
    struct moor_mock *mock = queue->context->mock;
    struct mock_slot *slot = &mock->queues.slots[queue->slot];
    queue->lost = true;
    slot->seen = slot->submitted; /* no more of it will happen */
    for (struct moor_abi_stream *stream = queue->streams; stream; stream = stream->next) {
        stream->lost = true;
        moor_kit_timeline_fail(stream->timeline, MOOR_DEVICE_LOST);
        moor_kit_queue_wake(stream->kit.context->kit.queue);
    }
    uint32_t kept = queue->busy ? 1 : 0; /* the operation that is being executed ends normally */
    for (; queue->ring.count > kept; queue->ring.count--)
        finish_op(&queue->ring.ops[(queue->ring.first + queue->ring.count - 1) & (queue->ring.capacity - 1)]);
    mock_queue_wake(queue);
    wake_waits(mock);
}
