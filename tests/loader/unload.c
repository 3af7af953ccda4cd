/* SPDX-License-Identifier: MIT */
/*
 * No object outlives its provider. While an object of any kind is alive, or a call is inside the provider, an
 * unload answers BUSY with counts and changes nothing. Afterwards it succeeds, and old handles are stale.
 */
#include "fixture.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

TestSuite(unload, .timeout = 30);

/* The unload answers BUSY, its text contains the counts, and nothing changes. */
static void expect_busy(struct fixture *f, const char *part)
{
    struct fixture_state before = fixture_state(f);
    for (int i = 0; i < 2; i++) {
        EXPECT(MOOR_BUSY, moor_provider_unload(f->provider));
        cr_assert(strstr(moor_last_error()->text, part) != NULL, "'%s' does not contain '%s'",
                  moor_last_error()->text, part);
    }
    struct fixture_state after = fixture_state(f);
    fixture_same_state(&before, &after);
    cr_assert_eq(scripted_count(f->script, SCRIPTED_SHUTDOWN), 0);
}

/* Closes the stream and the binding. Only the holder stays alive, and a holder does not keep a provider. */
static void close_objects(struct fixture *f)
{
    EXPECT(MOOR_OK, moor_stream_destroy(f->stream));
    EXPECT(MOOR_OK, moor_binding_close(f->binding));
}

static void end(struct fixture *f)
{
    EXPECT(MOOR_OK, moor_provider_unload(f->provider));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_SHUTDOWN), 1);
    EXPECT(MOOR_OK, moor_holder_destroy(f->holder));
    EXPECT(MOOR_OK, moor_runtime_destroy(f->runtime));
    scripted_destroy(f->script);
}

Test(unload, with_a_lease)
{
    struct fixture f = fixture_open(NULL);
    moor_buffer buffer = fixture_allocate(&f, 4096);
    expect_busy(&f, "1 buffers, 0 ranges, 0 segments, 1 streams, 1 bindings, 0 releases pending");
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    fixture_reap(&f);
    close_objects(&f);
    end(&f);
}

Test(unload, with_a_mapping)
{
    struct fixture f = fixture_open(NULL);
    moor_segment segment = fixture_segment(&f, 1, 7);
    moor_range range = fixture_range(&f, 1);
    EXPECT(MOOR_OK, moor_segment_map(f.runtime, segment, range, 0, MOOR_ACCESS_READ));
    expect_busy(&f, "0 buffers, 1 ranges, 1 segments, 1 streams, 1 bindings, 0 releases pending");
    EXPECT(MOOR_OK, moor_range_release(f.runtime, range));
    EXPECT(MOOR_OK, moor_segment_release(f.runtime, segment));
    fixture_reap(&f);
    close_objects(&f);
    end(&f);
}

Test(unload, with_a_pending_release)
{
    struct fixture f = fixture_open(NULL);
    moor_buffer buffer = fixture_allocate(&f, 4096);
    struct moor_view view = fixture_buffer_view(&f, buffer);
    scripted_hold(f.script, f.queue);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    expect_busy(&f, "1 releases pending");
    scripted_open(f.script, f.queue);
    fixture_reap(&f);
    close_objects(&f);
    end(&f);
}

Test(unload, with_pinned_memory)
{
    struct fixture f = fixture_open(NULL);
    moor_buffer buffer = 0;
    void *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(own != MAP_FAILED);
    EXPECT(MOOR_OK, moor_buffer_wrap(f.binding, own, 4096, MOOR_BUFFER_PIN, &buffer));
    cr_assert_eq(scripted_objects(f.script).pins, 1);
    expect_busy(&f, "1 buffers");
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    fixture_reap(&f);
    close_objects(&f);
    end(&f);
    (void)munmap(own, 4096);
}

/* A holder belongs to the authority and the runtime. The provider may go, the runtime may not. */
Test(unload, with_a_holder_alone)
{
    struct fixture f = fixture_open(NULL);
    close_objects(&f);
    EXPECT(MOOR_OK, moor_provider_unload(f.provider));
    EXPECT(MOOR_BUSY, moor_runtime_destroy(f.runtime));
    cr_assert(strstr(moor_last_error()->text, "1 holders") != NULL, "%s", moor_last_error()->text);
    EXPECT(MOOR_OK, moor_holder_destroy(f.holder));
    EXPECT(MOOR_OK, moor_runtime_destroy(f.runtime));
    scripted_destroy(f.script);
}

/* ---- a call on another thread ---- */

struct call_in_flight {
    struct fixture *fixture;
    enum scripted_name call;
    _Atomic int stage; /* 1: the call is inside the provider; 2: it may return */
    moor_buffer buffer;
};

