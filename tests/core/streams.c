/* SPDX-License-Identifier: MIT */
/* Streams and fences: record, wait, wait across streams, host functions, and streams that end before their
 * work. */
#include "fixture.h"
#include "util/limits.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

TestSuite(streams, .timeout = 30);

FIXTURE_TEST(streams, fences_are_reached_in_order)
{
    struct moor_fence first, second;
    struct moor_view view = fixture_allocate_view(f, 4096);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_stream_record(f->stream, &first));
    uint64_t value = scripted_recorded(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 2, 1));
    EXPECT(MOOR_OK, moor_stream_record(f->stream, &second));
    cr_assert_eq(first.stream, f->stream);
    cr_assert_lt(first.value, second.value);
    EXPECT(MOOR_PENDING, moor_fence_wait(&first, MOOR_NO_WAIT));
    EXPECT(MOOR_TIMEOUT, moor_fence_wait(&first, fixture_soon(20)));
    scripted_step(f->script, f->queue, value);
    EXPECT(MOOR_OK, moor_fence_wait(&first, MOOR_NO_WAIT));
    EXPECT(MOOR_PENDING, moor_fence_wait(&second, MOOR_NO_WAIT));
    cr_assert(fixture_all_bytes(&view, 1));
    scripted_open(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fence_wait(&second, MOOR_FOREVER));
    cr_assert(fixture_all_bytes(&view, 2));
}

FIXTURE_TEST(streams, fences_that_were_never_recorded_are_refused)
{
    struct moor_stream *other = fixture_stream(f, NULL);
    struct moor_fence fence;
    EXPECT(MOOR_OK, moor_stream_record(f->stream, &fence));
    fence.value++;
    uint64_t calls = scripted_count(f->script, SCRIPTED_ANY);
    EXPECT(MOOR_INVALID, moor_fence_wait(&fence, MOOR_NO_WAIT));
    EXPECT(MOOR_INVALID, moor_fence_wait(&fence, fixture_soon(1000)));
    EXPECT(MOOR_INVALID, moor_stream_wait(other, &fence));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_ANY), calls, "no such fence reaches a provider");
}

FIXTURE_TEST(streams, wait_for_each_other_without_the_host)
{
    struct moor_abi_stream *queue;
    struct moor_stream *other = fixture_stream(f, &queue);
    struct moor_fence fence;
    struct moor_view view = fixture_allocate_view(f, 4096);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_stream_record(f->stream, &fence));
    uint64_t waits = scripted_count(f->script, SCRIPTED_WAIT);
    EXPECT(MOOR_OK, moor_stream_wait(other, &fence));
    EXPECT(MOOR_OK, moor_fill(other, &view, 2, 1));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_WAIT), waits);
    scripted_open(f->script, f->queue);
    EXPECT(MOOR_OK, moor_memory_wait(&view, fixture_soon(5000)));
    cr_assert(fixture_all_bytes(&view, 2), "the later fill is the other stream's");
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

/* The model asserts the provider's calls on a stream's address after its destruction. */
FIXTURE_TEST(streams, given_up_early_still_do_their_work)
{
    struct moor_abi_stream *queue;
    struct moor_stream *other = fixture_stream(f, &queue);
    struct moor_view source = fixture_allocate_view(f, 4096);
    struct moor_view target = fixture_allocate_view(f, 4096);
    memset(fixture_bytes(&source), 0x19, 4096);
    scripted_hold(f->script, queue);
    EXPECT(MOOR_OK, moor_copy(other, &target, &source));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, source.owner));
    uint64_t waits = scripted_count(f->script, SCRIPTED_WAIT);
    EXPECT(MOOR_OK, moor_stream_destroy(fixture_disown(other)));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_WAIT), waits, "without waiting");
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(f).pending_bytes, 4096);
    scripted_open(f->script, queue);
    fixture_reap(f);
    cr_assert_eq(scripted_objects(f->script).allocations, 1, "releases behind the stream still complete");
    cr_assert(fixture_all_bytes(&target, 0x19));
}

