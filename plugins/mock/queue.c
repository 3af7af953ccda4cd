/* SPDX-License-Identifier: MIT */
/*
 * Queues: the ordered work that streams submit to. A queue lives as long as streams submit to it; it ends with
 * the last of them if it has nothing to do then, and at the latest with its context. With a real clock it has a thread. What it does, and when, is clock.c's.
 */
#include "sim.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- slots and queues; the lock is held ---- */

static int32_t take_slot(struct moor_mock *mock, uint32_t *ret_slot, struct moor_abi_error *error)
{
    if (mock->free_slot_count > 0) {
        *ret_slot = mock->free_slots[--mock->free_slot_count];
        return MOOR_OK;
    }
    if (mock->slot_count == mock->slot_capacity) {
        uint32_t capacity = mock->slot_capacity ? 2 * mock->slot_capacity : 16;
        struct mock_slot *slots = realloc(mock->slots, capacity * sizeof(*slots));
        if (slots)
            mock->slots = slots;
        uint32_t *free_slots = realloc(mock->free_slots, capacity * sizeof(*free_slots));
        if (free_slots)
            mock->free_slots = free_slots;
        if (!slots || !free_slots)
            return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for %" PRIu32 " streams",
                                 capacity);
        mock->slot_capacity = capacity;
    }
    mock->slots[mock->slot_count] = (struct mock_slot){0};
    *ret_slot = mock->slot_count++;
    return MOOR_OK;
}

static int32_t list_queue(struct moor_mock *mock, struct mock_queue *queue, struct moor_abi_error *error)
{
    if (mock->queue_count == mock->queue_capacity) {
        uint32_t capacity = mock->queue_capacity ? 2 * mock->queue_capacity : 16;
        struct mock_queue **queues = realloc(mock->queues, capacity * sizeof(struct mock_queue *));
        if (!queues)
            return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for %" PRIu32 " streams",
                                 capacity);
        mock->queues = queues;
        mock->queue_capacity = capacity;
    }
    int32_t status = take_slot(mock, &queue->slot, error);
    if (status == MOOR_OK) {
        queue->number = ++mock->queues_made;
        mock->queues[mock->queue_count++] = queue;
    }
    return status;
}

/* Nothing of it happens any more; its slot serves the next one. */
static void unlist_queue(struct moor_mock *mock, struct mock_queue *queue)
{
    uint32_t i = 0;
    while (mock->queues[i] != queue)
        i++;
    memmove(&mock->queues[i], &mock->queues[i + 1],
            (mock->queue_count - i - 1) * sizeof(struct mock_queue *));
    mock->queue_count--;
    struct mock_slot *slot = &mock->slots[queue->slot];
    slot->seen = slot->submitted;
    mock->free_slots[mock->free_slot_count++] = queue->slot;
}

struct mock_queue *mock_queue_find(struct moor_mock *mock, uint64_t number)
{
    for (uint32_t i = 0; i < mock->queue_count; i++) {
        if (mock->queues[i]->number == number)
            return mock->queues[i];
    }
    return NULL;
}

/* ---- operations; the lock is held ---- */

struct mock_op *mock_queue_head(struct mock_queue *queue)
{
    return &queue->ring[queue->first];
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
    queue->first = (queue->first + 1) & (queue->capacity - 1);
    queue->count--;
}

int32_t mock_queue_make_room(struct mock_queue *queue, struct moor_abi_error *error)
{
    if (queue->count < queue->capacity)
        return MOOR_OK;
    if (queue->capacity >= MOCK_OPS_MAX)
        return moor_kit_fail(error, MOOR_LIMIT, 0, "%" PRIu32 " operations wait on this stream: no more fit",
                             queue->count);
    uint32_t capacity = queue->capacity ? queue->capacity * 2 : 16;
    struct mock_op *ring = malloc(capacity * sizeof(*ring));
    if (!ring)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for %" PRIu32 " operations",
                             capacity);
    for (uint32_t i = 0; i < queue->count; i++)
        ring[i] = queue->ring[(queue->first + i) & (queue->capacity - 1)];
    free(queue->ring);
    queue->ring = ring;
    queue->capacity = capacity;
    queue->first = 0;
    return MOOR_OK;
}

