/* SPDX-License-Identifier: MIT */
/*
 * Animals that misbehave once they live: at run time, and at their end; and what lives in a sound one when it
 * is to end. Each test is a process of its own. Nothing is lost: what an animal holds stays in the books
 * until it is back.
 *
 * Elsewhere: the same with a provider under the test's own control (core/: providers, quarantine, handles);
 * init that calls back, one file under many names, copies, files that were replaced (identity.c, module.c);
 * unloading during a call (unload.c); the core twice in one process (hosts.py).
 */
#include "expect.h"
#include "place.h"

#include <moorage/moorage.h>
#include <pthread.h>
#include <stdatomic.h>

TestSuite(life, .timeout = 60);

static char log_text[4096];

static void keep_line(void *user, uint32_t level, const char *message)
{
    (void)user;
    (void)level;
    size_t used = strlen(log_text);
    (void)snprintf(log_text + used, sizeof log_text - used, "%s | ", message);
}

static struct moor_runtime *open_runtime(void)
{
    struct moor_runtime *runtime = NULL;
    const struct moor_runtime_options options = {.log = keep_line};
    expect(moor_runtime_create(&options, &runtime), MOOR_OK, "", "runtime");
    return runtime;
}

/* An animal, and on its device a holder, a binding and a stream. */
struct cage {
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    struct moor_device *device;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *stream;
};

static struct cage open_cage(const char *path)
{
    struct cage cage = {.runtime = open_runtime()};
    expect(moor_provider_load(cage.runtime, path, NULL, &cage.provider), MOOR_OK, "", path);
    expect(moor_provider_get_device(cage.provider, 0, &cage.device), MOOR_OK, "", "device");
    expect(moor_device_get_authority(cage.device, 0, &cage.authority), MOOR_OK, "", "authority");
    expect(moor_holder_create(cage.authority, NULL, &cage.holder), MOOR_OK, "", "holder");
    expect(moor_binding_open(cage.device, 0, cage.holder, &cage.binding), MOOR_OK, "", "binding");
    expect(moor_stream_create(cage.device, NULL, &cage.stream), MOOR_OK, "", "stream");
    return cage;
}

static uint64_t soon(void)
{
    return moor_clock_ns() + 5000000000;
}

static struct moor_object_counts counts_of(const struct cage *cage)
{
    struct moor_object_counts counts;
    expect(moor_runtime_get_counts(cage->runtime, &counts), MOOR_OK, "", "counts");
    return counts;
}

static uint64_t charged_bytes(const struct cage *cage)
{
    struct moor_authority_stats stats;
    expect(moor_authority_get_stats(cage->authority, &stats, NULL, 0, NULL), MOOR_OK, "", "stats");
    cr_assert(stats.charged_bytes == stats.live_bytes + stats.pending_bytes + stats.quarantined_bytes);
    cr_assert(stats.reserved_bytes == 0, "%llu bytes reserved", (unsigned long long)stats.reserved_bytes);
    return stats.charged_bytes;
}

/* All has come back: no charge, no object; and all ends. */
static void close_cage(struct cage *cage)
{
    expect(moor_stream_destroy(cage->stream), MOOR_OK, "", "stream");
    expect(moor_runtime_reap(cage->runtime, soon()), MOOR_OK, "", "reap");
    cr_assert(charged_bytes(cage) == 0, "%llu bytes are charged", (unsigned long long)charged_bytes(cage));
    cr_assert(counts_of(cage).buffers == 0 && counts_of(cage).releases == 0);
    expect(moor_binding_close(cage->binding), MOOR_OK, "", "binding");
    expect(moor_holder_destroy(cage->holder), MOOR_OK, "", "holder");
    expect(moor_runtime_destroy(cage->runtime), MOOR_OK, "", "runtime");
}

static moor_buffer allocate(const struct cage *cage)
{
    moor_buffer buffer = 0;
    expect(moor_buffer_allocate(cage->binding, 4096, NULL, &buffer), MOOR_OK, "", "allocate");
    return buffer;
}

/* ---- Devices ---- */

