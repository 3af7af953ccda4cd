/* SPDX-License-Identifier: MIT */
/* The queue: the schedule under its lock, tickets as objects, and the accounting of evictions. */
#include "governor/governor.h"

#include <stdlib.h>

void moor__queue_init(struct moor__queue *queue, uint64_t patience_ns)
{
    TAILQ_INIT(&queue->schedule.tickets);
    STAILQ_INIT(&queue->schedule.requests);
    queue->schedule.patience_ns = patience_ns ? patience_ns : MOOR_PATIENCE_NS;
    queue->schedule.due_ns = UINT64_MAX;
    moor__lock_init(&queue->lock, MOOR__RANK_QUEUE, "queue.lock");
    moor__condition_init(&queue->workers.work);
    moor__condition_init(&queue->workers.attention);
    moor__condition_init(&queue->workers.quiet);
}

void moor__queue_finish(struct moor__queue *queue)
{
    assert(queue->schedule.count == 0 && !queue->workers.list && !queue->schedule.victims);
    pthread_cond_destroy(&queue->workers.quiet);
    pthread_cond_destroy(&queue->workers.attention);
    pthread_cond_destroy(&queue->workers.work);
    moor__lock_finish(&queue->lock);
}

/* ---- tickets as objects ---- */

moor_status moor__ticket_make(struct moor__governor *governor, struct moor__ticket **ret_ticket)
{
    struct moor__slot *slot;
    moor_status status = moor__handles_take(&governor->tickets, &slot);
    if (status)
        return status;
    struct moor__ticket *ticket = (struct moor__ticket *)slot;
    moor__condition_init(&ticket->changed);
    ticket->handle = moor__handle_of(&governor->tickets, slot);
    moor__handles_publish(slot);
    *ret_ticket = ticket;
    return MOOR_OK;
}

struct moor__ticket *moor__ticket_pin(struct moor__governor *governor, moor_ticket handle)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    struct moor__slot *slot = NULL;
    (void)moor__handles_pin(&governor->tickets, handle, &slot); /* a ticket that has ended is no failure */
    moor__error_scope_end(&aside);
    return (struct moor__ticket *)slot;
}

void moor__ticket_unpin(struct moor__governor *governor, struct moor__ticket *ticket)
{
    if (!moor__handles_unpin(&ticket->slot))
        return;
    pthread_cond_destroy(&ticket->changed);
    free(ticket->memory);
    moor__handles_free(&governor->tickets, &ticket->slot);
}

void moor__ticket_free(struct moor__governor *governor, struct moor__ticket *ticket)
{
    struct moor__slot *slot;
    if (moor__handles_pin(&governor->tickets, ticket->handle, &slot))
        return;
    (void)moor__handles_retire(slot); /* only its owner retires it */
    moor__ticket_unpin(governor, ticket);
}

/* ---- running the schedule ---- */

void moor__queue_wake(struct moor__queue *queue)
{
    moor__assert_held(&queue->lock);
    if (!STAILQ_EMPTY(&queue->schedule.requests))
        pthread_cond_broadcast(&queue->workers.work);
    queue->workers.calls++;
    pthread_cond_signal(&queue->workers.attention);
}

void moor__queue_scan_locked(struct moor__governor *governor)
{
    struct moor__queue *queue = &governor->queue;
    moor__assert_held(&queue->lock);
    if (queue->schedule.count == 0)
        return;
    moor__schedule_run(&queue->schedule, governor->port.clock());
    moor__queue_wake(queue);
}

void moor__queue_scan(struct moor__governor *governor)
{
    moor__lock_acquire(&governor->queue.lock);
    moor__queue_scan_locked(governor);
    moor__lock_release(&governor->queue.lock);
}

