/* SPDX-License-Identifier: MIT */
/* Requests in the model: waiting ones, in their order and with their turns, and those without a deadline. */
#include "model.h"

#include <string.h>

/* ---- the largest request ---- */

bool model_request_names(const struct model *model, const struct model_part *parts, uint32_t count,
                         uint32_t pool)
{
    for (uint32_t i = 0; i < count; i++)
        if (model->holders[parts[i].holder].pool == pool)
            return true;
    return false;
}

static bool before(const struct model *model, uint32_t a, uint32_t b)
{
    int32_t of_a = model->tickets[a].priority;
    int32_t of_b = model->tickets[b].priority;
    return of_a != of_b ? of_a > of_b : model->tickets[a].name < model->tickets[b].name;
}

uint32_t model_queue_next(const struct model *model, uint32_t ticket)
{
    uint32_t next = MODEL_NONE;
    for (uint32_t i = 0; i < MODEL_TICKETS; i++)
        if (model->tickets[i].state == MODEL_OPEN && i != ticket &&
            (ticket == MODEL_NONE || before(model, ticket, i)) &&
            (next == MODEL_NONE || before(model, i, next)))
            next = i;
    return next;
}

uint32_t model_ticket_find(const struct model *model, uint64_t name)
{
    for (uint32_t i = 0; i < MODEL_TICKETS; i++)
        if (name && model->tickets[i].state != MODEL_FREE && model->tickets[i].name == name)
            return i;
    return MODEL_NONE;
}

/* The capacity less all other guarantees; external use may change and does not count. */
static int64_t most_of_pool(const struct model *model, const struct model_view *view, uint32_t holder)
{
    uint32_t pool = model->holders[holder].pool;
    return model_pool_room(model, view, holder) + (int64_t)model->pools[pool].capacity -
           model_capacity(model, pool);
}

bool model_can_ever_fit(const struct model *model, const struct model_part *parts, uint32_t count,
                        uint64_t *ret_most)
{
    struct model_view view = {{0}};
    for (uint32_t i = 0; i < count; i++) {
        int64_t bytes = (int64_t)parts[i].bytes;
        if (bytes <= model_own_room(model, &view, parts[i].holder) &&
            bytes <= most_of_pool(model, &view, parts[i].holder)) {
            view.has[parts[i].holder] += bytes;
            continue;
        }
        const struct model_view nothing = {{0}};
        int64_t own = model_own_room(model, &nothing, parts[i].holder);
        int64_t pool = most_of_pool(model, &nothing, parts[i].holder);
        int64_t most = own < pool ? own : pool;
        if (ret_most)
            *ret_most = most > 0 ? (uint64_t)most : 0;
        return false;
    }
    return true;
}

/* ---- turns ---- */

static bool shares_pool(const struct model *model, const struct model_ticket *ticket,
                        const struct model_part *parts, uint32_t count)
{
    for (uint32_t pool = 0; pool < MODEL_POOLS; pool++)
        if (model_request_names(model, ticket->parts, ticket->count, pool) &&
            model_request_names(model, parts, count, pool))
            return true;
    return false;
}

static bool has_turn_on(const struct model *model, uint32_t ticket, uint32_t pool)
{
    const struct model_ticket *t = &model->tickets[ticket];
    return t->state == MODEL_OPEN && t->has_turn && model_request_names(model, t->parts, t->count, pool);
}

enum obstacle { NO_OBSTACLE, OBSTACLE_LIMIT, OBSTACLE_POOL, OBSTACLE_TURN };

/* The obstacle of one part. self: its ticket, which may have the turn; or MODEL_NONE. */
static enum obstacle find_obstacle(const struct model *model, const struct model_view *view, uint32_t self,
                                   const struct model_part *part)
{
    const struct model_holder *holder = &model->holders[part->holder];
    int64_t bytes = (int64_t)part->bytes;
    if (bytes > model_own_room(model, view, part->holder))
        return OBSTACLE_LIMIT;
    if (bytes > model_pool_room(model, view, part->holder))
        return OBSTACLE_POOL;
    bool guaranteed = view->has[part->holder] + bytes <= (int64_t)holder->limits.guarantee_bytes;
    for (uint32_t i = 0; i < MODEL_TICKETS && !guaranteed && model->inside == MODEL_NONE; i++)
        if (i != self && has_turn_on(model, i, holder->pool))
            return OBSTACLE_TURN;
    return NO_OBSTACLE;
}