/* O10: a new stream at an old stream's address is a different stream. */
FIXTURE_TEST(streams, at_a_reused_address_are_new)
{
    for (uint32_t i = 0; i < 20; i++) {
        struct moor_abi_stream *new_queue;
        struct moor_stream *old = fixture_stream(f, NULL);
        struct moor_view view = fixture_allocate_view(f, 4096);
        struct moor_view second = fixture_allocate_view(f, 4096);
        for (uint32_t k = 0; k < 5; k++)
            EXPECT(MOOR_OK, moor_fill(old, &view, k, 1));
        EXPECT(MOOR_OK, moor_fill(old, &second, 1, 1));
        EXPECT(MOOR_OK, moor_stream_destroy(fixture_disown(old)));
        fixture_reap(f);
        struct moor_stream *new_stream = fixture_stream(f, &new_queue);
        scripted_hold(f->script, new_queue);
        EXPECT(MOOR_OK, moor_fill(new_stream, &view, 9, 1));
        EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
        EXPECT(MOOR_OK, moor_buffer_release(f->runtime, second.owner)); /* the old stream's use is complete */
        EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
        cr_assert_eq(scripted_objects(f->script).allocations, 1);
        scripted_open(f->script, new_queue);
        fixture_reap(f);
        EXPECT(MOOR_OK, moor_stream_destroy(fixture_disown(new_stream)));
    }
}

FIXTURE_TEST(streams, many_with_pending_frees_can_end_at_once)
{
    enum { STREAMS = 64, FREES = 4 };
    struct moor_abi_stream *queues[STREAMS];
    for (uint32_t i = 0; i < STREAMS; i++) {
        struct moor_stream *stream = fixture_stream(f, &queues[i]);
        scripted_hold(f->script, queues[i]);
        for (uint32_t k = 0; k < FREES; k++) {
            struct moor_view view = fixture_allocate_view(f, 4096);
            EXPECT(MOOR_OK, moor_fill(stream, &view, k, 1));
            EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
        }
        EXPECT(MOOR_OK, moor_stream_destroy(fixture_disown(stream)));
    }
    moor_buffer buffer = fixture_allocate(f, 4096);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    for (uint32_t i = 0; i < STREAMS; i++)
        scripted_open(f->script, queues[i]);
    fixture_reap(f);
    cr_assert_eq(fixture_stats(f).charged_bytes, 0);
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

FIXTURE_TEST(streams, host_functions_run_once_in_order_and_keep_their_views)
{
    struct moor_view view = fixture_allocate_view(f, 4096);
    struct shared_run run = {.view = &view};
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0x44, 1));
    EXPECT(MOOR_OK, moor_stream_host_function(f->stream, note, &run, &view, 1));
    EXPECT(MOOR_OK, moor_stream_host_function(f->stream, note, &run, NULL, 0));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    cr_assert_eq(atomic_load(&run.runs), 0);
    uint64_t value = scripted_recorded(f->script, f->queue);
    scripted_step(f->script, f->queue, value - 1);
    (void)moor_runtime_reap(f->runtime, MOOR_NO_WAIT);
    scripted_step(f->script, f->queue, value);
    cr_assert_eq(run.seen, 0x44, "the function runs after the fill, on live memory");
    fixture_open_and_reap(f);
    cr_assert_eq(atomic_load(&run.runs), 2);
    EXPECT(MOOR_INVALID, moor_stream_host_function(f->stream, NULL, &run, NULL, 0));
    EXPECT(MOOR_INVALID, moor_stream_host_function(f->stream, note, &run, NULL, 1));
}

/* No other work uses the views: the function alone keeps them. */
FIXTURE_TEST(streams, host_functions_alone_keep_their_views)
{
    struct moor_view view = fixture_allocate_view(f, 4096);
    struct shared_run run = {.view = &view};
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_stream_host_function(f->stream, note, &run, &view, 1));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    cr_assert_eq(scripted_objects(f->script).allocations, 1);
    fixture_open_and_reap(f);
    cr_assert_eq(atomic_load(&run.runs), 1);
}

FIXTURE_TEST(streams, native_ones_are_imported)
{
    struct moor_stream *stream = NULL;
    struct moor_stream_options options = {.native = 0x1234};
    EXPECT(MOOR_OK, moor_stream_create(f->device, &options, &stream));
    struct scripted_call call;
    cr_assert(scripted_last_call(f->script, SCRIPTED_STREAM_CREATE, &call));
    cr_assert_eq(call.arguments[0], MOOR_ABI_STREAM_IMPORT);
    cr_assert_eq(call.arguments[1], 0x1234);
    EXPECT(MOOR_OK, moor_stream_destroy(stream));
    uint64_t touches =
        scripted_count(f->script, SCRIPTED_RECORD) + scripted_count(f->script, SCRIPTED_WAIT_STREAM);
    fixture_reap(f);
    cr_assert_eq(touches,
                 scripted_count(f->script, SCRIPTED_RECORD) + scripted_count(f->script, SCRIPTED_WAIT_STREAM),
                 "no provider call after the destroy");
}

