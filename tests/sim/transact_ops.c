/* SPDX-License-Identifier: MIT */
/* Transactions. A step is an operation of its own and is kept until a transact operation. */
#include "draw.h"
#include "memory.h"

static void add_step(struct sim_world *world, const struct sim_op *op)
{
    if (world->step_count < SIM_STEPS)
        world->step_ops[world->step_count++] = *op;
}

static bool draw_step_commit(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    if (!sim_draw_granules(world, random, SIM_FREE, 3, &op->arg[0], &op->arg[1], &op->arg[2]))
        return false;
    op->arg[3] = sim_draw_grant(world, random, (uint64_t)world->ranges[op->arg[0]].binding);
    return true;
}

const struct sim_kind_info sim_kind_step_commit = {
    "step_commit", {"range", "first", "count", "grant"}, {0}, draw_step_commit, add_step};

static bool draw_step_create(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[4] = 1 + sim_below(random, SIM_SEGMENT_GRANULES);
    uint64_t count;
    if (!sim_draw_free(world, random, SIM_TABLE_SEGMENTS, &op->arg[0]) ||
        !sim_draw_live(world, random, SIM_TABLE_BINDINGS, &op->arg[1]))
        return false;
    op->arg[5] = sim_draw_grant(world, random, op->arg[1]);
    if (sim_one_in(random, 4))
        return true;
    if (!sim_draw_granules(world, random, SIM_FREE, 1, &op->arg[2], &op->arg[3], &count))
        return false;
    op->arg[2]++;
    return true;
}

const struct sim_kind_info sim_kind_step_create = {
    "step_create",
    {"segment", "binding", "range_or_0", "first", "granules", "grant"},
    {0},
    draw_step_create,
    add_step};

static bool draw_step_map(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint64_t count;
    return sim_draw_live(world, random, SIM_TABLE_SEGMENTS, &op->arg[0]) &&
           sim_draw_granules(world, random, SIM_FREE, 1, &op->arg[1], &op->arg[2], &count);
}

const struct sim_kind_info sim_kind_step_map = {
    "step_map", {"segment", "range", "first"}, {0}, draw_step_map, add_step};

/* ---- steps ---- */

struct part {
    const struct sim_op *op;
    int range; /* SIM_NONE: no range */
    uint32_t first;
    uint32_t count;
    int grant;
};

/* The make functions return false if an object of the step is gone. */
static bool make_commit(const struct sim_world *world, struct part *part, struct moor_step *step)
{
    const uint64_t *arg = part->op->arg;
    if (!sim_are_inside(world, arg[0], arg[1], arg[2]))
        return false;
    const struct sim_range *range = &world->ranges[arg[0]];
    part->range = (int)arg[0];
    part->first = (uint32_t)arg[1];
    part->count = (uint32_t)arg[2];
    *step = (struct moor_step){.kind = MOOR_STEP_COMMIT,
                               .range = range->handle,
                               .offset_bytes = arg[1] * range->granule_bytes,
                               .length_bytes = arg[2] * range->granule_bytes};
    part->grant = sim_grant_at(world, arg[3], &step->grant);
    return true;
}

static bool make_create(const struct sim_world *world, struct part *part, struct moor_step *step)
{
    const uint64_t *arg = part->op->arg;
    if (!sim_is_free(world, SIM_TABLE_SEGMENTS, arg[0]) || !sim_is_live(world, SIM_TABLE_BINDINGS, arg[1]) ||
        arg[4] == 0 || arg[4] > SIM_SEGMENT_GRANULES)
        return false;
    if (arg[2] && !sim_are_inside(world, arg[2] - 1, arg[3], arg[4]))
        return false;
    const struct sim_range *range = arg[2] ? &world->ranges[arg[2] - 1] : NULL;
    uint64_t granule = range ? range->granule_bytes : world->geometry.granule_bytes;
    part->range = range ? (int)arg[2] - 1 : SIM_NONE;
    part->first = (uint32_t)arg[3];
    part->count = (uint32_t)arg[4];
    *step = (struct moor_step){.kind = MOOR_STEP_CREATE,
                               .binding = world->bindings[arg[1]].binding,
                               .range = range ? range->handle : 0,
                               .offset_bytes = range ? arg[3] * granule : 0,
                               .length_bytes = arg[4] * granule,
                               .granule_bytes = range ? 0 : granule};
    part->grant = sim_grant_at(world, arg[5], &step->grant);
    return true;
}

