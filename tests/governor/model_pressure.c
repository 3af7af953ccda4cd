/* SPDX-License-Identifier: MIT */
/* The victims of a pressure request in the model, its bytes, and the consequences of the answer. */
#include "model.h"

/* ---- expected bytes ---- */

static uint64_t still_expected(const struct model_ask *ask)
{
    return minus(ask->pressure.bytes, ask->evicted);
}

static const struct model_ask *find_ask(const struct model *model, uint32_t holder)
{
    for (uint32_t i = 0; i < model->ask_count; i++)
        if (model->asks[i].holder == holder)
            return &model->asks[i];
    return NULL;
}

uint64_t model_evict(struct model *model, uint32_t holder, uint64_t bytes)
{
    for (uint32_t i = 0; i < model->ask_count; i++) {
        struct model_ask *ask = &model->asks[i];
        if (ask->holder != holder)
            continue;
        uint32_t ticket = model_ticket_find(model, ask->ticket);
        ask->evicted += bytes;
        model->holders[holder].evicted += bytes;
        if (ticket != MODEL_NONE)
            model->tickets[ticket].evicted += bytes;
        return ask->ticket;
    }
    return 0;
}

/* Returns the view after all pending and all requested bytes have returned. */
static struct model_view view_later(const struct model *model)
{
    struct model_view view = model_view_now(model);
    struct model_sums sums;
    model_add_up(model, &sums);
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++) {
        const struct model_ask *ask = find_ask(model, i);
        view.has[i] -= (int64_t)sums.pending[i];
        int64_t comes = ask ? (int64_t)still_expected(ask) : 0;
        view.has[i] -= comes < view.has[i] ? comes : view.has[i]; /* the holder may have less by now */
    }
    return view;
}

/* ---- the victims ---- */

/* Returns the bytes that can be requested from the holder, with its guarantee kept or not: a part of its
 * bytes, now and after the answers under way. */
static uint64_t can_give(const struct model *model, const struct model_view *view, uint32_t holder,
                         bool keeps_guarantee)
{
    struct model_sums sums;
    model_add_up(model, &sums);
    int64_t has = (int64_t)(sums.reserved[holder] + sums.charged[holder] - sums.pending[holder]);
    int64_t kept = (int64_t)sums.quarantined[holder];
    int64_t guarantee = (int64_t)model->holders[holder].limits.guarantee_bytes;
    if (view->has[holder] < has)
        has = view->has[holder];
    if (keeps_guarantee && guarantee > kept)
        kept = guarantee;
    return has > kept ? (uint64_t)(has - kept) : 0;
}

static bool has_function(const struct model *model, uint32_t holder)
{
    return model->holders[holder].alive && model->holders[holder].has_function;
}

static const struct model_ticket *find_ticket(const struct model *model, uint64_t name)
{
    uint32_t ticket = model_ticket_find(model, name);
    return ticket == MODEL_NONE ? NULL : &model->tickets[ticket];
}

/* A request without a deadline sends one pressure request to each holder, for any requester. */
static bool has_answered(const struct model *model, const struct model_ticket *ticket, uint32_t holder)
{
    return ticket && !ticket->waits && model->holders[holder].answered > ticket->answers_before;
}

/* Returns true if the holder has a pressure request, cools down, or has answered. ticket: the requester;
 * NULL: none. */
static bool is_busy(const struct model *model, const struct model_ticket *ticket, uint32_t holder)
{
    return find_ask(model, holder) || model->holders[holder].cool_until > model->now ||
           has_answered(model, ticket, holder);
}

/* Returns true if a gets its pressure request before b, for a request of these holders. */
static bool sooner(const struct model *model, uint32_t a, uint32_t b, uint32_t requester)
{
    const struct model_holder *of_a = &model->holders[a];
    const struct model_holder *of_b = &model->holders[b];
    if (of_a->limits.priority != of_b->limits.priority)
        return of_a->limits.priority < of_b->limits.priority;
    if ((a == requester) != (b == requester))
        return b == requester;
    return of_a->created < of_b->created;
}

/* The next victim for bytes of the pool. priority: the requester's. */
static uint32_t next_victim(const struct model *model, const struct model_view *view, uint32_t pool,
                            int32_t priority, uint32_t requester, const struct model_ticket *ticket,
                            bool keeps_guarantee, bool busy)
{
    uint32_t next = MODEL_NONE;
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        if (has_function(model, i) && model->holders[i].pool == pool && is_busy(model, ticket, i) == busy &&
            model->holders[i].limits.priority <= priority && can_give(model, view, i, keeps_guarantee) > 0 &&
            (next == MODEL_NONE || sooner(model, i, next, requester)))
            next = i;
    return next;
}