static void wait_inside(void *user, const struct scripted_call *call)
{
    struct call_in_flight *flight = user;
    if (call->name != flight->call)
        return;
    atomic_store(&flight->stage, 1);
    fixture_await(&flight->stage, 2);
}

static void *allocate(void *user)
{
    struct call_in_flight *flight = user;
    flight->buffer = fixture_allocate(flight->fixture, 4096);
    return NULL;
}

Test(unload, with_a_call_in_flight)
{
    struct fixture f = fixture_open(NULL);
    struct call_in_flight flight = {.fixture = &f, .call = SCRIPTED_ALLOCATE};
    pthread_t thread;
    scripted_set_hook(f.script, wait_inside, &flight);
    cr_assert_eq(pthread_create(&thread, NULL, allocate, &flight), 0);
    fixture_await(&flight.stage, 1);
    for (int i = 0; i < 2; i++) {
        EXPECT(MOOR_BUSY, moor_provider_unload(f.provider));
        cr_assert(strstr(moor_last_error()->text, "1 bindings") != NULL, "%s", moor_last_error()->text);
    }
    cr_assert_eq(scripted_count(f.script, SCRIPTED_SHUTDOWN), 0);
    atomic_store(&flight.stage, 2);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, flight.buffer));
    fixture_reap(&f);
    close_objects(&f);
    end(&f);
}

/* ---- an unload or destroy on another thread ---- */

static void *unload(void *user)
{
    EXPECT(MOOR_OK, moor_provider_unload(user));
    return NULL;
}

static void *destroy(void *user)
{
    EXPECT(MOOR_OK, moor_runtime_destroy(user));
    return NULL;
}

/* While one thread ends the provider, an unload and a destroy on this thread answer BUSY. */
static void expect_one_end(bool is_whole_runtime)
{
    struct fixture f = fixture_open(NULL);
    struct call_in_flight flight = {.call = SCRIPTED_REAP};
    pthread_t thread;
    close_objects(&f);
    EXPECT(MOOR_OK, moor_holder_destroy(f.holder));
    scripted_set_hook(f.script, wait_inside, &flight);
    cr_assert_eq(is_whole_runtime ? pthread_create(&thread, NULL, destroy, f.runtime)
                                  : pthread_create(&thread, NULL, unload, f.provider),
                 0);
    fixture_await(&flight.stage, 1);
    EXPECT(MOOR_BUSY, moor_provider_unload(f.provider));
    cr_assert(strstr(moor_last_error()->text, "is being unloaded") != NULL, "%s", moor_last_error()->text);
    EXPECT(MOOR_BUSY, moor_runtime_destroy(f.runtime));
    cr_assert(strstr(moor_last_error()->text, "is being loaded or unloaded") != NULL, "%s",
              moor_last_error()->text);
    atomic_store(&flight.stage, 2);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(scripted_count(f.script, SCRIPTED_SHUTDOWN), 1);
    if (!is_whole_runtime)
        EXPECT(MOOR_OK, moor_runtime_destroy(f.runtime));
    scripted_destroy(f.script);
}

Test(unload, while_it_is_being_unloaded)
{
    expect_one_end(false);
}

Test(unload, while_its_runtime_is_being_destroyed)
{
    expect_one_end(true);
}

/* ---- handles that the host still holds ---- */

Test(unload, leaves_stale_handles)
{
    struct fixture f = fixture_open(NULL);
    struct moor_view view;
    moor_buffer buffer = fixture_allocate(&f, 4096);
    moor_range range = fixture_range(&f, 1);
    moor_segment segment = fixture_segment(&f, 1, 3);
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    EXPECT(MOOR_OK, moor_range_release(f.runtime, range));
    EXPECT(MOOR_OK, moor_segment_release(f.runtime, segment));
    fixture_reap(&f);
    close_objects(&f);
    EXPECT(MOOR_OK, moor_provider_unload(f.provider));
    EXPECT(MOOR_STALE, moor_buffer_get_view(f.runtime, buffer, &view));
    EXPECT(MOOR_STALE, moor_buffer_release(f.runtime, buffer));
    EXPECT(MOOR_STALE, moor_range_get_view(f.runtime, range, &view));
    EXPECT(MOOR_STALE, moor_range_release(f.runtime, range));
    EXPECT(MOOR_STALE, moor_segment_release(f.runtime, segment));
    EXPECT(MOOR_OK, moor_holder_destroy(f.holder));
    EXPECT(MOOR_OK, moor_runtime_destroy(f.runtime));
    scripted_destroy(f.script);
}