FIXTURE_TEST(streams, failures_are_forwarded)
{
    struct moor_stream *stream = NULL;
    struct moor_fence fence;
    fixture_fail(f, SCRIPTED_STREAM_CREATE, 1, MOOR_LIMIT);
    EXPECT(MOOR_LIMIT, moor_stream_create(f->device, NULL, &stream));
    cr_assert_null(stream);
    fixture_fail(f, SCRIPTED_RECORD, 1, MOOR_DEVICE_LOST);
    EXPECT(MOOR_DEVICE_LOST, moor_stream_record(f->stream, &fence));
}

FIXTURE_TEST(streams, are_limited_in_number)
{
    struct moor_stream *streams[MOOR_LIMIT_STREAMS];
    struct moor_stream *more = NULL;
    streams[0] = f->stream;
    for (uint32_t i = 1; i < MOOR_LIMIT_STREAMS; i++)
        EXPECT(MOOR_OK, moor_stream_create(f->device, NULL, &streams[i]));
    EXPECT(MOOR_LIMIT, moor_stream_create(f->device, NULL, &more));
    cr_assert_null(more);
    EXPECT(MOOR_OK, moor_stream_destroy(streams[1]));
    EXPECT(MOOR_OK, moor_stream_create(f->device, NULL, &streams[1]));
    for (uint32_t i = 1; i < MOOR_LIMIT_STREAMS; i++)
        EXPECT(MOOR_OK, moor_stream_destroy(streams[i]));
}

/* No caller is left to get the error. */
Test(streams, that_cannot_be_destroyed_are_forgotten)
{
    struct fixture f = fixture_open(NULL);
    struct moor_stream *other = fixture_stream(&f, NULL);
    fixture_fail(&f, SCRIPTED_STREAM_DESTROY, 1, MOOR_PROVIDER);
    EXPECT(MOOR_OK, moor_stream_destroy(other));
    fixture_reap(&f);
    cr_assert_eq(fixture_counts(&f).streams, 1, "the fixture's");
    cr_assert_eq(scripted_objects(f.script).streams, 2);
    scripted_abandon(f.script);
}

/* A use that cannot be recorded is reported, and uses beyond the limit are refused, not forgotten. */
FIXTURE_TEST(streams, more_users_than_are_kept_are_refused)
{
    enum { STREAMS = 129 };
    struct moor_abi_stream *queues[STREAMS];
    struct moor_stream *streams[STREAMS];
    struct moor_view view = fixture_allocate_view(f, 4096);
    for (uint32_t i = 0; i < STREAMS; i++) {
        streams[i] = fixture_stream(f, &queues[i]);
        scripted_hold(f->script, queues[i]);
        EXPECT(i < STREAMS - 1 ? MOOR_OK : MOOR_LIMIT, moor_stream_used(streams[i], &view));
    }
    scripted_open(f->script, queues[10]);
    EXPECT(MOOR_OK, moor_stream_used(streams[STREAMS - 1], &view)); /* a completed use makes room */
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    for (uint32_t i = 0; i < STREAMS; i++) {
        EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
        scripted_open(f->script, queues[i]);
    }
}

/* ---- other threads in the middle of a call ---- */

/* Stops one thread inside a provider call, once, until the test lets it continue. */
struct stop {
    struct fixture *fixture;
    enum scripted_name name;
    pthread_t thread;
    _Atomic int stage; /* 1: the thread has stopped; 2: it may go on */
    moor_buffer buffer;
};

static _Thread_local bool is_stopped_here;

static void stop_here(void *user, const struct scripted_call *call)
{
    struct stop *stop = user;
    if (!is_stopped_here || call->name != stop->name || atomic_load(&stop->stage) != 0)
        return;
    atomic_store(&stop->stage, 1);
    fixture_await(&stop->stage, 2);
}

static void go_on(struct stop *stop)
{
    atomic_store(&stop->stage, 2);
    (void)pthread_join(stop->thread, NULL);
    scripted_set_hook(stop->fixture->script, NULL, NULL);
    scripted_set_after_hook(stop->fixture->script, NULL, NULL);
}

