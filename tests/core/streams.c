/* SPDX-License-Identifier: MIT */
/* Streams and fences: record, wait, wait across streams, host functions, and streams that end before their
 * work. */
#include "fixture.h"

#include <stdatomic.h>
#include <string.h>

TestSuite(streams, .timeout = 30);

Test(streams, fences_are_reached_in_order)
{
    struct fixture f = fixture_open(NULL);
    struct moor_fence first;
    struct moor_fence second;
    moor_buffer buffer = fixture_allocate(&f, 4096);
    struct moor_view view = fixture_buffer_view(&f, buffer);
    scripted_hold(f.script, f.queue);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_stream_record(f.stream, &first));
    uint64_t value = scripted_recorded(f.script, f.queue);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 2, 1));
    EXPECT(MOOR_OK, moor_stream_record(f.stream, &second));
    cr_assert_eq(first.stream, f.stream);
    cr_assert_lt(first.value, second.value);
    EXPECT(MOOR_PENDING, moor_fence_wait(&first, MOOR_NO_WAIT));
    EXPECT(MOOR_TIMEOUT, moor_fence_wait(&first, fixture_soon(20)));
    scripted_step(f.script, f.queue, value);
    EXPECT(MOOR_OK, moor_fence_wait(&first, MOOR_NO_WAIT));
    EXPECT(MOOR_PENDING, moor_fence_wait(&second, MOOR_NO_WAIT));
    cr_assert(fixture_all_bytes(&view, 1));
    scripted_open(f.script, f.queue);
    EXPECT(MOOR_OK, moor_fence_wait(&second, MOOR_FOREVER));
    cr_assert(fixture_all_bytes(&view, 2));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    fixture_close(&f);
}

Test(streams, wait_for_each_other_without_the_host)
{
    struct fixture f = fixture_open(NULL);
    struct moor_abi_stream *queue;
    struct moor_stream *other = fixture_stream(&f, &queue);
    struct moor_fence fence;
    moor_buffer buffer = fixture_allocate(&f, 4096);
    struct moor_view view = fixture_buffer_view(&f, buffer);
    scripted_hold(f.script, f.queue);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_stream_record(f.stream, &fence));
    uint64_t waits = scripted_count(f.script, SCRIPTED_WAIT);
    EXPECT(MOOR_OK, moor_stream_wait(other, &fence));
    EXPECT(MOOR_OK, moor_fill(other, &view, 2, 1));
    cr_assert_eq(scripted_count(f.script, SCRIPTED_WAIT), waits);
    scripted_open(f.script, f.queue);
    EXPECT(MOOR_OK, moor_memory_wait(&view, fixture_soon(5000)));
    cr_assert(fixture_all_bytes(&view, 2), "the later fill is the other stream's");
    EXPECT(MOOR_OK, moor_stream_destroy(other));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    fixture_close(&f);
}

Test(streams, wait_across_devices_but_not_providers)
{
    struct fixture f = fixture_open(&(struct scripted_options){.device_count = 2});
    struct fixture g = fixture_open(NULL);
    struct moor_device *device = NULL;
    struct moor_stream *other = NULL;
    struct moor_fence fence;
    EXPECT(MOOR_OK, moor_provider_get_device(f.provider, 1, &device));
    EXPECT(MOOR_OK, moor_stream_create(device, NULL, &other));
    EXPECT(MOOR_OK, moor_stream_record(other, &fence));
    EXPECT(MOOR_OK, moor_stream_wait(f.stream, &fence));
    EXPECT(MOOR_FOREIGN, moor_stream_wait(g.stream, &fence));
    EXPECT(MOOR_OK, moor_stream_destroy(other));
    fixture_close(&g);
    fixture_close(&f);
}

/* What the provider is still told at its address after the stream was given up, the model asserts. */
Test(streams, given_up_early_still_do_their_work)
{
    struct fixture f = fixture_open(NULL);
    struct moor_abi_stream *queue;
    struct moor_stream *other = fixture_stream(&f, &queue);
    moor_buffer source = fixture_allocate(&f, 4096);
    moor_buffer target = fixture_allocate(&f, 4096);
    struct moor_view source_view = fixture_buffer_view(&f, source);
    struct moor_view target_view = fixture_buffer_view(&f, target);
    memset(fixture_bytes(&source_view), 0x19, 4096);
    scripted_hold(f.script, queue);
    EXPECT(MOOR_OK, moor_copy(other, &target_view, &source_view));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, source));
    uint64_t waits = scripted_count(f.script, SCRIPTED_WAIT);
    EXPECT(MOOR_OK, moor_stream_destroy(other));
    cr_assert_eq(scripted_count(f.script, SCRIPTED_WAIT), waits, "without waiting");
    EXPECT(MOOR_PENDING, moor_runtime_reap(f.runtime, MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(&f).pending_bytes, 4096);
    scripted_open(f.script, queue);
    fixture_reap(&f);
    cr_assert_eq(scripted_objects(f.script).allocations, 1, "frees behind it still complete");
    cr_assert(fixture_all_bytes(&target_view, 0x19));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, target));
    fixture_reap(&f);
    fixture_close(&f);
}

