/* SPDX-License-Identifier: MIT */
/*
 * The pressure plan, by the rules in plan.h. A plan works on a view of one authority under its lock. The
 * bytes planned for a holder stand in its `planned_bytes`, which may wrap below zero and is 0 again at the
 * end.
 */
#include "governor/plan.h"

#include "governor/account.h"

#include <assert.h>
#include <moorage/abi/provider.h>

/* The view of one authority while a plan is made. */
struct plan {
    struct moor__schedule *schedule;
    struct moor_authority *authority; /* locked */
    uint64_t now_ns;
    uint64_t commitments; /* with all planned bytes */
    uint64_t has;         /* with all planned bytes */
    uint32_t available;   /* holders that can be asked now */
};

static uint64_t would_have(const struct moor_holder *holder)
{
    return moor__has_later(holder) + holder->planned_bytes;
}

static void plan_change(struct plan *plan, struct moor_holder *holder, uint64_t change)
{
    uint64_t guarantee = holder->limits.guarantee_bytes, before = would_have(holder);
    holder->planned_bytes += change;
    plan->commitments += moor__max(would_have(holder), guarantee) - moor__max(before, guarantee);
    plan->has += change;
}

/* ---- victims ---- */

static bool comes_before(const struct moor_holder *a, const struct moor_holder *b)
{
    return a->limits.priority != b->limits.priority ? a->limits.priority < b->limits.priority
                                                    : a->victim.created < b->victim.created;
}

void moor__victim_remove(struct moor__schedule *schedule, struct moor_holder *holder)
{
    if (!holder->victim.is_listed)
        return;
    struct moor_holder **link = &schedule->victims;
    while (*link != holder)
        link = &(*link)->victim.next;
    *link = holder->victim.next;
    holder->victim.is_listed = false;
}

void moor__victim_add(struct moor__schedule *schedule, struct moor_holder *holder)
{
    moor__victim_remove(schedule, holder);
    struct moor_holder **link = &schedule->victims;
    while (*link && comes_before(*link, holder))
        link = &(*link)->victim.next;
    holder->victim.next = *link;
    holder->victim.is_listed = true;
    *link = holder;
}

/* Returns the bytes that the holder can be asked for. deep: out of its guarantee as well. */
static uint64_t evictable_bytes(const struct moor_holder *holder, bool deep)
{
    /* The smaller of both: bytes that only its own waiting requests would bring cannot be evicted. */
    uint64_t has = moor__min(would_have(holder), moor__has_later(holder));
    uint64_t movable = moor__sub_sat(has, moor__account_get(&holder->account, MOOR__QUARANTINED));
    return deep ? movable : moor__min(movable, moor__sub_sat(has, holder->limits.guarantee_bytes));
}

static uint32_t reason_of(const struct moor__demand *demand, bool own)
{
    if (demand->kind == MOOR__TICKET_RECLAIM)
        return own ? MOOR_PRESSURE_LIMIT : MOOR_PRESSURE_CAPACITY;
    return demand->kind == MOOR__TICKET_DEVICE ? MOOR_PRESSURE_DEVICE : MOOR_PRESSURE_REQUEST;
}

/* A brief ticket asks each holder once, so that it ends. */
static bool has_answered(const struct moor__ticket *ticket, const struct moor_holder *holder)
{
    return ticket->demand.is_brief && holder->victim.answered > ticket->pressure.answers_before;
}

uint32_t moor__plan_answers(const struct moor__schedule *schedule, const struct moor__ticket *ticket)
{
    uint32_t count = 0;
    for (const struct moor_holder *holder = schedule->victims; holder; holder = holder->victim.next)
        count += has_answered(ticket, holder);
    return count;
}