/* Two providers, of which each says that the device is its own. */
Test(life, device_key_already_given)
{
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *first = NULL;
    struct moor_provider *second = NULL;
    expect(moor_provider_load(runtime, zoo_path("good"), NULL, &first), MOOR_OK, "", "good");
    expect(moor_provider_load(runtime, zoo_path("good_twin"), NULL, &second), MOOR_REFUSED, "zoo-0", "twin");
    const char *text = moor_last_error()->text;
    cr_assert(strstr(text, "good_twin.so") != NULL && strstr(text, "good.so") != NULL, "%s", text);
    cr_assert(second == NULL);
    const struct moor_load_options options = {.flags = MOOR_LOAD_SAME_DEVICE};
    expect(moor_provider_load(runtime, zoo_path("good_twin"), &options, &second), MOOR_OK, "", "if wanted");
    expect(moor_provider_unload(first), MOOR_OK, "", "first");
    expect(moor_provider_unload(second), MOOR_OK, "", "second");
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "runtime");
}

/* The second of three devices fails: the others are usable, under their own numbers. */
Test(life, device_hole)
{
    struct cage cage = open_cage(zoo_path("device_hole"));
    struct moor_provider_info info;
    struct moor_abi_device_info device_info;
    struct moor_device *device = NULL;
    expect(moor_provider_get_info(cage.provider, &info), MOOR_OK, "", "info");
    cr_assert(info.device_count == 2);
    expect(moor_provider_get_device(cage.provider, 1, &device), MOOR_OK, "", "the last");
    expect(moor_device_get_info(device, &device_info), MOOR_OK, "", "its info");
    cr_assert_str_eq(device_info.key, "zoo-2");
    expect(moor_buffer_release(cage.runtime, allocate(&cage)), MOOR_OK, "", "a buffer");
    close_cage(&cage);
}

/* ---- Run time ---- */

