/* SPDX-License-Identifier: MIT */
/*
 * Requests. One takes what fits; failing that, what has come back meanwhile; failing that, it becomes a
 * ticket in the queue, where others serve it or time ends it. One that is not to wait is such a ticket too,
 * while holders are being asked for it: it waits for their answers, and for no fence.
 */
#include "governor/request.h"

#include "governor/account.h"
#include "governor/pressure.h"
#include "memory/release.h"
#include "observe/external.h"
#include "observe/trace.h"
#include "util/error.h"

#include <stdlib.h>

static bool try_now(struct moor_runtime *runtime, const struct moor__request_set *set,
                    struct moor__refusal *refusal)
{
    if (moor__queue_try(runtime, set, refusal))
        return true;
    if (refusal->status == MOOR_NEVER_FITS)
        return false;
    if (moor__poll(runtime) && moor__queue_try(runtime, set, refusal))
        return true;
    /* Each pool that others may hold less of by now. */
    for (size_t looks = 0; looks < set->pool_count && refusal->external; looks++) {
        if (moor__external_refresh(set->parts[refusal->part].holder->authority))
            return false;
        if (moor__queue_try(runtime, set, refusal))
            return true;
    }
    return false;
}

/* Its priority is the highest of its holders'. */
static void describe(struct moor__ticket *ticket, const struct moor__request_set *set, uint64_t deadline_ns)
{
    ticket->set = *set;
    ticket->is_brief = deadline_ns == MOOR_NO_WAIT;
    ticket->is_inside = moor__is_inside_pressure(set->pools[0]->runtime);
    ticket->deadline_ns = ticket->is_brief ? MOOR_FOREVER : deadline_ns;
    ticket->priority = INT32_MIN;
    for (size_t i = 0; i < set->count; i++) {
        int32_t priority = set->parts[i].holder->limits.priority;
        bool wraps = ticket->bytes > UINT64_MAX - set->parts[i].bytes;
        ticket->bytes = wraps ? UINT64_MAX : ticket->bytes + set->parts[i].bytes;
        ticket->priority = priority > ticket->priority ? priority : ticket->priority;
    }
}

/* The queue's lock is held. */
static moor_status enqueue(struct moor__queue *queue, struct moor__ticket *ticket)
{
    moor__request_set_lock(&ticket->set);
    bool can = moor__request_set_can(&ticket->set, &ticket->refusal);
    moor__request_set_unlock(&ticket->set);
    if (!can)
        return moor__refuse(&ticket->refusal);
    if (queue->count >= MOOR_LIMIT_TICKETS)
        return moor__fail(MOOR_LIMIT, "%d tickets are open, the most there can be", MOOR_LIMIT_TICKETS);
    moor__queue_enter(queue, ticket);
    return MOOR_OK;
}

moor_status moor__ticket_open(struct moor_runtime *runtime, const struct moor__request_set *set,
                              uint64_t deadline_ns, void *memory, struct moor__ticket **ret_ticket)
{
    struct moor__ticket *ticket;
    moor_status status = moor__ticket_make(runtime, MOOR__TICKET_REQUEST, &ticket);
    if (status)
        return status;
    status = moor__workers_start(runtime);
    if (!status) {
        moor__lock_acquire(&runtime->queue->lock);
        moor__workers_started(runtime->queue);
        describe(ticket, set, deadline_ns);
        status = enqueue(runtime->queue, ticket);
        ticket->memory = status ? NULL : memory;
        runtime->queue->owned += !status;
        moor__lock_release(&runtime->queue->lock);
    }
    if (status) {
        moor__ticket_free(runtime, ticket);
        return status;
    }
    moor__trace(runtime, MOOR_TRACE_TICKET, set->pools[0], set->parts[0].holder, ticket->bytes,
                moor__ticket_handle(runtime, ticket));
    *ret_ticket = ticket;
    return MOOR_OK;
}

/* The queue's lock is held. Answers are in: what they brought may have to be taken back first. */
static void conclude(struct moor_runtime *runtime, struct moor__ticket *ticket)
{
    struct moor__queue *queue = runtime->queue;
    uint32_t answers = moor__answers_to(queue, ticket);
    moor__lock_release(&queue->lock);
    (void)moor__poll(runtime); /* the look says whether that helped */
    moor__lock_acquire(&queue->lock);
    ticket->is_answered = false;
    moor__queue_scan_locked(queue);
    if (ticket->state != MOOR__TICKET_OPEN || !ticket->is_answered ||
        moor__answers_to(queue, ticket) != answers)
        return; /* served, or asked for more, or what the last answer brought is not taken back yet */
    if (ticket->refusal.status == MOOR_OVER_BUDGET && (ticket->asked || ticket->turned_away))
        ticket->refusal.status = MOOR_NO_VICTIM;
    moor__queue_end(queue, ticket, MOOR__TICKET_ENDED, ticket->refusal.status);
}