void mock_queue_push(struct mock_queue *queue, const struct mock_op *op)
{
    struct moor_mock *mock = queue->context->mock;
    struct mock_op *place = &queue->ring[(queue->first + queue->count) & (queue->capacity - 1)];
    *place = *op;
    place->number = ++mock->op_count;
    place->submitted_ns = mock_now(mock);
    queue->count++;
    mock_queue_wake(queue);
}

/* ---- life ---- */

static int start_thread(struct mock_queue *queue)
{
    /* Signals are for the host's threads. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&queue->thread, NULL, mock_queue_work, queue);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0)
        (void)pthread_setname_np(queue->thread, "moorage-mock"); /* for people only */
    return code;
}

static void free_queue(struct mock_queue *queue)
{
    pthread_cond_destroy(&queue->moved);
    mock_clock_unref(queue->clock);
    free(queue->ring);
    free(queue);
}

int32_t mock_queue_create(struct moor_abi_context *context, struct mock_queue **ret_queue,
                          struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    struct mock_queue *queue = calloc(1, sizeof(*queue));
    if (!queue)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a stream");
    queue->context = context;
    mock_cond_init(&queue->moved);
    int32_t status = list_queue(mock, queue, error);
    if (status != MOOR_OK) {
        free_queue(queue);
        return status;
    }
    int code = mock_is_virtual(mock) ? 0 : start_thread(queue);
    if (code != 0) {
        unlist_queue(mock, queue);
        free_queue(queue);
        return moor_kit_fail(error, code == EAGAIN ? MOOR_LIMIT : MOOR_PROVIDER, code,
                             "no thread for a stream: %s", strerrorname_np(code));
    }
    *ret_queue = queue;
    return MOOR_OK;
}

void mock_queue_end(struct mock_queue *queue)
{
    struct moor_mock *mock = queue->context->mock;
    queue->over = true;
    if (!mock_is_virtual(mock)) {
        mock_queue_wake(queue);
        mock_unlock(mock);
        (void)pthread_join(queue->thread, NULL); /* it is there, and nobody else's to join */
        mock_lock(mock);
    }
    while (queue->count > 0)
        mock_queue_pop(queue);
    unlist_queue(mock, queue);
    free_queue(queue);
}

static struct mock_queue *queue_of(const struct moor_abi_context *context)
{
    const struct moor_mock *mock = context->mock;
    uint32_t i = 0;
    while (i < mock->queue_count && mock->queues[i]->context != context)
        i++;
    return i < mock->queue_count ? mock->queues[i] : NULL;
}

void mock_queues_settle(struct moor_abi_context *context)
{
    struct moor_mock *mock = context->mock;
    mock_lock(mock);
    for (uint32_t i = 0; i < mock->queue_count; i++) {
        if (mock->queues[i]->context == context)
            mock->queues[i]->held = false; /* who could open it? */
    }
    while (mock_is_virtual(mock) && queue_of(context) && mock_clock_step(mock))
        ;
    for (struct mock_queue *queue; (queue = queue_of(context)) != NULL;)
        mock_queue_end(queue);
    mock_unlock(mock);
}

void mock_queue_lose(struct mock_queue *queue)
{
    struct moor_mock *mock = queue->context->mock;
    struct mock_slot *slot = &mock->slots[queue->slot];
    queue->lost = true;
    slot->seen = slot->submitted; /* none of it happens any more */
    for (struct moor_abi_stream *stream = queue->streams; stream; stream = stream->next) {
        stream->lost = true;
        moor_kit_timeline_fail(stream->timeline, MOOR_DEVICE_LOST);
        moor_kit_queue_wake(stream->context->releases);
    }
    uint32_t kept = queue->busy ? 1 : 0; /* what is under way ends by itself */
    for (; queue->count > kept; queue->count--)
        finish_op(&queue->ring[(queue->first + queue->count - 1) & (queue->capacity - 1)]);
    mock_queue_wake(queue);
    mock_waits_wake(mock);
}