/* Returns the first part that cannot be taken, one after another; or their number. */
static uint32_t find_first(const struct model *model, uint32_t self, const struct model_part *parts,
                           uint32_t count)
{
    struct model_view view = model_view_now(model);
    uint32_t i = 0;
    for (; i < count && !find_obstacle(model, &view, self, &parts[i]); i++)
        view.has[parts[i].holder] += (int64_t)parts[i].bytes;
    return i;
}

static bool held_by_limit(const struct model *model, const struct model_ticket *ticket)
{
    struct model_view view = model_view_now(model);
    for (uint32_t i = 0; i < ticket->count; i++) {
        if ((int64_t)ticket->parts[i].bytes > model_own_room(model, &view, ticket->parts[i].holder))
            return true;
        view.has[ticket->parts[i].holder] += (int64_t)ticket->parts[i].bytes;
    }
    return false;
}

static bool turn_is_free(const struct model *model, const struct model_ticket *ticket)
{
    for (uint32_t i = 0; i < MODEL_TICKETS; i++)
        if (model->tickets[i].state == MODEL_OPEN && model->tickets[i].has_turn &&
            shares_pool(model, &model->tickets[i], ticket->parts, ticket->count))
            return false;
    return true;
}

uint32_t model_stand_in(struct model *model, const struct model_ticket *ticket)
{
    uint32_t before = model->inside;
    model->inside = ticket->is_inside ? ticket->parts[0].holder : MODEL_NONE;
    return before;
}

static bool can_ever(struct model *model, const struct model_ticket *ticket)
{
    uint32_t before = model_stand_in(model, ticket);
    bool can = model_can_ever_fit(model, ticket->parts, ticket->count, NULL);
    model->inside = before;
    return can;
}

static bool is_to_have_turn(struct model *model, const struct model_ticket *ticket)
{
    return ticket->state == MODEL_OPEN && ticket->device_pool == MODEL_NONE && !ticket->has_turn &&
           ticket->passed >= MODEL_PASSED && ticket->next_turn <= model->now && turn_is_free(model, ticket) &&
           !held_by_limit(model, ticket) && can_ever(model, ticket);
}

/* The earliest first. */
static void begin_turns(struct model *model)
{
    for (;;) {
        struct model_ticket *first = NULL;
        for (uint32_t i = 0; i < MODEL_TICKETS; i++) {
            struct model_ticket *ticket = &model->tickets[i];
            if ((!first || ticket->name < first->name) && is_to_have_turn(model, ticket))
                first = ticket;
        }
        if (!first)
            return;
        uint64_t length = (model->now - first->opened) / 2;
        length = length < MODEL_TURN_NS       ? MODEL_TURN_NS
                 : length > MODEL_TURN_MAX_NS ? MODEL_TURN_MAX_NS
                                              : length;
        first->has_turn = true;
        first->turn_end = model->now + length;
        first->next_turn = first->turn_end + length;
    }
}

/* The request that arrived as `name` takes bytes, and passes the others. */
static void note_taken(struct model *model, uint64_t name, const struct model_part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < MODEL_TICKETS; i++) {
        struct model_ticket *ticket = &model->tickets[i];
        if (ticket->state == MODEL_OPEN && ticket->name < name && shares_pool(model, ticket, parts, count))
            ticket->passed++;
    }
    if (!model->no_new_turn)
        begin_turns(model);
}

/* ---- the queue ---- */

static bool fits_now(const struct model *model, uint32_t self, const struct model_part *parts, uint32_t count)
{
    return find_first(model, self, parts, count) == count;
}

static bool end_turns(struct model *model)
{
    bool ended = false;
    for (uint32_t i = 0; i < MODEL_TICKETS; i++) {
        struct model_ticket *ticket = &model->tickets[i];
        if (ticket->state != MODEL_OPEN || !ticket->has_turn)
            continue;
        if (ticket->turn_end > model->now && can_ever(model, ticket))
            continue;
        ticket->has_turn = false;
        ticket->passed = 0;
        ended = true;
    }
    return ended;
}