/* Asks one holder for at most that many bytes. Returns the number asked for. */
static uint64_t ask(struct plan *plan, struct moor__ticket *ticket, struct moor_holder *holder,
                    uint64_t bytes, bool own, bool deep)
{
    struct moor__victim *victim = &holder->victim;
    uint64_t asked = moor__min(bytes, evictable_bytes(holder, deep));
    if (!victim->function || asked == 0)
        return 0;
    if (victim->request.ticket || plan->now_ns < victim->cool_until_ns || has_answered(ticket, holder) ||
        !victim->is_listed) { /* unlisted: moor__pressure_await withdraws its request */
        ticket->pressure.turned_away = true;
        return 0;
    }
    assert(!victim->request.is_waiting && holder->authority == plan->authority && plan->available > 0);
    victim->request = (struct moor__pressure_request){
        .ticket = ticket->handle,
        .bytes = asked,
        .had_bytes = moor__has_later(holder),
        .since_ns = plan->now_ns,
        .is_waiting = true,
        .is_expected = true,
        .reason = reason_of(&ticket->demand, own),
        .priority = ticket->demand.priority,
        .deadline_ns = ticket->demand.is_brief ? 0 : ticket->demand.deadline_ns,
    };
    atomic_store_explicit(&holder->is_asked, 1, memory_order_relaxed);
    STAILQ_INSERT_TAIL(&plan->schedule->requests, holder, victim.request.entry);
    ticket->pressure.asked++;
    plan->available--;
    plan_change(plan, holder, -asked);
    return asked;
}

/* Asks the pool's victims of at most the ticket's priority; `last` after its equals. */
static void ask_victims(struct plan *plan, struct moor__ticket *ticket, const struct moor_holder *last,
                        uint64_t bytes, bool deep)
{
    struct moor_holder *victim = plan->schedule->victims, *kept = NULL;
    while (bytes && (victim || kept)) {
        if (kept && (!victim || victim->limits.priority > kept->limits.priority)) {
            bytes -= ask(plan, ticket, kept, bytes, false, deep);
            kept = NULL;
            continue;
        }
        if (victim->limits.priority > ticket->demand.priority)
            break;
        if (victim == last)
            kept = victim;
        else if (victim->authority == plan->authority)
            bytes -= ask(plan, ticket, victim, bytes, false, deep);
        victim = victim->victim.next;
    }
    assert(!bytes || !kept); /* a victim that ends the loop has a higher priority than the kept one */
}

/* ---- missing bytes ---- */

/* Returns the guaranteed bytes that holders have borrowed, if these are the commitments. */
static uint64_t borrowed_bytes(const struct moor_authority *authority, uint64_t commitments)
{
    uint64_t needed = moor__add_sat(commitments, authority->limits.set_aside);
    return moor__min(moor__sub_sat(needed, authority->limits.capacity),
                     commitments - authority->sums.guarantees);
}

uint64_t moor__over_bytes(const struct moor_authority *authority)
{
    const struct moor__authority_sums *sums = &authority->sums;
    assert(sums->commitments >= sums->guarantees && sums->commitments >= sums->has);
    return moor__max(moor__sub_sat(sums->has, authority->limits.capacity),
                     borrowed_bytes(authority, sums->commitments));
}

bool moor__reclaim_is_needed(const struct moor__schedule *schedule, struct moor_authority *authority)
{
    moor__lock_acquire(&authority->lock);
    bool over = moor__over_bytes(authority) != 0;
    for (const struct moor_holder *holder = schedule->victims; holder && !over; holder = holder->victim.next)
        over = holder->authority == authority && holder->has > holder->limits.limit_bytes;
    moor__lock_release(&authority->lock);
    return over;
}

/* Asks for bytes over the capacity, lent out of guarantees, and over holders' limits. */
static void plan_reclaim(struct plan *plan, struct moor__ticket *ticket)
{
    const struct moor_authority *authority = plan->authority;
    ask_victims(plan, ticket, NULL, borrowed_bytes(authority, plan->commitments), false);
    ask_victims(plan, ticket, NULL, moor__sub_sat(plan->has, authority->limits.capacity), true);
    for (struct moor_holder *holder = plan->schedule->victims; holder; holder = holder->victim.next)
        if (holder->authority == authority)
            (void)ask(plan, ticket, holder, moor__sub_sat(would_have(holder), holder->limits.limit_bytes),
                      true, true);
}

