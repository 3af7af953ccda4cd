/* SPDX-License-Identifier: MIT */
/*
 * Who is asked. What is short is worked out anew each time, over all tickets of an authority in their order,
 * as if everything that is on its way were there: what is pending, and what holders are being asked for. So
 * the same bytes are never asked for twice, and what fails to come is asked for again, without any record of
 * promises.
 *
 * The working-out is done in the holders' `set`, which is zero otherwise: bytes that a holder would have
 * more (or, wrapped, less) than it has now.
 */
#include "governor/pressure.h"

#include "governor/account.h"
#include "util/error.h"

#include <moorage/abi/provider.h>

/* The look at one authority. */
struct look {
    struct moor__queue *queue;
    struct moor_authority *authority; /* locked */
    uint64_t now_ns;
    uint64_t commitments; /* with everybody's set */
    uint64_t has;
    uint32_t askable; /* holders that could be asked, were it for their bytes */
};

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a < UINT64_MAX - b ? a + b : UINT64_MAX;
}

/* What the holder would have. */
static uint64_t would_have(const struct moor_holder *holder)
{
    return holder->has - moor__account_get(&holder->account, MOOR__PENDING) + holder->planned_bytes;
}

static void plan_change(struct look *look, struct moor_holder *holder, uint64_t change)
{
    uint64_t guarantee = holder->limits.guarantee_bytes, before = would_have(holder);
    holder->planned_bytes += change;
    look->commitments += larger(would_have(holder), guarantee) - larger(before, guarantee);
    look->has += change;
}

/* ---- victims ---- */

static bool comes_before(const struct moor_holder *a, const struct moor_holder *b)
{
    return a->limits.priority != b->limits.priority ? a->limits.priority < b->limits.priority
                                                    : a->created < b->created;
}

void moor__victim_remove(struct moor__queue *queue, struct moor_holder *holder)
{
    struct moor_holder **link = &queue->victims;
    while (*link && *link != holder)
        link = &(*link)->next_victim;
    if (*link)
        *link = holder->next_victim;
    holder->next_victim = NULL;
}

void moor__victim_add(struct moor__queue *queue, struct moor_holder *holder)
{
    moor__victim_remove(queue, holder);
    struct moor_holder **link = &queue->victims;
    while (*link && comes_before(*link, holder))
        link = &(*link)->next_victim;
    holder->next_victim = *link;
    *link = holder;
}

bool moor__pressure_is_possible(struct moor_runtime *runtime, const struct moor__request_set *set)
{
    bool can = false;
    moor__lock_acquire(&runtime->queue->lock);
    for (const struct moor_holder *victim = runtime->queue->victims; victim && !can;
         victim = victim->next_victim)
        for (size_t i = 0; i < set->pool_count && !can; i++)
            can = victim->authority == set->pools[i];
    moor__lock_release(&runtime->queue->lock);
    return can;
}

/* How much it can be asked for. deep: also for what is guaranteed to it. */
static uint64_t can_give(const struct moor_holder *holder, bool deep)
{
    /* What it would have with requests of its own served is nothing that it can give. */
    uint64_t has =
        smaller(would_have(holder), holder->has - moor__account_get(&holder->account, MOOR__PENDING));
    uint64_t movable = minus(has, moor__account_get(&holder->account, MOOR__QUARANTINED));
    return deep ? movable : smaller(movable, minus(has, holder->limits.guarantee_bytes));
}

static uint32_t reason_of(const struct moor__ticket *ticket, bool own)
{
    if (ticket->kind == MOOR__TICKET_RECLAIM)
        return own ? MOOR_PRESSURE_LIMIT : MOOR_PRESSURE_CAPACITY;
    return ticket->kind == MOOR__TICKET_DEVICE ? MOOR_PRESSURE_DEVICE : MOOR_PRESSURE_REQUEST;
}

/* A request that does not wait is asked for once of each, so that it comes to an end. */
static bool has_answered(const struct moor__ticket *ticket, const struct moor_holder *holder)
{
    return ticket->is_brief && holder->answered > ticket->answers_before;
}

uint32_t moor__answers_to(const struct moor__queue *queue, const struct moor__ticket *ticket)
{
    uint32_t count = 0;
    for (const struct moor_holder *holder = queue->victims; holder; holder = holder->next_victim)
        count += has_answered(ticket, holder);
    return count;
}

