/* SPDX-License-Identifier: MIT */
/*
 * The virtual clock. The thread that lets it run executes the work of all queues, one operation after the
 * other; among the operations that are due the seed picks one.
 */
#include "sim.h"
#include <time.h>

/* Makes this thread the one that lets the clock run. Returns false if it is that already: a host function has
 * called back. Requires mock->lock. Releases it while waiting. */
static bool start_running(struct moor_mock *mock)
{
    if (mock->time.is_running && pthread_equal(mock->time.runner, pthread_self()))
        return false;
    while (mock->time.is_running)
        (void)pthread_cond_wait(&mock->time.ran, &mock->lock);
    mock->time.is_running = true;
    mock->time.runner = pthread_self();
    return true;
}

static void stop_running(struct moor_mock *mock)
{
    assert(mock->time.is_running && pthread_equal(mock->time.runner, pthread_self()));
    mock->time.is_running = false;
    (void)pthread_cond_broadcast(&mock->time.ran);
}

static uint64_t earliest_due(struct moor_mock *mock)
{
    uint64_t earliest_ns = UINT64_MAX;
    for (uint32_t i = 0; i < mock->queues.count; i++) {
        uint64_t due_ns = 0;
        if (mock_queue_is_ready(mock->queues.list[i], &due_ns) && due_ns < earliest_ns)
            earliest_ns = due_ns;
    }
    return earliest_ns;
}

/* Picks a queue that is due by the horizon. With order=fifo: the first one that is due, and among equals the
 * first submission. With order=any: each with the same chance. */
static struct mock_queue *pick(struct moor_mock *mock, uint64_t horizon_ns, uint64_t *ret_due_ns)
{
    struct mock_queue *picked = NULL;
    uint64_t candidates = 0;
    for (uint32_t i = 0; i < mock->queues.count; i++) {
        struct mock_queue *queue = mock->queues.list[i];
        uint64_t due_ns = 0;
        if (!mock_queue_is_ready(queue, &due_ns) || due_ns > horizon_ns)
            continue;
        bool better;
        if (mock->settings.order == MOCK_ORDER_FIFO)
            better =
                !picked || due_ns < *ret_due_ns ||
                (due_ns == *ret_due_ns && mock_queue_head(queue)->number < mock_queue_head(picked)->number);
        else
            better = mock_random(&mock->time.random) % ++candidates == 0; /* each has the same chance */
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
    if (due_ns > mock->time.now_ns)
        mock->time.now_ns = due_ns;
    mock_queue_execute(queue);
    if (queue->stream_count == 0 && queue->ring.count == 0)
        mock_queue_end(queue);
    return true;
}

bool mock_clock_step(struct moor_mock *mock)
{
    if (!start_running(mock))
        return false;
    uint64_t earliest_ns = earliest_due(mock);
    bool ran = earliest_ns != UINT64_MAX &&
               run_one(mock, earliest_ns > mock->time.now_ns ? earliest_ns : mock->time.now_ns);
    stop_running(mock);
    return ran;
}

bool mock_clock_run(struct moor_mock *mock, uint64_t duration_ns)
{
    if (!start_running(mock))
        return false;
    uint64_t until_ns = mock_add(mock->time.now_ns, duration_ns);
    while (run_one(mock, until_ns))
        ;
    if (until_ns > mock->time.now_ns)
        mock->time.now_ns = until_ns;
    stop_running(mock);
    return true;
}

void mock_clock_pass(struct moor_mock *mock, uint64_t duration_ns)
{
    const uint64_t second_ns = 1000000000;
    if (mock_is_virtual(mock)) {
        mock_lock(mock);
        (void)mock_clock_run(mock, duration_ns); /* inside a host function time does not pass */
        mock_unlock(mock);
        return;
    }
    struct timespec left = {(time_t)(duration_ns / second_ns), (long)(duration_ns % second_ns)};
    while (nanosleep(&left, &left) != 0)
        ; /* after a signal: sleep for the rest */
}

static struct mock_queue *queue_of(const struct moor_abi_context *context)
{
    const struct moor_mock *mock = context->mock;
    uint32_t i = 0;
    while (i < mock->queues.count && mock->queues.list[i]->context != context)
        i++;
    return i < mock->queues.count ? mock->queues.list[i] : NULL;
}

void mock_queues_drain(struct moor_abi_context *context)
{
    struct moor_mock *mock = context->mock;
    mock_lock(mock);
    for (uint32_t i = 0; i < mock->queues.count; i++) {
        if (mock->queues.list[i]->context == context)
            mock->queues.list[i]->held = false; /* no stream is left that could open it */
    }
    while (mock_is_virtual(mock) && queue_of(context) && mock_clock_step(mock))
        ;
    for (struct mock_queue *queue; (queue = queue_of(context)) != NULL;)
        mock_queue_end(queue);
    mock_unlock(mock);
}