void moor__ticket_await(struct moor_runtime *runtime, struct moor__ticket *ticket)
{
    struct moor__queue *queue = runtime->queue;
    while (ticket->state == MOOR__TICKET_OPEN) {
        if (ticket->is_brief && ticket->is_answered)
            conclude(runtime, ticket);
        else if (ticket->deadline_ns != MOOR_FOREVER && moor__governor_clock() >= ticket->deadline_ns)
            moor__queue_scan_locked(queue);
        else /* why it woke is looked at above */
            (void)moor__lock_wait_until(&queue->lock, &ticket->changed, ticket->deadline_ns);
    }
}

moor_status moor__ticket_outcome(const struct moor__ticket *ticket)
{
    if (ticket->ended == MOOR_CANCELLED)
        return moor__fail(MOOR_CANCELLED, "the ticket was cancelled");
    if (ticket->state == MOOR__TICKET_SERVED)
        return MOOR_OK;
    moor_status status = moor__refuse(&ticket->refusal);
    if (ticket->ended != MOOR_TIMEOUT)
        return status;
    const struct moor_error why = *moor__pending_error();
    return moor__fail_short(MOOR_TIMEOUT, why.bytes, "not by the deadline: %.450s", why.text);
}

static moor_status wait_in_queue(struct moor_runtime *runtime, const struct moor__request_set *set,
                                 uint64_t deadline_ns, size_t *ret_part)
{
    struct moor__ticket *ticket;
    moor_status status = moor__ticket_open(runtime, set, deadline_ns, NULL, &ticket);
    if (status)
        return status;
    moor__lock_acquire(&runtime->queue->lock);
    moor__ticket_await(runtime, ticket);
    runtime->queue->owned--;
    moor__lock_release(&runtime->queue->lock);
    status = moor__ticket_outcome(ticket);
    *ret_part = ticket->refusal.part;
    moor__trace(runtime, MOOR_TRACE_END, set->pools[0], set->parts[0].holder, status ? 0 : ticket->bytes,
                moor__ticket_handle(runtime, ticket));
    moor__ticket_free(runtime, ticket);
    return status;
}

moor_status moor__request(struct moor_runtime *runtime, const struct moor__request_set *set,
                          uint64_t deadline_ns, size_t *ret_part)
{
    size_t unused;
    ret_part = ret_part ? ret_part : &unused;
    struct moor__refusal refusal;
    if (try_now(runtime, set, &refusal)) {
        return MOOR_OK;
    }
    bool hopeless = refusal.status == MOOR_NEVER_FITS || moor__is_inside_pressure(runtime);
    bool comes = refusal.status == MOOR_PENDING || refusal.obstacle == MOOR__OBSTACLE_TURN;
    *ret_part = refusal.part;
    if (hopeless || (deadline_ns == MOOR_NO_WAIT && (comes || !moor__pressure_is_possible(runtime, set))))
        return moor__refuse(&refusal);
    moor_status status = wait_in_queue(runtime, set, deadline_ns, ret_part);
    if (deadline_ns == MOOR_NO_WAIT && status == MOOR_LIMIT)
        return moor__refuse(&refusal); /* nobody can be asked now */
    return status;
}

bool moor__pressure_for_device(const struct moor_holder *requester, uint64_t bytes)
{
    struct moor_authority *authority = requester->authority;
    struct moor_runtime *runtime = authority->runtime;
    struct moor__queue *queue = runtime->queue;
    struct moor__ticket *ticket;
    const struct moor__request_set set = {.pools = &authority, .pool_count = 1};
    if (moor__is_inside_pressure(runtime) || !moor__pressure_is_possible(runtime, &set) ||
        moor__ticket_make(runtime, MOOR__TICKET_DEVICE, &ticket))
        return false;
    if (moor__workers_start(runtime)) {
        moor__ticket_free(runtime, ticket);
        return false;
    }
    ticket->set = set;
    ticket->bytes = bytes;
    ticket->requester = requester;
    ticket->priority = requester->limits.priority;
    ticket->is_brief = true;
    moor_ticket name = moor__ticket_handle(runtime, ticket);
    moor__trace(runtime, MOOR_TRACE_TICKET, authority, NULL, bytes, name);
    moor__lock_acquire(&queue->lock);
    moor__workers_started(queue);
    moor__queue_add(queue, ticket);
    moor__queue_scan_locked(queue);
    while (!ticket->is_answered)
        moor__lock_wait(&queue->lock, &ticket->changed);
    moor__queue_end(queue, ticket, MOOR__TICKET_ENDED, MOOR_OK);
    bool some = ticket->evicted_bytes > 0;
    moor__lock_release(&queue->lock);
    moor__trace(runtime, MOOR_TRACE_END, authority, NULL, 0, name);
    moor__ticket_free(runtime, ticket);
    (void)moor__poll(runtime); /* the next try says whether that helped */
    return some;
}