/* Returns true if the ticket would fit with all pending bytes back, and no part waits only for another
 * ticket's turn. */
static bool would_fit_later(const struct model *model, uint32_t self, const struct model_part *parts,
                            uint32_t count)
{
    struct model_view now = model_view_now(model);
    struct model_view later = model_view_now(model);
    struct model_sums sums;
    model_add_up(model, &sums);
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        later.has[i] -= (int64_t)sums.pending[i];
    for (uint32_t i = 0; i < count; i++) {
        if (find_obstacle(model, &now, self, &parts[i]) == OBSTACLE_TURN)
            return false;
        now.has[parts[i].holder] += (int64_t)parts[i].bytes;
    }
    return model_take(model, &later, parts, count) == count;
}

struct refusal {
    moor_status status;
    enum obstacle obstacle;
    uint32_t pool; /* the bytes of the first failing part */
    uint64_t bytes;
};

/* Returns the reason of a refusal now, and its bytes. */
static struct refusal refuse(const struct model *model, uint32_t self, const struct model_part *parts,
                             uint32_t count)
{
    struct model_view view = model_view_now(model);
    struct model_sums sums;
    uint32_t first = find_first(model, self, parts, count);
    const struct model_part *part = &parts[first];
    for (uint32_t i = 0; i < first; i++)
        view.has[parts[i].holder] += (int64_t)parts[i].bytes;
    int64_t own = model_own_room(model, &view, part->holder);
    int64_t pool = model_pool_room(model, &view, part->holder);
    int64_t room = own < pool ? own : pool;
    uint64_t there = room > 0 ? (uint64_t)room : 0;
    struct refusal refusal = {.status = MOOR_OVER_BUDGET,
                              .obstacle = find_obstacle(model, &view, self, part),
                              .pool = model->holders[part->holder].pool,
                              .bytes = part->bytes > there ? part->bytes - there : 0};
    if (refusal.obstacle == OBSTACLE_TURN)
        refusal.bytes = part->bytes;
    if (!would_fit_later(model, self, parts, count))
        return refusal;
    refusal.status = MOOR_PENDING;
    refusal.bytes = 0;
    model_add_up(model, &sums);
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        if (i == part->holder || (refusal.obstacle != OBSTACLE_LIMIT &&
                                  model->holders[i].pool == model->holders[part->holder].pool))
            refusal.bytes += sums.pending[i];
    return refusal;
}

/* Returns the bytes that the ticket lacked at the last attempt, if it ends now. */
static void note_shortage(struct model *model, uint32_t ticket)
{
    struct model_ticket *t = &model->tickets[ticket];
    if (!t->waits || t->deadline > model->now)
        return;
    if (model_can_ever_fit(model, t->parts, t->count, &t->error_bytes))
        t->error_bytes = refuse(model, ticket, t->parts, t->count).bytes;
}

/* Serves each ticket that fits, in order. If that ends a turn, the earlier tickets are scanned again. */
static void serve_all(struct model *model)
{
    uint32_t i = model_queue_next(model, MODEL_NONE);
    while (i != MODEL_NONE) {
        struct model_ticket *ticket = &model->tickets[i];
        uint32_t next = model_queue_next(model, i);
        uint32_t before = model_stand_in(model, ticket);
        if (ticket->device_pool == MODEL_NONE && fits_now(model, i, ticket->parts, ticket->count)) {
            bool had_turn = ticket->has_turn;
            ticket->state = MODEL_SERVED;
            ticket->has_turn = false;
            note_taken(model, ticket->name, ticket->parts, ticket->count);
            if (had_turn)
                next = model_queue_next(model, MODEL_NONE);
        } else if (ticket->device_pool == MODEL_NONE) {
            note_shortage(model, i);
        }
        model->inside = before;
        i = next;
    }
}

