/* SPDX-License-Identifier: MIT */
/* Tickets as objects, and as hosts see them. What they do is in queue.c and pressure.c. */
#include "governor/account.h"
#include "governor/grant.h"
#include "governor/pressure.h"
#include "governor/request.h"
#include "observe/trace.h"
#include "util/error.h"

#include <stdlib.h>

moor_status moor__ticket_make(struct moor_runtime *runtime, enum moor__ticket_kind kind,
                              struct moor__ticket **ret_ticket)
{
    struct moor__slot *slot;
    moor_status status = moor__handles_take(&runtime->tickets, &slot);
    if (status)
        return status;
    struct moor__ticket *ticket = (struct moor__ticket *)slot;
    moor__condition_init(&ticket->changed);
    ticket->kind = kind;
    ticket->deadline_ns = UINT64_MAX;
    moor__handles_publish(slot);
    *ret_ticket = ticket;
    return MOOR_OK;
}

/* It is retired, and nobody has it pinned. */
static void finish(struct moor_runtime *runtime, struct moor__ticket *ticket)
{
    pthread_cond_destroy(&ticket->changed);
    free(ticket->memory);
    moor__handles_free(&runtime->tickets, &ticket->slot);
}

moor_ticket moor__ticket_handle(struct moor_runtime *runtime, const struct moor__ticket *ticket)
{
    return moor__handle_of(&runtime->tickets, &ticket->slot);
}

struct moor__ticket *moor__ticket_pin(struct moor_runtime *runtime, moor_ticket name)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    struct moor__slot *slot = NULL;
    (void)moor__handles_pin(&runtime->tickets, name, &slot);
    moor__error_scope_end(&aside);
    return (struct moor__ticket *)slot;
}

void moor__ticket_unpin(struct moor_runtime *runtime, struct moor__ticket *ticket)
{
    if (moor__handles_unpin(&ticket->slot))
        finish(runtime, ticket);
}

void moor__ticket_free(struct moor_runtime *runtime, struct moor__ticket *ticket)
{
    struct moor__slot *slot;
    if (moor__handles_pin(&runtime->tickets, moor__ticket_handle(runtime, ticket), &slot))
        return;
    (void)moor__handles_retire(slot); /* it was live, and is nobody else's to retire */
    moor__ticket_unpin(runtime, ticket);
}

/* ---- for hosts ---- */

moor_status moor__requests_check(struct moor_runtime *runtime, const struct moor_request *requests,
                                 size_t count)
{
    if (!requests || count == 0)
        return moor__fail(MOOR_INVALID, "a request without parts");
    if (count > MOOR_LIMIT_REQUESTS)
        return moor__fail(MOOR_LIMIT, "%zu parts; at most %d", count, MOOR_LIMIT_REQUESTS);
    for (size_t i = 0; i < count; i++) {
        if (!requests[i].holder || requests[i].bytes == 0)
            return moor__fail(MOOR_INVALID, "part %zu: the holder must not be NULL, bytes not 0", i);
        if (requests[i].holder->authority->runtime != runtime)
            return moor__fail(MOOR_FOREIGN, "part %zu: a holder of another runtime", i);
    }
    return MOOR_OK;
}

moor_status moor_ticket_open(const struct moor_request *requests, size_t count, uint64_t deadline_ns,
                             moor_ticket *ret_ticket)
{
    if (!requests || count == 0 || !requests[0].holder || !ret_ticket || deadline_ns == MOOR_NO_WAIT)
        return moor__leave(
            moor__fail(MOOR_INVALID, "requests and ret_ticket must not be NULL, count and deadline not 0"));
    struct moor_runtime *runtime = requests[0].holder->authority->runtime;
    struct moor__request_set set;
    struct moor__ticket *ticket;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__requests_check(runtime, requests, count);
    if (!status)
        status = moor__request_set_copy(requests, count, &set);
    if (status)
        return moor__leave(status);
    status = moor__ticket_open(runtime, &set, deadline_ns, set.pools, &ticket);
    if (!status)
        *ret_ticket = moor__ticket_handle(runtime, ticket); /* nobody can end it before its name is known */
    else
        free(set.pools);
    return moor__leave(status);
}

static moor_status pin(struct moor_runtime *runtime, moor_ticket handle, struct moor__ticket **ret_ticket)
{
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__handles_pin(&runtime->tickets, handle, &slot);
    if (status)
        return status;
    *ret_ticket = (struct moor__ticket *)slot;
    if ((*ret_ticket)->kind == MOOR__TICKET_REQUEST && (*ret_ticket)->memory)
        return MOOR_OK;
    moor__ticket_unpin(runtime, *ret_ticket);
    return moor__fail(MOOR_INVALID, "the ticket is not the host's");
}

