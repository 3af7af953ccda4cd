/* SPDX-License-Identifier: MIT */
/* Streams: created, destroyed with pending releases behind them, waited for; and all kinds of submitted
 * work. */
#include "scenarios.h"

#include "memory/uses.h"

#include <stdatomic.h>
#include <string.h>

#define BYTES 12288u
#define VALUE 0x66

/* ---- life ---- */

static moor_status create(struct world *world)
{
    return moor_stream_create(world->device, NULL, &world->other);
}

static moor_status destroy(struct world *world)
{
    moor_status status = moor_stream_destroy(world->other);
    if (!status)
        world->other = NULL;
    return status;
}

static void must_destroy(struct world *world)
{
    MUST(destroy(world));
}

/* Work is held on the other stream, and a release waits behind it. */
static void create_busy(struct world *world)
{
    moor_buffer buffer;
    struct moor_view view;
    MUST(create(world));
    world_hold(world, world->other);
    MUST(moor_buffer_allocate(world->binding, BYTES, NULL, &buffer));
    view = world_buffer_view(world, buffer);
    MUST(moor_fill(world->other, &view, 1, 1));
    MUST(moor_buffer_release(world->runtime, buffer));
}

/* ---- fences ---- */

static void make_buffers(struct world *world)
{
    for (size_t i = 0; i < 2; i++)
        MUST(moor_buffer_allocate(world->binding, BYTES, NULL, &world->buffers[i]));
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    world_fill(world, &view, VALUE);
    memset(world->host, VALUE, BYTES);
}

static moor_status record(struct world *world)
{
    return moor_stream_record(world->stream, &world->fence);
}

static void prepare_fence(struct world *world)
{
    make_buffers(world);
    MUST(record(world));
}

static moor_status wait_for_fence(struct world *world)
{
    return moor_fence_wait(&world->fence, MOOR_FOREVER);
}

static void prepare_two_streams(struct world *world)
{
    MUST(create(world));
    prepare_fence(world);
}

static moor_status wait_for_stream(struct world *world)
{
    return moor_stream_wait(world->other, &world->fence);
}

/* ---- work ---- */

static void count(void *user)
{
    struct world *world = user;
    atomic_fetch_add(&world->ran, 1);
}

static moor_status host_function(struct world *world)
{
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    atomic_store(&world->ran, 0);
    return moor_stream_host_function(world->stream, count, world, &view, 1);
}

static void has_run(struct world *world)
{
    MUST(record(world));
    MUST(wait_for_fence(world));
    CHECK(atomic_load(&world->ran) == 1, "a host function ran %u times", atomic_load(&world->ran));
}

static void has_not_run(struct world *world)
{
    CHECK(atomic_load(&world->ran) == 0, "a host function that was refused ran");
}

static moor_status use_part(struct world *world, uint64_t part)
{
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    MUST(moor_view_slice(&view, part * PAGE_BYTES, PAGE_BYTES, &view));
    return moor_stream_used(world->stream, &view);
}

/* Makes as many separate uses as fit without an allocation. */
static void make_used(struct world *world)
{
    MUST(moor_buffer_allocate(world->binding, BYTES, NULL, &world->buffers[0]));
    world_hold(world, world->stream);
    for (uint64_t part = 0; part < MOOR__USES_INLINE; part++)
        MUST(use_part(world, part));
}

static moor_status use(struct world *world)
{
    return use_part(world, MOOR__USES_INLINE);
}

static moor_status fill(struct world *world)
{
    struct moor_view view = world_buffer_view(world, world->buffers[1]);
    return moor_fill(world->stream, &view, VALUE, 1);
}

static struct moor_view host_half(struct world *world, size_t half)
{
    return moor_view_host(world->host + half * (HOST_BYTES / 2), BYTES);
}

static moor_status copy_to_device(struct world *world)
{
    struct moor_view from = host_half(world, 0), to = world_buffer_view(world, world->buffers[1]);
    return moor_copy(world->stream, &to, &from);
}