static void plan_part(struct plan *plan, struct moor__ticket *ticket, const struct moor_request *part)
{
    const struct moor_authority *authority = plan->authority;
    struct moor_holder *holder = part->holder;
    uint64_t own = moor__sub_sat(moor__add_sat(would_have(holder), part->bytes), holder->limits.limit_bytes);
    (void)ask(plan, ticket, holder, own, true, true);
    uint64_t commitment = moor__max(would_have(holder), holder->limits.guarantee_bytes);
    uint64_t reserve = ticket->demand.set.is_inside ? 0 : authority->limits.set_aside;
    uint64_t others = moor__add_sat(plan->commitments - commitment + would_have(holder), reserve);
    /* Bytes that the pool lacks already are missing too: other processes may hold more of it than before. */
    uint64_t pool = moor__sub_sat(moor__add_sat(others, part->bytes), moor__authority_capacity(authority));
    ask_victims(plan, ticket, holder, pool, false);
    plan_change(plan, holder, part->bytes);
}

/* Returns the bytes that are still expected from the holders asked for this ticket. */
static uint64_t expected_for(const struct plan *plan, const struct moor__ticket *ticket)
{
    uint64_t sum = 0;
    for (const struct moor_holder *holder = plan->schedule->victims; holder; holder = holder->victim.next) {
        const struct moor__pressure_request *request = &holder->victim.request;
        if (request->ticket == ticket->handle && request->is_expected)
            sum += moor__sub_sat(request->bytes, request->evicted_bytes);
    }
    return sum;
}

static void plan_ticket(struct plan *plan, struct moor__ticket *ticket)
{
    const struct moor__demand *demand = &ticket->demand;
    /* With no holder left to ask, only a brief ticket goes on, to learn whether one was passed over. A ticket
     * that can never fit asks for nothing. */
    if ((plan->available == 0 && !demand->is_brief) || ticket->refusal.status == MOOR_NEVER_FITS)
        return;
    if (demand->kind == MOOR__TICKET_RECLAIM && demand->set.pools[0] == plan->authority)
        plan_reclaim(plan, ticket);
    if (demand->kind == MOOR__TICKET_DEVICE && demand->set.pools[0] == plan->authority)
        ask_victims(plan, ticket, demand->requester,
                    moor__sub_sat(demand->bytes, ticket->pressure.evicted_bytes + expected_for(plan, ticket)),
                    false);
    for (size_t i = 0; i < demand->set.count; i++)
        if (demand->set.parts[i].holder->authority == plan->authority)
            plan_part(plan, ticket, &demand->set.parts[i]);
}

/* Plans as gone the bytes that are expected from holders which are being asked, and counts the others. */
static void plan_expected(struct plan *plan)
{
    for (struct moor_holder *holder = plan->schedule->victims; holder; holder = holder->victim.next) {
        struct moor__pressure_request *request = &holder->victim.request;
        if (holder->authority != plan->authority)
            continue;
        plan->available += !request->ticket && plan->now_ns >= holder->victim.cool_until_ns;
        if (!request->ticket)
            continue;
        request->is_expected &= plan->now_ns - request->since_ns < plan->schedule->patience_ns;
        uint64_t missing = moor__sub_sat(request->bytes, request->evicted_bytes);
        if (request->is_expected)
            plan_change(plan, holder, -moor__min(missing, would_have(holder)));
    }
}

static void clear_planned(const struct plan *plan)
{
    for (struct moor_holder *holder = plan->schedule->victims; holder; holder = holder->victim.next)
        if (holder->authority == plan->authority)
            holder->planned_bytes = 0;
    const struct moor__ticket *ticket;
    TAILQ_FOREACH (ticket, &plan->schedule->tickets, entry)
        for (size_t i = 0; i < ticket->demand.set.count; i++)
            if (ticket->demand.set.parts[i].holder->authority == plan->authority)
                ticket->demand.set.parts[i].holder->planned_bytes = 0;
}