bool moor__queue_try(struct moor__governor *governor, const struct moor__request_set *set,
                     struct moor__refusal *ret_refusal)
{
    struct moor__schedule *schedule = &governor->queue.schedule;
    moor__lock_acquire(&governor->queue.lock);
    moor__request_set_lock(set);
    bool granted = moor__request_set_grant(set, NULL, ret_refusal);
    moor__request_set_unlock(set);
    if (granted && schedule->count) {
        moor__schedule_count_pass(schedule, set, UINT64_MAX);
        moor__queue_scan_locked(governor);
    }
    moor__lock_release(&governor->queue.lock);
    return granted;
}

/* ---- answers and evictions ---- */

/* Returns the bytes that the holder has less than when it was asked, without pending ones. */
static uint64_t freed_bytes(struct moor_holder *holder)
{
    struct moor_authority *authority = holder->authority;
    moor__accounts_lock(authority);
    uint64_t has = moor__has_later(holder);
    moor__accounts_unlock(authority);
    return moor__sub_sat(holder->victim.request.had_bytes, has);
}

void moor__pressure_answered(struct moor__governor *governor, struct moor_holder *holder)
{
    struct moor__victim *victim = &holder->victim;
    assert(victim->request.ticket && !victim->request.is_waiting);
    victim->answered = ++governor->queue.schedule.answers;
    /* A holder that evicts bytes and takes as many again has given nothing. */
    if (moor__min(victim->request.evicted_bytes, freed_bytes(holder)) >= victim->request.bytes) {
        victim->cool_down_ns = victim->cool_until_ns = 0;
    } else {
        uint64_t twice_ns = victim->cool_down_ns ? 2 * victim->cool_down_ns : MOOR_COOL_DOWN_NS;
        victim->cool_down_ns = moor__min(twice_ns, MOOR_COOL_DOWN_MAX_NS);
        victim->cool_until_ns = governor->port.clock() + victim->cool_down_ns;
    }
    victim->request.ticket = 0;
    atomic_store_explicit(&holder->is_asked, 0, memory_order_relaxed);
    moor__queue_scan_locked(governor);
}

moor_ticket moor__eviction_count(struct moor_holder *holder, uint64_t bytes, bool behind_fences)
{
    struct moor__governor *governor = holder->authority->governor;
    moor_ticket handle = holder->victim.request.ticket;
    moor__assert_held(&governor->queue.lock);
    if (!handle)
        return 0;
    holder->victim.request.evicted_bytes += bytes;
    holder->victim.evicted_bytes += bytes;
    struct moor__ticket *ticket = moor__ticket_pin(governor, handle);
    if (ticket) {
        struct moor__pressure_tally *tally = &ticket->pressure;
        tally->evicted_bytes += bytes;
        *(behind_fences ? &tally->pending_bytes : &tally->returned_bytes) += bytes;
        moor__ticket_unpin(governor, ticket);
    }
    return handle;
}

void moor__eviction_settle(struct moor_holder *holder, moor_ticket handle, uint64_t bytes,
                           enum moor__fate fate)
{
    struct moor__governor *governor = holder->authority->governor;
    struct moor__victim *victim = &holder->victim;
    if (!handle)
        return;
    moor__lock_acquire(&governor->queue.lock);
    struct moor__ticket *ticket = moor__ticket_pin(governor, handle);
    if (fate == MOOR__FATE_KEPT) {
        victim->evicted_bytes = moor__sub_sat(victim->evicted_bytes, bytes);
        if (victim->request.ticket == handle)
            victim->request.evicted_bytes = moor__sub_sat(victim->request.evicted_bytes, bytes);
    }
    if (ticket) {
        struct moor__pressure_tally *tally = &ticket->pressure;
        tally->pending_bytes = moor__sub_sat(tally->pending_bytes, bytes);
        if (fate == MOOR__FATE_RETURNED)
            tally->returned_bytes += bytes;
        if (fate == MOOR__FATE_KEPT)
            tally->evicted_bytes = moor__sub_sat(tally->evicted_bytes, bytes);
        moor__ticket_unpin(governor, ticket);
    }
    moor__lock_release(&governor->queue.lock);
}
