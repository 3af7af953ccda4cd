/* SPDX-License-Identifier: MIT */
/* Waiting until no holder is being asked for memory. */
#ifndef TESTS_SETTLE_H
#define TESTS_SETTLE_H

#include "governor/governor.h"

/* Runs the schedule, and waits until every pressure request has its answer. Requires no lock. */
static inline void moor__pressure_settle(struct moor_runtime *runtime)
{
    struct moor__queue *queue = &runtime->governor->queue;
    moor__lock_acquire(&queue->lock);
    moor__queue_scan_locked(runtime->governor);
    while (!STAILQ_EMPTY(&queue->schedule.requests) || queue->workers.running)
        moor__lock_wait(&queue->lock, &queue->workers.quiet);
    moor__lock_release(&queue->lock);
}

#endif
