/* SPDX-License-Identifier: MIT */
/*
 * Requests. A request is granted if it fits; if not, after reaping the releases that have completed; if not,
 * it becomes a ticket, which other threads serve or time ends. A request that must not wait becomes a brief
 * ticket while holders are asked for it: it waits for their answers, and for no fence.
 */
#include "governor/request.h"

#include "governor/governor.h"

static bool try_now(struct moor__governor *governor, const struct moor__request_set *set,
                    struct moor__refusal *refusal)
{
    const struct moor__governor_port *port = &governor->port;
    if (moor__queue_try(governor, set, refusal))
        return true;
    if (refusal->status == MOOR_NEVER_FITS)
        return false;
    if (port->reap(governor->runtime) && moor__queue_try(governor, set, refusal))
        return true;
    /* Each pool that other processes may hold less of by now. */
    for (size_t tries = 0; tries < set->pool_count && refusal->external; tries++) {
        if (port->refresh_external(set->parts[refusal->part].holder->authority))
            return false;
        if (moor__queue_try(governor, set, refusal))
            return true;
    }
    return false;
}

static struct moor__demand describe(const struct moor__request_set *set, uint64_t deadline_ns)
{
    struct moor__demand demand = {
        .kind = MOOR__TICKET_REQUEST,
        .priority = INT32_MIN, /* the highest of the holders' */
        .is_brief = deadline_ns == MOOR_NO_WAIT,
        .set = *set,
        .deadline_ns = deadline_ns == MOOR_NO_WAIT ? MOOR_FOREVER : deadline_ns,
    };
    for (size_t i = 0; i < set->count; i++) {
        int32_t priority = set->parts[i].holder->limits.priority;
        demand.bytes = moor__add_sat(demand.bytes, set->parts[i].bytes);
        demand.priority = priority > demand.priority ? priority : demand.priority;
    }
    return demand;
}

/* Requires queue->lock. */
static moor_status enqueue(struct moor__governor *governor, struct moor__ticket *ticket)
{
    struct moor__queue *queue = &governor->queue;
    if (!moor__request_set_can(&ticket->demand.set, &ticket->refusal))
        return moor__refuse(&ticket->refusal);
    if (queue->schedule.count >= MOOR_LIMIT_TICKETS)
        return moor__fail(MOOR_LIMIT, "%d tickets are open, the most there can be", MOOR_LIMIT_TICKETS);
    moor__schedule_enter(&queue->schedule, ticket, governor->port.clock());
    moor__queue_wake(queue);
    return MOOR_OK;
}

moor_status moor__ticket_open(struct moor__governor *governor, const struct moor__request_set *set,
                              uint64_t deadline_ns, void *memory, struct moor__ticket **ret_ticket)
{
    struct moor__ticket *ticket;
    moor_status status = moor__ticket_make(governor, &ticket);
    if (status)
        return status;
    moor__lock_acquire(&governor->queue.lock);
    status = moor__workers_start(governor);
    if (!status) {
        ticket->demand = describe(set, deadline_ns);
        status = enqueue(governor, ticket);
    }
    ticket->memory = status ? NULL : memory;
    governor->queue.owned += !status;
    moor__lock_release(&governor->queue.lock);
    if (status) {
        moor__ticket_free(governor, ticket);
        return status;
    }
    moor__trace(governor->runtime, MOOR_TRACE_TICKET, set->pools[0], set->parts[0].holder,
                ticket->demand.bytes, ticket->handle);
    *ret_ticket = ticket;
    return MOOR_OK;
}

/* All answers to a brief ticket are in: reaps the bytes that they brought, and ends the ticket unless that
 * changed something. Requires queue->lock, releases it meanwhile. */
static void conclude(struct moor__governor *governor, struct moor__ticket *ticket)
{
    struct moor__queue *queue = &governor->queue;
    uint32_t answers = moor__plan_answers(&queue->schedule, ticket);
    moor__lock_release(&queue->lock);
    (void)governor->port.reap(governor->runtime); /* the scan finds out whether that helped */
    moor__lock_acquire(&queue->lock);
    ticket->pressure.is_answered = false;
    moor__queue_scan_locked(governor);
    if (ticket->state != MOOR__TICKET_OPEN || !ticket->pressure.is_answered ||
        moor__plan_answers(&queue->schedule, ticket) != answers)
        return; /* served, or asking again, or the bytes of the last answer are not reaped yet */
    if (ticket->refusal.status == MOOR_OVER_BUDGET &&
        (ticket->pressure.asked || ticket->pressure.turned_away))
        ticket->refusal.status = MOOR_NO_VICTIM;
    moor__schedule_end(&queue->schedule, ticket, MOOR__TICKET_ENDED, ticket->refusal.status);
}

void moor__ticket_await(struct moor__governor *governor, struct moor__ticket *ticket)
{
    struct moor__queue *queue = &governor->queue;
    while (ticket->state == MOOR__TICKET_OPEN) {
        uint64_t deadline_ns = ticket->demand.deadline_ns;
        if (ticket->demand.is_brief && ticket->pressure.is_answered)
            conclude(governor, ticket);
        else if (deadline_ns != MOOR_FOREVER && governor->port.clock() >= deadline_ns)
            moor__queue_scan_locked(governor);
        else /* the loop finds out why it woke */
            (void)moor__lock_wait_until(&queue->lock, &ticket->changed, deadline_ns);
    }
}