/* pressure: the requester and the reason; its bytes are the missing ones. Removes the requested bytes from
 * the view. */
static void ask(struct model *model, struct model_view *view, uint32_t holder, uint64_t most, uint64_t ticket,
                struct moor_pressure pressure)
{
    struct model_sums sums;
    model_add_up(model, &sums);
    pressure.bytes = smaller(pressure.bytes, most);
    model->asks[model->ask_count++] = (struct model_ask){
        .holder = holder,
        .ticket = ticket,
        .pressure = pressure,
        .had = sums.reserved[holder] + sums.charged[holder] - sums.pending[holder],
    };
    view->has[holder] -= (int64_t)pressure.bytes;
    uint32_t asking = model_ticket_find(model, ticket);
    if (asking != MODEL_NONE)
        model->tickets[asking].asked++;
}

/* A possible victim is busy. */
static void turn_away(struct model *model, uint64_t ticket)
{
    uint32_t asking = model_ticket_find(model, ticket);
    if (asking != MODEL_NONE)
        model->tickets[asking].turned_away = true;
}

static void ask_pool(struct model *model, struct model_view *view, uint32_t pool, uint32_t requester,
                     uint64_t ticket, struct moor_pressure pressure, bool keep_guarantees)
{
    const struct model_ticket *asker = find_ticket(model, ticket);
    while (pressure.bytes) {
        uint32_t victim =
            next_victim(model, view, pool, pressure.priority, requester, asker, keep_guarantees, false);
        if (victim == MODEL_NONE) {
            victim =
                next_victim(model, view, pool, pressure.priority, requester, asker, keep_guarantees, true);
            if (victim != MODEL_NONE)
                turn_away(model, ticket);
            return;
        }
        uint64_t most = can_give(model, view, victim, keep_guarantees);
        ask(model, view, victim, most, ticket, pressure);
        pressure.bytes -= smaller(pressure.bytes, most);
    }
}

static void ask_itself(struct model *model, struct model_view *view, uint32_t holder, uint64_t ticket,
                       struct moor_pressure pressure)
{
    uint64_t most = can_give(model, view, holder, false);
    if (!pressure.bytes || !most || !has_function(model, holder))
        return;
    if (is_busy(model, find_ticket(model, ticket), holder))
        turn_away(model, ticket);
    else
        ask(model, view, holder, most, ticket, pressure);
}

/* Borrowed bytes come first; if these are not enough, guaranteed ones follow. Then come the holders above
 * their own limit. */
static void plan_over(struct model *model, struct model_view *view, uint32_t pool)
{
    struct moor_pressure pressure = {.deadline_ns = MOOR_FOREVER, .priority = INT32_MAX};
    pressure.reason = MOOR_PRESSURE_CAPACITY;
    pressure.bytes = model_over(model, view, pool).lent;
    ask_pool(model, view, pool, MODEL_NONE, 0, pressure, true);
    pressure.bytes = model_over(model, view, pool).beyond;
    ask_pool(model, view, pool, MODEL_NONE, 0, pressure, false);
    pressure.reason = MOOR_PRESSURE_LIMIT;
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++) {
        int64_t room = model_own_room(model, view, i);
        if (!model->holders[i].alive || model->holders[i].pool != pool || room >= 0)
            continue;
        pressure.bytes = (uint64_t)-room;
        ask_itself(model, view, i, 0, pressure);
    }
}

/* One part, with the present and the expected bytes. Missing bytes are requested, also those that are missing
 * before there is any room; then the part counts as taken. */
static void plan_part(struct model *model, struct model_view *view, const struct model_ticket *ticket,
                      const struct model_part *part)
{
    const int64_t bytes = (int64_t)part->bytes;
    struct moor_pressure pressure = {
        .deadline_ns = ticket->deadline,
        .reason = MOOR_PRESSURE_REQUEST,
        .priority = ticket->priority,
    };
    int64_t room = model_own_room(model, view, part->holder);
    pressure.bytes = bytes > room ? (uint64_t)(bytes - room) : 0;
    ask_itself(model, view, part->holder, ticket->name, pressure);
    room = model_pool_room(model, view, part->holder);
    pressure.bytes = bytes > room ? (uint64_t)(bytes - room) : 0;
    ask_pool(model, view, model->holders[part->holder].pool, part->holder, ticket->name, pressure, true);
    view->has[part->holder] += bytes;
}

