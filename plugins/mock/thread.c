/* SPDX-License-Identifier: MIT */
/*
 * The life of queues, and with a real clock the thread of each. A queue lives as long as streams submit to
 * it. It ends with the last stream if it is empty then; otherwise when it has become empty, and at the latest
 * with its context.
 */
#include "sim.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void *work(void *argument)
{
    struct mock_queue *queue = argument;
    struct moor_mock *mock = queue->context->mock;
    mock_lock(mock);
    while (!queue->over || queue->ring.count > 0) {
        uint64_t due_ns = 0;
        bool ready = mock_queue_is_ready(queue, &due_ns);
        uint64_t now_ns = mock_now(mock);
        if (ready && due_ns <= now_ns)
            mock_queue_execute(queue);
        else if (!queue->over || queue->ring.count > 0)
            moor_kit_cond_wait(&queue->thread.moved, &mock->lock, ready ? due_ns - now_ns : UINT64_MAX);
    }
    mock_unlock(mock);
    return NULL;
}

static void free_queue(struct mock_queue *queue)
{
    pthread_cond_destroy(&queue->thread.moved);
    mock_clock_unref(queue->clock);
    free(queue->ring.ops);
    free(queue);
}

int32_t mock_queue_create(struct moor_abi_context *context, struct mock_queue **ret_queue,
                          struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    struct mock_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "stream: no host memory");
    queue->context = context;
    (void)moor_kit_cond_init(&queue->thread.moved); /* does not fail on Linux */
    int32_t status = mock_queue_add(mock, queue, error);
    if (status) {
        free_queue(queue);
        return status;
    }
    int code =
        mock_is_virtual(mock) ? 0 : moor_kit_thread_start(&queue->thread.id, "moorage-mock", work, queue);
    if (code != 0) {
        mock_queue_remove(mock, queue);
        free_queue(queue);
        return moor_kit_fail(error, code == EAGAIN ? MOOR_LIMIT : MOOR_PROVIDER, code,
                             "stream: no thread: %s", strerrorname_np(code));
    }
    *ret_queue = queue;
    return MOOR_OK;
}

void mock_queue_end(struct mock_queue *queue)
{
    struct moor_mock *mock = queue->context->mock;
    assert(queue->stream_count == 0 && !queue->over);
    queue->over = true;
    if (!mock_is_virtual(mock)) {
        mock_queue_wake(queue);
        mock_unlock(mock);
        (void)pthread_join(queue->thread.id, NULL); /* cannot fail: joined here alone */
        mock_lock(mock);
    }
    while (queue->ring.count > 0)
        mock_queue_pop(queue);
    mock_queue_remove(mock, queue);
    free_queue(queue);
}
