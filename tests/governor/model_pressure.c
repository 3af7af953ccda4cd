/* SPDX-License-Identifier: MIT */
/* The pressure plan of the model: the holders that are asked, for how many bytes, and the answers. */
#include "model.h"

/* ---- bytes on their way ---- */

static uint64_t still_expected(const struct model_ask *ask)
{
    return ask->let_go < ask->pressure.bytes ? ask->pressure.bytes - ask->let_go : 0;
}

static const struct model_ask *find_ask(const struct model *model, uint32_t holder)
{
    for (uint32_t i = 0; i < model->ask_count; i++)
        if (model->asks[i].holder == holder)
            return &model->asks[i];
    return NULL;
}

uint64_t model_let_go(struct model *model, uint32_t holder, uint64_t bytes)
{
    for (uint32_t i = 0; i < model->ask_count; i++) {
        struct model_ask *ask = &model->asks[i];
        if (ask->holder != holder)
            continue;
        uint32_t ticket = model_ticket_find(model, ask->ticket);
        ask->let_go += bytes;
        model->holders[holder].evicted += bytes;
        if (ticket != MODEL_NONE)
            model->tickets[ticket].evicted += bytes;
        return ask->ticket;
    }
    return 0;
}

/* All that is pending or asked for has come back. */
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

/* ---- whom to ask ---- */

/* Returns the bytes that the holder can be asked for, with its guarantee kept or not: out of the bytes that it has, and
 * will have once all pressure requests have been answered. */
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

/* A request that does not wait has each asked once, for whomever. */
static bool has_answered(const struct model *model, const struct model_ticket *ticket, uint32_t holder)
{
    return ticket && !ticket->waits && model->holders[holder].answered > ticket->answers_before;
}

/* Returns true if the holder is being asked, cools down, or has answered. ticket: the one that asks, or NULL. */
static bool is_busy(const struct model *model, const struct model_ticket *ticket, uint32_t holder)
{
    return find_ask(model, holder) || model->holders[holder].rest_until > model->now ||
           has_answered(model, ticket, holder);
}

/* Whether a is asked before b, for a request of these holders. */
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

/* Returns the next holder to ask for bytes of the pool. priority: the ticket's. */
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

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* pressure: the ticket and the reason; its bytes are the missing ones. Removes the bytes asked for from the view. */
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

/* A holder that could be asked for it is busy. */
static void turn_away(struct model *model, uint64_t ticket)
{
    uint32_t asking = model_ticket_find(model, ticket);
    if (asking != MODEL_NONE)
        model->tickets[asking].turned_away = true;
}

static void ask_pool(struct model *model, struct model_view *view, uint32_t pool, uint32_t requester,
                     uint64_t ticket, struct moor_pressure pressure, bool keep_guarantees)
{
    const struct model_ticket *who = find_ticket(model, ticket);
    while (pressure.bytes) {
        uint32_t victim =
            next_victim(model, view, pool, pressure.priority, requester, who, keep_guarantees, false);
        if (victim == MODEL_NONE) {
            victim = next_victim(model, view, pool, pressure.priority, requester, who, keep_guarantees, true);
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

/* Asks for borrowed bytes first; then, if they are not enough, for guaranteed ones; then each holder above its own
 * limit. */
static void plan_what_is_over(struct model *model, struct model_view *view, uint32_t pool)
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

/* Plans one part, with the bytes that are there and on their way. Asks for the missing ones, those included that the
 * pool lacks already; then the part counts as taken. */
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

/* Asks once for the bytes that the device lacks; the device shows whether that helped. */
static void plan_for_device(struct model *model, struct model_view *view, const struct model_ticket *ticket)
{
    struct moor_pressure pressure = {.reason = MOOR_PRESSURE_DEVICE, .priority = ticket->priority};
    uint64_t comes = ticket->evicted;
    for (uint32_t i = 0; i < model->ask_count; i++)
        comes += model->asks[i].ticket == ticket->name ? still_expected(&model->asks[i]) : 0;
    pressure.bytes = ticket->device_bytes > comes ? ticket->device_bytes - comes : 0;
    ask_pool(model, view, ticket->device_pool, ticket->requester, ticket->name, pressure, true);
}

/* Somebody in the pool could be asked now. */
static bool is_anybody_left(const struct model *model, uint32_t pool)
{
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        if (has_function(model, i) && model->holders[i].pool == pool && !is_busy(model, NULL, i))
            return true;
    return false;
}

/* Plans one request in one pool. With no holder left to ask, only a brief ticket goes on, to learn whether one was
 * passed over. */
static void plan_ticket(struct model *model, struct model_view *view, uint32_t pool,
                        const struct model_ticket *ticket)
{
    if (ticket->waits && !is_anybody_left(model, pool))
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
        if (model->pools[pool].has_relief)
            plan_what_is_over(model, &view, pool);
        for (uint32_t i = model_queue_next(model, MODEL_NONE); i != MODEL_NONE;
             i = model_queue_next(model, i)) {
            uint32_t before = model_stand_in(model, &model->tickets[i]);
            plan_ticket(model, &view, pool, &model->tickets[i]);
            model->inside = before;
        }
    }
}

/* ---- asking, and the answer ---- */

static void answer(struct model *model, const struct model_ask *ask)
{
    struct model_holder *holder = &model->holders[ask->holder];
    uint64_t longer = holder->cool_down_ns ? 2 * holder->cool_down_ns : MODEL_REST_NS;
    struct model_sums sums;
    model_add_up(model, &sums);
    uint64_t has = sums.reserved[ask->holder] + sums.charged[ask->holder] - sums.pending[ask->holder];
    uint64_t less = ask->had > has ? ask->had - has : 0; /* a holder that takes as many bytes again gave nothing */
    bool enough = smaller(ask->let_go, less) >= ask->pressure.bytes;
    holder->cool_down_ns = enough ? 0 : smaller(longer, MODEL_REST_MAX_NS);
    holder->rest_until = enough ? 0 : model->now + holder->cool_down_ns;
    holder->answered = ++model->answers;
}

/* Somebody that the ticket may ask, and has not heard of, is asked in its pools. */
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
        model_look(model);
    }
}
