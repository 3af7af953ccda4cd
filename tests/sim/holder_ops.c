/* SPDX-License-Identifier: MIT */
/* Holders: their limits, and what they do when they are asked. */
#include "draw.h"

#include <stdio.h>

/* ---- figures ---- */

static uint64_t granules(const struct sim_world *world, struct sim_random *random, uint32_t below)
{
    return world->geometry.granule_bytes * sim_below(random, below);
}

/* 0 is no limit; otherwise some granules. */
static uint64_t draw_limit(const struct sim_world *world, struct sim_random *random)
{
    return sim_one_in(random, 3) ? 0 : world->geometry.granule_bytes + granules(world, random, 96);
}

static uint64_t draw_guarantee(const struct sim_world *world, struct sim_random *random)
{
    return sim_one_in(random, 2) ? 0 : granules(world, random, 24);
}

/* 0: no function. */
static uint64_t draw_behaviour(struct sim_random *random)
{
    return sim_one_in(random, 4) ? 0 : 1 + (sim_next(random) >> 40);
}

static uint64_t limit_of(uint64_t bytes)
{
    return bytes ? bytes : UINT64_MAX;
}

/* What guarantees leave of the capacity: those that are there stay, whatever has become of it. */
static void judge_guarantee(const struct sim_world *world, int pool, uint64_t before, uint64_t after,
                            struct sim_verdict *verdict)
{
    const struct sim_authority *authority = &world->authorities[pool];
    uint64_t others = authority->set_aside + sim_guaranteed(world, pool) - before;
    if (after > before && (others > authority->capacity || after > authority->capacity - others))
        sim_must(verdict, MOOR_OVER_BUDGET);
}

static void judge_limits(const struct moor_holder_limits *limits, struct sim_verdict *verdict)
{
    if (limits->guarantee_bytes > limit_of(limits->limit_bytes))
        sim_must(verdict, MOOR_INVALID);
}

/* ---- coming ---- */

static bool draw_holder_create(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[1] = sim_below(random, world->geometry.devices);
    op->arg[2] = draw_limit(world, random);
    op->arg[3] = draw_guarantee(world, random);
    op->arg[4] = sim_below(random, 3);
    op->arg[5] = draw_behaviour(random);
    return sim_draw_free(world, random, SIM_TABLE_HOLDERS, &op->arg[0]);
}

static void put_holder(struct sim_world *world, const struct sim_op *op, struct moor_holder *handle, int pool,
                       const struct moor_holder_limits *limits, bool listens)
{
    struct sim_holder *holder = &world->holders[op->arg[0]];
    holder->holder = handle;
    holder->authority = pool;
    holder->limit = limit_of(limits->limit_bytes);
    holder->guarantee = limits->guarantee_bytes;
    holder->priority = limits->priority;
    holder->created = ++world->creations;
    holder->behaviour = listens ? op->arg[5] : 0;
    world->listeners += listens;
    world->authorities[pool].reviewed |= world->listeners > 0;
}

static void run_holder_create(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_free(world, SIM_TABLE_HOLDERS, op->arg[0]) || op->arg[1] >= world->geometry.devices)
        return;
    int pool = world->authority_of[op->arg[1]];
    bool listens = op->arg[5] != 0;
    struct sim_holder *place = &world->holders[op->arg[0]];
    *place = (struct sim_holder){.world = world, .authority = pool};
    place->seats[0].holder = place;
    char name[8];
    (void)snprintf(name, sizeof name, "h%u", (unsigned)op->arg[0]);
    struct moor_holder_options options = {
        .name = name,
        .role = (uint32_t)op->arg[0] % (MOOR_ROLE_CACHE + 1),
        .limits = {.limit_bytes = op->arg[2], .guarantee_bytes = op->arg[3], .priority = (int32_t)op->arg[4]},
        .pressure = listens ? sim_line_asked : NULL,
        .pressure_user = &place->seats[0]};
    struct moor_holder *holder = NULL;
    struct sim_verdict verdict = {0};
    judge_limits(&options.limits, &verdict);
    if (!verdict.must)
        judge_guarantee(world, pool, 0, op->arg[3], &verdict);
    sim_begin(world, op, &verdict);
    moor_status status = moor_holder_create(world->authorities[pool].authority, &options, &holder);
    if (sim_end(world, op, status, &verdict))
        put_holder(world, op, holder, pool, &options.limits, listens);
}

const struct sim_kind_info sim_kind_holder_create = {
    "holder_create",
    {"holder", "device", "limit", "guarantee", "priority", "behaviour"},
    {0},
    draw_holder_create,
    run_holder_create};

/* ---- going ---- */

static bool draw_one_holder(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_HOLDERS, &op->arg[0]);
}

/* It is a part of the call that is under way. */
static bool is_requesting(const struct sim_world *world, int holder)
{
    const struct sim_request *request = world->request;
    for (uint32_t i = 0; request && i < request->count; i++)
        if (request->parts[i].holder == holder)
            return true;
    return false;
}

/* Its function runs, and not on this thread. */
static bool is_asked_elsewhere(const struct sim_world *world, int holder)
{
    return sim_inside && world->line.agent != holder && world->holders[holder].ask.is_open;
}