Test(life, allocations_against_the_contract)
{
    static const struct {
        const char *animal;
        moor_status status;
        const char *message;
    } cases[] = {
        {"allocates_misaligned", MOOR_PROVIDER, "zoo: allocate gave a misaligned address"},
        {"allocates_zero_handle", MOOR_PROVIDER, "zoo: allocate gave a zero handle"},
        {"allocates_zero_bytes", MOOR_PROVIDER, "zoo: allocate gave fewer bytes than asked"},
        {"allocates_endless", MOOR_PROVIDER, "zoo: allocate gave an address that wraps"},
        {"writes_on_error", MOOR_DEVICE_NOMEM, "zoo: allocate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cage cage = open_cage(zoo_path(cases[i].animal));
        for (int times = 0; times < 100; times++) {
            moor_buffer untouched = 77;
            expect(moor_buffer_allocate(cage.binding, 4096, NULL, &untouched), cases[i].status,
                   cases[i].message, cases[i].animal);
            cr_assert(untouched == 77);
        }
        close_cage(&cage);
    }
}

/* The core cannot see that two allocations lie in one place: it never looks at the memory of a device. `moor
 * check` does. Nothing comes of it here, and each is given back once. */
Test(life, allocations_that_overlap)
{
    struct cage cage = open_cage(zoo_path("allocates_twice_the_same"));
    moor_buffer buffers[2] = {allocate(&cage), allocate(&cage)};
    struct moor_view views[2];
    for (int i = 0; i < 2; i++)
        expect(moor_buffer_get_view(cage.runtime, buffers[i], &views[i]), MOOR_OK, "", "view");
    cr_assert(views[0].address == views[1].address && views[0].owner != views[1].owner);
    for (int i = 0; i < 2; i++)
        expect(moor_buffer_release(cage.runtime, buffers[i]), MOOR_OK, "", "release");
    close_cage(&cage);
}

/* The provider hears of none of it: its one block would be freed twice. */
Test(life, foreign_and_double_free)
{
    struct cage cage = open_cage(zoo_path("good"));
    struct moor_runtime *other = open_runtime();
    moor_buffer buffer = allocate(&cage);
    expect(moor_buffer_release(other, buffer), MOOR_FOREIGN, "", "in another runtime");
    expect(moor_buffer_release(cage.runtime, buffer + 1), MOOR_INVALID, "", "forged");
    cr_assert(charged_bytes(&cage) == 4096);
    expect(moor_buffer_release(cage.runtime, buffer), MOOR_OK, "", "once");
    expect(moor_buffer_release(cage.runtime, buffer), MOOR_STALE, "", "twice");
    expect(moor_runtime_reap(cage.runtime, soon()), MOOR_OK, "", "reap");
    expect(moor_buffer_release(cage.runtime, buffer), MOOR_STALE, "", "after it has gone");
    expect(moor_runtime_destroy(other), MOOR_OK, "", "other runtime");
    close_cage(&cage);
}

/* What was on it stays charged, and comes back when the binding is closed. */
Test(life, device_lost)
{
    struct cage cage = open_cage(zoo_path("device_lost"));
    moor_buffer buffer = allocate(&cage);
    moor_buffer more = 77;
    struct moor_view view;
    struct moor_fence fence;
    expect(moor_buffer_get_view(cage.runtime, buffer, &view), MOOR_OK, "", "view");
    expect(moor_stream_used(cage.stream, &view), MOOR_OK, "", "used");
    expect(moor_buffer_allocate(cage.binding, 4096, NULL, &more), MOOR_DEVICE_LOST, "fell off the bus",
           "allocate");
    cr_assert(moor_last_error()->native_code == 79 && more == 77);
    expect(moor_stream_record(cage.stream, &fence), MOOR_DEVICE_LOST, "zoo: record: fell off the bus",
           "record");
    expect(moor_buffer_release(cage.runtime, buffer), MOOR_OK, "", "release");
    cr_assert(charged_bytes(&cage) == 4096 && counts_of(&cage).quarantined == 1);
    cr_assert(strstr(log_text, "4096 bytes of holder are in quarantine") != NULL, "%s", log_text);
    expect(moor_stream_destroy(cage.stream), MOOR_OK, "", "stream");
    cage.stream = NULL;
    (void)moor_binding_close(cage.binding); /* tries again, and succeeds now or once it is reaped */
    expect(moor_runtime_reap(cage.runtime, soon()), MOOR_OK, "", "reap");
    cr_assert(charged_bytes(&cage) == 0 && counts_of(&cage).quarantined == 0);
}

Test(life, what_is_not_taken_back_stays_in_the_books)
{
    struct cage cage = open_cage(zoo_path("fails_to_free"));
    expect(moor_buffer_release(cage.runtime, allocate(&cage)), MOOR_OK, "", "release");
    expect(moor_runtime_reap(cage.runtime, soon()), MOOR_OK, "", "nothing is pending");
    cr_assert(charged_bytes(&cage) == 4096 && counts_of(&cage).quarantined == 1);
    cr_assert(strstr(log_text, "the memory cannot be freed") != NULL, "%s", log_text);
    expect(moor_binding_close(cage.binding), MOOR_PROVIDER, "quarantine", "binding");
    expect(moor_stream_destroy(cage.stream), MOOR_OK, "", "stream");
    expect(moor_provider_unload(cage.provider), MOOR_BUSY, "1 quarantined", "unload");
    cr_assert(charged_bytes(&cage) == 4096 && counts_of(&cage).quarantined == 1);
}

/* A completion counts once, and only for what was released. */
Test(life, completions_that_are_told_twice_or_invented)
{
    static const char *const animals[] = {"completes_twice", "completes_the_unknown"};
    for (size_t i = 0; i < sizeof animals / sizeof animals[0]; i++) {
        struct cage cage = open_cage(zoo_path(animals[i]));
        moor_buffer kept = allocate(&cage);
        log_text[0] = '\0';
        for (int times = 0; times < 10; times++) {
            expect(moor_buffer_release(cage.runtime, allocate(&cage)), MOOR_OK, "", animals[i]);
            expect(moor_runtime_reap(cage.runtime, soon()), MOOR_OK, "", animals[i]);
            cr_assert(charged_bytes(&cage) == 4096, "%s", animals[i]);
        }
        cr_assert(strstr(log_text, "zoo") != NULL, "%s is not reported", animals[i]);
        expect(moor_buffer_release(cage.runtime, kept), MOOR_OK, "", animals[i]);
        close_cage(&cage);
    }
}

/* What it has told cannot be believed, so it all stays pending: charged, listed, and in the way of an end. */
Test(life, more_completions_than_there_is_room_for)
{
    struct cage cage = open_cage(zoo_path("completes_too_many"));
    expect(moor_buffer_release(cage.runtime, allocate(&cage)), MOOR_OK, "", "release");
    expect(moor_runtime_reap(cage.runtime, moor_clock_ns() + 20000000), MOOR_PENDING, "1 releases", "reap");
    cr_assert(strstr(log_text, "zoo: reap") != NULL, "%s", log_text);
    cr_assert(charged_bytes(&cage) == 4096 && counts_of(&cage).releases == 1);
    expect(moor_stream_destroy(cage.stream), MOOR_OK, "", "stream");
    expect(moor_provider_unload(cage.provider), MOOR_BUSY, "1 releases pending", "unload");
}

/* ---- Unload ---- */

static void expect_busy(const struct cage *cage, const char *part)
{
    expect(moor_provider_unload(cage->provider), MOOR_BUSY, part, part);
}

static _Atomic int gate;

static void wait_at_the_gate(void *user)
{
    (void)user;
    while (atomic_load(&gate) == 0)
        (void)sched_yield();
}

/* Everything that can be alive, in a provider that has it all. */
Test(life, unload_with_something_alive)
{
    struct cage cage = open_cage(path_of("MOOR_CPU_PROVIDER", NULL));
    moor_range range = 0;
    moor_segment segment = 0;
    moor_buffer buffer = allocate(&cage);
    expect(moor_range_reserve(cage.binding, 1 << 20, NULL, &range), MOOR_OK, "", "range");
    expect(moor_segment_create(cage.binding, 1 << 21, 0, 0, &segment), MOOR_OK, "", "segment");
    expect_busy(&cage, "1 buffers, 1 ranges, 1 segments, 1 streams, 1 bindings, 0 releases pending");
    expect(moor_range_release(cage.runtime, range), MOOR_OK, "", "range");
    expect(moor_segment_release(cage.runtime, segment), MOOR_OK, "", "segment");
    expect(moor_runtime_reap(cage.runtime, soon()), MOOR_OK, "", "reap");

    struct moor_view view;
    expect(moor_buffer_get_view(cage.runtime, buffer, &view), MOOR_OK, "", "view");
    expect(moor_stream_host_function(cage.stream, wait_at_the_gate, NULL, &view, 1), MOOR_OK, "", "gate");
    expect(moor_buffer_release(cage.runtime, buffer), MOOR_OK, "", "behind a fence");
    expect_busy(&cage, "1 buffers, 0 ranges, 0 segments, 1 streams, 1 bindings, 1 releases pending");
    atomic_store(&gate, 1);
    close_cage(&cage);
}

Test(life, shutdown_that_fails)
{
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    for (int times = 0; times < 3; times++) {
        log_text[0] = '\0';
        expect(moor_provider_load(runtime, zoo_path("shutdown_fails"), NULL, &provider), MOOR_OK, "", "load");
        expect(moor_provider_unload(provider), MOOR_OK, "", "it is forgotten all the same");
        cr_assert(strstr(log_text, "zoo: shutdown: objects are still alive") != NULL, "%s", log_text);
    }
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "runtime");
}