static void expire_due(struct model *model)
{
    for (uint32_t i = 0; i < MODEL_TICKETS; i++) {
        struct model_ticket *ticket = &model->tickets[i];
        if (ticket->state != MODEL_OPEN || !ticket->waits || ticket->deadline > model->now)
            continue;
        ticket->state = MODEL_EXPIRED;
        ticket->has_turn = false;
    }
    for (uint32_t pool = 0; pool < MODEL_POOLS; pool++)
        model->pools[pool].has_reclaim &= model_needs_reclaim(model, pool);
}

void model_scan(struct model *model)
{
    uint32_t inside = model->inside;
    model->inside = MODEL_NONE; /* the served bytes were not requested in there */
    model->no_new_turn = end_turns(model);
    serve_all(model);
    model->no_new_turn = false;
    expire_due(model);
    begin_turns(model);
    serve_all(model);
    model_plan(model);
    model->inside = inside;
}

void model_review(struct model *model, uint32_t pool)
{
    bool some = false;
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        some |= model_is_askable(model, i);
    if (some && model_needs_reclaim(model, pool))
        model->pools[pool].has_reclaim = true;
    model_scan(model);
}

bool model_is_attended(const struct model *model)
{
    bool attended = model_queue_next(model, MODEL_NONE) != MODEL_NONE;
    for (uint32_t pool = 0; pool < MODEL_POOLS; pool++)
        attended |= model->pools[pool].has_reclaim;
    return attended;
}

static uint64_t earlier(uint64_t time, uint64_t now, uint64_t than)
{
    return time > now && time < than ? time : than;
}

static bool is_waited_for(const struct model *model, uint32_t pool)
{
    bool waited = model->pools[pool].has_reclaim;
    for (uint32_t i = 0; i < MODEL_TICKETS; i++)
        waited |= model->tickets[i].state == MODEL_OPEN &&
                  model_request_names(model, model->tickets[i].parts, model->tickets[i].count, pool);
    return waited;
}

uint64_t model_due(const struct model *model)
{
    uint64_t due = UINT64_MAX;
    for (uint32_t i = 0; i < MODEL_TICKETS; i++) {
        const struct model_ticket *ticket = &model->tickets[i];
        if (ticket->state != MODEL_OPEN)
            continue;
        due = earlier(ticket->deadline, model->now, due);
        if (ticket->has_turn)
            due = earlier(ticket->turn_end, model->now, due);
        else if (ticket->passed >= MODEL_PASSED)
            due = earlier(ticket->next_turn, model->now, due);
    }
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        if (model->holders[i].alive && model->holders[i].has_function &&
            is_waited_for(model, model->holders[i].pool))
            due = earlier(model->holders[i].cool_until, model->now, due);
    return due;
}

void model_settle(struct model *model)
{
    model_scan(model);
    model_run_asks(model, MODEL_NONE);
}

/* ---- requests ---- */

static uint32_t open_ticket(struct model *model, const struct model_ticket *ticket)
{
    uint32_t i = 0;
    while (model->tickets[i].state != MODEL_FREE)
        i++;
    model->tickets[i] = *ticket;
    model->tickets[i].state = MODEL_OPEN;
    model->tickets[i].name = ++model->names;
    model->tickets[i].opened = model->now;
    model->tickets[i].answers_before = model->answers;
    for (uint32_t j = 0; j < ticket->count; j++) {
        int32_t priority = model->holders[ticket->parts[j].holder].limits.priority;
        if (j == 0 || priority > model->tickets[i].priority)
            model->tickets[i].priority = priority;
    }
    return i;
}

uint32_t model_ask_briefly(struct model *model, const struct model_ticket *ticket)
{
    uint32_t opened = open_ticket(model, ticket);
    model_scan(model);
    model_run_asks(model, opened);
    return opened;
}

static void make_grants(struct model *model, const struct model_part *parts, uint32_t count,
                        uint32_t *ret_grants)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t grant = 0;
        while (model->grants[grant].alive)
            grant++;
        model->grants[grant] =
            (struct model_grant){.alive = true, .holder = parts[i].holder, .bytes = parts[i].bytes};
        ret_grants[i] = grant;
    }
}

/* Other holders have the missing bytes of the first failing part. */
static bool is_external(const struct model *model, const struct refusal *refusal)
{
    return refusal->obstacle != NO_OBSTACLE && refusal->obstacle != OBSTACLE_LIMIT &&
           model_capacity(model, refusal->pool) < (int64_t)model->pools[refusal->pool].capacity;
}

