/* SPDX-License-Identifier: MIT */
/* Chooses the next operation: one that is possible now according to the model, with figures near the present
 * bounds. */
#include "lockstep.h"

#include <string.h>

#define SMALL_BITS 18u

/* ---- chance ---- */

/* splitmix64: any seed will do. */
uint64_t random_next(struct random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t random_below(struct random *random, uint64_t bound)
{
    return bound ? random_next(random) % bound : 0;
}

bool random_hit(struct random *random, uint32_t percent)
{
    return random_below(random, 100) < percent;
}

struct profile profile_make(struct random *random)
{
    static const uint64_t capacities[] = {1, 16, 64, 256, 1024};
    static const uint32_t intervals[] = {1, 1, 2, 5, 13, 50};
    struct profile profile = {
        .capacity = capacities[random_below(random, 5)] << 20,
        .small = (uint32_t)random_below(random, 90),
        .answers_fully = 20 + (uint32_t)random_below(random, 70),
        .check_every = intervals[random_below(random, 6)],
    };
    for (int i = 0; i < OP_KINDS; i++)
        profile.weights[i] = op_traits[i].weight << random_below(random, 3);
    if (random_hit(random, 50)) { /* many requests wait, and memory returns in small parts */
        profile.small = 80;
        profile.weights[OP_TICKET_CANCEL] = 1;
        profile.weights[OP_TICKET_OPEN] *= 2;
        profile.weights[OP_LEASE_REFUND] *= 3;
        profile.weights[OP_RESERVE] *= 2;
    }
    return profile;
}

uint64_t profile_total(const struct profile *profile, uint32_t pool)
{
    return profile->capacity << (1 + pool); /* the scripted host pool is twice as large */
}

/* ---- figures ---- */

static uint64_t pick_bytes(struct random *random, const struct profile *profile)
{
    uint32_t bits = SMALL_BITS;
    if (!random_hit(random, profile->small))
        while ((UINT64_C(1) << bits) < profile->capacity / 3)
            bits++;
    if (random_hit(random, 1))
        return profile->capacity + random_below(random, profile->capacity);
    return 1 + random_below(random, UINT64_C(1) << random_below(random, bits + 1));
}

/* Often a size that just fits, or just does not. */
static uint64_t pick_request(struct random *random, const struct profile *profile, const struct model *model,
                             uint32_t holder)
{
    if (!random_hit(random, 15))
        return pick_bytes(random, profile);
    struct model_view view = model_view_now(model);
    int64_t own = model_own_room(model, &view, holder);
    int64_t pool = model_pool_room(model, &view, holder);
    int64_t guaranteed = (int64_t)model->holders[holder].limits.guarantee_bytes - view.has[holder];
    int64_t room = own < pool ? own : pool;
    if (guaranteed > 0 && random_hit(random, 30))
        room = guaranteed;
    room += (int64_t)random_below(random, 3) - 1;
    return room > 0 ? (uint64_t)room : 1;
}

static struct moor_holder_limits pick_limits(struct random *random, const struct profile *profile)
{
    struct moor_holder_limits limits = {.priority = (int32_t)random_below(random, 4) - 1};
    if (random_hit(random, 40))
        limits.limit_bytes = 1 + random_below(random, profile->capacity);
    if (random_hit(random, 35))
        limits.guarantee_bytes = random_below(random, profile->capacity / 4);
    if (limits.limit_bytes && limits.guarantee_bytes > limits.limit_bytes && !random_hit(random, 10))
        limits.guarantee_bytes = limits.limit_bytes / 2;
    return limits;
}

static uint64_t pick_deadline(struct random *random, const struct model *model)
{
    if (random_hit(random, 50))
        return MOOR_FOREVER;
    uint64_t later = random_below(random, UINT64_C(3000000000));
    /* some limits are exceeded already */
    return later % 32 ? model->now + 1 + later : 1 + later % model->now;
}

/* ret_same: the figures are those in force. */
static uint64_t pick_revision(struct random *random, uint64_t present, bool *ret_same)
{
    *ret_same = false;
    switch (random_below(random, 12)) {
    case 0:
        *ret_same = present > 0;
        return present;
    case 1:
        return present;
    case 2:
        return present ? 1 + random_below(random, present) : 0;
    case 3:
    case 4:
        return present + 1 + random_below(random, 3);
    default:
        return 0;
    }
}

/* ---- existing objects ---- */

static uint32_t pick_holder(struct random *random, const struct model *model, bool with_binding)
{
    uint32_t start = (uint32_t)random_below(random, MODEL_HOLDERS);
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++) {
        uint32_t holder = (start + i) % MODEL_HOLDERS;
        if (model->holders[holder].alive && model->holders[holder].has_binding >= with_binding)
            return holder;
    }
    return MODEL_NONE;
}

