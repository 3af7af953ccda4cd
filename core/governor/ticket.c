/* SPDX-License-Identifier: MIT */
/* Tickets of hosts. Their rules stand in schedule.h and plan.h. */
#include "governor/governor.h"

#include <stdlib.h>

moor_status moor_ticket_open(const struct moor_request *requests, size_t count, uint64_t deadline_ns,
                             moor_ticket *ret_ticket)
{
    if (!ret_ticket || deadline_ns == MOOR_NO_WAIT)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_ticket must not be NULL, the deadline not 0"));
    struct moor__request_set set;
    struct moor__ticket *ticket;
    moor_status status = moor__request_set_make(requests, count, &set);
    if (status)
        return moor__leave(status);
    status = moor__ticket_open(set.pools[0]->governor, &set, deadline_ns, set.pools, &ticket);
    if (!status)
        *ret_ticket = ticket->handle; /* no thread can end the ticket before it knows the handle */
    else
        free(set.pools);
    return moor__leave(status);
}

/* Pins a ticket that a host has opened. */
static moor_status pin(struct moor_runtime *runtime, moor_ticket handle, struct moor__ticket **ret_ticket)
{
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__handles_pin(&runtime->governor->tickets, handle, &slot);
    if (status)
        return status;
    *ret_ticket = (struct moor__ticket *)slot;
    if ((*ret_ticket)->memory)
        return MOOR_OK;
    moor__ticket_unpin(runtime->governor, *ret_ticket);
    return moor__fail(MOOR_INVALID, "the ticket is not the host's");
}

/* Ends a ticket in any state. Returns true if it had been served, so that its bytes must be returned.
 * Requires queue->lock. */
static bool cancel(struct moor__governor *governor, struct moor__ticket *ticket)
{
    bool was_served = ticket->state == MOOR__TICKET_SERVED;
    bool had_turn = ticket->place.turn_until_ns != 0;
    moor__assert_held(&governor->queue.lock);
    if (ticket->state == MOOR__TICKET_OPEN) {
        moor__schedule_end(&governor->queue.schedule, ticket, MOOR__TICKET_ENDED, MOOR_CANCELLED);
        if (had_turn)
            moor__queue_scan_locked(governor);
    }
    ticket->state = MOOR__TICKET_ENDED;
    ticket->ended = MOOR_CANCELLED;
    return was_served;
}

moor_status moor_ticket_cancel(struct moor_runtime *runtime, moor_ticket handle)
{
    struct moor__ticket *ticket;
    moor_status status = handle ? pin(runtime, handle, &ticket) : moor__enter(runtime);
    if (status || !handle)
        return moor__leave(status);
    struct moor__governor *governor = runtime->governor;
    moor__lock_acquire(&governor->queue.lock);
    status = moor__handles_retire(&ticket->slot);
    governor->queue.owned -= !status;
    bool was_served = !status && cancel(governor, ticket);
    moor__lock_release(&governor->queue.lock);
    const struct moor__request_set *set = &ticket->demand.set;
    for (size_t i = 0; was_served && i < set->count; i++) {
        const struct moor_request *part = &set->parts[i];
        moor__trace(governor->runtime, MOOR_TRACE_RESERVE, part->holder->authority, part->holder, part->bytes,
                    0);
        moor__unreserve(part->holder, part->bytes, 0, false);
    }
    if (!status)
        moor__trace(governor->runtime, MOOR_TRACE_END, set->pools[0], NULL, 0, handle);
    moor__ticket_unpin(governor, ticket);
    return moor__leave(status);
}

moor_status moor_ticket_wait(struct moor_runtime *runtime, moor_ticket handle, moor_grant *ret_grants,
                             size_t capacity)
{
    struct moor__ticket *ticket;
    struct moor__slot **slots = NULL;
    moor_status status = pin(runtime, handle, &ticket);
    if (status)
        return moor__leave(status);
    struct moor__governor *governor = runtime->governor;
    const struct moor__request_set *set = &ticket->demand.set;
    if (!ret_grants || capacity < set->count)
        status =
            moor__fail(MOOR_INVALID, "room for %zu grants; the request has %zu parts", capacity, set->count);
    if (!status)
        status = moor__grants_take(governor, set->count, &slots);
    if (status)
        goto out;
    moor__lock_acquire(&governor->queue.lock);
    moor__ticket_await(governor, ticket);
    bool ends = ticket->ended != MOOR_CANCELLED;
    if (ends)
        status = moor__handles_retire(&ticket->slot); /* STALE: another thread that waited was faster */
    ends &= !status;
    governor->queue.owned -= ends;
    moor__lock_release(&governor->queue.lock);
    if (!status)
        status = moor__ticket_outcome(ticket);
    if (!status)
        moor__grants_publish(governor, set->parts, set->count, slots, ret_grants);
    moor__grants_return(governor, slots, status ? set->count : 0);
    if (ends)
        moor__trace(governor->runtime, MOOR_TRACE_END, set->pools[0], NULL, status ? 0 : ticket->demand.bytes,
                    handle);
out:
    moor__ticket_unpin(governor, ticket);
    return moor__leave(status);
}

moor_status moor_ticket_get_stats(struct moor_runtime *runtime, moor_ticket handle,
                                  struct moor_ticket_stats *ret_stats)
{
    if (!ret_stats)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_stats is NULL"));
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__handles_pin(&runtime->governor->tickets, handle, &slot);
    if (status)
        return moor__leave(status);
    struct moor__governor *governor = runtime->governor;
    struct moor__ticket *ticket = (struct moor__ticket *)slot;
    moor__lock_acquire(&governor->queue.lock);
    const struct moor__pressure_tally *tally = &ticket->pressure;
    *ret_stats = (struct moor_ticket_stats){
        .bytes = ticket->demand.bytes,
        .deadline_ns = ticket->demand.is_brief ? MOOR_NO_WAIT : ticket->demand.deadline_ns,
        .evicted_bytes = tally->evicted_bytes,
        .pending_bytes = tally->pending_bytes,
        .returned_bytes = tally->returned_bytes,
        .asked = tally->asked,
        .passed = ticket->place.passed,
        .priority = ticket->demand.priority,
        .served = ticket->state == MOOR__TICKET_SERVED,
    };
    moor__lock_release(&governor->queue.lock);
    moor__ticket_unpin(governor, ticket);
    return MOOR_OK;
}
