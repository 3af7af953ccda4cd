/* SPDX-License-Identifier: MIT */
/* Segments: created, mapped, sealed, shared, copied on write, and released. */
#include "scenarios.h"

#define GRANULES 8u
#define FIRST 0x44 /* the byte that fills a segment */

static uint64_t size_bytes(const struct world *world)
{
    return 2 * world->granule;
}

/* ---- making and mapping ---- */

static moor_status create(struct world *world)
{
    return moor_segment_create(world->binding, size_bytes(world), world->granule, world->grant,
                               &world->segments[0]);
}

static void release(struct world *world)
{
    MUST(moor_segment_release(world->runtime, world->segments[0]));
    world->segments[0] = 0;
}

static void reserve_grant(struct world *world)
{
    MUST(moor_grant_reserve(world->holder, size_bytes(world), MOOR_NO_WAIT, &world->grant));
}

static void release_granted(struct world *world)
{
    release(world);
    MUST(moor_grant_release(world->runtime, world->grant));
    reserve_grant(world);
}

static moor_status try_to_release(struct world *world)
{
    moor_status status = moor_segment_release(world->runtime, world->segments[0]);
    if (!status)
        world->segments[0] = 0;
    return status;
}

static void must_create(struct world *world)
{
    MUST(create(world));
}

static void reserve(struct world *world)
{
    world->ranges[0] = world_reserve(world, GRANULES);
}

static void create_and_reserve(struct world *world)
{
    reserve(world);
    must_create(world);
}

static moor_status map_at(struct world *world, uint64_t granule, uint32_t access)
{
    return moor_segment_map(world->runtime, world->segments[0], world->ranges[0], granule * world->granule,
                            access);
}

static moor_status map_for_writing(struct world *world)
{
    return map_at(world, 0, MOOR_ACCESS_READ_WRITE);
}

static moor_status unmap(struct world *world)
{
    return moor_range_unmap(world->runtime, world->ranges[0], 0, size_bytes(world));
}

static void must_unmap(struct world *world)
{
    MUST(unmap(world));
}

/* ---- sealing and sharing ---- */

static void map_busy(struct world *world)
{
    MUST(map_for_writing(world));
    struct moor_view view = world_range_view(world, world->ranges[0], 0, 2);
    world_fill(world, &view, FIRST);
}

static void make_mapped(struct world *world)
{
    create_and_reserve(world);
    map_busy(world);
}

static moor_status seal(struct world *world)
{
    return moor_segment_seal(world->runtime, world->segments[0], MOOR_FOREVER);
}

static void is_not_sealed(struct world *world)
{
    EXPECT(MOOR_BUSY, map_at(world, 3, MOOR_ACCESS_READ));
}

/* A sealed segment stays sealed, and cannot be written. */
static void replace(struct world *world)
{
    struct moor_view view = world_range_view(world, world->ranges[0], 0, 2);
    world_expect_full_of(world, &view, FIRST);
    EXPECT(MOOR_INVALID, moor_fill(world->stream, &view, 0, 1));
    must_unmap(world);
    release(world);
    world_settle(world);
    must_create(world);
    map_busy(world);
}

static void make_sealed(struct world *world)
{
    make_mapped(world);
    MUST(seal(world));
}

static moor_status map_shared(struct world *world)
{
    return map_at(world, 3, MOOR_ACCESS_READ);
}

static void unmap_shared(struct world *world)
{
    struct moor_view view = world_range_view(world, world->ranges[0], 3, 2);
    world_expect_full_of(world, &view, FIRST);
    MUST(moor_range_unmap(world->runtime, world->ranges[0], 3 * world->granule, size_bytes(world)));
}

static void make_sealed_busy(struct world *world)
{
    make_sealed(world);
    struct moor_view view = world_range_view(world, world->ranges[0], 0, 2);
    struct moor_view host = moor_view_host(world->host, PAGE_BYTES);
    MUST(moor_view_slice(&view, 0, PAGE_BYTES, &view));
    world_hold(world, world->stream);
    MUST(moor_copy(world->stream, &host, &view));
}

static void map_again(struct world *world)
{
    world_settle(world); /* the granules may still be leaving */
    MUST(map_at(world, 0, MOOR_ACCESS_READ));
}

/* ---- copy on write ---- */

static moor_status make_writable(struct world *world)
{
    return moor_range_make_writable(world->runtime, world->ranges[0], 0, world->stream, world->grant,
                                    MOOR_FOREVER, &world->segments[1]);
}

/* The mapping alone owns the segment. */
static void make_alone(struct world *world)
{
    make_sealed(world);
    release(world);
}

static void check_and_fill_mapping(struct world *world)
{
    struct moor_view view = world_range_view(world, world->ranges[0], 0, 2);
    world_expect_full_of(world, &view, FIRST);
    world_fill(world, &view, 0x55);
}

static void release_second(struct world *world)
{
    MUST(moor_segment_release(world->runtime, world->segments[1]));
    world->segments[1] = 0;
}

static void alone_again(struct world *world)
{
    check_and_fill_mapping(world);
    must_unmap(world);
    release_second(world);
    world_settle(world);
    must_create(world);
    map_busy(world);
    MUST(seal(world));
    release(world);
}

