/* SPDX-License-Identifier: MIT */
/*
 * Cases from the field about memory with several users: streams destroyed with pending releases behind them,
 * and a last page that two sequences continue.
 */
#include "opened.h"

#include <string.h>

TestSuite(shared_cases, .timeout = 60);

static uint64_t charged_bytes(struct world *world)
{
    world_settle(world);
    return world_state(world).stats.charged_bytes;
}

/* ---- O10: streams destroyed before their pending releases ---- */

#define STREAMS 64u
#define FREES 4u

static void free_behind(struct world *world, struct moor_stream *stream)
{
    for (uint32_t i = 0; i < FREES; i++) {
        moor_buffer buffer;
        MUST(moor_buffer_allocate(world->binding, PAGE_BYTES, NULL, &buffer));
        struct moor_view view = world_buffer_view(world, buffer);
        MUST(moor_fill(stream, &view, i, 1));
        MUST(moor_buffer_release(world->runtime, buffer));
    }
}

/* All streams wait for a held one and are destroyed without a wait. */
static void leave_streams(struct world *world)
{
    struct moor_fence fence;
    world_hold(world, world->stream);
    MUST(moor_stream_record(world->stream, &fence));
    for (uint32_t i = 0; i < STREAMS; i++) {
        struct moor_stream *stream;
        MUST(moor_stream_create(world->device, NULL, &stream));
        MUST(moor_stream_wait(stream, &fence));
        free_behind(world, stream);
        MUST(moor_stream_destroy(stream));
    }
}

/* Another stream allocates and works meanwhile. */
static void go_on(struct world *world)
{
    struct moor_stream *stream;
    moor_buffer buffer;
    MUST(moor_stream_create(world->device, NULL, &stream));
    MUST(moor_buffer_allocate(world->binding, PAGE_BYTES, NULL, &buffer));
    struct moor_view view = world_buffer_view(world, buffer);
    MUST(moor_fill(stream, &view, 0x42, 1));
    MUST(moor_memory_wait(&view, MOOR_FOREVER));
    MUST(moor_buffer_release(world->runtime, buffer));
    MUST(moor_stream_destroy(stream));
}

CASE_ON_BOTH(shared_cases, O10_streams_may_go_before_their_releases, MOOR_ABI_CAP_COPY)
{
    uint64_t footprint;
    MUST(moor_binding_get_footprint(world->binding, PAGE_BYTES, NULL, &footprint));
    struct world_state before = settled(world);
    for (int round = 0; round < 3; round++) { /* addresses of destroyed streams are reused */
        leave_streams(world);
        go_on(world);
        struct moor_authority_stats stats;
        MUST(moor_authority_get_stats(world->authority, &stats, NULL, 0, NULL));
        CHECK(stats.pending_bytes >= (uint64_t)STREAMS * FREES * footprint, "%llu bytes are pending",
              (unsigned long long)stats.pending_bytes);
        expect_same(world, &before, "after streams went with frees behind them");
    }
}

/* ---- O20: a half-full last page that two sequences continue ---- */

#define PREFIX 0x33
#define FORKS 1000u

static struct moor_view half(struct world *world, moor_range range, uint64_t which)
{
    struct moor_view whole = world_range_view(world, range, 0, 1);
    struct moor_view view;
    MUST(moor_view_slice(&whole, which * world->granule / 2, world->granule / 2, &view));
    return view;
}

static void fill_half(struct world *world, moor_range range, uint64_t which, uint8_t value)
{
    struct moor_view view = half(world, range, which);
    world_fill(world, &view, value);
}

static void expect_halves(struct world *world, moor_range range, uint8_t first, uint8_t second)
{
    struct moor_view views[] = {half(world, range, 0), half(world, range, 1)};
    world_expect_full_of(world, &views[0], first);
    world_expect_full_of(world, &views[1], second);
}

/* The first half is full; the page is mapped nowhere and sealed. */
static moor_segment make_tail(struct world *world)
{
    moor_segment tail;
    moor_range range = world_reserve(world, 1);
    MUST(moor_segment_create(world->binding, world->granule, world->granule, 0, &tail));
    MUST(moor_segment_map(world->runtime, tail, range, 0, MOOR_ACCESS_READ_WRITE));
    fill_half(world, range, 0, PREFIX);
    MUST(moor_segment_seal(world->runtime, tail, MOOR_FOREVER));
    MUST(moor_range_release(world->runtime, range));
    return tail;
}