static void plan_authority(struct moor__schedule *schedule, struct moor_authority *authority, uint64_t now_ns)
{
    struct moor__ticket *ticket;
    if (authority->waiting.planned == schedule->plans)
        return;
    authority->waiting.planned = schedule->plans;
    moor__lock_acquire(&authority->lock);
    /* Tickets are open, so no thread has credit and the sums without pending bytes are exact. */
    assert(authority->waiting.tickets > 0 && authority->strict);
    const struct moor__authority_sums *sums = &authority->sums;
    struct plan plan = {schedule,
                        authority,
                        now_ns,
                        sums->commitments_later,
                        sums->has - moor__account_get(&sums->account, MOOR__PENDING),
                        0};
    plan_expected(&plan);
    TAILQ_FOREACH (ticket, &schedule->tickets, entry)
        plan_ticket(&plan, ticket);
    clear_planned(&plan);
    moor__lock_release(&authority->lock);
}

/* ---- the plan ---- */

/* Returns true if bytes are expected from a holder that the ticket may ask, for this ticket or another. */
static bool is_asking(const struct moor__schedule *schedule, const struct moor__ticket *ticket)
{
    for (const struct moor_holder *holder = schedule->victims; holder; holder = holder->victim.next) {
        const struct moor__pressure_request *request = &holder->victim.request;
        if (!request->ticket || !request->is_expected || has_answered(ticket, holder) ||
            (request->ticket != ticket->handle && holder->limits.priority > ticket->demand.priority))
            continue;
        if (moor__request_set_has(&ticket->demand.set, holder->authority))
            return true;
    }
    return false;
}

bool moor__plan_could_ask(const struct moor__schedule *schedule, const struct moor__ticket *ticket,
                          uint64_t now_ns)
{
    if (ticket->demand.is_brief)
        return true; /* a plan for it also notes which holders are passed over */
    for (const struct moor_holder *holder = schedule->victims; holder; holder = holder->victim.next)
        if (!holder->victim.request.ticket && now_ns >= holder->victim.cool_until_ns &&
            moor__request_set_has(&ticket->demand.set, holder->authority))
            return true;
    return false;
}

/* Returns the time when the next rule applies without any other change. */
static uint64_t next_due(const struct moor__schedule *schedule, uint64_t now_ns)
{
    const struct moor__ticket *ticket;
    uint64_t due = UINT64_MAX;
    TAILQ_FOREACH (ticket, &schedule->tickets, entry) {
        const struct moor__place *place = &ticket->place;
        due = moor__min(due, ticket->demand.deadline_ns);
        if (place->turn_until_ns != 0)
            due = moor__min(due, place->turn_until_ns);
        if (place->passed >= MOOR_PASSED_MAX && place->next_turn_ns > now_ns)
            due = moor__min(due, place->next_turn_ns);
    }
    for (const struct moor_holder *holder = schedule->victims; holder && schedule->count;
         holder = holder->victim.next) {
        const struct moor__victim *victim = &holder->victim;
        uint64_t patient_until_ns = moor__add_sat(victim->request.since_ns, schedule->patience_ns);
        if (victim->request.ticket && victim->request.is_expected && patient_until_ns > now_ns)
            due = moor__min(due, patient_until_ns);
        if (!victim->request.ticket && victim->cool_until_ns > now_ns)
            due = moor__min(due, victim->cool_until_ns);
    }
    return due;
}

void moor__plan_pressure(struct moor__schedule *schedule, uint64_t now_ns)
{
    struct moor__ticket *ticket;
    schedule->plans++;
    TAILQ_FOREACH (ticket, &schedule->tickets, entry)
        for (size_t i = 0; i < ticket->demand.set.pool_count; i++)
            plan_authority(schedule, ticket->demand.set.pools[i], now_ns);
    TAILQ_FOREACH (ticket, &schedule->tickets, entry) {
        if (!ticket->demand.is_brief || is_asking(schedule, ticket))
            continue;
        ticket->pressure.is_answered = true;
        pthread_cond_broadcast(&ticket->changed);
    }
    schedule->due_ns = next_due(schedule, now_ns);
}
