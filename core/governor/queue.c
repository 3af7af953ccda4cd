/* SPDX-License-Identifier: MIT */
/*
 * Who is served when. Requests are gone through by priority, then by arrival; one that was passed too often
 * gets a turn, in which nobody else may borrow from its pools. Whoever makes room goes through the queue
 * itself, so there is no thread that a served request would depend on; time (deadlines, turns, patience) is
 * looked at on each occasion, and by the attendant (worker.c) when there is none.
 */
#include "governor/queue.h"

#include "governor/account.h"
#include "governor/pressure.h"
#include "util/error.h"

#include <stdlib.h>

uint64_t (*moor__governor_clock)(void) = moor_clock_ns;

moor_status moor__queue_create(uint64_t patience_ns, struct moor__queue **ret_queue)
{
    struct moor__queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a queue");
    TAILQ_INIT(&queue->tickets);
    STAILQ_INIT(&queue->asks);
    queue->patience_ns = patience_ns ? patience_ns : MOOR_PATIENCE_NS;
    queue->due_ns = UINT64_MAX;
    moor__lock_init(&queue->lock, MOOR__RANK_QUEUE, "queue.lock");
    moor__condition_init(&queue->work);
    moor__condition_init(&queue->attention);
    moor__condition_init(&queue->quiet);
    *ret_queue = queue;
    return MOOR_OK;
}

void moor__queue_destroy(struct moor__queue *queue)
{
    if (!queue)
        return;
    moor__workers_stop(queue);
    pthread_cond_destroy(&queue->quiet);
    pthread_cond_destroy(&queue->attention);
    pthread_cond_destroy(&queue->work);
    moor__lock_finish(&queue->lock);
    free(queue);
}

uint32_t moor__queue_count(struct moor__queue *queue)
{
    moor__lock_acquire(&queue->lock);
    uint32_t count = queue->owned;
    moor__lock_release(&queue->lock);
    return count;
}

/* ---- in and out ---- */

static void join_pool(struct moor_authority *authority)
{
    moor__lock_acquire(&authority->lock);
    authority->tickets++;
    moor__credit_take_back(authority, MOOR__STRICT_TICKETS);
    moor__lock_release(&authority->lock);
}

static void leave_pool(struct moor_authority *authority, const struct moor__ticket *ticket)
{
    moor__lock_acquire(&authority->lock);
    if (authority->turn == ticket)
        authority->turn = NULL;
    if (--authority->tickets == 0)
        moor__credit_allow(authority, MOOR__STRICT_TICKETS);
    moor__lock_release(&authority->lock);
}

void moor__queue_add(struct moor__queue *queue, struct moor__ticket *ticket)
{
    struct moor__ticket *after = TAILQ_LAST(&queue->tickets, moor__tickets);
    while (after && after->priority < ticket->priority)
        after = TAILQ_PREV(after, moor__tickets, entry);
    if (after)
        TAILQ_INSERT_AFTER(&queue->tickets, after, ticket, entry);
    else
        TAILQ_INSERT_HEAD(&queue->tickets, ticket, entry);
    queue->count++;
    ticket->arrival = ++queue->arrivals;
    ticket->opened_ns = moor__governor_clock();
    ticket->answers_before = queue->answers;
    for (size_t i = 0; i < ticket->set.count; i++)
        ticket->set.parts[i].holder->wanted++;
    for (size_t i = 0; i < ticket->set.pool_count; i++)
        join_pool(ticket->set.pools[i]);
}

void moor__queue_end(struct moor__queue *queue, struct moor__ticket *ticket, enum moor__ticket_state state,
                     moor_status status)
{
    TAILQ_REMOVE(&queue->tickets, ticket, entry);
    queue->count--;
    for (size_t i = 0; i < ticket->set.count; i++)
        ticket->set.parts[i].holder->wanted--;
    for (size_t i = 0; i < ticket->set.pool_count; i++)
        leave_pool(ticket->set.pools[i], ticket);
    ticket->state = state;
    ticket->ended = status;
    pthread_cond_broadcast(&ticket->changed);
}

/* ---- passing, and turns ---- */

