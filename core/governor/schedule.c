/* SPDX-License-Identifier: MIT */
/*
 * The order of service, by the rules in schedule.h. The thread that makes room runs the schedule itself, so a
 * served request depends on no other thread. Every run looks at the time as well (deadlines, turns,
 * patience); the monitor (worker.c) runs it when nothing else does.
 */
#include "governor/schedule.h"

#include "governor/credit.h"
#include "governor/plan.h"

_Static_assert(MOOR_TURN_NS <= MOOR_TURN_MAX_NS, "the bounds of an exclusive turn");

/* ---- in and out ---- */

static void join_pool(struct moor_authority *authority)
{
    moor__lock_acquire(&authority->lock);
    authority->waiting.tickets++;
    moor__credit_take_back(authority, MOOR__STRICT_TICKETS);
    moor__lock_release(&authority->lock);
}

static void leave_pool(struct moor_authority *authority, const struct moor__ticket *ticket)
{
    moor__lock_acquire(&authority->lock);
    assert(authority->waiting.tickets > 0);
    if (authority->waiting.turn == ticket)
        authority->waiting.turn = NULL;
    if (--authority->waiting.tickets == 0)
        moor__credit_allow(authority, MOOR__STRICT_TICKETS);
    moor__lock_release(&authority->lock);
}

void moor__schedule_add(struct moor__schedule *schedule, struct moor__ticket *ticket, uint64_t now_ns)
{
    assert(ticket->state == MOOR__TICKET_OPEN);
    struct moor__ticket *after = TAILQ_LAST(&schedule->tickets, moor__tickets);
    while (after && after->demand.priority < ticket->demand.priority)
        after = TAILQ_PREV(after, moor__tickets, entry);
    if (after)
        TAILQ_INSERT_AFTER(&schedule->tickets, after, ticket, entry);
    else
        TAILQ_INSERT_HEAD(&schedule->tickets, ticket, entry);
    schedule->count++;
    ticket->place.arrival = ++schedule->arrivals;
    ticket->place.opened_ns = now_ns;
    ticket->pressure.answers_before = schedule->answers;
    const struct moor__request_set *set = &ticket->demand.set;
    for (size_t i = 0; i < set->count; i++)
        set->parts[i].holder->victim.wanted++;
    for (size_t i = 0; i < set->pool_count; i++)
        join_pool(set->pools[i]);
}

void moor__schedule_end(struct moor__schedule *schedule, struct moor__ticket *ticket,
                        enum moor__ticket_state state, moor_status status)
{
    assert(ticket->state == MOOR__TICKET_OPEN && state != MOOR__TICKET_OPEN && schedule->count > 0);
    TAILQ_REMOVE(&schedule->tickets, ticket, entry);
    schedule->count--;
    const struct moor__request_set *set = &ticket->demand.set;
    for (size_t i = 0; i < set->count; i++) {
        assert(set->parts[i].holder->victim.wanted > 0);
        set->parts[i].holder->victim.wanted--;
    }
    for (size_t i = 0; i < set->pool_count; i++)
        leave_pool(set->pools[i], ticket);
    ticket->state = state;
    ticket->ended = status;
    pthread_cond_broadcast(&ticket->changed);
}

/* ---- passing, and exclusive turns ---- */

static bool share_pool(const struct moor__request_set *a, const struct moor__request_set *b)
{
    for (size_t i = 0; i < a->pool_count; i++)
        if (moor__request_set_has(b, a->pools[i]))
            return true;
    return false;
}

void moor__schedule_count_pass(struct moor__schedule *schedule, const struct moor__request_set *set,
                               uint64_t arrival)
{
    struct moor__ticket *ticket;
    TAILQ_FOREACH (ticket, &schedule->tickets, entry)
        if (ticket->demand.kind == MOOR__TICKET_REQUEST && ticket->place.arrival < arrival &&
            share_pool(&ticket->demand.set, set))
            ticket->place.passed++;
}

static void set_turn(const struct moor__request_set *set, const struct moor__ticket *ticket)
{
    moor__request_set_lock(set);
    for (size_t i = 0; i < set->pool_count; i++) {
        assert(!ticket || !set->pools[i]->waiting.turn);
        set->pools[i]->waiting.turn = ticket;
    }
    moor__request_set_unlock(set);
}

/* Returns true if the ticket would fit with every byte free, under the limits of now. */
static bool can_ever(const struct moor__ticket *ticket)
{
    struct moor__refusal unused;
    return moor__request_set_can(&ticket->demand.set, &unused);
}

static bool is_to_have_turn(const struct moor__ticket *ticket, uint64_t now_ns)
{
    const struct moor__request_set *set = &ticket->demand.set;
    const struct moor__place *place = &ticket->place;
    if (place->passed < MOOR_PASSED_MAX || place->turn_until_ns || now_ns < place->next_turn_ns)
        return false;
    for (size_t i = 0; i < set->pool_count; i++)
        if (set->pools[i]->waiting.turn)
            return false;
    return !moor__request_set_is_limited(set) && can_ever(ticket);
}

