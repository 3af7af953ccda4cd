/* SPDX-License-Identifier: MIT */
/* Ranges: reserved, grown, shrunk behind work, released with their contents; and transactions over several
 * ranges. */
#include "scenarios.h"

#define GRANULES 8u

static moor_status reserve(struct world *world)
{
    const struct moor_range_options options = {.granule_bytes = world->granule};
    return moor_range_reserve(world->binding, GRANULES * world->granule, &options, &world->ranges[0]);
}

static void release(struct world *world)
{
    MUST(moor_range_release(world->runtime, world->ranges[0]));
    world->ranges[0] = 0;
}

static void must_reserve(struct world *world)
{
    MUST(reserve(world));
}

/* ---- growing ---- */

static moor_status commit(struct world *world)
{
    return moor_range_commit(world->runtime, world->ranges[0], world->granule, 3 * world->granule,
                             world->grant);
}

static void decommit(struct world *world)
{
    MUST(moor_range_decommit(world->runtime, world->ranges[0], world->granule, 3 * world->granule));
}

static void reserve_grant(struct world *world)
{
    MUST(moor_grant_reserve(world->holder, 3 * world->granule, MOOR_NO_WAIT, &world->grant));
}

static void reserve_with_grant(struct world *world)
{
    must_reserve(world);
    reserve_grant(world);
}

static void decommit_granted(struct world *world)
{
    decommit(world);
    MUST(moor_grant_release(world->runtime, world->grant));
    reserve_grant(world);
}

/* A step of growth beside committed memory, which keeps its contents. */
static void reserve_grown(struct world *world)
{
    must_reserve(world);
    MUST(moor_range_commit(world->runtime, world->ranges[0], 0, world->granule, 0));
    struct moor_view view = world_range_view(world, world->ranges[0], 0, 1);
    world_fill(world, &view, 0x33);
}

static void shrink_again(struct world *world)
{
    struct moor_view view = world_range_view(world, world->ranges[0], 0, 1);
    world_expect_full_of(world, &view, 0x33);
    view = world_range_view(world, world->ranges[0], 1, 3);
    world_expect_full_of(world, &view, 0);
    decommit(world);
}

/* ---- shrinking ---- */

static void commit_busy(struct world *world)
{
    MUST(commit(world));
    struct moor_view view = world_range_view(world, world->ranges[0], 1, 3);
    world_hold(world, world->stream);
    world_fill(world, &view, 1);
}

static void reserve_busy(struct world *world)
{
    must_reserve(world);
    commit_busy(world);
}

static moor_status try_to_decommit(struct world *world)
{
    return moor_range_decommit(world->runtime, world->ranges[0], world->granule, 3 * world->granule);
}

static void commit_again(struct world *world)
{
    world_settle(world); /* the granules may still be leaving */
    commit_busy(world);
}

/* Two committed parts with work of their own, and a segment. */
static void reserve_full(struct world *world)
{
    must_reserve(world);
    MUST(moor_range_commit(world->runtime, world->ranges[0], 0, 4 * world->granule, 0));
    MUST(moor_segment_create(world->binding, 2 * world->granule, world->granule, 0, &world->segments[0]));
    MUST(moor_segment_map(world->runtime, world->segments[0], world->ranges[0], 5 * world->granule,
                          MOOR_ACCESS_READ_WRITE));
    struct moor_view view = world_range_view(world, world->ranges[0], 0, 2);
    world_hold(world, world->stream);
    world_fill(world, &view, 1);
    view = world_range_view(world, world->ranges[0], 5, 2);
    world_fill(world, &view, 2);
}

static moor_status release_full(struct world *world)
{
    moor_status status = moor_range_release(world->runtime, world->ranges[0]);
    if (!status)
        world->ranges[0] = 0;
    return status;
}

static void reserve_full_again(struct world *world)
{
    MUST(moor_segment_release(world->runtime, world->segments[0]));
    world->segments[0] = 0;
    reserve_full(world);
}

/* ---- transactions ---- */

/* Three ranges, the third through the given binding, and a sealed segment. */
static void prepare_steps(struct world *world, struct moor_binding *third, uint64_t third_granule)
{
    must_reserve(world);
    world->ranges[1] = world_reserve(world, GRANULES);
    MUST(moor_range_reserve(third, third_granule,
                            &(struct moor_range_options){.granule_bytes = third_granule}, &world->ranges[2]));
    MUST(moor_segment_create(world->binding, world->granule, world->granule, 0, &world->segments[0]));
    MUST(moor_segment_seal(world->runtime, world->segments[0], MOOR_FOREVER));
}

