/* SPDX-License-Identifier: MIT */
/*
 * A timeline is two counters: the last value recorded, and the last value reached. `state` holds the second,
 * so the watermark is one atomic load. A failure replaces it with the status and the top bit.
 *
 * The lock is taken by threads that change `state`, and by waiters. signal takes it even without waiters: a
 * thread that reads the last value as reached may destroy the timeline at once, and destroy then waits until
 * signal has released the lock.
 */
#include <assert.h>
#include <inttypes.h>
#include <moorage/kit/check.h>
#include <moorage/kit/host.h>
#include <moorage/kit/timeline.h>
#include <stdatomic.h>
#include <stdlib.h>

#define STATE_FAILED (UINT64_C(1) << 63)

struct moor_kit_timeline {
    const struct moor_abi_host *host;
    _Atomic uint64_t recorded;
    _Atomic uint64_t state; /* the value reached, or STATE_FAILED with the status; written under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t moved;
};

int32_t moor_kit_timeline_create(const struct moor_abi_host *host, struct moor_kit_timeline **ret_timeline)
{
    struct moor_kit_timeline *timeline = calloc(1, sizeof *timeline);
    if (!timeline)
        return MOOR_HOST_NOMEM;
    timeline->host = host;
    if (moor_kit_cond_init(&timeline->moved) != MOOR_OK)
        goto free_timeline;
    if (pthread_mutex_init(&timeline->lock, NULL) != 0)
        goto destroy_moved;
    *ret_timeline = timeline;
    return MOOR_OK;

destroy_moved:
    (void)pthread_cond_destroy(&timeline->moved); /* no thread waits on it yet */
free_timeline:
    free(timeline);
    return MOOR_HOST_NOMEM;
}

void moor_kit_timeline_destroy(struct moor_kit_timeline *timeline)
{
    if (!timeline)
        return;
    pthread_mutex_lock(&timeline->lock); /* waits for a signal that is about to return */
    pthread_mutex_unlock(&timeline->lock);
    (void)pthread_mutex_destroy(&timeline->lock); /* both are out of use */
    (void)pthread_cond_destroy(&timeline->moved);
    free(timeline);
}

uint64_t moor_kit_timeline_record(struct moor_kit_timeline *timeline)
{
    /* Relaxed: this thread passes the value to the thread that signals or waits for it. */
    return atomic_fetch_add_explicit(&timeline->recorded, 1, memory_order_relaxed) + 1;
}

/* Raises the state. States only grow, and the first failure stays: a lower value, or any value after a
 * failure, changes nothing. */
static void raise_state(struct moor_kit_timeline *timeline, uint64_t state)
{
    pthread_mutex_lock(&timeline->lock);
    uint64_t old = atomic_load_explicit(&timeline->state, memory_order_relaxed);
    if (old < STATE_FAILED && state > old) {
        /* Release: a thread that reads the value also sees the work that it stands for. */
        atomic_store_explicit(&timeline->state, state, memory_order_release);
        pthread_cond_broadcast(&timeline->moved);
    }
    pthread_mutex_unlock(&timeline->lock);
}

void moor_kit_timeline_signal(struct moor_kit_timeline *timeline, uint64_t value)
{
    assert(value <= atomic_load_explicit(&timeline->recorded, memory_order_relaxed));
    raise_state(timeline, value);
}

void moor_kit_timeline_fail(struct moor_kit_timeline *timeline, int32_t status)
{
    assert(status < 0);
    raise_state(timeline, STATE_FAILED | (uint32_t)status);
}

int32_t moor_kit_timeline_watermark(struct moor_kit_timeline *timeline, uint64_t *ret_value)
{
    uint64_t state = atomic_load_explicit(&timeline->state, memory_order_acquire);
    if (state >= STATE_FAILED)
        return (int32_t)(uint32_t)state;
    *ret_value = state;
    return MOOR_OK;
}

int32_t moor_kit_timeline_check_recorded(struct moor_kit_timeline *timeline, uint64_t value,
                                         struct moor_abi_error *error)
{
    uint64_t recorded = atomic_load_explicit(&timeline->recorded, memory_order_relaxed); /* see record */
    if (value <= recorded)
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0,
                         "timeline: value %" PRIu64 " was never recorded; the last one is %" PRIu64, value,
                         recorded);
}

int32_t moor_kit_timeline_wait(struct moor_kit_timeline *timeline, uint64_t value, uint64_t deadline_ns)
{
    if (value > atomic_load_explicit(&timeline->recorded, memory_order_relaxed))
        return MOOR_INVALID;

    uint64_t reached = 0;
    int32_t status = moor_kit_timeline_watermark(timeline, &reached);
    if (status || reached >= value)
        return status;

    pthread_mutex_lock(&timeline->lock);
    for (;;) {
        status = moor_kit_timeline_watermark(timeline, &reached);
        if (status || reached >= value)
            break;
        uint64_t left_ns = moor_kit_time_left(timeline->host, deadline_ns);
        if (left_ns == 0) {
            status = MOOR_TIMEOUT;
            break;
        }
        moor_kit_cond_wait(&timeline->moved, &timeline->lock, left_ns);
    }
    pthread_mutex_unlock(&timeline->lock);
    return status;
}
