/* SPDX-License-Identifier: MIT */
/*
 * Release (I3, I4): no memory goes before every fence point of its last uses; a release never waits; pending
 * bytes stay charged and counted; the actual bytes are refunded. The scripted provider asserts I4 by its own
 * streams.
 */
#include "fixture.h"

#include <pthread.h>
#include <string.h>

TestSuite(release, .timeout = 30);

FIXTURE_TEST(release, of_unused_memory_is_immediate)
{
    moor_buffer buffer = fixture_allocate(f, 4096);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    struct scripted_call call;
    cr_assert(scripted_last_call(f->script, SCRIPTED_RELEASE, &call));
    cr_assert_eq(call.arguments[0], MOOR_ABI_RELEASE_ALLOCATION);
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(f).charged_bytes, 0);
}

FIXTURE_TEST(release, waits_for_the_last_use)
{
    struct moor_view view = fixture_allocate_view(f, 4096);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 7, 1));
    uint64_t waits = scripted_count(f->script, SCRIPTED_WAIT);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_WAIT), waits, "a drop never waits for the device");
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, fixture_soon(30)));
    EXPECT_BYTES(f, .charged_bytes = 4096, .pending_bytes = 4096); /* pending bytes are still charged */
    cr_assert_eq(fixture_counts(f).releases, 1);
    cr_assert_eq(scripted_objects(f->script).allocations, 1);
    fixture_check_accounts(f);
    fixture_open_and_reap(f);
    cr_assert_eq(fixture_stats(f).charged_bytes, 0);
    cr_assert_eq(scripted_objects(f->script).allocations, 0);
}

/* The host launched this work itself: the model does not see it, so only the recorded points protect the
 * memory. */
FIXTURE_TEST(release, waits_for_every_recorded_stream)
{
    struct moor_abi_stream *queues[3];
    struct moor_stream *streams[3];
    struct moor_view view = fixture_allocate_view(f, 4096);
    for (size_t i = 0; i < 3; i++) {
        streams[i] = fixture_stream(f, &queues[i]);
        scripted_hold(f->script, queues[i]);
        EXPECT(MOOR_OK, moor_stream_used(streams[i], &view));
    }
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    for (size_t i = 0; i < 3; i++) {
        EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
        cr_assert_eq(scripted_objects(f->script).allocations, 1, "stream %zu has not passed it", i);
        scripted_open(f->script, queues[i]);
    }
    fixture_reap(f);
    cr_assert_eq(scripted_objects(f->script).allocations, 0);
}

/* One pair per stream: the last use counts, and an earlier value of the stream does not free the memory. */
FIXTURE_TEST(release, waits_for_the_latest_use_of_a_stream)
{
    struct moor_view view = fixture_allocate_view(f, 4096);
    scripted_hold(f->script, f->queue);
    uint64_t last = 0;
    for (uint32_t i = 0; i < 20; i++) {
        EXPECT(MOOR_OK, moor_stream_used(f->stream, &view));
        last = scripted_recorded(f->script, f->queue);
    }
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    if (last > 1) {
        scripted_step(f->script, f->queue, last - 1);
        EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
        cr_assert_eq(scripted_objects(f->script).allocations, 1);
    }
}

FIXTURE_TEST(release, is_pending_for_later_requests)
{
    fixture_set_capacity(f, 8192);
    struct moor_view view = fixture_allocate_view(f, 8192);
    moor_buffer next = 0;
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(f->binding, 8192, NULL, &next));
    fixture_release_pending(f, &view);
    EXPECT(MOOR_PENDING, moor_buffer_allocate(f->binding, 8192, NULL, &next));
    EXPECT(MOOR_NEVER_FITS, moor_buffer_allocate(f->binding, 8193, NULL, &next));
    scripted_open(f->script, f->queue);
    (void)fixture_allocate(f, 8192); /* reaps */
}

FIXTURE_TEST(release, once)
{
    struct moor_view view = fixture_allocate_view(f, 4096);
    fixture_release_pending(f, &view);
    EXPECT(MOOR_STALE, moor_buffer_release(f->runtime, view.owner));
    fixture_open_and_reap(f);
    EXPECT(MOOR_STALE, moor_buffer_release(f->runtime, view.owner));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_RELEASE), 1);
}

FIXTURE_TEST(release, reap_waits_up_to_its_deadline)
{
    struct moor_view view = fixture_allocate_view(f, 4096);
    fixture_release_pending(f, &view);
    uint64_t start_ns = moor_clock_ns();
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, fixture_soon(100)));
    uint64_t took_ns = moor_clock_ns() - start_ns;
    cr_assert(took_ns > UINT64_C(90000000) && took_ns < UINT64_C(2000000000), "the reap took %llu ns",
              (unsigned long long)took_ns);
    fixture_open_later(f, f->queue);
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, fixture_soon(5000)));
}

FIXTURE_TEST(release, many_in_any_order_come_back_exactly)
{
    enum { COUNT = 300 };
    scripted_knobs(f->script)->actual_extra_bytes = 512;
    scripted_knobs(f->script)->reap_backwards = 1;
    moor_buffer buffers[COUNT];
    scripted_hold(f->script, f->queue);
    for (size_t i = 0; i < COUNT; i++) {
        buffers[i] = fixture_allocate(f, 256 * (1 + i % 7));
        struct moor_view view = fixture_buffer_view(f, buffers[i]);
        EXPECT(MOOR_OK, moor_stream_used(f->stream, &view));
    }
    uint64_t charged = fixture_stats(f).charged_bytes;
    for (size_t i = 0; i < COUNT; i++)
        EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffers[(i * 7) % COUNT]));
    cr_assert_eq(fixture_stats(f).pending_bytes, charged);
    cr_assert_eq(fixture_counts(f).releases, COUNT);
    fixture_check_accounts(f);
    fixture_open_and_reap(f);
    cr_assert_eq(fixture_stats(f).charged_bytes, 0);
}

FIXTURE_TEST(release, memory_wait_waits_for_known_uses)
{
    struct moor_view view = fixture_allocate_view(f, 4096);
    EXPECT(MOOR_OK, moor_memory_wait(&view, MOOR_NO_WAIT));
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 9, 1));
    EXPECT(MOOR_TIMEOUT, moor_memory_wait(&view, fixture_soon(30)));
    scripted_open(f->script, f->queue);
    EXPECT(MOOR_OK, moor_memory_wait(&view, fixture_soon(5000)));
    cr_assert(fixture_all_bytes(&view, 9));
}