static moor_range share(struct world *world, moor_segment tail)
{
    moor_range range = world_reserve(world, 1);
    MUST(moor_segment_map(world->runtime, tail, range, 0, MOOR_ACCESS_READ));
    return range;
}

static void refuse_to_write(struct world *world, moor_range range)
{
    struct moor_view view = half(world, range, 1);
    moor_status status = moor_fill(world->stream, &view, 1, 1);
    CHECK(status == MOOR_INVALID, "a fill of a read-only map answers %s", moor_status_name(status));
}

static moor_status append(struct world *world, moor_range range, uint8_t value)
{
    moor_status status =
        moor_range_make_writable(world->runtime, range, 0, world->stream, 0, MOOR_FOREVER, NULL);
    if (!status)
        fill_half(world, range, 1, value);
    return status;
}

CASE_ON_BOTH(shared_cases, O20_a_shared_tail_is_written_by_one_alone, MOOR_ABI_CAP_SHARED | MOOR_ABI_CAP_COPY)
{
    struct world_state before = settled(world);
    moor_segment tail = make_tail(world);
    moor_range a = share(world, tail), b = share(world, tail), c = share(world, tail);
    uint64_t shared_bytes = charged_bytes(world);
    refuse_to_write(world, a);

    MUST(append(world, a, 0xaa)); /* a private copy, which no other sequence sees */
    CHECK(charged_bytes(world) == shared_bytes + world->granule, "a private copy is not one page");
    expect_halves(world, a, PREFIX, 0xaa);
    expect_halves(world, b, PREFIX, 0);

    /* the capacity is used up */
    MUST(moor_authority_set_capacity(world->authority, shared_bytes + world->granule, 0, NULL));
    EXPECT(MOOR_OVER_BUDGET, append(world, c, 0xcc));
    refuse_to_write(world, c);
    expect_halves(world, b, PREFIX, 0);
    expect_halves(world, c, PREFIX, 0);

    /* The last owner writes in place: without a copy or another page, although there is no room. */
    MUST(moor_range_release(world->runtime, c));
    MUST(moor_segment_release(world->runtime, tail));
    world_settle(world);
    uint64_t copies = calls(world, "copy");
    MUST(append(world, b, 0xbb));
    CHECK(calls(world, "copy") == copies, "the last owner made a copy");
    CHECK(charged_bytes(world) == shared_bytes + world->granule, "the last owner was charged again");
    expect_halves(world, a, PREFIX, 0xaa);
    expect_halves(world, b, PREFIX, 0xbb);

    MUST(moor_range_release(world->runtime, a));
    MUST(moor_range_release(world->runtime, b));
    MUST(moor_authority_set_capacity(world->authority, before.stats.capacity_bytes, 0, NULL));
    expect_same(world, &before, "after two sequences went on from one page");
}

CASE_ON_BOTH(shared_cases, O20_forks_go_in_any_order, MOOR_ABI_CAP_SHARED | MOOR_ABI_CAP_COPY)
{
    static moor_range children[FORKS];
    struct world_state before = settled(world);
    moor_segment tail = make_tail(world);
    uint64_t shared_bytes = charged_bytes(world);
    for (uint32_t i = 0; i < FORKS; i++)
        children[i] = share(world, tail);
    CHECK(charged_bytes(world) == shared_bytes, "shared memory is charged more than once");
    MUST(moor_segment_release(world->runtime, tail));
    for (uint32_t left = FORKS, state = 1; left > 0; left--) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes' generator: any order is good enough */
        uint32_t picked = state % left;
        if (left == 1)
            expect_halves(world, children[picked], PREFIX, 0);
        MUST(moor_range_release(world->runtime, children[picked]));
        children[picked] = children[left - 1];
        if (left == 2)
            CHECK(charged_bytes(world) == shared_bytes, "the memory went before its last owner");
    }
    expect_same(world, &before, "after a thousand forks");
}