/* O10: a new stream at an old one's address is not the old one. */
Test(streams, at_a_reused_address_are_new)
{
    struct fixture f = fixture_open(NULL);
    for (uint32_t i = 0; i < 20; i++) {
        struct moor_abi_stream *old_queue;
        struct moor_abi_stream *new_queue;
        struct moor_stream *old = fixture_stream(&f, &old_queue);
        moor_buffer buffer = fixture_allocate(&f, 4096);
        moor_buffer second = fixture_allocate(&f, 4096);
        struct moor_view view = fixture_buffer_view(&f, buffer);
        struct moor_view second_view = fixture_buffer_view(&f, second);
        for (uint32_t k = 0; k < 5; k++)
            EXPECT(MOOR_OK, moor_fill(old, &view, k, 1));
        EXPECT(MOOR_OK, moor_fill(old, &second_view, 1, 1));
        EXPECT(MOOR_OK, moor_stream_destroy(old));
        fixture_reap(&f);
        struct moor_stream *new_stream = fixture_stream(&f, &new_queue);
        scripted_hold(f.script, new_queue);
        EXPECT(MOOR_OK, moor_fill(new_stream, &view, 9, 1));
        EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
        EXPECT(MOOR_OK, moor_buffer_release(f.runtime, second)); /* its use, on the old one, is past */
        EXPECT(MOOR_PENDING, moor_runtime_reap(f.runtime, MOOR_NO_WAIT));
        cr_assert_eq(scripted_objects(f.script).allocations, 1);
        scripted_open(f.script, new_queue);
        fixture_reap(&f);
        EXPECT(MOOR_OK, moor_stream_destroy(new_stream));
    }
    fixture_close(&f);
}

Test(streams, many_with_pending_frees_can_end_at_once)
{
    enum { STREAMS = 64, FREES = 4 };
    struct fixture f = fixture_open(NULL);
    struct moor_abi_stream *queues[STREAMS];
    for (uint32_t i = 0; i < STREAMS; i++) {
        struct moor_stream *stream = fixture_stream(&f, &queues[i]);
        scripted_hold(f.script, queues[i]);
        for (uint32_t k = 0; k < FREES; k++) {
            moor_buffer buffer = fixture_allocate(&f, 4096);
            struct moor_view view = fixture_buffer_view(&f, buffer);
            EXPECT(MOOR_OK, moor_fill(stream, &view, k, 1));
            EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
        }
        EXPECT(MOOR_OK, moor_stream_destroy(stream));
    }
    moor_buffer buffer = fixture_allocate(&f, 4096);
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    for (uint32_t i = 0; i < STREAMS; i++)
        scripted_open(f.script, queues[i]);
    fixture_reap(&f);
    cr_assert_eq(fixture_stats(&f).charged_bytes, 0);
    fixture_close(&f);
}

struct shared_run {
    _Atomic uint32_t runs;
    const struct moor_view *view;
    uint8_t seen;
};

static void note(void *user)
{
    struct shared_run *run = user;
    run->seen = *fixture_bytes(run->view);
    (void)atomic_fetch_add(&run->runs, 1);
}