static void *record_elsewhere(void *user)
{
    struct stop *stop = user;
    struct moor_fence fence;
    is_stopped_here = true;
    EXPECT(MOOR_OK, moor_stream_record(stop->fixture->stream, &fence));
    return NULL;
}

/* The provider has given the other thread's record its value, and the core does not know the value yet: the
 * value does not cover work submitted now. */
FIXTURE_TEST(streams, marks_lie_beyond_records_that_have_not_returned)
{
    struct stop stop = {.fixture = f, .name = SCRIPTED_RECORD};
    struct moor_view view = fixture_allocate_view(f, 4096);
    scripted_hold(f->script, f->queue);
    scripted_set_after_hook(f->script, stop_here, &stop);
    cr_assert_eq(pthread_create(&stop.thread, NULL, record_elsewhere, &stop), 0);
    fixture_await(&stop.stage, 1);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 7, 1));
    go_on(&stop);
    scripted_step(f->script, f->queue, 1); /* the record is reached, but the fill has not run */
    EXPECT(MOOR_PENDING, moor_memory_wait(&view, MOOR_NO_WAIT));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    cr_assert_eq(scripted_objects(f->script).allocations, 1, "not before the fill is done");
}

static void *release_elsewhere(void *user)
{
    struct stop *stop = user;
    is_stopped_here = true;
    EXPECT(MOOR_OK, moor_buffer_release(stop->fixture->runtime, stop->buffer));
    return NULL;
}

static void *wait_elsewhere(void *user)
{
    struct stop *stop = user;
    struct moor_view view = fixture_buffer_view(stop->fixture, stop->buffer);
    is_stopped_here = true;
    EXPECT(MOOR_OK, moor_memory_wait(&view, MOOR_FOREVER));
    return NULL;
}

struct destroyer {
    struct moor_stream *stream;
    pthread_t thread;
    _Atomic int returned;
};

static void *destroy_elsewhere(void *user)
{
    struct destroyer *destroyer = user;
    EXPECT(MOOR_OK, moor_stream_destroy(fixture_disown(destroyer->stream)));
    atomic_store(&destroyer->returned, 1);
    return NULL;
}

/* A host may destroy a stream while another thread waits for memory that the stream used. The model asserts
 * that no provider call uses the stream when it goes. Destroying waits only for a thread that records at that
 * moment: a native stream is not touched after destroy has returned. */
Test(streams, given_up_stay_while_a_release_or_wait_names_them)
{
    static const struct {
        void *(*act)(void *user);
        enum scripted_name name;
    } cases[] = {{release_elsewhere, SCRIPTED_RECORD},
                 {release_elsewhere, SCRIPTED_RELEASE},
                 {wait_elsewhere, SCRIPTED_RECORD},
                 {wait_elsewhere, SCRIPTED_WAIT}};
    const struct timespec pause = {.tv_nsec = 30 * 1000000};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f = fixture_open(NULL);
        struct stop stop = {.fixture = &f, .name = cases[i].name, .buffer = fixture_allocate(&f, 4096)};
        struct destroyer destroyer = {.stream = fixture_stream(&f, NULL)};
        struct moor_view view = fixture_buffer_view(&f, stop.buffer);
        EXPECT(MOOR_OK, moor_fill(destroyer.stream, &view, 7, 1));
        scripted_set_hook(f.script, stop_here, &stop);
        cr_assert_eq(pthread_create(&stop.thread, NULL, cases[i].act, &stop), 0);
        fixture_await(&stop.stage, 1);
        cr_assert_eq(pthread_create(&destroyer.thread, NULL, destroy_elsewhere, &destroyer), 0);
        if (stop.name != SCRIPTED_RECORD)
            fixture_await(&destroyer.returned, 1);
        (void)nanosleep(&pause, NULL);
        cr_assert_eq(atomic_load(&destroyer.returned), stop.name != SCRIPTED_RECORD, "case %zu", i);
        (void)moor_runtime_reap(f.runtime, MOOR_NO_WAIT); /* PENDING: the stream cannot go yet */
        cr_assert_eq(scripted_objects(f.script).streams, 2, "case %zu: a call still names the stream", i);
        go_on(&stop);
        (void)pthread_join(destroyer.thread, NULL);
        if (cases[i].act == wait_elsewhere)
            EXPECT(MOOR_OK, moor_buffer_release(f.runtime, stop.buffer));
        fixture_reap(&f);
        cr_assert_eq(scripted_objects(f.script).streams, 1, "case %zu: the stream is destroyed afterwards",
                     i);
        fixture_close(&f);
    }
}