static uint32_t pick_grant(struct random *random, const struct model *model, uint32_t holder)
{
    uint32_t start = (uint32_t)random_below(random, MODEL_GRANTS);
    for (uint32_t i = 0; i < MODEL_GRANTS; i++) {
        uint32_t grant = (start + i) % MODEL_GRANTS;
        if (model->grants[grant].alive && (holder == MODEL_NONE || model->grants[grant].holder == holder))
            return grant;
    }
    return MODEL_NONE;
}

static uint32_t pick_item(struct random *random, const struct model *model, bool lease)
{
    uint32_t start = (uint32_t)random_below(random, MODEL_ITEMS);
    for (uint32_t i = 0; i < MODEL_ITEMS; i++) {
        uint32_t item = (start + i) % MODEL_ITEMS;
        if (model->items[item].life == MODEL_LIVE && (model->items[item].kind == MODEL_LEASE) == lease)
            return item;
    }
    return MODEL_NONE;
}

static uint32_t pick_ticket(struct random *random, const struct model *model, bool ended)
{
    uint32_t start = (uint32_t)random_below(random, MODEL_TICKETS);
    for (uint32_t i = 0; i < MODEL_TICKETS; i++) {
        uint32_t ticket = (start + i) % MODEL_TICKETS;
        enum model_state state = model->tickets[ticket].state;
        if (state == MODEL_SERVED || state == MODEL_EXPIRED || (state == MODEL_OPEN && !ended))
            return ticket;
    }
    return MODEL_NONE;
}

/* The remaining objects of each kind, less a reserve for pressure functions. */
static bool room_for_grants(const struct model *model)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MODEL_GRANTS; i++)
        count += model->grants[i].alive;
    return count + 3 * MODEL_PARTS < MODEL_GRANTS;
}

static bool room_for_items(const struct model *model)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MODEL_ITEMS; i++)
        count += model->items[i].life != MODEL_GONE;
    return count + 40 < MODEL_ITEMS;
}

static bool room_for_tickets(const struct model *model)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MODEL_TICKETS; i++)
        count += model->tickets[i].state != MODEL_FREE;
    return count + 8 < MODEL_TICKETS;
}

/* ---- operations: false without a suitable object ---- */

static bool make_request(struct random *random, const struct profile *profile, const struct model *model,
                         struct op *op)
{
    uint32_t count = random_hit(random, 25) ? 2 + (uint32_t)random_below(random, MODEL_PARTS - 1) : 1;
    for (op->count = 0; op->count < count; op->count++) {
        uint32_t holder = pick_holder(random, model, false);
        if (holder == MODEL_NONE)
            return false;
        op->parts[op->count] = (struct model_part){
            .holder = holder, .bytes = pick_request(random, profile, model, holder) / count + 1};
        if (count == 1)
            op->parts[0].bytes = pick_request(random, profile, model, holder);
    }
    if (op->kind == OP_TICKET_OPEN)
        op->until = pick_deadline(random, model);
    return room_for_grants(model) && (op->kind == OP_RESERVE || room_for_tickets(model));
}

static bool make_holder(struct random *random, const struct profile *profile, const struct model *model,
                        struct op *op)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        count += model->holders[i].alive;
    op->pool = (uint32_t)random_below(random, MODEL_POOLS);
    op->role = (uint32_t)random_below(random, 5);
    op->limits = pick_limits(random, profile);
    op->has_function = random_hit(random, 65);
    return count < MODEL_HOLDERS;
}