/* The missing bytes, once: the device decides about the result. */
static void plan_for_device(struct model *model, struct model_view *view, const struct model_ticket *ticket)
{
    struct moor_pressure pressure = {.reason = MOOR_PRESSURE_DEVICE, .priority = ticket->priority};
    uint64_t comes = ticket->evicted;
    for (uint32_t i = 0; i < model->ask_count; i++)
        comes += model->asks[i].ticket == ticket->name ? still_expected(&model->asks[i]) : 0;
    pressure.bytes = minus(ticket->device_bytes, comes);
    ask_pool(model, view, ticket->device_pool, ticket->requester, ticket->name, pressure, true);
}

/* Returns true if a holder of the pool could get a pressure request now. */
static bool is_victim_left(const struct model *model, uint32_t pool)
{
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        if (has_function(model, i) && model->holders[i].pool == pool && !is_busy(model, NULL, i))
            return true;
    return false;
}

/* The bytes that one request lacks in one pool. Without a victim only a ticket that waits for answers needs
 * to know whether there could have been one. */
static void plan_ticket(struct model *model, struct model_view *view, uint32_t pool,
                        const struct model_ticket *ticket)
{
    if (ticket->waits && !is_victim_left(model, pool))
        return;
    if (ticket->device_pool == pool)
        plan_for_device(model, view, ticket);
    else if (ticket->device_pool != MODEL_NONE ||
             !model_can_ever_fit(model, ticket->parts, ticket->count, NULL))
        return;
    for (uint32_t i = 0; i < ticket->count; i++)
        if (model->holders[ticket->parts[i].holder].pool == pool)
            plan_part(model, view, ticket, &ticket->parts[i]);
}

void model_plan(struct model *model)
{
    struct model_view view = view_later(model);
    for (uint32_t pool = 0; pool < MODEL_POOLS; pool++) {
        if (model->pools[pool].has_reclaim)
            plan_over(model, &view, pool);
        for (uint32_t i = model_queue_next(model, MODEL_NONE); i != MODEL_NONE;
             i = model_queue_next(model, i)) {
            uint32_t before = model_stand_in(model, &model->tickets[i]);
            plan_ticket(model, &view, pool, &model->tickets[i]);
            model->inside = before;
        }
    }
}

/* ---- the pressure request and its answer ---- */

static void answer(struct model *model, const struct model_ask *ask)
{
    struct model_holder *holder = &model->holders[ask->holder];
    uint64_t longer = holder->cool_down_ns ? 2 * holder->cool_down_ns : MODEL_COOL_DOWN_NS;
    struct model_sums sums;
    model_add_up(model, &sums);
    uint64_t has = sums.reserved[ask->holder] + sums.charged[ask->holder] - sums.pending[ask->holder];
    /* a holder that takes its evicted bytes again has evicted nothing */
    uint64_t less = minus(ask->had, has);
    bool enough = smaller(ask->evicted, less) >= ask->pressure.bytes;
    holder->cool_down_ns = enough ? 0 : smaller(longer, MODEL_COOL_DOWN_MAX_NS);
    holder->cool_until = enough ? 0 : model->now + holder->cool_down_ns;
    holder->answered = ++model->answers;
}

/* Returns true if a holder in the ticket's pools has a pressure request that the ticket may cause and has not
 * heard of. */
static bool is_asking(const struct model *model, const struct model_ticket *ticket)
{
    for (uint32_t i = 0; i < model->ask_count; i++) {
        uint32_t holder = model->asks[i].holder;
        uint32_t pool = model->holders[holder].pool;
        if ((pool == ticket->device_pool || model_request_names(model, ticket->parts, ticket->count, pool)) &&
            !has_answered(model, ticket, holder) &&
            (model->asks[i].ticket == ticket->name ||
             model->holders[holder].limits.priority <= ticket->priority))
            return true;
    }
    return false;
}

void model_run_asks(struct model *model, uint32_t ticket)
{
    while (model->ask_count) {
        if (ticket != MODEL_NONE &&
            (model->tickets[ticket].state != MODEL_OPEN || !is_asking(model, &model->tickets[ticket])))
            return;
        struct model_ask *first = &model->asks[0];
        model->holders[first->holder].asked++;
        model->inside = first->holder;
        model->function(model->user, model, first);
        model->inside = MODEL_NONE;
        answer(model, first);
        for (uint32_t i = 1; i < model->ask_count; i++)
            model->asks[i - 1] = model->asks[i];
        model->ask_count--;
        model_scan(model);
    }
}
