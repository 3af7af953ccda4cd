/* SPDX-License-Identifier: MIT */
/* Buffers: allocated, from a grant, wrapped and pinned, released behind work. */
#include "scenarios.h"

#define BUFFER_BYTES 20000u

static const struct moor_buffer_options zeroed = {.flags = MOOR_BUFFER_ZERO};

static moor_status allocate(struct world *world)
{
    return moor_buffer_allocate(world->binding, BUFFER_BYTES, &zeroed, &world->buffers[0]);
}

static void release(struct world *world)
{
    MUST(moor_buffer_release(world->runtime, world->buffers[0]));
    world->buffers[0] = 0;
}

static void reserve_grant(struct world *world)
{
    uint64_t bytes;
    MUST(moor_binding_get_footprint(world->binding, BUFFER_BYTES, NULL, &bytes));
    MUST(moor_grant_reserve(world->holder, bytes, MOOR_NO_WAIT, &world->grant));
}

static moor_status allocate_granted(struct world *world)
{
    const struct moor_buffer_options options = {.grant = world->grant};
    return moor_buffer_allocate(world->binding, BUFFER_BYTES, &options, &world->buffers[0]);
}

static void release_granted(struct world *world)
{
    release(world);
    MUST(moor_grant_release(world->runtime, world->grant));
    reserve_grant(world);
}

static moor_status footprint(struct world *world)
{
    uint64_t bytes;
    return moor_binding_get_footprint(world->binding, BUFFER_BYTES, NULL, &bytes);
}

static moor_status wrap(struct world *world)
{
    return moor_buffer_wrap(world->binding, world->host, HOST_BYTES, MOOR_BUFFER_CHARGE | MOOR_BUFFER_PIN,
                            &world->buffers[0]);
}

static void allocate_busy(struct world *world)
{
    MUST(allocate(world));
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    world_hold(world, world->stream);
    world_fill(world, &view, 1);
}

static void wrap_busy(struct world *world)
{
    MUST(wrap(world));
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    world_hold(world, world->stream);
    world_fill(world, &view, 1);
}

static moor_status try_release(struct world *world)
{
    moor_status status = moor_buffer_release(world->runtime, world->buffers[0]);
    if (!status)
        world->buffers[0] = 0;
    return status;
}

static void prepare_wait(struct world *world)
{
    MUST(allocate(world));
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    world_fill(world, &view, 1);
}

static moor_status wait_for_memory(struct world *world)
{
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    return moor_memory_wait(&view, MOOR_FOREVER);
}

/* Evicts to the host and releases the device's memory. */
static moor_status evict(struct world *world)
{
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    struct moor_view host = moor_view_host(world->host, BUFFER_BYTES);
    moor_status status = moor_copy(world->stream, &host, &view);
    if (!status)
        status = moor_memory_wait(&view, MOOR_FOREVER);
    if (!status)
        status = try_release(world);
    return status;
}

/* Allocates again and restores the contents. */
static moor_status restore(struct world *world)
{
    struct moor_view host = moor_view_host(world->host, BUFFER_BYTES);
    moor_status status = allocate(world);
    if (status)
        return status;
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    status = moor_copy(world->stream, &view, &host);
    return status ? status : moor_memory_wait(&view, MOOR_FOREVER);
}

static void make_full(struct world *world)
{
    MUST(allocate(world));
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    world_fill(world, &view, 0x77);
}

static void restore_evicted(struct world *world)
{
    MUST(restore(world));
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    world_expect_full_of(world, &view, 0x77);
}

static void make_evicted(struct world *world)
{
    make_full(world);
    MUST(evict(world));
}

static void evict_restored(struct world *world)
{
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    world_expect_full_of(world, &view, 0x77);
    MUST(evict(world));
}

static const struct scenario list[] = {
    {"allocate", 0, 0, 0, NULL, allocate, release, NULL},
    {"allocate from a grant", 0, 0, 0, reserve_grant, allocate_granted, release_granted, NULL},
    {"footprint", 0, 0, 0, NULL, footprint, NULL, NULL},
    {"wrap, charged and pinned", MOOR_ABI_CAP_PINNED, 0, 0, NULL, wrap, release, NULL},
    {"release behind work", MOOR_ABI_CAP_COPY, 0, 0, allocate_busy, try_release, allocate_busy, NULL},
    {"unpin behind work", MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_PINNED, 0, 0, wrap_busy, try_release, wrap_busy,
     NULL},
    {"wait for memory", MOOR_ABI_CAP_COPY, 0, 0, prepare_wait, wait_for_memory, NULL, NULL},
    {"evict", MOOR_ABI_CAP_COPY, 0, 0, make_full, evict, restore_evicted, NULL},
    {"restore", MOOR_ABI_CAP_COPY, 0, 0, make_evicted, restore, evict_restored, release},
};

const struct scenarios buffer_scenarios = {list, sizeof list / sizeof list[0]};