/* ---- reap ---- */

FIXTURE_TEST(streams, given_up_are_waited_for_by_reap)
{
    struct moor_abi_stream *queue;
    struct moor_stream *other = fixture_stream(f, &queue);
    struct moor_view view = fixture_allocate_view(f, 4096);
    scripted_hold(f->script, queue);
    EXPECT(MOOR_OK, moor_fill(other, &view, 7, 1));
    EXPECT(MOOR_OK, moor_stream_destroy(fixture_disown(other)));
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT)); /* although no release is pending */
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, fixture_soon(20)));
    fixture_open_later(f, queue);
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, fixture_soon(5000)));
    cr_assert_eq(scripted_objects(f->script).streams, 1);
    cr_assert_eq(fixture_counts(f).streams, 1);
}

/* ---- host functions and the memory of their views ---- */

struct intruder {
    struct fixture *fixture;
    enum scripted_name name;
    struct moor_view view;
    struct shared_run *run;
    uint32_t tries;
};

static void submit_from_inside(void *user, const struct scripted_call *call)
{
    struct intruder *intruder = user;
    if (call->name != intruder->name)
        return;
    intruder->name = SCRIPTED_ANY; /* once */
    intruder->tries++;
    EXPECT(MOOR_BUSY,
           moor_stream_host_function(intruder->fixture->stream, note, intruder->run, &intruder->view, 1));
}

FIXTURE_TEST(streams, host_functions_need_views_that_are_backed)
{
    moor_range range = fixture_range(f, 4);
    struct moor_view view = fixture_range_view(f, range, 0, GRANULE);
    struct moor_view mapped = fixture_range_view(f, range, 2 * GRANULE, GRANULE);
    struct shared_run run = {.view = &view};
    struct intruder intruder = {.fixture = f, .name = SCRIPTED_COMMIT, .view = view, .run = &run};
    EXPECT(MOOR_INVALID, moor_stream_host_function(f->stream, note, &run, &view, 1));
    scripted_set_hook(f->script, submit_from_inside, &intruder);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, GRANULE, 0));
    moor_segment segment = fixture_open_segment(f, 1);
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 2 * GRANULE, MOOR_ACCESS_READ_WRITE));
    intruder.view = mapped;
    intruder.name = SCRIPTED_PROTECT;
    EXPECT(MOOR_OK, moor_segment_seal(f->runtime, segment, MOOR_FOREVER));
    intruder.name = SCRIPTED_RELEASE; /* between the last wait and the unmap */
    EXPECT(MOOR_OK,
           moor_range_make_writable(f->runtime, range, 2 * GRANULE, f->stream, 0, MOOR_FOREVER, NULL));
    scripted_set_hook(f->script, NULL, NULL);
    cr_assert_eq(intruder.tries, 3);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0x21, 1));
    EXPECT(MOOR_OK, moor_stream_host_function(f->stream, note, &run, &mapped, 1));
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, 0, GRANULE));
    EXPECT(MOOR_PENDING, moor_stream_host_function(f->stream, note, &run, &view, 1));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_HOST_FUNCTION), 1, "a refused function is not submitted");
    run.view = &mapped; /* the first view's memory goes before the function runs */
    scripted_open(f->script, f->queue);
    cr_assert_eq(atomic_load(&run.runs), 1);
}

/* ---- many uses ---- */

FIXTURE_TEST(streams, may_each_use_many_parts_of_one_range)
{
    enum { STREAMS = 64, PARTS = 8 };
    struct moor_abi_stream *queues[STREAMS];
    struct moor_stream *streams[STREAMS];
    moor_range range = fixture_range(f, 2 * PARTS);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 2 * PARTS * GRANULE, 0));
    for (uint32_t i = 0; i < STREAMS; i++) {
        streams[i] = fixture_stream(f, &queues[i]);
        scripted_hold(f->script, queues[i]);
        for (uint32_t part = 0; part < PARTS; part++) {
            struct moor_view view = fixture_range_view(f, range, 2 * part * GRANULE, GRANULE);
            EXPECT(MOOR_OK, moor_stream_used(streams[i], &view));
        }
    }
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    for (uint32_t i = 0; i < STREAMS; i++) {
        EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
        cr_assert(fixture_stats(f).charged_bytes >= PARTS * GRANULE, "stream %u of %u is not done", i,
                  STREAMS);
        scripted_open(f->script, queues[i]);
    }
}