/* Its code stays mapped, so the thread that it has left does no harm. */
Test(life, shutdown_that_leaves_a_thread)
{
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    for (int times = 0; times < 3; times++) {
        expect(moor_provider_load(runtime, zoo_path("shutdown_leaves_thread"), NULL, &provider), MOOR_OK, "",
               "load");
        expect(moor_provider_unload(provider), MOOR_OK, "", "unload");
    }
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "runtime");
}

struct visitor {
    struct moor_runtime *runtime;
    const char *path;
    moor_status status; /* of the first call that failed */
};

static void *come_and_go(void *user)
{
    struct visitor *visitor = user;
    for (int i = 0; i < 200 && visitor->status == MOOR_OK; i++) {
        struct moor_provider *provider = NULL;
        visitor->status = moor_provider_load(visitor->runtime, visitor->path, NULL, &provider);
        if (visitor->status == MOOR_OK)
            visitor->status = moor_provider_unload(provider);
    }
    return NULL;
}

/* The animal ends the process if it is shut down more often than it was started. */
Test(life, loads_and_unloads_of_one_path_at_once)
{
    enum { VISITORS = 8 };
    struct visitor visitors[VISITORS];
    pthread_t threads[VISITORS];
    struct moor_runtime *runtime = open_runtime();
    for (int i = 0; i < VISITORS; i++) {
        visitors[i] = (struct visitor){.runtime = runtime, .path = zoo_path("shutdown_counts")};
        cr_assert(pthread_create(&threads[i], NULL, come_and_go, &visitors[i]) == 0);
    }
    for (int i = 0; i < VISITORS; i++) {
        cr_assert(pthread_join(threads[i], NULL) == 0);
        cr_assert(visitors[i].status == MOOR_OK, "%s", moor_status_name(visitors[i].status));
    }
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "runtime");
}