static bool make_holder_op(struct random *random, const struct profile *profile, const struct model *model,
                           struct op *op)
{
    bool same;
    op->holder = pick_holder(random, model, op->kind == OP_BINDING_CLOSE);
    if (op->holder == MODEL_NONE)
        return false;
    const struct model_holder *holder = &model->holders[op->holder];
    op->pool = holder->pool;
    if (op->kind == OP_BINDING_OPEN)
        return !holder->has_binding;
    op->has_function = random_hit(random, 75);
    op->bytes = random_hit(random, 30) ? 0 : pick_bytes(random, profile);
    op->revision = pick_revision(random, holder->revision, &same);
    op->limits = same ? holder->limits : pick_limits(random, profile);
    return true;
}

static bool make_pool_op(struct random *random, const struct profile *profile, const struct model *model,
                         struct op *op)
{
    bool same;
    op->pool = (uint32_t)random_below(random, MODEL_POOLS);
    const struct model_pool *pool = &model->pools[op->pool];
    op->revision = pick_revision(random, pool->revision, &same);
    switch ((int)op->kind) {
    case OP_SET_CAPACITY:
        op->bytes = random_hit(random, 40) ? profile->capacity
                                           : profile->capacity / 8 + random_below(random, profile->capacity);
        op->bytes = same ? pool->capacity : op->bytes;
        return true;
    case OP_SET_ASIDE:
        op->bytes = random_hit(random, 40) ? 0 : random_below(random, profile->capacity / 8);
        return true;
    default:
        op->bytes = random_hit(random, 50) ? 0 : random_below(random, 2 * profile->capacity);
        op->bytes = random_hit(random, 5) ? MODEL_ABSURD : op->bytes;
        return true;
    }
}

static bool make_grant_op(struct random *random, const struct model *model, struct op *op)
{
    op->grant = pick_grant(random, model, MODEL_NONE);
    if (op->grant == MODEL_NONE)
        return false;
    uint64_t left = model->grants[op->grant].bytes;
    op->bytes = 1 + random_below(random, left + (random_hit(random, 5) ? 2 : 0));
    if (random_hit(random, 20) && left)
        op->bytes = left;
    return op->kind == OP_GRANT_RELEASE || room_for_items(model);
}

static bool make_lease_op(struct random *random, const struct profile *profile, const struct model *model,
                          struct op *op)
{
    op->item = pick_item(random, model, true);
    if (op->item == MODEL_NONE)
        return false;
    const struct model_item *lease = &model->items[op->item];
    op->bytes = random_hit(random, 50) ? 1 + random_below(random, lease->bytes)
                                       : lease->bytes + pick_request(random, profile, model, lease->holder);
    return true;
}

static bool is_there(const struct model *model, uint32_t holder, uint64_t bytes)
{
    struct model_view view = model_view_now(model);
    return (int64_t)bytes <= model_own_room(model, &view, holder) &&
           (int64_t)bytes <= model_pool_room(model, &view, holder);
}

static bool make_allocation(struct random *random, const struct profile *profile, const struct model *model,
                            struct op *op)
{
    op->holder = pick_holder(random, model, true);
    if (op->holder == MODEL_NONE || !room_for_items(model))
        return false;
    op->grant = op->kind == OP_ALLOCATE && random_hit(random, 30) ? pick_grant(random, model, op->holder)
                                                                  : MODEL_NONE;
    op->bytes = op->grant == MODEL_NONE ? pick_request(random, profile, model, op->holder)
                                        : 1 + random_below(random, model->grants[op->grant].bytes + 1);
    /* No pressure request may be possible for the room and then for the device: the order of the two would be
     * random. */
    if (op->kind == OP_ALLOCATE && random_hit(random, 5) &&
        (op->grant != MODEL_NONE || is_there(model, op->holder, op_footprint(op->bytes))))
        op->device_fails = 1 + (uint32_t)random_below(random, 3);
    return true;
}

