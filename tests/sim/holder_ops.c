/* SPDX-License-Identifier: MIT */
/* Holders: creation, limits, evictable bytes, destruction. */
#include "draw.h"

#include <stdio.h>

/* ---- figures ---- */

static uint64_t granules(const struct sim_world *world, struct sim_random *random, uint32_t below)
{
    return world->geometry.granule_bytes * sim_below(random, below);
}

/* Draws 0 for no limit, else some granules. */
static uint64_t draw_limit(const struct sim_world *world, struct sim_random *random)
{
    return sim_one_in(random, 3) ? 0 : world->geometry.granule_bytes + granules(world, random, 96);
}

static uint64_t draw_guarantee(const struct sim_world *world, struct sim_random *random)
{
    return sim_one_in(random, 2) ? 0 : granules(world, random, 24);
}

static uint64_t limit_of(uint64_t bytes)
{
    return bytes ? bytes : UINT64_MAX;
}

/* New guarantees must fit the capacity beside the others. Existing guarantees stay even if the capacity
 * shrinks. */
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

/* ---- creation ---- */

static bool draw_holder_create(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[1] = sim_below(random, world->geometry.devices);
    op->arg[2] = draw_limit(world, random);
    op->arg[3] = draw_guarantee(world, random);
    op->arg[4] = sim_below(random, 3);
    return sim_draw_free(world, random, SIM_TABLE_HOLDERS, &op->arg[0]);
}

static void run_holder_create(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_free(world, SIM_TABLE_HOLDERS, op->arg[0]) || op->arg[1] >= world->geometry.devices)
        return;
    int pool = world->authority_of[op->arg[1]];
    char name[8];
    (void)snprintf(name, sizeof name, "h%u", (unsigned)op->arg[0]);
    struct moor_holder_options options = {.name = name,
                                          .role = (uint32_t)op->arg[0] % (MOOR_ROLE_CACHE + 1),
                                          .limits = {.limit_bytes = op->arg[2],
                                                     .guarantee_bytes = op->arg[3],
                                                     .priority = (int32_t)op->arg[4]}};
    struct moor_holder *holder = NULL;
    struct sim_verdict verdict = {0};
    judge_limits(&options.limits, &verdict);
    if (!verdict.must)
        judge_guarantee(world, pool, 0, op->arg[3], &verdict);
    sim_begin(world, op, &verdict);
    moor_status status = moor_holder_create(world->authorities[pool].authority, &options, &holder);
    if (sim_end(world, op, status, &verdict))
        world->holders[op->arg[0]] = (struct sim_holder){.holder = holder,
                                                         .authority = pool,
                                                         .limit = limit_of(op->arg[2]),
                                                         .guarantee = op->arg[3],
                                                         .priority = (int32_t)op->arg[4]};
}

const struct sim_kind_info sim_kind_holder_create = {"holder_create",
                                                     {"holder", "device", "limit", "guarantee", "priority"},
                                                     {0},
                                                     draw_holder_create,
                                                     run_holder_create};

/* ---- destruction ---- */

static bool draw_one_holder(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_HOLDERS, &op->arg[0]);
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
        pending.least)
        sim_must(&verdict, MOOR_BUSY);
    else if (holder->charged) /* pending bytes may have returned: the last statistics decide */
        sim_must(&verdict, MOOR_BUSY);
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_holder_destroy(holder->holder), &verdict))
        return;
    for (uint32_t i = world->release_count; i-- > 0;)
        if (world->releases[i].holder == index)
            sim_release_gone(world, i);
    holder->holder = NULL;
}

const struct sim_kind_info sim_kind_holder_destroy = {
    "holder_destroy", {"holder"}, {0}, draw_one_holder, run_holder_destroy};

/* ---- limits ---- */

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
}

const struct sim_kind_info sim_kind_holder_limits = {"holder_limits",
                                                     {"holder", "limit", "guarantee", "priority", "revision"},
                                                     {0},
                                                     draw_holder_limits,
                                                     run_holder_limits};

/* ---- evictable bytes ---- */

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
