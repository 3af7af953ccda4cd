/* SPDX-License-Identifier: MIT */
/*
 * Reclaim: each authority has one ticket of its own, made when it first needs it. The ticket is open while
 * the pool or one of its victims is over its limits, so that the plan asks for those bytes.
 */
#include "governor/governor.h"

#include <moorage/abi/provider.h>

/* Makes the authority's reclaim ticket. Requires queue->lock. */
static moor_status make_ticket(struct moor_authority *authority)
{
    struct moor__ticket *ticket;
    moor_status status = moor__ticket_make(authority->governor, &ticket);
    if (status)
        return status;
    ticket->pool = authority;
    ticket->demand = (struct moor__demand){
        .kind = MOOR__TICKET_RECLAIM,
        .priority = INT32_MAX,
        .set = {.pools = &ticket->pool, .pool_count = 1},
        .deadline_ns = MOOR_FOREVER,
    };
    ticket->state = MOOR__TICKET_ENDED;
    authority->waiting.reclaim = ticket;
    return MOOR_OK;
}

/* Opens the ticket if it is needed and not open. Requires queue->lock, may release it meanwhile. */
static moor_status open_if_needed(struct moor_authority *authority)
{
    struct moor__governor *governor = authority->governor;
    struct moor__queue *queue = &governor->queue;
    if (!queue->schedule.victims || !moor__reclaim_is_needed(&queue->schedule, authority))
        return MOOR_OK;
    moor_status status = moor__workers_start(governor);
    if (!status && !authority->waiting.reclaim)
        status = make_ticket(authority);
    if (status)
        return status;
    struct moor__ticket *ticket = authority->waiting.reclaim;
    assert(ticket->demand.kind == MOOR__TICKET_RECLAIM && ticket->pool == authority);
    if (ticket->state == MOOR__TICKET_OPEN)
        return MOOR_OK;
    ticket->state = MOOR__TICKET_OPEN;
    ticket->pressure = (struct moor__pressure_tally){0};
    ticket->refusal = (struct moor__refusal){0};
    moor__schedule_add(&queue->schedule, ticket, governor->port.clock());
    return MOOR_OK;
}

void moor__reclaim_review(struct moor_authority *authority)
{
    struct moor__governor *governor = authority->governor;
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    moor__lock_acquire(&governor->queue.lock);
    moor_status status = open_if_needed(authority);
    moor__queue_scan_locked(governor);
    moor__lock_release(&governor->queue.lock);
    if (status) /* the limits are in force, and the next change of one tries again */
        moor__log(governor->runtime, MOOR_ABI_LOG_ERROR,
                  "pool %s: its holders are not asked for bytes over the limits: %s", authority->pool_key,
                  moor__pending_error()->text);
    moor__error_scope_end(&aside);
}