bool choose_ticket(struct random *random, const struct profile *profile, const struct model *model,
                   uint32_t holder, struct op *op)
{
    uint64_t most = model->pools[model->holders[holder].pool].set_aside;
    *op = (struct op){.kind = OP_TICKET_OPEN, .count = 1, .grant = MODEL_NONE, .stream = MODEL_NONE};
    op->parts[0] =
        (struct model_part){.holder = holder, .bytes = pick_request(random, profile, model, holder)};
    if (most && random_hit(random, 50))
        op->parts[0].bytes = 1 + random_below(random, 2 * most);
    op->until = pick_deadline(random, model);
    return room_for_tickets(model);
}

void choose_release(struct random *random, const struct model *model, uint32_t item, struct op *op)
{
    *op = (struct op){.kind = OP_RELEASE, .item = item, .stream = MODEL_NONE};
    if (model->items[item].kind == MODEL_LEASE)
        op->kind = OP_LEASE_REFUND;
    else if (model->items[item].kind == MODEL_BUFFER && random_hit(random, 50))
        op->stream = (uint32_t)random_below(random, MODEL_STREAMS);
}

static bool make_other(struct random *random, const struct model *model, struct op *op)
{
    static const uint64_t steps_ms[] = {1, 5, 10, 20, 50, 100, 200, 1000, 3000};
    switch ((int)op->kind) {
    case OP_TICKET_WAIT:
    case OP_TICKET_CANCEL:
        op->ticket = pick_ticket(random, model, op->kind == OP_TICKET_WAIT);
        return op->ticket != MODEL_NONE && room_for_grants(model);
    case OP_RELEASE:
        op->item = pick_item(random, model, false);
        if (op->item != MODEL_NONE)
            choose_release(random, model, op->item, op);
        return op->item != MODEL_NONE;
    case OP_STREAM_OPEN:
        op->stream = (uint32_t)random_below(random, MODEL_STREAMS);
        return true;
    case OP_FAIL_FREES:
        op->count = (uint32_t)random_below(random, 4);
        return true;
    case OP_TIME:
        op->until = model->now + steps_ms[random_below(random, 9)] * 1000000;
        return true;
    default:
        return true;
    }
}

static bool make(struct random *random, const struct profile *profile, const struct model *model,
                 struct op *op)
{
    switch ((int)op->kind) {
    case OP_HOLDER_CREATE:
        return make_holder(random, profile, model, op);
    case OP_HOLDER_DESTROY:
    case OP_BINDING_OPEN:
    case OP_BINDING_CLOSE:
    case OP_SET_LIMITS:
    case OP_SET_FUNCTION:
    case OP_SET_EVICTABLE:
        return make_holder_op(random, profile, model, op);
    case OP_RESERVE:
    case OP_TICKET_OPEN:
        return make_request(random, profile, model, op);
    case OP_GRANT_RELEASE:
    case OP_LEASE_COMMIT:
    case OP_GRANT_COMMIT:
        return make_grant_op(random, model, op);
    case OP_LEASE_ADJUST:
    case OP_LEASE_REFUND:
        return make_lease_op(random, profile, model, op);
    case OP_ALLOCATE:
    case OP_WRAP:
        return make_allocation(random, profile, model, op);
    case OP_SET_CAPACITY:
    case OP_SET_ASIDE:
    case OP_SET_EXTERNAL:
    case OP_REFRESH:
        return make_pool_op(random, profile, model, op);
    default:
        return make_other(random, model, op);
    }
}

void choose_op(struct random *random, const struct profile *profile, const struct model *model,
               struct op *ret_op)
{
    uint32_t sum = 0;
    for (int i = 0; i < OP_KINDS; i++)
        sum += profile->weights[i];
    do {
        uint64_t at = random_below(random, sum);
        int kind = 0;
        while (at >= profile->weights[kind])
            at -= profile->weights[kind++];
        *ret_op = (struct op){.kind = (enum op_kind)kind, .grant = MODEL_NONE, .stream = MODEL_NONE};
    } while (!make(random, profile, model, ret_op));
}