/* Begins all turns that can, the earliest arrival first. */
static void begin_turns(struct moor__schedule *schedule, uint64_t now_ns)
{
    for (;;) {
        struct moor__ticket *ticket, *next = NULL;
        TAILQ_FOREACH (ticket, &schedule->tickets, entry)
            if ((!next || ticket->place.arrival < next->place.arrival) && is_to_have_turn(ticket, now_ns))
                next = ticket;
        if (!next)
            return;
        uint64_t turn_ns = (now_ns - next->place.opened_ns) / 2;
        turn_ns = moor__min(moor__max(turn_ns, MOOR_TURN_NS), MOOR_TURN_MAX_NS);
        next->place.turn_until_ns = now_ns + turn_ns;
        next->place.next_turn_ns = next->place.turn_until_ns + turn_ns;
        set_turn(&next->demand.set, next);
    }
}

/* Ends turns that are over, or belong to a ticket that can no longer fit. Returns true if any ended. */
static bool end_turns(struct moor__schedule *schedule, uint64_t now_ns)
{
    struct moor__ticket *ticket;
    bool ended = false;
    TAILQ_FOREACH (ticket, &schedule->tickets, entry) {
        if (ticket->place.turn_until_ns == 0 || (now_ns < ticket->place.turn_until_ns && can_ever(ticket)))
            continue;
        set_turn(&ticket->demand.set, NULL);
        ticket->place.turn_until_ns = 0;
        ticket->place.passed = 0;
        ended = true;
    }
    return ended;
}

/* ---- serving ---- */

static bool try_to_serve(struct moor__schedule *schedule, struct moor__ticket *ticket)
{
    const struct moor__request_set set = ticket->demand.set;
    moor__request_set_lock(&set);
    bool served = moor__request_set_grant(&set, ticket, &ticket->refusal);
    moor__request_set_unlock(&set);
    if (!served)
        return false;
    moor__schedule_end(schedule, ticket, MOOR__TICKET_SERVED, MOOR_OK);
    moor__schedule_count_pass(schedule, &set, ticket->place.arrival);
    return true;
}

/* Serves each ticket that fits, in order. Service that ends a turn starts again at the front, because earlier
 * tickets may have been barred by it. may_begin: a turn begins as soon as a ticket has been passed often
 * enough. */
static void serve(struct moor__schedule *schedule, uint64_t now_ns, bool may_begin)
{
    struct moor__ticket *next;
    for (struct moor__ticket *ticket = TAILQ_FIRST(&schedule->tickets); ticket; ticket = next) {
        next = TAILQ_NEXT(ticket, entry);
        bool had_turn = ticket->place.turn_until_ns != 0;
        if (ticket->demand.kind != MOOR__TICKET_REQUEST || !try_to_serve(schedule, ticket))
            continue;
        if (may_begin)
            begin_turns(schedule, now_ns);
        if (had_turn)
            next = TAILQ_FIRST(&schedule->tickets);
    }
}

/* Ends tickets after their deadline, and reclaim tickets that are no longer needed. */
static void end_due(struct moor__schedule *schedule, uint64_t now_ns)
{
    struct moor__ticket *next;
    for (struct moor__ticket *ticket = TAILQ_FIRST(&schedule->tickets); ticket; ticket = next) {
        next = TAILQ_NEXT(ticket, entry);
        if (ticket->demand.deadline_ns != UINT64_MAX && now_ns >= ticket->demand.deadline_ns)
            moor__schedule_end(schedule, ticket, MOOR__TICKET_ENDED, MOOR_TIMEOUT);
        else if (ticket->demand.kind == MOOR__TICKET_RECLAIM &&
                 !moor__reclaim_is_needed(schedule, ticket->pool))
            moor__schedule_end(schedule, ticket, MOOR__TICKET_ENDED, MOOR_OK);
    }
}

void moor__schedule_run(struct moor__schedule *schedule, uint64_t now_ns)
{
    bool ended = end_turns(schedule, now_ns);
    serve(schedule, now_ns, !ended);
    end_due(schedule, now_ns);
    begin_turns(schedule, now_ns);
    serve(schedule, now_ns, true);
    moor__plan_pressure(schedule, now_ns);
}

void moor__schedule_enter(struct moor__schedule *schedule, struct moor__ticket *ticket, uint64_t now_ns)
{
    moor__schedule_add(schedule, ticket, now_ns);
    bool alone = schedule->count == 1; /* the last run was before the schedule was empty */
    schedule->due_ns = moor__min(ticket->demand.deadline_ns, schedule->due_ns);
    if (alone || now_ns >= schedule->due_ns || moor__plan_could_ask(schedule, ticket, now_ns) ||
        try_to_serve(schedule, ticket))
        moor__schedule_run(schedule, now_ns);
}