moor_status moor__ticket_outcome(const struct moor__ticket *ticket)
{
    assert(ticket->state != MOOR__TICKET_OPEN);
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

static moor_status wait_in_queue(struct moor__governor *governor, const struct moor__request_set *set,
                                 uint64_t deadline_ns, size_t *ret_part)
{
    struct moor__ticket *ticket;
    moor_status status = moor__ticket_open(governor, set, deadline_ns, NULL, &ticket);
    if (status)
        return status;
    moor__lock_acquire(&governor->queue.lock);
    moor__ticket_await(governor, ticket);
    governor->queue.owned--;
    moor__lock_release(&governor->queue.lock);
    status = moor__ticket_outcome(ticket);
    *ret_part = ticket->refusal.part;
    moor__trace(governor->runtime, MOOR_TRACE_END, set->pools[0], set->parts[0].holder,
                status ? 0 : ticket->demand.bytes, ticket->handle);
    moor__ticket_free(governor, ticket);
    return status;
}

/* Returns true if a holder of the set's pools has a pressure function. */
static bool has_victim(struct moor__governor *governor, const struct moor__request_set *set)
{
    bool found = false;
    moor__lock_acquire(&governor->queue.lock);
    for (const struct moor_holder *victim = governor->queue.schedule.victims; victim && !found;
         victim = victim->victim.next)
        found = moor__request_set_has(set, victim->authority);
    moor__lock_release(&governor->queue.lock);
    return found;
}

moor_status moor__request(struct moor__governor *governor, const struct moor__request_set *set,
                          uint64_t deadline_ns, size_t *ret_part)
{
    size_t unused;
    ret_part = ret_part ? ret_part : &unused;
    struct moor__refusal refusal;
    if (try_now(governor, set, &refusal))
        return MOOR_OK;
    bool hopeless = refusal.status == MOOR_NEVER_FITS || set->is_inside;
    bool comes = refusal.status == MOOR_PENDING || refusal.obstacle == MOOR__OBSTACLE_TURN;
    *ret_part = refusal.part;
    if (hopeless || (deadline_ns == MOOR_NO_WAIT && (comes || !has_victim(governor, set))))
        return moor__refuse(&refusal);
    moor_status status = wait_in_queue(governor, set, deadline_ns, ret_part);
    if (deadline_ns == MOOR_NO_WAIT && status == MOOR_LIMIT)
        return moor__refuse(&refusal); /* no holder can be asked now */
    return status;
}

moor_status moor__request_set_make(const struct moor_request *requests, size_t count,
                                   struct moor__request_set *ret_set)
{
    if (!requests || count == 0 || !requests[0].holder)
        return moor__fail(MOOR_INVALID, "requests and their holders must not be NULL, count not 0");
    const struct moor__governor *governor = requests[0].holder->authority->governor;
    moor_status status = moor__enter(governor->runtime);
    if (status)
        return status;
    if (count > MOOR_LIMIT_REQUESTS)
        return moor__fail(MOOR_LIMIT, "%zu parts; at most %d", count, MOOR_LIMIT_REQUESTS);
    for (size_t i = 0; i < count; i++) {
        if (!requests[i].holder || requests[i].bytes == 0)
            return moor__fail(MOOR_INVALID, "part %zu: the holder must not be NULL, bytes not 0", i);
        if (requests[i].holder->authority->governor != governor)
            return moor__fail(MOOR_FOREIGN, "part %zu: a holder of another runtime", i);
    }
    return moor__request_set_copy(requests, count, ret_set);
}

bool moor__pressure_for_device(const struct moor_holder *requester, uint64_t bytes)
{
    struct moor_authority *authority = requester->authority;
    struct moor__governor *governor = authority->governor;
    struct moor__queue *queue = &governor->queue;
    struct moor__ticket *ticket;
    const struct moor__request_set set = {.pools = &authority, .pool_count = 1};
    if (moor__is_inside_pressure(governor) || !has_victim(governor, &set) ||
        moor__ticket_make(governor, &ticket))
        return false;
    ticket->demand = (struct moor__demand){
        .kind = MOOR__TICKET_DEVICE,
        .priority = requester->limits.priority,
        .is_brief = true,
        .set = set,
        .bytes = bytes,
        .requester = requester,
        .deadline_ns = MOOR_FOREVER,
    };
    moor__trace(governor->runtime, MOOR_TRACE_TICKET, authority, NULL, bytes, ticket->handle);
    moor__lock_acquire(&queue->lock);
    if (!moor__workers_start(governor)) {
        moor__schedule_add(&queue->schedule, ticket, governor->port.clock());
        moor__queue_scan_locked(governor);
        while (!ticket->pressure.is_answered)
            moor__lock_wait(&queue->lock, &ticket->changed);
        moor__schedule_end(&queue->schedule, ticket, MOOR__TICKET_ENDED, MOOR_OK);
    }
    bool some = ticket->pressure.evicted_bytes > 0;
    moor__lock_release(&queue->lock);
    moor__trace(governor->runtime, MOOR_TRACE_END, authority, NULL, 0, ticket->handle);
    moor__ticket_free(governor, ticket);
    (void)governor->port.reap(governor->runtime); /* the next try finds out whether that helped */
    return some;
}