/* The queue's lock is held. Takes it out of the queue if it is there; what it was served with is not wanted. */
static void cancel(struct moor_runtime *runtime, struct moor__ticket *ticket, bool *ret_was_served)
{
    *ret_was_served = ticket->state == MOOR__TICKET_SERVED;
    if (ticket->state == MOOR__TICKET_OPEN)
        moor__queue_cancel(runtime->queue, ticket);
    ticket->state = MOOR__TICKET_ENDED;
    ticket->ended = MOOR_CANCELLED;
}

moor_status moor_ticket_cancel(struct moor_runtime *runtime, moor_ticket handle)
{
    struct moor__ticket *ticket;
    bool was_served = false;
    moor_status status = handle ? pin(runtime, handle, &ticket) : moor__enter(runtime);
    if (status || !handle)
        return moor__leave(status);
    moor__lock_acquire(&runtime->queue->lock);
    status = moor__handles_retire(&ticket->slot);
    runtime->queue->owned -= !status;
    if (!status)
        cancel(runtime, ticket, &was_served);
    moor__lock_release(&runtime->queue->lock);
    for (size_t i = 0; was_served && i < ticket->set.count; i++) {
        const struct moor_request *part = &ticket->set.parts[i];
        moor__trace(runtime, MOOR_TRACE_RESERVE, part->holder->authority, part->holder, part->bytes, 0);
        moor__unreserve(moor__thread_cache_of(runtime), part->holder, part->bytes, 0, false);
    }
    if (!status)
        moor__trace(runtime, MOOR_TRACE_END, ticket->set.pools[0], NULL, 0, handle);
    moor__ticket_unpin(runtime, ticket);
    return moor__leave(status);
}

/* Served, and retired by this thread: its parts become grants. */
static void hand_out(struct moor_runtime *runtime, const struct moor__ticket *ticket,
                     struct moor__slot **slots, moor_grant *ret_grants)
{
    for (size_t i = 0; i < ticket->set.count; i++) {
        const struct moor_request *part = &ticket->set.parts[i];
        moor__trace(runtime, MOOR_TRACE_RESERVE, part->holder->authority, part->holder, part->bytes, 0);
        moor__count_grants(part->holder, 1);
        ret_grants[i] = moor__grant_publish(runtime, slots[i], part->holder, part->bytes);
    }
}

moor_status moor_ticket_wait(struct moor_runtime *runtime, moor_ticket handle, moor_grant *ret_grants,
                             size_t capacity)
{
    struct moor__ticket *ticket;
    struct moor__slot **slots = NULL;
    moor_status status = pin(runtime, handle, &ticket);
    if (status)
        return moor__leave(status);
    if (!ret_grants || capacity < ticket->set.count)
        status = moor__fail(MOOR_INVALID, "room for %zu grants; the request has %zu parts", capacity,
                            ticket->set.count);
    if (!status)
        status = moor__grants_take(runtime, ticket->set.count, &slots);
    if (status)
        goto out;
    moor__lock_acquire(&runtime->queue->lock);
    moor__ticket_await(runtime, ticket);
    bool ends = ticket->ended != MOOR_CANCELLED;
    if (ends)
        status = moor__handles_retire(&ticket->slot); /* STALE: another thread that waited has it */
    ends &= !status;
    runtime->queue->owned -= ends;
    moor__lock_release(&runtime->queue->lock);
    if (!status)
        status = moor__ticket_outcome(ticket);
    if (!status)
        hand_out(runtime, ticket, slots, ret_grants);
    moor__grants_give(runtime, slots, status ? ticket->set.count : 0);
    if (ends)
        moor__trace(runtime, MOOR_TRACE_END, ticket->set.pools[0], NULL, status ? 0 : ticket->bytes, handle);
out:
    moor__ticket_unpin(runtime, ticket);
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
        status = moor__handles_pin(&runtime->tickets, handle, &slot);
    if (status)
        return moor__leave(status);
    struct moor__ticket *ticket = (struct moor__ticket *)slot;
    moor__lock_acquire(&runtime->queue->lock);
    *ret_stats = (struct moor_ticket_stats){
        .bytes = ticket->bytes,
        .deadline_ns = ticket->is_brief ? MOOR_NO_WAIT : ticket->deadline_ns,
        .evicted_bytes = ticket->evicted_bytes,
        .pending_bytes = ticket->pending_bytes,
        .returned_bytes = ticket->returned_bytes,
        .asked = ticket->asked,
        .passed = ticket->passed,
        .priority = ticket->priority,
        .served = ticket->state == MOOR__TICKET_SERVED,
    };
    moor__lock_release(&runtime->queue->lock);
    moor__ticket_unpin(runtime, ticket);
    return MOOR_OK;
}