/* Asks one holder for at most `bytes`; returns for how many. */
static uint64_t ask(struct look *look, struct moor__ticket *ticket, struct moor_holder *holder,
                    uint64_t bytes, bool own, bool deep)
{
    uint64_t asked = smaller(bytes, can_give(holder, deep));
    if (!holder->pressure || asked == 0)
        return 0;
    if (holder->ask.ticket || look->now_ns < holder->cool_until_ns || has_answered(ticket, holder)) {
        ticket->turned_away = true;
        return 0;
    }
    holder->ask = (struct moor__pressure_request){
        .ticket = moor__ticket_handle(holder->authority->runtime, ticket),
        .bytes = asked,
        .had = holder->has - moor__account_get(&holder->account, MOOR__PENDING),
        .since_ns = look->now_ns,
        .is_waiting = true,
        .counts = true,
        .reason = reason_of(ticket, own),
        .priority = ticket->priority,
        .deadline_ns = ticket->is_brief ? 0 : ticket->deadline_ns,
    };
    atomic_store_explicit(&holder->asked, 1, memory_order_relaxed);
    STAILQ_INSERT_TAIL(&look->queue->asks, &holder->ask, entry);
    ticket->asked++;
    look->askable--;
    plan_change(look, holder, -asked);
    return asked;
}

/* Asks for what the pool is short of: those of at most that priority, `last` after its equals. */
static uint64_t ask_victims(struct look *look, struct moor__ticket *ticket, const struct moor_holder *last,
                            uint64_t bytes, bool deep)
{
    struct moor_holder *victim = look->queue->victims, *kept = NULL;
    while (bytes && (victim || kept)) {
        if (kept && (!victim || victim->limits.priority > kept->limits.priority)) {
            bytes -= ask(look, ticket, kept, bytes, false, deep);
            kept = NULL;
            continue;
        }
        if (victim->limits.priority > ticket->priority)
            break;
        if (victim == last)
            kept = victim;
        else if (victim->authority == look->authority)
            bytes -= ask(look, ticket, victim, bytes, false, deep);
        victim = victim->next_victim;
    }
    if (bytes && kept)
        bytes -= ask(look, ticket, kept, bytes, false, deep);
    return bytes;
}

/* ---- what is short ---- */

uint64_t moor__over_bytes(const struct moor_authority *authority)
{
    uint64_t beyond = minus(authority->has, authority->capacity);
    uint64_t lent = minus(plus(authority->commitments, authority->set_aside), authority->capacity);
    return larger(beyond, smaller(lent, authority->commitments - authority->guarantees));
}

/* For what is over the capacity, guarantees and limits. */
static void press_relief(struct look *look, struct moor__ticket *ticket)
{
    const struct moor_authority *authority = look->authority;
    uint64_t lent = minus(plus(look->commitments, authority->set_aside), authority->capacity);
    uint64_t borrowed = look->commitments - authority->guarantees;
    (void)ask_victims(look, ticket, NULL, smaller(lent, borrowed), false);
    (void)ask_victims(look, ticket, NULL, minus(look->has, authority->capacity), true);
    for (struct moor_holder *holder = look->queue->victims; holder; holder = holder->next_victim)
        if (holder->authority == authority)
            (void)ask(look, ticket, holder, minus(would_have(holder), holder->limits.limit_bytes), true,
                      true);
}

static void press_part(struct look *look, struct moor__ticket *ticket, const struct moor_request *part)
{
    const struct moor_authority *authority = look->authority;
    struct moor_holder *holder = part->holder;
    /* What is over already is short too: others may hold more of the pool than before. */
    uint64_t own = minus(plus(would_have(holder), part->bytes), holder->limits.limit_bytes);
    (void)ask(look, ticket, holder, own, true, true);
    uint64_t commitment = larger(would_have(holder), holder->limits.guarantee_bytes);
    uint64_t set_aside = ticket->is_inside ? 0 : authority->set_aside;
    uint64_t others = plus(look->commitments - commitment + would_have(holder), set_aside);
    uint64_t pool = minus(plus(others, part->bytes), moor__authority_capacity(authority));
    (void)ask_victims(look, ticket, holder, pool, false);
    plan_change(look, holder, part->bytes);
}

