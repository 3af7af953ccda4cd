/* SPDX-License-Identifier: MIT */
/*
 * Time: when work takes effect.
 *
 * The first operation of a queue is due when the ones before it have taken effect, it has been submitted, and
 * its cost has passed; a wait for another stream when that value is reached. With a virtual clock whoever
 * lets it run does the work, one operation after the other, and of those that are due the seed picks. With a
 * real one each queue has a thread.
 */
#include "sim.h"
#include <time.h>

uint64_t mock_now(const struct moor_mock *mock)
{
    return mock_is_virtual(mock) ? mock->now_ns : mock->host->clock_ns(mock->host->user);
}

/* ---- waking; only threads need it ---- */

void mock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes; /* none of these fails on Linux */
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

void mock_queue_wake(struct mock_queue *queue)
{
    if (!mock_is_virtual(queue->context->mock))
        (void)pthread_cond_signal(&queue->moved);
}

void mock_waits_wake(struct moor_mock *mock)
{
    for (uint32_t i = 0; i < mock->queue_count && !mock_is_virtual(mock); i++) {
        struct mock_queue *queue = mock->queues[i];
        if (queue->count > 0 && mock_queue_head(queue)->kind == MOCK_OP_WAIT)
            mock_queue_wake(queue);
    }
}

void mock_stream_reaches(struct moor_abi_stream *stream, uint64_t value)
{
    stream->reached = value;
    moor_kit_timeline_signal(stream->timeline, value);
    moor_kit_queue_wake(stream->context->releases);
    mock_waits_wake(stream->context->mock);
}

/* ---- one queue; the lock is held ---- */

/* Whether its first operation can take effect, and when. */
static bool is_ready(struct mock_queue *queue, uint64_t *ret_due_ns)
{
    if (queue->count == 0 || queue->held || queue->lost || queue->busy)
        return false;
    const struct mock_op *op = mock_queue_head(queue);
    if (op->kind == MOCK_OP_WAIT && op->fence.stream->reached < op->fence.value) {
        if (op->fence.stream->lost)
            mock_queue_lose(queue); /* what it waits for does not come */
        return false;
    }
    uint64_t start_ns = queue->free_at_ns > op->submitted_ns ? queue->free_at_ns : op->submitted_ns;
    *ret_due_ns = mock_add(start_ns, op->cost_ns);
    return true;
}

static void touch_memory(struct mock_queue *queue, const struct mock_op *op)
{
    struct moor_mock *mock = queue->context->mock;
    struct mock_progress progress = {0};
    while (!queue->lost && !mock_op_take_effect(queue, op, &progress)) {
        if (mock_is_virtual(mock))
            continue;
        mock_unlock(mock); /* large copies do not keep others waiting */
        mock_lock(mock);
    }
}

static void call_host(struct moor_mock *mock, const struct mock_op *op)
{
    mock_host_sees(mock, &op->call.before); /* it can tell the host's threads */
    mock_unlock(mock);
    op->call.function(op->call.user);
    mock_lock(mock);
}

static void run_first(struct mock_queue *queue)
{
    struct moor_mock *mock = queue->context->mock;
    const struct mock_op op = *mock_queue_head(queue);
    queue->busy = true;
    switch (op.kind) {
    case MOCK_OP_COPY:
    case MOCK_OP_FILL:
    case MOCK_OP_KERNEL:
        if (!op.spoilt)
            touch_memory(queue, &op);
        break;
    case MOCK_OP_CALL:
        call_host(mock, &op);
        break;
    case MOCK_OP_RECORD:
        mock_stream_reaches(op.fence.stream, op.fence.value);
        break;
    case MOCK_OP_WAIT:
        break;
    }
    mock_queue_pop(queue);
    queue->busy = false;
    queue->free_at_ns = mock_now(mock);
}

/* ---- threads ---- */