/* A second mapping shows the old contents. */
static void make_shared(struct world *world)
{
    make_sealed(world);
    MUST(map_shared(world));
}

static void make_shared_with_grant(struct world *world)
{
    make_shared(world);
    reserve_grant(world);
}

/* If the old mapping was neither removed nor restored, its granules are in quarantine or free. */
static void map_if_gone(struct world *world)
{
    uint64_t backed;
    MUST(moor_range_get_committed(world->runtime, world->ranges[0], 0, size_bytes(world), &backed));
    if (backed > 0)
        return;
    world_empty_quarantine(world);
    world_settle(world);
    MUST(map_at(world, 0, MOOR_ACCESS_READ));
}

static void shared_again(struct world *world)
{
    check_and_fill_mapping(world);
    struct moor_view shared = world_range_view(world, world->ranges[0], 3, 2);
    world_expect_full_of(world, &shared, FIRST);
    must_unmap(world);
    release_second(world);
    world_settle(world);
    MUST(map_at(world, 0, MOOR_ACCESS_READ));
}

static void shared_again_granted(struct world *world)
{
    shared_again(world);
    MUST(moor_grant_release(world->runtime, world->grant));
    reserve_grant(world);
}

/* ---- cached segments, evicted and restored ---- */

/* Copies to the host; the addresses stay reserved. */
static moor_status evict(struct world *world)
{
    struct moor_view view = world_range_view(world, world->ranges[0], 0, 1);
    struct moor_view host =
        moor_view_host(world->host, world->granule < HOST_BYTES ? world->granule : HOST_BYTES);
    MUST(moor_view_slice(&view, 0, host.size_bytes, &view));
    moor_status status = moor_copy(world->stream, &host, &view);
    if (!status)
        status = moor_memory_wait(&view, MOOR_FOREVER);
    if (!status)
        status = unmap(world);
    if (!status)
        release(world);
    return status;
}

/* Commits memory at the same addresses again and restores the contents. */
static moor_status restore(struct world *world)
{
    struct moor_step step = {.kind = MOOR_STEP_CREATE,
                             .binding = world->binding,
                             .range = world->ranges[0],
                             .length_bytes = size_bytes(world)};
    moor_status status = moor_transact(world->runtime, &step, 1, NULL);
    if (status)
        return status;
    world->segments[0] = step.segment;
    struct moor_view view = world_range_view(world, world->ranges[0], 0, 1);
    struct moor_view host =
        moor_view_host(world->host, world->granule < HOST_BYTES ? world->granule : HOST_BYTES);
    status = moor_copy(world->stream, &view, &host);
    return status ? status : moor_memory_wait(&view, MOOR_FOREVER);
}

/* Memory that a lost stream has used is released only with its range. */
static void drop_restored(struct world *world)
{
    moor_status status = world->segments[0] ? unmap(world) : MOOR_OK;
    release(world);
    if (status == MOOR_DEVICE_LOST) {
        MUST(moor_range_release(world->runtime, world->ranges[0]));
        reserve(world);
        return;
    }
    MUST(status);
}

static void restore_evicted(struct world *world)
{
    world_settle(world);
    MUST(restore(world));
    struct moor_view view = world_range_view(world, world->ranges[0], 0, 1);
    MUST(moor_view_slice(&view, 0, PAGE_BYTES, &view));
    world_expect_full_of(world, &view, FIRST);
}

static void make_evicted(struct world *world)
{
    make_mapped(world);
    MUST(evict(world));
    world_settle(world);
}

static void evict_restored(struct world *world)
{
    struct moor_view view = world_range_view(world, world->ranges[0], 0, 1);
    MUST(moor_view_slice(&view, 0, PAGE_BYTES, &view));
    world_expect_full_of(world, &view, FIRST);
    MUST(evict(world));
    world_settle(world);
}

#define SHARED MOOR_ABI_CAP_SHARED
#define COPIED (MOOR_ABI_CAP_SHARED | MOOR_ABI_CAP_COPY)

static const struct scenario list[] = {
    {"segment", SHARED, 0, 0, NULL, create, release, NULL},
    {"segment from a grant", SHARED, 0, 0, reserve_grant, create, release_granted, NULL},
    {"release a segment", SHARED, 0, 0, must_create, try_to_release, must_create, NULL},
    {"map for writing", SHARED, 0, 0, create_and_reserve, map_for_writing, must_unmap, NULL},
    {"seal", COPIED, 0, 0, make_mapped, seal, replace, is_not_sealed},
    {"share", COPIED, 0, 0, make_sealed, map_shared, unmap_shared, NULL},
    {"unmap behind work", COPIED, 0, 0, make_sealed_busy, unmap, map_again, NULL},
    {"copy on write, sole owner", COPIED, 0, 0, make_alone, make_writable, alone_again, NULL},
    {"copy on write, shared", COPIED, 0, 0, make_shared, make_writable, shared_again, map_if_gone},
    {"copy on write from a grant", COPIED, 0, 0, make_shared_with_grant, make_writable, shared_again_granted,
     map_if_gone},
    {"evict a segment", COPIED, 0, 0, make_mapped, evict, restore_evicted, NULL},
    {"restore a segment", COPIED, 0, 0, make_evicted, restore, evict_restored, drop_restored},
};

const struct scenarios segment_scenarios = {list, sizeof list / sizeof list[0]};