static bool share_pool(const struct moor__request_set *a, const struct moor__request_set *b)
{
    for (size_t i = 0; i < a->pool_count; i++)
        for (size_t j = 0; j < b->pool_count; j++)
            if (a->pools[i] == b->pools[j])
                return true;
    return false;
}

/* A request was served that came at that place. */
static void pass(struct moor__queue *queue, const struct moor__request_set *set, uint64_t arrival)
{
    struct moor__ticket *ticket;
    TAILQ_FOREACH (ticket, &queue->tickets, entry)
        if (ticket->kind == MOOR__TICKET_REQUEST && ticket->arrival < arrival &&
            share_pool(&ticket->set, set))
            ticket->passed++;
}

static void set_turn(const struct moor__request_set *set, struct moor__ticket *ticket)
{
    moor__request_set_lock(set);
    for (size_t i = 0; i < set->pool_count; i++)
        set->pools[i]->turn = ticket;
    moor__request_set_unlock(set);
}

/* For admission it counts where the request was made, not that this thread, which looks at it, is inside a
 * pressure function. Returns where this thread is. */
static struct moor_holder *stand_in(const struct moor__ticket *ticket)
{
    struct moor_holder *here = moor__pressured_holder;
    moor__pressured_holder = ticket->is_inside ? ticket->set.parts[0].holder : NULL;
    return here;
}

/* It could be served if nobody had anything, as limits are now. */
static bool can_ever(const struct moor__ticket *ticket)
{
    struct moor__refusal unused;
    struct moor_holder *here = stand_in(ticket);
    moor__request_set_lock(&ticket->set);
    bool can = moor__request_set_can(&ticket->set, &unused);
    moor__request_set_unlock(&ticket->set);
    moor__pressured_holder = here;
    return can;
}

/* It has been passed too often, not for its own limits or for ever, and nobody has a turn in its pools. */
static bool is_to_have_turn(const struct moor__ticket *ticket, uint64_t now_ns)
{
    if (ticket->passed < MOOR_PASSED_MAX || ticket->turn_until_ns || now_ns < ticket->next_turn_ns)
        return false;
    for (size_t i = 0; i < ticket->set.pool_count; i++)
        if (ticket->set.pools[i]->turn)
            return false;
    moor__request_set_lock(&ticket->set);
    bool limited = moor__request_set_is_limited(&ticket->set);
    moor__request_set_unlock(&ticket->set);
    return !limited && can_ever(ticket);
}

/* The earliest first. */
static void begin_turns(struct moor__queue *queue, uint64_t now_ns)
{
    for (;;) {
        struct moor__ticket *ticket, *next = NULL;
        TAILQ_FOREACH (ticket, &queue->tickets, entry)
            if ((!next || ticket->arrival < next->arrival) && is_to_have_turn(ticket, now_ns))
                next = ticket;
        if (!next)
            return;
        uint64_t turn_ns = (now_ns - next->opened_ns) / 2;
        turn_ns = turn_ns < MOOR_TURN_NS       ? MOOR_TURN_NS
                  : turn_ns > MOOR_TURN_MAX_NS ? MOOR_TURN_MAX_NS
                                               : turn_ns;
        next->turn_until_ns = now_ns + turn_ns;
        next->next_turn_ns = next->turn_until_ns + turn_ns;
        set_turn(&next->set, next);
    }
}

/* True: some have ended. */
static bool end_turns(struct moor__queue *queue, uint64_t now_ns)
{
    struct moor__ticket *ticket;
    bool ended = false;
    TAILQ_FOREACH (ticket, &queue->tickets, entry) {
        if (ticket->turn_until_ns == 0 || (now_ns < ticket->turn_until_ns && can_ever(ticket)))
            continue;
        set_turn(&ticket->set, NULL);
        ticket->turn_until_ns = 0;
        ticket->passed = 0;
        ended = true;
    }
    return ended;
}

/* ---- serving ---- */