/* Until something changes, at most so long; or for no reason. */
static void wait_for_change(struct mock_queue *queue, uint64_t longest_ns)
{
    const uint64_t second_ns = 1000000000;
    struct timespec until;
    if (longest_ns == UINT64_MAX) {
        (void)pthread_cond_wait(&queue->moved, &queue->context->mock->lock);
        return;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t fraction_ns = (uint64_t)until.tv_nsec + longest_ns % second_ns;
    until.tv_sec += (time_t)(longest_ns / second_ns + fraction_ns / second_ns);
    until.tv_nsec = (long)(fraction_ns % second_ns);
    (void)pthread_cond_timedwait(&queue->moved, &queue->context->mock->lock,
                                 &until); /* early or late: it looks again */
}

void *mock_queue_work(void *argument)
{
    struct mock_queue *queue = argument;
    struct moor_mock *mock = queue->context->mock;
    mock_lock(mock);
    while (!queue->over || queue->count > 0) {
        uint64_t due_ns = 0;
        bool ready = is_ready(queue, &due_ns);
        uint64_t now_ns = mock_now(mock);
        if (ready && due_ns <= now_ns)
            run_first(queue);
        else if (!queue->over || queue->count > 0)
            wait_for_change(queue, ready ? due_ns - now_ns : UINT64_MAX);
    }
    mock_unlock(mock);
    return NULL;
}

/* ---- the virtual clock ---- */

/* One thread at a time lets it run. False: this one does already, and a host function has come back here. */
static bool start_running(struct moor_mock *mock)
{
    if (mock->running && pthread_equal(mock->runner, pthread_self()))
        return false;
    while (mock->running)
        (void)pthread_cond_wait(&mock->ran, &mock->lock);
    mock->running = true;
    mock->runner = pthread_self();
    return true;
}

static void stop_running(struct moor_mock *mock)
{
    mock->running = false;
    (void)pthread_cond_broadcast(&mock->ran);
}

static uint64_t earliest_due(struct moor_mock *mock)
{
    uint64_t earliest_ns = UINT64_MAX;
    for (uint32_t i = 0; i < mock->queue_count; i++) {
        uint64_t due_ns = 0;
        if (is_ready(mock->queues[i], &due_ns) && due_ns < earliest_ns)
            earliest_ns = due_ns;
    }
    return earliest_ns;
}

/* Of the queues that are due by the horizon: the one that is due first, and of those that submitted first;
 * or any. */
static struct mock_queue *pick(struct moor_mock *mock, uint64_t horizon_ns, uint64_t *ret_due_ns)
{
    struct mock_queue *picked = NULL;
    uint64_t candidates = 0;
    for (uint32_t i = 0; i < mock->queue_count; i++) {
        struct mock_queue *queue = mock->queues[i];
        uint64_t due_ns = 0;
        if (!is_ready(queue, &due_ns) || due_ns > horizon_ns)
            continue;
        bool better;
        if (mock->settings.order == MOCK_ORDER_FIFO)
            better =
                !picked || due_ns < *ret_due_ns ||
                (due_ns == *ret_due_ns && mock_queue_head(queue)->number < mock_queue_head(picked)->number);
        else
            better = mock_random(&mock->random) % ++candidates == 0; /* each is as likely */
        if (better) {
            picked = queue;
            *ret_due_ns = due_ns;
        }
    }
    return picked;
}

static bool run_one(struct moor_mock *mock, uint64_t horizon_ns)
{
    uint64_t due_ns = 0;
    struct mock_queue *queue = pick(mock, horizon_ns, &due_ns);
    if (!queue)
        return false;
    if (due_ns > mock->now_ns)
        mock->now_ns = due_ns;
    run_first(queue);
    if (queue->stream_count == 0 && queue->count == 0)
        mock_queue_end(queue);
    return true;
}

bool mock_clock_step(struct moor_mock *mock)
{
    if (!start_running(mock))
        return false;
    uint64_t earliest_ns = earliest_due(mock);
    bool ran =
        earliest_ns != UINT64_MAX && run_one(mock, earliest_ns > mock->now_ns ? earliest_ns : mock->now_ns);
    stop_running(mock);
    return ran;
}

bool mock_clock_run(struct moor_mock *mock, uint64_t duration_ns)
{
    if (!start_running(mock))
        return false;
    uint64_t until_ns = mock_add(mock->now_ns, duration_ns);
    while (run_one(mock, until_ns))
        ;
    if (until_ns > mock->now_ns)
        mock->now_ns = until_ns;
    stop_running(mock);
    return true;
}

void mock_clock_pass(struct moor_mock *mock, uint64_t duration_ns)
{
    const uint64_t second_ns = 1000000000;
    if (mock_is_virtual(mock)) {
        mock_lock(mock);
        (void)mock_clock_run(mock, duration_ns); /* within a host function time stands still */
        mock_unlock(mock);
        return;
    }
    struct timespec left = {(time_t)(duration_ns / second_ns), (long)(duration_ns % second_ns)};
    while (nanosleep(&left, &left) != 0)
        ; /* a signal: the rest */
}