/* What is still to come from those who are asked for this ticket. */
static uint64_t expected_of(const struct look *look, const struct moor__ticket *ticket)
{
    moor_ticket name = moor__ticket_handle(look->authority->runtime, ticket);
    uint64_t sum = 0;
    for (const struct moor_holder *holder = look->queue->victims; holder; holder = holder->next_victim)
        if (holder->ask.ticket == name && holder->ask.counts)
            sum += minus(holder->ask.bytes, holder->ask.evicted);
    return sum;
}

static void press_ticket(struct look *look, struct moor__ticket *ticket)
{
    /* Nobody is left to be asked: only those who wait for answers need to know whether somebody could have
     * been. What can never fit asks for nothing. */
    if ((look->askable == 0 && !ticket->is_brief) || ticket->refusal.status == MOOR_NEVER_FITS)
        return;
    if (ticket->kind == MOOR__TICKET_RECLAIM && ticket->set.pools[0] == look->authority)
        press_relief(look, ticket);
    if (ticket->kind == MOOR__TICKET_DEVICE && ticket->set.pools[0] == look->authority)
        (void)ask_victims(look, ticket, ticket->requester,
                          minus(ticket->bytes, ticket->evicted_bytes + expected_of(look, ticket)), false);
    for (size_t i = 0; i < ticket->set.count; i++)
        if (ticket->set.parts[i].holder->authority == look->authority)
            press_part(look, ticket, &ticket->set.parts[i]);
}

/* What is still expected of those who are being asked. */
static void expect(struct look *look)
{
    for (struct moor_holder *holder = look->queue->victims; holder; holder = holder->next_victim) {
        struct moor__pressure_request *it = &holder->ask;
        if (holder->authority != look->authority)
            continue;
        look->askable += !it->ticket && look->now_ns >= holder->cool_until_ns;
        if (!it->ticket)
            continue;
        it->counts &= look->now_ns - it->since_ns < look->queue->patience_ns;
        if (it->counts)
            plan_change(look, holder, -smaller(minus(it->bytes, it->evicted), would_have(holder)));
    }
}

static void forget_wishes(const struct look *look)
{
    for (struct moor_holder *holder = look->queue->victims; holder; holder = holder->next_victim)
        if (holder->authority == look->authority)
            holder->planned_bytes = 0;
    const struct moor__ticket *ticket;
    TAILQ_FOREACH (ticket, &look->queue->tickets, entry)
        for (size_t i = 0; i < ticket->set.count; i++)
            if (ticket->set.parts[i].holder->authority == look->authority)
                ticket->set.parts[i].holder->planned_bytes = 0;
}

static void press_authority(struct moor__queue *queue, struct moor_authority *authority, uint64_t now_ns)
{
    struct moor__ticket *ticket;
    if (authority->pressed == queue->presses)
        return;
    authority->pressed = queue->presses;
    moor__lock_acquire(&authority->lock);
    struct look look = {queue,
                        authority,
                        now_ns,
                        authority->commitments_later,
                        authority->has - moor__account_get(&authority->total_account, MOOR__PENDING),
                        0};
    expect(&look);
    TAILQ_FOREACH (ticket, &queue->tickets, entry)
        press_ticket(&look, ticket);
    forget_wishes(&look);
    moor__lock_release(&authority->lock);
}

/* Some holder of the ticket's pools that it may ask is being asked, by whomever, and counted on. */
static bool is_asking(const struct moor__queue *queue, const struct moor__ticket *ticket)
{
    moor_ticket name = moor__ticket_handle(ticket->set.pools[0]->runtime, ticket);
    for (const struct moor_holder *holder = queue->victims; holder; holder = holder->next_victim) {
        if (!holder->ask.ticket || !holder->ask.counts || has_answered(ticket, holder) ||
            (holder->ask.ticket != name && holder->limits.priority > ticket->priority))
            continue;
        for (size_t i = 0; i < ticket->set.pool_count; i++)
            if (ticket->set.pools[i] == holder->authority)
                return true;
    }
    return false;
}

