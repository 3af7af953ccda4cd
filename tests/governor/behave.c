/* SPDX-License-Identifier: MIT */
/* The pressure functions of the model: they evict the requested bytes, a part, nothing, or too much, return
 * wrong figures, and make other calls. */
#include "lockstep.h"

#include <stdio.h>
#include <stdlib.h>

enum manner { FULLY, TOO_MUCH, PARTLY, NOTHING, LYING };

static bool carry_out(struct visit *visit, struct model *model, const struct op *op)
{
    if (visit->count == VISIT_OPS)
        return false;
    struct op *place = &visit->ops[visit->count++];
    *place = *op;
    op_in_model(place, model);
    return place->status == MOOR_OK;
}

/* A holder's evictable objects: grants and live memory. Returns their number, or the n-th of them. */
static uint32_t things(const struct model *model, uint32_t holder, uint32_t nth, struct random *random,
                       struct op *ret_op)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MODEL_GRANTS; i++)
        if (model->grants[i].alive && !model->grants[i].is_reservation && i != model->busy_grant &&
            model->grants[i].holder == holder && count++ == nth) {
            *ret_op = (struct op){.kind = OP_GRANT_RELEASE, .grant = i, .bytes = model->grants[i].bytes};
            return count;
        }
    for (uint32_t i = 0; i < MODEL_ITEMS; i++)
        if (model->items[i].life == MODEL_LIVE && i != model->busy_item && model->items[i].holder == holder &&
            count++ == nth) {
            choose_release(random, model, i, ret_op);
            ret_op->bytes = model->items[i].bytes;
            return count;
        }
    return count;
}

/* Evicts at least that many bytes, if the holder has them; returns the evicted bytes. */
static uint64_t evict(struct behaviour *behaviour, struct model *model, struct visit *visit, uint64_t bytes)
{
    uint64_t gone = 0;
    while (gone < bytes) {
        struct op op;
        uint32_t count = things(model, visit->holder, MODEL_NONE, &behaviour->random, &op);
        if (count == 0)
            break;
        (void)things(model, visit->holder, (uint32_t)random_below(&behaviour->random, count),
                     &behaviour->random, &op);
        uint64_t there = op.bytes;
        if (op.kind == OP_LEASE_REFUND && there > bytes - gone && random_hit(&behaviour->random, 70)) {
            op.kind = OP_LEASE_ADJUST; /* exactly */
            op.bytes = there - (bytes - gone);
            there = bytes - gone;
        }
        if (!carry_out(visit, model, &op))
            break;
        gone += there;
    }
    return gone;
}

/* Needs some memory before it can evict. */
static void allocate_first(struct behaviour *behaviour, struct model *model, struct visit *visit)
{
    uint64_t most = model->pools[model->holders[visit->holder].pool].set_aside;
    uint64_t bytes = 1 + random_below(&behaviour->random, most ? most + 2 : 4096);
    struct op op = {.kind = OP_RESERVE, .count = 1, .grant = MODEL_NONE, .stream = MODEL_NONE};
    /* the capacity would fail this call instead */
    bool device_is_full = behaviour->step->op.device_fails > 0;
    if (model->holders[visit->holder].has_binding && !device_is_full && random_hit(&behaviour->random, 40)) {
        op.kind = OP_ALLOCATE;
        op.holder = visit->holder;
        op.bytes = bytes;
    }
    op.parts[0] = (struct model_part){.holder = visit->holder, .bytes = bytes};
    (void)carry_out(visit, model, &op);
}

/* Returns a ticket of the host with a known handle, or MODEL_NONE. */
static uint32_t pick_ticket(struct behaviour *behaviour, const struct model *model)
{
    uint32_t start = (uint32_t)random_below(&behaviour->random, MODEL_TICKETS);
    for (uint32_t i = 0; i < MODEL_TICKETS; i++) {
        uint32_t ticket = (start + i) % MODEL_TICKETS;
        const struct model_ticket *t = &model->tickets[ticket];
        if (t->state != MODEL_FREE && t->waits && t->name <= behaviour->names_before)
            return ticket;
    }
    return MODEL_NONE;
}

static void meddle(struct behaviour *behaviour, struct model *model, struct visit *visit)
{
    struct op op = {
        .kind = OP_SET_FUNCTION, .holder = visit->holder, .grant = MODEL_NONE, .stream = MODEL_NONE};
    switch (random_below(&behaviour->random, 6)) {
    case 0:
        break; /* the function removes itself */
    case 1:
        op.kind = OP_SET_EVICTABLE;
        op.bytes = random_below(&behaviour->random, 100000);
        break;
    case 2:
        op.kind = OP_REAP;
        break;
    case 3:
        op.kind = OP_TICKET_CANCEL;
        op.ticket = pick_ticket(behaviour, model);
        if (op.ticket == MODEL_NONE)
            return;
        break;
    case 4:
        if (!choose_ticket(&behaviour->random, behaviour->profile, model, visit->holder, &op))
            return;
        break;
    default:
        op.kind = OP_SET_LIMITS;
        op.limits = model->holders[visit->holder].limits;
        op.limits.priority = (int32_t)random_below(&behaviour->random, 4) - 1;
        break;
    }
    (void)carry_out(visit, model, &op);
}

static enum manner pick_manner(struct behaviour *behaviour)
{
    if (random_hit(&behaviour->random, behaviour->profile->answers_fully))
        return random_hit(&behaviour->random, 15) ? TOO_MUCH : FULLY;
    return PARTLY + (enum manner)random_below(&behaviour->random, 3);
}

void behave(void *user, struct model *model, const struct model_ask *ask)
{
    struct behaviour *behaviour = user;
    struct step *step = behaviour->step;
    if (step->visit_count == VISITS) {
        (void)fprintf(stderr, "lockstep: one step asks more than %u times\n", VISITS);
        exit(1);
    }
    struct visit *visit = &step->visits[step->visit_count++];
    *visit = (struct visit){.holder = ask->holder,
                            .pressure = ask->pressure,
                            .request = ask->ticket,
                            .request_ticket = model_ticket_find(model, ask->ticket)};
    visit->request_open = visit->request_ticket != MODEL_NONE;
    if (visit->request_open)
        model_ticket_stats(model, visit->request_ticket, &visit->stats);
    uint64_t bytes = ask->pressure.bytes;
    if (random_hit(&behaviour->random, 10))
        allocate_first(behaviour, model, visit);
    if (random_hit(&behaviour->random, 6))
        meddle(behaviour, model, visit);
    switch (pick_manner(behaviour)) {
    case FULLY:
        visit->says = evict(behaviour, model, visit, bytes);
        break;
    case TOO_MUCH:
        visit->says = evict(behaviour, model, visit, 2 * bytes);
        break;
    case PARTLY:
        visit->says = evict(behaviour, model, visit, bytes / 2);
        break;
    case LYING:
        visit->says = 2 * bytes;
        break;
    case NOTHING:
        break;
    }
    if (random_hit(&behaviour->random, 4))
        meddle(behaviour, model, visit);
}
