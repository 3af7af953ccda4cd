/* SPDX-License-Identifier: MIT */
/* Pressure: who is asked, for how much, and what came of it. All under the queue's lock unless it says so. */
#ifndef MOOR_GOVERNOR_PRESSURE_H
#define MOOR_GOVERNOR_PRESSURE_H

#include "governor/account.h"
#include "governor/queue.h"

/* Asks whoever is to be asked for what is short now, and ends tickets that wait for answers alone. */
void moor__plan_pressure(struct moor__queue *queue, uint64_t now_ns);

/* Somebody may have to be asked for that ticket. */
bool moor__plan_could_ask(const struct moor__queue *queue, const struct moor__ticket *ticket,
                          uint64_t now_ns);

/* How many holders have answered since the ticket, which waits for no fence, was opened. */
uint32_t moor__answers_to(const struct moor__queue *queue, const struct moor__ticket *ticket);

/* A holder gets a pressure function, or loses it. */
void moor__victim_add(struct moor__queue *queue, struct moor_holder *holder);
void moor__victim_remove(struct moor__queue *queue, struct moor_holder *holder);

/* How far the pool's holders are above its capacity, or have borrowed what is guaranteed to others. The
 * authority's lock. */
uint64_t moor__over_bytes(const struct moor_authority *authority);
/* Whether it is to ask for what the pool, or one of its holders, has over its limits. */
bool moor__reclaim_is_needed(const struct moor__queue *queue, struct moor_authority *authority);
/* After limits have changed, no lock held: sees to it that what is over is asked for. */
void moor__reclaim_review(struct moor_authority *authority);

/* A thread has come back from the holder's pressure function. */
void moor__pressure_answered(struct moor__queue *queue, struct moor_holder *holder);

moor_ticket moor__evict_under_pressure(struct moor__thread_cache *cache, struct moor_holder *holder,
                                       struct moor__transfer step, bool behind_fences);
/* The queue's lock is not held, nor any behind it. The step, by which a holder lets go bytes; behind_fences: they
 * are pending after it. If the holder is being asked, nobody looks between the step and that it is counted: bytes
 * are neither there and expected, nor neither of the two. Returns the ticket they count for, or 0. */
static inline moor_ticket moor__evict(struct moor__thread_cache *cache, struct moor_holder *holder,
                                      struct moor__transfer step, bool behind_fences)
{
    if (__builtin_expect(atomic_load_explicit(&holder->asked, memory_order_relaxed), 0))
        return moor__evict_under_pressure(cache, holder, step, behind_fences);
    moor__transfer_apply(cache, holder, step);
    return 0;
}
/* No lock held. What counted as pending for that ticket is back, or in quarantine, or was not released after
 * all. */
enum moor__fate { MOOR__FATE_RETURNED, MOOR__FATE_STUCK, MOOR__FATE_KEPT };
void moor__eviction_settle(struct moor_holder *holder, moor_ticket ticket, uint64_t bytes,
                           enum moor__fate fate);

/* No lock held. Some holder of its pools has a pressure function. */
bool moor__pressure_is_possible(struct moor_runtime *runtime, const struct moor__request_set *set);

/* worker.c: a thread will take what is in the queue's list of asks. */
void moor__workers_wake(struct moor__queue *queue);
/* worker.c, no lock held: makes sure that somebody attends to the queue, and stays until moor__workers_started:
 * before a ticket is added. LIMIT: no thread can be made. */
moor_status moor__workers_start(struct moor_runtime *runtime);
/* worker.c: the ticket is added under the lock that is held. */
void moor__workers_started(struct moor__queue *queue);
/* worker.c, no lock held: ends all threads and waits for them. */
void moor__workers_stop(struct moor__queue *queue);
/* worker.c: it is not asked, and its function is not running, or this thread is in it; gives up the lock while
 * it waits for that. BUSY: it is, and this thread is inside another one. */
moor_status moor__pressure_await(struct moor__queue *queue, struct moor_holder *holder);
/* For tests, no lock held: looks, and waits until nobody is asked any more. */
void moor__pressure_settle(struct moor_runtime *runtime);

/* ticket.c: a slot, live; no lock is held to make or free one. */
moor_status moor__ticket_make(struct moor_runtime *runtime, enum moor__ticket_kind kind,
                              struct moor__ticket **ret_ticket);
void moor__ticket_free(struct moor_runtime *runtime, struct moor__ticket *ticket);
/* The queue's lock: a ticket that is not gone yet, or NULL; and back. */
struct moor__ticket *moor__ticket_pin(struct moor_runtime *runtime, moor_ticket name);
void moor__ticket_unpin(struct moor_runtime *runtime, struct moor__ticket *ticket);
moor_ticket moor__ticket_handle(struct moor_runtime *runtime, const struct moor__ticket *ticket);
#endif
