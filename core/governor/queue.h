/* SPDX-License-Identifier: MIT */
/*
 * The queue: the schedule with its lock and its threads. One of a governor; a thread takes its lock before
 * any authority's. Nothing blocks under it.
 */
#ifndef MOOR_GOVERNOR_QUEUE_H
#define MOOR_GOVERNOR_QUEUE_H

#include "governor/credit.h"
#include "governor/plan.h"

struct moor__worker;

/* The queue's threads; see worker.c. */
struct moor__workers {
    struct moor__worker *list;
    uint32_t count;   /* pressure workers */
    uint32_t idle;    /* pressure workers that wait for a request */
    uint32_t running; /* pressure functions that run */
    bool has_monitor;
    bool is_starting; /* a thread is making the monitor */
    bool is_ending;
    uint64_t calls;           /* number of calls of moor__queue_wake */
    pthread_cond_t work;      /* for pressure workers: a request waits */
    pthread_cond_t attention; /* for the monitor: tickets, requests or the due time have changed */
    pthread_cond_t quiet;     /* for other threads: a holder has answered, or a worker has ended */
};

struct moor__queue {
    struct moor__lock lock; /* guards everything below */
    struct moor__schedule schedule;
    struct moor__workers workers;
    uint32_t owned; /* tickets that hosts own, or that host threads wait for */
};

/* patience_ns: 0 for the default. */
void moor__queue_init(struct moor__queue *queue, uint64_t patience_ns);
/* Requires that no ticket is open and all workers have ended. */
void moor__queue_finish(struct moor__queue *queue);

/* ---- tickets as objects; each requires no lock, and may be called under queue->lock ---- */

/* Makes a live ticket. HOST_NOMEM, LIMIT. */
moor_status moor__ticket_make(struct moor__governor *governor, struct moor__ticket **ret_ticket);
/* Retires a ticket of the caller's and frees it with the last pin. */
void moor__ticket_free(struct moor__governor *governor, struct moor__ticket *ticket);
/* Pins a ticket that has not been retired; NULL if there is none. */
struct moor__ticket *moor__ticket_pin(struct moor__governor *governor, moor_ticket handle);
void moor__ticket_unpin(struct moor__governor *governor, struct moor__ticket *ticket);

/* ---- after a change; each requires no lock, or queue->lock if its name says so ---- */

/* Runs the schedule: serves tickets, ends them, and makes pressure requests. */
void moor__queue_scan(struct moor__governor *governor);
void moor__queue_scan_locked(struct moor__governor *governor);
/* Wakes the threads that have something to do. Requires queue->lock. */
void moor__queue_wake(struct moor__queue *queue);
/* Grants a request that arrives now and does not wait; false: the refusal says why not. */
bool moor__queue_try(struct moor__governor *governor, const struct moor__request_set *set,
                     struct moor__refusal *ret_refusal);

/* Notes a holder's answer to its pressure request, and runs the schedule. Requires queue->lock. */
void moor__pressure_answered(struct moor__governor *governor, struct moor_holder *holder);
/* Counts bytes that the holder evicts, for itself and the ticket that asks. Returns that ticket, or 0.
 * Requires queue->lock. */
moor_ticket moor__eviction_count(struct moor_holder *holder, uint64_t bytes, bool behind_fences);

enum moor__fate { MOOR__FATE_RETURNED, MOOR__FATE_STUCK, MOOR__FATE_KEPT };
/* Settles bytes that were counted as pending for a ticket: they are back, quarantined, or were not released
 * after all. ticket: 0 is a no-op. */
void moor__eviction_settle(struct moor_holder *holder, moor_ticket ticket, uint64_t bytes,
                           enum moor__fate fate);

/* ---- worker.c ---- */

/* Makes sure that the monitor runs, before a ticket is added. Requires queue->lock, may release it meanwhile.
 * LIMIT: no thread can be made. */
moor_status moor__workers_start(struct moor__governor *governor);
/* Ends all threads and waits for them. Requires no lock. */
void moor__workers_stop(struct moor__governor *governor);
/* Withdraws the holder's pressure request, and waits until its function is not running, unless this thread
 * is in it. Requires queue->lock, releases it while waiting. BUSY: this thread is in another holder's
 * function. */
moor_status moor__pressure_await(struct moor__governor *governor, struct moor_holder *holder);

/* After limits have changed: asks for bytes over them, through the authority's reclaim ticket. Requires no
 * lock. */
void moor__reclaim_review(struct moor_authority *authority);

#endif