bool moor__plan_could_ask(const struct moor__queue *queue, const struct moor__ticket *ticket, uint64_t now_ns)
{
    if (ticket->is_brief)
        return true; /* it also learns who could not be asked */
    for (const struct moor_holder *victim = queue->victims; victim; victim = victim->next_victim)
        for (size_t i = 0; i < ticket->set.pool_count; i++)
            if (victim->authority == ticket->set.pools[i] && !victim->ask.ticket &&
                now_ns >= victim->cool_until_ns)
                return true;
    return false;
}

/* When time alone will change something. */
static uint64_t next_due(const struct moor__queue *queue, uint64_t now_ns)
{
    const struct moor__ticket *ticket;
    uint64_t due = UINT64_MAX;
    TAILQ_FOREACH (ticket, &queue->tickets, entry) {
        due = smaller(due, ticket->deadline_ns);
        if (ticket->turn_until_ns != 0)
            due = smaller(due, ticket->turn_until_ns);
        if (ticket->passed >= MOOR_PASSED_MAX && ticket->next_turn_ns > now_ns)
            due = smaller(due, ticket->next_turn_ns);
    }
    for (const struct moor_holder *holder = queue->victims; holder && queue->count;
         holder = holder->next_victim) {
        uint64_t patient_until_ns = plus(holder->ask.since_ns, queue->patience_ns);
        if (holder->ask.ticket && holder->ask.counts && patient_until_ns > now_ns)
            due = smaller(due, patient_until_ns);
        if (!holder->ask.ticket && holder->cool_until_ns > now_ns)
            due = smaller(due, holder->cool_until_ns);
    }
    return due;
}

void moor__plan_pressure(struct moor__queue *queue, uint64_t now_ns)
{
    struct moor__ticket *ticket;
    queue->presses++;
    TAILQ_FOREACH (ticket, &queue->tickets, entry) {
        for (size_t i = 0; i < ticket->set.pool_count; i++)
            press_authority(queue, ticket->set.pools[i], now_ns);
    }
    TAILQ_FOREACH (ticket, &queue->tickets, entry) {
        if (!ticket->is_brief || is_asking(queue, ticket))
            continue;
        ticket->is_answered = true;
        pthread_cond_broadcast(&ticket->changed);
    }
    queue->due_ns = next_due(queue, now_ns);
    moor__workers_wake(queue);
}

/* ---- answers ---- */

/* What the holder has less than when it was asked, apart from what is on its way. */
static uint64_t given(struct moor_holder *holder)
{
    struct moor_authority *authority = holder->authority;
    moor__lock_acquire(&authority->lock);
    moor__credit_take_back(authority, MOOR__STRICT_READ);
    uint64_t has = holder->has - moor__account_get(&holder->account, MOOR__PENDING);
    moor__credit_allow(authority, MOOR__STRICT_READ);
    moor__lock_release(&authority->lock);
    return minus(holder->ask.had, has);
}

void moor__pressure_answered(struct moor__queue *queue, struct moor_holder *holder)
{
    struct moor__pressure_request *it = &holder->ask;
    holder->answered = ++queue->answers;
    if (smaller(it->evicted, given(holder)) >= it->bytes) { /* who takes again what it let go, gave nothing */
        holder->cool_down_ns = holder->cool_until_ns = 0;
    } else {
        uint64_t twice_ns = holder->cool_down_ns ? 2 * holder->cool_down_ns : MOOR_COOL_DOWN_NS;
        holder->cool_down_ns = smaller(twice_ns, MOOR_COOL_DOWN_MAX_NS);
        holder->cool_until_ns = moor__governor_clock() + holder->cool_down_ns;
    }
    it->ticket = 0;
    atomic_store_explicit(&holder->asked, 0, memory_order_relaxed);
    moor__queue_scan_locked(queue);
}

/* Returns the ticket that they count for. */
static moor_ticket count_let_go(struct moor_holder *holder, uint64_t bytes, bool behind_fences)
{
    struct moor_runtime *runtime = holder->authority->runtime;
    moor_ticket name = holder->ask.ticket;
    if (!name)
        return 0;
    holder->ask.evicted += bytes;
    holder->evicted_bytes += bytes;
    struct moor__ticket *ticket = moor__ticket_pin(runtime, name);
    if (ticket) {
        ticket->evicted_bytes += bytes;
        *(behind_fences ? &ticket->pending_bytes : &ticket->returned_bytes) += bytes;
        moor__ticket_unpin(runtime, ticket);
    }
    return name;
}