static bool make_map(const struct sim_world *world, struct part *part, struct moor_step *step)
{
    const uint64_t *arg = part->op->arg;
    if (!sim_is_live(world, SIM_TABLE_SEGMENTS, arg[0]) ||
        !sim_are_inside(world, arg[1], arg[2], world->segments[arg[0]].count))
        return false;
    part->range = (int)arg[1];
    part->first = (uint32_t)arg[2];
    part->count = world->segments[arg[0]].count;
    *step = (struct moor_step){.kind = MOOR_STEP_MAP,
                               .range = world->ranges[arg[1]].handle,
                               .segment = world->segments[arg[0]].handle,
                               .offset_bytes = arg[2] * world->ranges[arg[1]].granule_bytes};
    return true;
}

static bool make_step(const struct sim_world *world, struct part *part, struct moor_step *step)
{
    if (part->op->kind == SIM_STEP_COMMIT)
        return make_commit(world, part, step);
    if (part->op->kind == SIM_STEP_CREATE)
        return make_create(world, part, step);
    return make_map(world, part, step);
}

static void judge_step(struct sim_world *world, const struct part *part, const struct moor_step *step,
                       struct sim_request *request, struct sim_verdict *verdict)
{
    const uint64_t *arg = part->op->arg;
    if (part->op->kind == SIM_STEP_MAP) {
        sim_judge_map(world, (int)arg[0], part->range, part->first, false, verdict);
        return;
    }
    int binding = part->op->kind == SIM_STEP_CREATE ? (int)arg[1] : world->ranges[part->range].binding;
    if (part->range != SIM_NONE) {
        sim_judge_free(world, part->range, part->first, part->count, verdict);
        if (world->bindings[binding].device != world->bindings[world->ranges[part->range].binding].device)
            sim_must(verdict, MOOR_FOREIGN);
    }
    sim_want_memory(world, request, binding, part->grant, step->length_bytes);
}

static bool names_the_same(const struct part *a, const struct part *b)
{
    return a->range != SIM_NONE && a->range == b->range && a->first < b->first + b->count &&
           b->first < a->first + a->count;
}

static void step_done(struct sim_world *world, const struct part *part, const struct moor_step *step)
{
    const uint64_t *arg = part->op->arg;
    if (part->op->kind == SIM_STEP_COMMIT) {
        sim_commit_done(world, part->range, part->first, part->count, part->grant);
        return;
    }
    if (part->op->kind == SIM_STEP_CREATE)
        sim_create_done(world, (int)arg[0], step->segment, (int)arg[1], step->length_bytes / part->count,
                        part->count, part->grant);
    if (part->range != SIM_NONE)
        sim_map_done(world, (int)arg[0], part->range, part->first, part->op->kind == SIM_STEP_CREATE);
}

/* ---- the transaction ---- */

static bool draw_transact(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    (void)random;
    (void)op;
    return world->step_count > 0;
}

/* Two steps may not create a segment in the same place. */
static bool place_is_taken(const struct part *parts, size_t count, const struct sim_op *op)
{
    for (size_t i = 0; i < count; i++)
        if (op->kind == SIM_STEP_CREATE && parts[i].op->kind == SIM_STEP_CREATE &&
            parts[i].op->arg[0] == op->arg[0])
            return true;
    return false;
}

static void run_transact(struct sim_world *world, const struct sim_op *op)
{
    struct part parts[SIM_STEPS];
    struct moor_step steps[SIM_STEPS];
    size_t count = 0, failed = SIZE_MAX;
    struct sim_verdict verdict = {0};
    struct sim_request request = {0};
    for (uint32_t i = 0; i < world->step_count; i++) {
        parts[count] = (struct part){.op = &world->step_ops[i], .range = SIM_NONE, .grant = SIM_NONE};
        if (place_is_taken(parts, count, parts[count].op) || !make_step(world, &parts[count], &steps[count]))
            continue;
        judge_step(world, &parts[count], &steps[count], &request, &verdict);
        for (size_t j = 0; j < count; j++)
            if (names_the_same(&parts[j], &parts[count]))
                sim_must(&verdict, MOOR_INVALID);
        count++;
    }
    world->step_count = 0;
    if (count == 0)
        return;
    if (!sim_request_begin(world, op, &verdict, &request, NULL))
        return;
    moor_status status = moor_transact(world->runtime, steps, count, &failed);
    if (sim_request_end(world, op, status, &request))
        for (size_t i = 0; i < count; i++)
            step_done(world, &parts[i], &steps[i]);
    else
        sim_check(world, failed < count, "the step that failed", count - 1, failed);
}

const struct sim_kind_info sim_kind_transact = {
    "transact", {0}, {"commit", "shared.create", "map"}, draw_transact, run_transact};