static void run_holder_destroy(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_HOLDERS, op->arg[0]))
        return;
    int index = (int)op->arg[0];
    struct sim_holder *holder = &world->holders[index];
    struct sim_pending pending = sim_pending_of_holder(world, index);
    struct sim_verdict verdict = {0};
    if (holder->reserved || holder->live || holder->users || sim_quarantined_of_holder(world, index) ||
        pending.least || is_requesting(world, index) || is_asked_elsewhere(world, index))
        sim_must(&verdict, MOOR_BUSY);
    else if (sim_inside && pending.most)
        sim_may(&verdict, MOOR_BUSY);
    else if (!sim_inside &&
             holder->charged) /* what was pending may have gone: the books of the last step say */
        sim_must(&verdict, MOOR_BUSY);
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_holder_destroy(holder->holder), &verdict))
        return;
    for (uint32_t i = world->release_count; i-- > 0;)
        if (world->releases[i].holder == index)
            sim_release_gone(world, i);
    world->listeners -= holder->behaviour && !holder->is_deaf;
    holder->holder = NULL;
}

const struct sim_kind_info sim_kind_holder_destroy = {
    "holder_destroy", {"holder"}, {0}, draw_one_holder, run_holder_destroy};

/* ---- limits ---- */

uint64_t sim_revision(uint64_t how, uint64_t current, bool same, struct sim_verdict *verdict, bool *ret_known)
{
    const uint64_t revisions[] = {0, current + 1, current + 5, current, current > 1 ? current - 1 : 0};
    uint64_t revision = revisions[how % (sizeof revisions / sizeof *revisions)];
    *ret_known = false;
    if (revision == 0 || revision > current)
        return revision;
    if (revision < current)
        sim_must(verdict, MOOR_STALE);
    else if (!same)
        sim_must(verdict, MOOR_REFUSED);
    *ret_known = revision == current;
    return revision;
}

uint64_t sim_draw_revision(struct sim_random *random)
{
    return sim_one_in(random, 2) ? 0 : sim_below(random, 5);
}

static bool draw_holder_limits(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    if (!draw_one_holder(world, random, op))
        return false;
    const struct sim_holder *holder = &world->holders[op->arg[0]];
    op->arg[1] =
        sim_one_in(random, 4) && holder->limit != UINT64_MAX ? holder->limit : draw_limit(world, random);
    op->arg[2] = sim_one_in(random, 2) ? holder->guarantee : draw_guarantee(world, random);
    op->arg[3] = sim_one_in(random, 2) ? (uint64_t)holder->priority : sim_below(random, 3);
    op->arg[4] = sim_draw_revision(random);
    return true;
}

static void run_holder_limits(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_HOLDERS, op->arg[0]))
        return;
    struct sim_holder *holder = &world->holders[op->arg[0]];
    struct moor_holder_limits limits = {
        .limit_bytes = op->arg[1], .guarantee_bytes = op->arg[2], .priority = (int32_t)op->arg[3]};
    bool same = holder->limit == limit_of(limits.limit_bytes) &&
                holder->guarantee == limits.guarantee_bytes && holder->priority == limits.priority;
    bool known = false;
    uint64_t over = SIM_UNTOUCHED, has = holder->reserved + holder->charged;
    struct sim_verdict verdict = {0}, refused = {0};
    judge_limits(&limits, &verdict);
    uint64_t revision = sim_revision(op->arg[4], holder->revision, same, &refused, &known);
    if (!verdict.must)
        verdict = refused;
    if (!verdict.must && !known)
        judge_guarantee(world, holder->authority, holder->guarantee, limits.guarantee_bytes, &verdict);
    sim_begin_with(world, op, &verdict, &over);
    if (!sim_end(world, op, moor_holder_set_limits(holder->holder, &limits, revision, &over), &verdict))
        return;
    uint64_t most = limit_of(limits.limit_bytes);
    sim_check(world, over == (has > most ? has - most : 0), "bytes over a new limit",
              has > most ? has - most : 0, over);
    holder->revision = known ? holder->revision : revision ? revision : holder->revision + 1;
    holder->limit = most;
    holder->guarantee = limits.guarantee_bytes;
    holder->priority = limits.priority;
    world->authorities[holder->authority].reviewed |= world->listeners > 0;
}

const struct sim_kind_info sim_kind_holder_limits = {"holder_limits",
                                                     {"holder", "limit", "guarantee", "priority", "revision"},
                                                     {0},
                                                     draw_holder_limits,
                                                     run_holder_limits};

/* ---- pressure ---- */

static bool draw_holder_pressure(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[1] = draw_behaviour(random);
    return draw_one_holder(world, random, op);
}

static void run_holder_pressure(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_HOLDERS, op->arg[0]))
        return;
    struct sim_verdict verdict = {0};
    if (is_asked_elsewhere(world, (int)op->arg[0]))
        sim_must(&verdict, MOOR_BUSY);
    sim_begin(world, op, &verdict);
    (void)sim_end(world, op, sim_line_listen(world, (int)op->arg[0], op->arg[1]), &verdict);
}

const struct sim_kind_info sim_kind_holder_pressure = {
    "holder_pressure", {"holder", "behaviour"}, {0}, draw_holder_pressure, run_holder_pressure};

static bool draw_evictable(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[1] = granules(world, random, 32);
    return draw_one_holder(world, random, op);
}

static void run_evictable(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_HOLDERS, op->arg[0]))
        return;
    struct sim_holder *holder = &world->holders[op->arg[0]];
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    if (sim_end(world, op, moor_holder_set_evictable(holder->holder, op->arg[1]), &verdict))
        holder->evictable = op->arg[1];
}

const struct sim_kind_info sim_kind_evictable = {
    "evictable", {"holder", "bytes"}, {0}, draw_evictable, run_evictable};