static bool try_to_serve(struct moor__queue *queue, struct moor__ticket *ticket)
{
    struct moor_holder *here = stand_in(ticket);
    moor__request_set_lock(&ticket->set);
    bool served = moor__request_set_grant(&ticket->set, ticket, &ticket->refusal);
    moor__request_set_unlock(&ticket->set);
    moor__pressured_holder = here;
    if (!served)
        return false;
    moor__queue_end(queue, ticket, MOOR__TICKET_SERVED, MOOR_OK);
    pass(queue, &ticket->set, ticket->arrival);
    return true;
}

/* Each that fits, in order. When a turn ends by that, those before it are gone through again, for they may
 * have been passed over for it. may_begin: turns do, as soon as somebody has been passed too often. */
static void serve(struct moor__queue *queue, uint64_t now_ns, bool may_begin)
{
    struct moor__ticket *next;
    for (struct moor__ticket *ticket = TAILQ_FIRST(&queue->tickets); ticket; ticket = next) {
        next = TAILQ_NEXT(ticket, entry);
        bool had_turn = ticket->turn_until_ns != 0;
        if (ticket->kind != MOOR__TICKET_REQUEST || !try_to_serve(queue, ticket))
            continue;
        if (may_begin)
            begin_turns(queue, now_ns);
        if (had_turn)
            next = TAILQ_FIRST(&queue->tickets);
    }
}

static void end_those_due(struct moor__queue *queue, uint64_t now_ns)
{
    struct moor__ticket *next;
    for (struct moor__ticket *ticket = TAILQ_FIRST(&queue->tickets); ticket; ticket = next) {
        next = TAILQ_NEXT(ticket, entry);
        if (ticket->deadline_ns != UINT64_MAX && now_ns >= ticket->deadline_ns)
            moor__queue_end(queue, ticket, MOOR__TICKET_ENDED, MOOR_TIMEOUT);
        else if (ticket->kind == MOOR__TICKET_RECLAIM && !moor__reclaim_is_needed(queue, ticket->pool))
            moor__queue_end(queue, ticket, MOOR__TICKET_ENDED, MOOR_OK);
    }
}

void moor__queue_scan_locked(struct moor__queue *queue)
{
    if (queue->count == 0)
        return;
    uint64_t now_ns = moor__governor_clock();
    bool ended = end_turns(queue, now_ns);
    serve(queue, now_ns, !ended);
    end_those_due(queue, now_ns);
    begin_turns(queue, now_ns);
    serve(queue, now_ns, true);
    moor__plan_pressure(queue, now_ns);
}

void moor__queue_enter(struct moor__queue *queue, struct moor__ticket *ticket)
{
    moor__queue_add(queue, ticket);
    uint64_t now_ns = moor__governor_clock();
    bool alone = queue->count == 1; /* nobody has looked since the last one ended */
    queue->due_ns = ticket->deadline_ns < queue->due_ns ? ticket->deadline_ns : queue->due_ns;
    if (alone || now_ns >= queue->due_ns || moor__plan_could_ask(queue, ticket, now_ns) ||
        try_to_serve(queue, ticket)) {
        moor__queue_scan_locked(queue);
        return;
    }
    moor__workers_wake(queue);
}

void moor__queue_cancel(struct moor__queue *queue, struct moor__ticket *ticket)
{
    bool had_turn = ticket->turn_until_ns != 0;
    moor__queue_end(queue, ticket, MOOR__TICKET_ENDED, MOOR_CANCELLED);
    if (had_turn)
        moor__queue_scan_locked(queue);
}

void moor__queue_scan(struct moor_runtime *runtime)
{
    moor__lock_acquire(&runtime->queue->lock);
    moor__queue_scan_locked(runtime->queue);
    moor__lock_release(&runtime->queue->lock);
}

bool moor__queue_try(struct moor_runtime *runtime, const struct moor__request_set *set,
                     struct moor__refusal *ret_refusal)
{
    struct moor__queue *queue = runtime->queue;
    moor__lock_acquire(&queue->lock);
    moor__request_set_lock(set);
    bool granted = moor__request_set_grant(set, NULL, ret_refusal);
    moor__request_set_unlock(set);
    if (granted && queue->count) {
        pass(queue, set, UINT64_MAX);
        moor__queue_scan_locked(queue);
    }
    moor__lock_release(&queue->lock);
    return granted;
}