/* Returns true if the request fits, now or with the returned bytes; or with the other holders' present bytes
 * in each pool. */
static bool fits_at_last(struct model *model, const struct model_part *parts, uint32_t count)
{
    if (fits_now(model, MODEL_NONE, parts, count))
        return true;
    model_reap(model);
    for (uint32_t looks = 0; looks < MODEL_POOLS && !fits_now(model, MODEL_NONE, parts, count); looks++) {
        struct refusal refusal = refuse(model, MODEL_NONE, parts, count);
        if (!is_external(model, &refusal))
            return false;
        model_refresh(model, refusal.pool);
    }
    return fits_now(model, MODEL_NONE, parts, count);
}

moor_status model_reserve(struct model *model, const struct model_part *parts, uint32_t count,
                          uint32_t *ret_grants)
{
    if (!model_can_ever_fit(model, parts, count, &model->error_bytes))
        return MOOR_NEVER_FITS;
    if (fits_at_last(model, parts, count)) {
        make_grants(model, parts, count, ret_grants);
        note_taken(model, ++model->names, parts, count);
        model_scan(model);
        return MOOR_OK;
    }
    struct refusal refusal = refuse(model, MODEL_NONE, parts, count);
    model->error_bytes = refusal.bytes;
    if (refusal.status == MOOR_PENDING || refusal.obstacle == OBSTACLE_TURN || model->inside != MODEL_NONE)
        return refusal.status;
    struct model_ticket ticket = {.count = count, .device_pool = MODEL_NONE, .deadline = MOOR_NO_WAIT};
    memcpy(ticket.parts, parts, count * sizeof *parts);
    struct model_ticket *t = &model->tickets[model_ask_briefly(model, &ticket)];
    bool served = t->state == MODEL_SERVED;
    t->state = MODEL_FREE;
    if (served) {
        make_grants(model, parts, count, ret_grants);
    } else {
        refusal = refuse(model, MODEL_NONE, parts, count);
        if (refusal.status == MOOR_OVER_BUDGET && (t->asked || t->turned_away))
            refusal.status = MOOR_NO_VICTIM;
        model->error_bytes = refusal.bytes;
        if (!model_can_ever_fit(model, parts, count, &model->error_bytes)) /* no longer */
            refusal.status = MOOR_NEVER_FITS;
    }
    model_scan(model);
    return served ? MOOR_OK : refusal.status;
}

moor_status model_ticket_open(struct model *model, const struct model_part *parts, uint32_t count,
                              uint64_t deadline, uint32_t *ret_ticket)
{
    if (!model_can_ever_fit(model, parts, count, &model->error_bytes))
        return MOOR_NEVER_FITS;
    struct model_ticket ticket = {
        .count = count, .device_pool = MODEL_NONE, .deadline = deadline, .waits = true};
    ticket.is_inside = model->inside != MODEL_NONE;
    memcpy(ticket.parts, parts, count * sizeof *parts);
    *ret_ticket = open_ticket(model, &ticket);
    model_scan(model);
    return MOOR_OK;
}

moor_status model_ticket_wait(struct model *model, uint32_t ticket, uint32_t *ret_grants)
{
    struct model_ticket *t = &model->tickets[ticket];
    bool served = t->state == MODEL_SERVED;
    t->state = MODEL_FREE;
    model->error_bytes = t->error_bytes;
    if (served)
        make_grants(model, t->parts, t->count, ret_grants);
    model_scan(model);
    return served ? MOOR_OK : MOOR_TIMEOUT;
}

void model_ticket_cancel(struct model *model, uint32_t ticket)
{
    struct model_ticket *t = &model->tickets[ticket];
    t->name = 0; /* no host can find the ticket any more */
    t->state = t->state == MODEL_SERVED ? MODEL_SERVED : MODEL_FREE;
    model_scan(model);
    for (uint32_t i = 0; i < t->count && t->state == MODEL_SERVED; i++) { /* the granted bytes return */
        t->parts[i].bytes = 0;
        model_scan(model);
    }
    t->state = MODEL_FREE;
}
