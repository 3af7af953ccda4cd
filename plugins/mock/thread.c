/* SPDX-License-Identifier: MIT */
/*
 * The life of queues, and with a real clock the thread of each. A queue lives as long as streams submit to
 * it. It ends with the last stream if it is empty then; otherwise when it has become empty, and at the latest
 * with its context.
 */
#include "sim.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void mock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes; /* no call here fails on Linux */
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

/* Waits for a change of the queue, at most longest_ns; may return early. Requires mock->lock. Releases it
 * while waiting. */
static void wait_for_change(struct mock_queue *queue, uint64_t longest_ns)
{
    const uint64_t second_ns = 1000000000;
    struct timespec until;
    if (longest_ns == UINT64_MAX) {
        (void)pthread_cond_wait(&queue->thread.moved, &queue->context->mock->lock);
        return;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t fraction_ns = (uint64_t)until.tv_nsec + longest_ns % second_ns;
    until.tv_sec += (time_t)(longest_ns / second_ns + fraction_ns / second_ns);
    until.tv_nsec = (long)(fraction_ns % second_ns);
    (void)pthread_cond_timedwait(&queue->thread.moved, &queue->context->mock->lock,
                                 &until); /* early or late: the caller checks again */
}

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
            wait_for_change(queue, ready ? due_ns - now_ns : UINT64_MAX);
    }
    mock_unlock(mock);
    return NULL;
}

static int start_thread(struct mock_queue *queue)
{
    /* Signals are for the host's threads. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&queue->thread.id, NULL, work, queue);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0)
        (void)pthread_setname_np(queue->thread.id, "moorage-mock"); /* a name for debuggers */
    return code;
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
    mock_cond_init(&queue->thread.moved);
    int32_t status = mock_queue_add(mock, queue, error);
    if (status) {
        free_queue(queue);
        return status;
    }
    int code = mock_is_virtual(mock) ? 0 : start_thread(queue);
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