moor_ticket moor__evict_under_pressure(struct moor__thread_cache *cache, struct moor_holder *holder,
                                       struct moor__transfer step, bool behind_fences)
{
    struct moor__queue *queue = holder->authority->runtime->queue;
    moor__lock_acquire(&queue->lock);
    moor_ticket name = count_let_go(holder, step.bytes, behind_fences);
    step.is_passing = true; /* the look is below */
    moor__transfer_apply(cache, holder, step);
    moor__queue_scan_locked(queue);
    moor__lock_release(&queue->lock);
    return name;
}

void moor__eviction_settle(struct moor_holder *holder, moor_ticket name, uint64_t bytes, enum moor__fate fate)
{
    struct moor_runtime *runtime = holder->authority->runtime;
    if (!name)
        return;
    moor__lock_acquire(&runtime->queue->lock);
    struct moor__ticket *ticket = moor__ticket_pin(runtime, name);
    if (fate == MOOR__FATE_KEPT) {
        holder->evicted_bytes -= smaller(bytes, holder->evicted_bytes);
        if (holder->ask.ticket == name)
            holder->ask.evicted -= smaller(bytes, holder->ask.evicted);
    }
    if (ticket) {
        ticket->pending_bytes -= smaller(bytes, ticket->pending_bytes);
        if (fate == MOOR__FATE_RETURNED)
            ticket->returned_bytes += bytes;
        if (fate == MOOR__FATE_KEPT)
            ticket->evicted_bytes -= smaller(bytes, ticket->evicted_bytes);
        moor__ticket_unpin(runtime, ticket);
    }
    moor__lock_release(&runtime->queue->lock);
}

/* ---- reclaim ---- */

bool moor__reclaim_is_needed(const struct moor__queue *queue, struct moor_authority *authority)
{
    moor__lock_acquire(&authority->lock);
    bool over = moor__over_bytes(authority) != 0;
    for (const struct moor_holder *holder = queue->victims; holder && !over; holder = holder->next_victim)
        over = holder->authority == authority && holder->has > holder->limits.limit_bytes;
    moor__lock_release(&authority->lock);
    return over;
}

/* lock held; it is given up meanwhile. Made once, and used again. */
static moor_status make_relief(struct moor_authority *authority)
{
    struct moor__queue *queue = authority->runtime->queue;
    struct moor__ticket *ticket = NULL;
    moor__lock_release(&queue->lock);
    moor_status status = moor__ticket_make(authority->runtime, MOOR__TICKET_RECLAIM, &ticket);
    if (!status)
        status = moor__workers_start(authority->runtime);
    moor__lock_acquire(&queue->lock);
    if (!status)
        moor__workers_started(queue);
    if (ticket && (status || authority->reclaim)) /* another thread was as quick */
        moor__ticket_free(authority->runtime, ticket);
    if (status || authority->reclaim)
        return status;
    ticket->pool = authority;
    ticket->set = (struct moor__request_set){.pools = &ticket->pool, .pool_count = 1};
    ticket->priority = INT32_MAX;
    ticket->state = MOOR__TICKET_ENDED;
    authority->reclaim = ticket;
    return MOOR_OK;
}

void moor__reclaim_review(struct moor_authority *authority)
{
    struct moor__queue *queue = authority->runtime->queue;
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    moor__lock_acquire(&queue->lock);
    bool needed = queue->victims && moor__reclaim_is_needed(queue, authority);
    moor_status status =
        needed && (!authority->reclaim || !queue->has_attendant) ? make_relief(authority) : MOOR_OK;
    struct moor__ticket *reclaim = authority->reclaim;
    if (needed && !status && reclaim->state != MOOR__TICKET_OPEN) {
        reclaim->state = MOOR__TICKET_OPEN;
        reclaim->evicted_bytes = reclaim->pending_bytes = reclaim->returned_bytes = reclaim->asked = 0;
        reclaim->refusal = (struct moor__refusal){0};
        moor__queue_add(queue, reclaim);
    }
    moor__queue_scan_locked(queue);
    moor__lock_release(&queue->lock);
    if (status) /* the limits are in force all the same */
        moor__log(authority->runtime, MOOR_ABI_LOG_ERROR, "nobody is asked for what is over: %s",
                  moor__pending_error()->text);
    moor__error_scope_end(&aside);
}