Test(streams, host_functions_run_once_in_order_and_keep_their_views)
{
    struct fixture f = fixture_open(NULL);
    moor_buffer buffer = fixture_allocate(&f, 4096);
    struct moor_view view = fixture_buffer_view(&f, buffer);
    struct shared_run run = {.view = &view};
    scripted_hold(f.script, f.queue);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 0x44, 1));
    EXPECT(MOOR_OK, moor_stream_host_function(f.stream, note, &run, &view, 1));
    EXPECT(MOOR_OK, moor_stream_host_function(f.stream, note, &run, NULL, 0));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    EXPECT(MOOR_PENDING, moor_runtime_reap(f.runtime, MOOR_NO_WAIT));
    cr_assert_eq(atomic_load(&run.runs), 0);
    uint64_t value = scripted_recorded(f.script, f.queue);
    scripted_step(f.script, f.queue, value - 1);
    (void)moor_runtime_reap(f.runtime, MOOR_NO_WAIT);
    scripted_step(f.script, f.queue, value);
    cr_assert_eq(run.seen, 0x44, "after the fill, on memory that is still there");
    scripted_open(f.script, f.queue);
    fixture_reap(&f);
    cr_assert_eq(atomic_load(&run.runs), 2);
    EXPECT(MOOR_INVALID, moor_stream_host_function(f.stream, NULL, &run, NULL, 0));
    EXPECT(MOOR_INVALID, moor_stream_host_function(f.stream, note, &run, NULL, 1));
    fixture_close(&f);
}

Test(streams, native_ones_are_imported)
{
    struct fixture f = fixture_open(NULL);
    struct moor_stream *stream = NULL;
    struct moor_stream_options options = {.native = 0x1234};
    EXPECT(MOOR_OK, moor_stream_create(f.device, &options, &stream));
    struct scripted_call call;
    cr_assert(scripted_last_call(f.script, SCRIPTED_STREAM_CREATE, &call));
    cr_assert_eq(call.arguments[0], MOOR_ABI_STREAM_IMPORT);
    cr_assert_eq(call.arguments[1], 0x1234);
    EXPECT(MOOR_OK, moor_stream_destroy(stream));
    uint64_t touches =
        scripted_count(f.script, SCRIPTED_RECORD) + scripted_count(f.script, SCRIPTED_WAIT_STREAM);
    fixture_reap(&f);
    cr_assert_eq(touches,
                 scripted_count(f.script, SCRIPTED_RECORD) + scripted_count(f.script, SCRIPTED_WAIT_STREAM),
                 "it is not touched once it was given up");
    fixture_close(&f);
}

Test(streams, failures_are_forwarded)
{
    struct fixture f = fixture_open(NULL);
    struct moor_stream *stream = NULL;
    struct moor_fence fence;
    scripted_fail(f.script,
                  (struct scripted_fault){.name = SCRIPTED_STREAM_CREATE, .nth = 1, .status = MOOR_LIMIT});
    EXPECT(MOOR_LIMIT, moor_stream_create(f.device, NULL, &stream));
    cr_assert_null(stream);
    scripted_fail(f.script,
                  (struct scripted_fault){.name = SCRIPTED_RECORD, .nth = 1, .status = MOOR_DEVICE_LOST});
    EXPECT(MOOR_DEVICE_LOST, moor_stream_record(f.stream, &fence));
    EXPECT(MOOR_INVALID, moor_stream_record(NULL, &fence));
    EXPECT(MOOR_INVALID, moor_stream_record(f.stream, NULL));
    EXPECT(MOOR_INVALID, moor_fence_wait(NULL, 0));
    EXPECT(MOOR_OK, moor_stream_destroy(NULL));
    fixture_close(&f);
}

/* A mark that could not be made is told, and more marks than an object keeps are refused, not forgotten. */
Test(streams, more_users_than_are_kept_are_refused)
{
    enum { STREAMS = 129 };
    struct fixture f = fixture_open(NULL);
    struct moor_abi_stream *queues[STREAMS];
    struct moor_stream *streams[STREAMS];
    moor_buffer buffer = fixture_allocate(&f, 4096);
    struct moor_view view = fixture_buffer_view(&f, buffer);
    for (uint32_t i = 0; i < STREAMS; i++) {
        streams[i] = fixture_stream(&f, &queues[i]);
        scripted_hold(f.script, queues[i]);
        EXPECT(i < STREAMS - 1 ? MOOR_OK : MOOR_LIMIT, moor_stream_used(streams[i], &view));
    }
    scripted_open(f.script, queues[10]);
    EXPECT(MOOR_OK, moor_stream_used(streams[STREAMS - 1], &view)); /* a use that is past makes room */
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    for (uint32_t i = 0; i < STREAMS; i++) {
        EXPECT(MOOR_PENDING, moor_runtime_reap(f.runtime, MOOR_NO_WAIT));
        scripted_open(f.script, queues[i]);
    }
    fixture_reap(&f);
    for (uint32_t i = 0; i < STREAMS; i++)
        EXPECT(MOOR_OK, moor_stream_destroy(streams[i]));
    fixture_close(&f);
}