static void prepare_one_authority(struct world *world)
{
    prepare_steps(world, world->binding, world->granule);
}

static void prepare_two_authorities(struct world *world)
{
    prepare_steps(world, world->far_binding, world->far_domain.granule_min_bytes);
}

static uint64_t third_bytes(struct world *world)
{
    struct moor_view view = {0};
    MUST(moor_range_get_view(world->runtime, world->ranges[2], &view));
    return view.size_bytes;
}

static moor_status transact(struct world *world)
{
    uint64_t granule = world->granule;
    struct moor_step steps[] = {
        {.kind = MOOR_STEP_COMMIT, .range = world->ranges[0], .length_bytes = 2 * granule},
        {.kind = MOOR_STEP_COMMIT, .range = world->ranges[2], .length_bytes = third_bytes(world)},
        {.kind = MOOR_STEP_CREATE,
         .binding = world->binding,
         .range = world->ranges[1],
         .offset_bytes = granule,
         .length_bytes = 2 * granule,
         .grant = world->grant},
        {.kind = MOOR_STEP_MAP,
         .range = world->ranges[0],
         .segment = world->segments[0],
         .offset_bytes = 3 * granule},
        {.kind = MOOR_STEP_COMMIT,
         .range = world->ranges[1],
         .offset_bytes = 4 * granule,
         .length_bytes = granule},
    };
    moor_status status = moor_transact(world->runtime, steps, sizeof steps / sizeof steps[0], NULL);
    if (!status)
        world->segments[1] = steps[2].segment;
    return status;
}

static void take_apart(struct world *world)
{
    uint64_t granule = world->granule;
    MUST(moor_range_decommit(world->runtime, world->ranges[0], 0, 2 * granule));
    MUST(moor_range_decommit(world->runtime, world->ranges[2], 0, third_bytes(world)));
    MUST(moor_range_unmap(world->runtime, world->ranges[1], granule, 2 * granule));
    MUST(moor_range_unmap(world->runtime, world->ranges[0], 3 * granule, granule));
    MUST(moor_range_decommit(world->runtime, world->ranges[1], 4 * granule, granule));
    MUST(moor_segment_release(world->runtime, world->segments[1]));
    world->segments[1] = 0;
}

static void prepare_granted(struct world *world)
{
    prepare_one_authority(world);
    MUST(moor_grant_reserve(world->holder, 2 * world->granule, MOOR_NO_WAIT, &world->grant));
}

static void take_granted_apart(struct world *world)
{
    take_apart(world);
    MUST(moor_grant_release(world->runtime, world->grant));
    MUST(moor_grant_reserve(world->holder, 2 * world->granule, MOOR_NO_WAIT, &world->grant));
}

static const struct scenario list[] = {
    {"reserve", MOOR_ABI_CAP_VIRTUAL, 0, 0, NULL, reserve, release, NULL},
    {"grow", MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_COPY, 0, 0, reserve_grown, commit, shrink_again, NULL},
    {"grow from a grant", MOOR_ABI_CAP_VIRTUAL, 0, 0, reserve_with_grant, commit, decommit_granted, NULL},
    {"decommit behind work", MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_COPY, 0, 0, reserve_busy, try_to_decommit,
     commit_again, NULL},
    {"release a full range", MOOR_ABI_CAP_SHARED | MOOR_ABI_CAP_COPY, 0, 0, reserve_full, release_full,
     reserve_full_again, NULL},
    {"transaction over 3 ranges", MOOR_ABI_CAP_SHARED, 0, 0, prepare_one_authority, transact, take_apart,
     NULL},
    {"transaction, partly from a grant", MOOR_ABI_CAP_SHARED, 0, 0, prepare_granted, transact,
     take_granted_apart, NULL},
    {"transaction over 2 authorities", MOOR_ABI_CAP_SHARED, MOOR_ABI_CAP_VIRTUAL, SWEEP_FAR,
     prepare_two_authorities, transact, take_apart, NULL},
};

const struct scenarios range_scenarios = {list, sizeof list / sizeof list[0]};