/* One part more than the limit: the uses merge into one, which covers all parts and waits for the last
 * use. */
Test(streams, parts_that_grow_into_one_wait_for_the_last)
{
    enum { PARTS = MOOR_LIMIT_USES_PER_STREAM + 1 };
    for (uint32_t backwards = 0; backwards < 2; backwards++) {
        struct fixture f = fixture_open(NULL);
        uint64_t offsets[PARTS];
        moor_range range = fixture_range(&f, 2 * PARTS);
        EXPECT(MOOR_OK, moor_range_commit(f.runtime, range, 0, 2 * PARTS * GRANULE, 0));
        scripted_hold(f.script, f.queue);
        for (uint32_t i = 0; i < PARTS; i++) {
            struct moor_fence fence;
            offsets[i] = 2 * (backwards ? PARTS - 1 - i : i) * GRANULE;
            struct moor_view view = fixture_range_view(&f, range, offsets[i], GRANULE);
            EXPECT(MOOR_OK, moor_stream_used(f.stream, &view));
            EXPECT(MOOR_OK, moor_stream_record(f.stream, &fence));
        }
        scripted_step(f.script, f.queue, 1); /* the first part is done */
        for (uint32_t i = 1; i < PARTS; i++)
            EXPECT(MOOR_OK, moor_range_decommit(f.runtime, range, offsets[i], GRANULE));
        EXPECT(MOOR_PENDING, moor_runtime_reap(f.runtime, MOOR_NO_WAIT));
        cr_assert_eq(fixture_stats(&f).pending_bytes, (PARTS - 1) * GRANULE);
        fixture_open_and_reap(&f);
        EXPECT(MOOR_OK, moor_range_release(f.runtime, range));
        fixture_close(&f);
    }
}

/* More uses of other streams than one stream may have: this stream's two uses do not merge. */
FIXTURE_TEST(streams, parts_stay_apart_beside_the_uses_of_others)
{
    enum { OTHERS = MOOR_LIMIT_USES_PER_STREAM + 1, PARTS = OTHERS + 2 };
    struct moor_fence fence;
    moor_range range = fixture_range(f, 2 * PARTS);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 2 * PARTS * GRANULE, 0));
    for (uint32_t i = 0; i < PARTS; i++) {
        struct moor_view view = fixture_range_view(f, range, 2 * i * GRANULE, GRANULE);
        struct moor_abi_stream *queue = f->queue;
        struct moor_stream *stream = i < OTHERS ? fixture_stream(f, &queue) : f->stream;
        scripted_hold(f->script, queue);
        EXPECT(MOOR_OK, moor_stream_used(stream, &view));
        EXPECT(MOOR_OK, moor_stream_record(stream, &fence));
    }
    scripted_step(f->script, f->queue, 1); /* the first of both parts is done */
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, 2 * OTHERS * GRANULE, GRANULE));
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(f).pending_bytes, 0);
}

FIXTURE_TEST(streams, records_that_do_not_count_up_are_refused)
{
    struct moor_fence fence, again = {0};
    EXPECT(MOOR_OK, moor_stream_record(f->stream, &fence));
    scripted_knobs(f->script)->repeat_records = 1;
    EXPECT(MOOR_PROVIDER, moor_stream_record(f->stream, &again));
    cr_assert_null(again.stream);
    cr_assert(strstr(moor_last_error()->text, "record does not count up"), "%s", moor_last_error()->text);
    EXPECT(MOOR_OK, moor_fence_wait(&fence, MOOR_FOREVER));
}

FIXTURE_TEST(streams, may_use_many_views_of_a_buffer_together_with_another)
{
    enum { VIEWS = 64 };
    struct moor_abi_stream *queue;
    struct moor_stream *other = fixture_stream(f, &queue);
    struct moor_view view = fixture_allocate_view(f, 4096);
    struct moor_view views[VIEWS];
    struct shared_run run = {.view = &view};
    for (uint32_t i = 0; i < VIEWS; i++)
        EXPECT(MOOR_OK, moor_view_slice(&view, 64 * i, 64, &views[i]));
    scripted_hold(f->script, queue);
    EXPECT(MOOR_OK, moor_stream_used(other, &view));
    EXPECT(MOOR_OK, moor_stream_host_function(f->stream, note, &run, views, VIEWS));
    cr_assert_eq(atomic_load(&run.runs), 1);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
}