static moor_status copy_to_host(struct world *world)
{
    struct moor_view from = world_buffer_view(world, world->buffers[0]), to = host_half(world, 1);
    return moor_copy(world->stream, &to, &from);
}

static moor_status copy_on_device(struct world *world)
{
    struct moor_view from = world_buffer_view(world, world->buffers[0]);
    struct moor_view to = world_buffer_view(world, world->buffers[1]);
    return moor_copy(world->stream, &to, &from);
}

static moor_status copy_on_host(struct world *world)
{
    struct moor_view from = host_half(world, 0), to = host_half(world, 1);
    return moor_copy(world->stream, &to, &from);
}

static void filled_device(struct world *world)
{
    struct moor_view view = world_buffer_view(world, world->buffers[1]);
    world_expect_full_of(world, &view, VALUE);
    world_fill(world, &view, 0);
}

static void filled_host(struct world *world)
{
    MUST(record(world));
    MUST(wait_for_fence(world));
    const unsigned char *bytes = world->host + HOST_BYTES / 2;
    CHECK(bytes[0] == VALUE && memcmp(bytes, bytes + 1, BYTES - 1) == 0, "the copy did not bring the bytes");
    memset(world->host + HOST_BYTES / 2, 0, BYTES);
}

/* ---- between providers ---- */

static void make_far_buffer(struct world *world)
{
    make_buffers(world);
    MUST(moor_buffer_allocate(world->far_binding, BYTES, NULL, &world->buffers[2]));
}

static moor_status copy_away(struct world *world)
{
    struct moor_view from = world_buffer_view(world, world->buffers[0]);
    struct moor_view to = world_buffer_view(world, world->buffers[2]);
    return moor_copy(world->stream, &to, &from);
}

static moor_status copy_back(struct world *world)
{
    struct moor_view from = world_buffer_view(world, world->buffers[2]);
    struct moor_view to = world_buffer_view(world, world->buffers[1]);
    return moor_copy(world->stream, &to, &from);
}

static void must_copy_back(struct world *world)
{
    MUST(copy_back(world));
    filled_device(world);
}

static void make_full_far_buffer(struct world *world)
{
    make_far_buffer(world);
    MUST(copy_away(world));
}

/* ---- statistics ---- */

static moor_status stats(struct world *world)
{
    struct moor_device_stats stats;
    return moor_device_get_stats(world->device, 0, &stats);
}

#define COPY MOOR_ABI_CAP_COPY

static const struct scenario list[] = {
    {"stream", 0, 0, 0, NULL, create, must_destroy, NULL},
    {"give up a stream with frees behind it", COPY, 0, 0, create_busy, destroy, create_busy, NULL},
    {"record", COPY, 0, 0, make_buffers, record, NULL, NULL},
    {"wait for a fence", COPY, 0, 0, prepare_fence, wait_for_fence, NULL, NULL},
    {"wait for another stream", COPY, 0, 0, prepare_two_streams, wait_for_stream, NULL, NULL},
    {"host function", COPY, 0, 0, make_buffers, host_function, has_run, has_not_run},
    {"tell of a use", COPY, 0, SWEEP_NO_CALLS, make_used, use, NULL, NULL},
    {"fill", COPY, 0, 0, make_buffers, fill, filled_device, NULL},
    {"copy, host to device", COPY, 0, 0, make_buffers, copy_to_device, filled_device, NULL},
    {"copy, device to host", COPY, 0, 0, make_buffers, copy_to_host, filled_host, NULL},
    {"copy, on the device", COPY, 0, 0, make_buffers, copy_on_device, filled_device, NULL},
    {"copy, on the host", COPY, 0, 0, make_buffers, copy_on_host, filled_host, NULL},
    {"copy to another provider", COPY, COPY, SWEEP_FAR, make_far_buffer, copy_away, must_copy_back, NULL},
    {"copy from another provider", COPY, COPY, SWEEP_FAR, make_full_far_buffer, copy_back, filled_device,
     NULL},
    {"device statistics", MOOR_ABI_CAP_STATS, 0, 0, NULL, stats, NULL, NULL},
};

const struct scenarios stream_scenarios = {list, sizeof list / sizeof list[0]};
