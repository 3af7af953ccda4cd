/* SPDX-License-Identifier: MIT */
/*
 * Animals that load and then misbehave: at run time, or when they end. Each test is a process of its own. The
 * bytes that an animal holds stay charged until they are back.
 *
 * Elsewhere: the same faults in a scripted provider (core/: providers, quarantine, handles); an init that
 * calls back, one file under many names, copies, replaced files (identity.c, module.c); an unload during a
 * call (unload.c); the core twice in one process (hosts.py).
 */
#include "expect.h"
#include "log.h"
#include "place.h"

#include <moorage/moorage.h>
#include <pthread.h>
#include <stdatomic.h>

TestSuite(life, .timeout = 60);

static struct moor_runtime *open_runtime(void)
{
    struct moor_runtime *runtime = NULL;
    const struct moor_runtime_options options = {.log = keep_line};
    expect(moor_runtime_create(&options, &runtime), MOOR_OK, "", "runtime");
    return runtime;
}

/* A loaded animal with a holder, a binding and a stream on its first device. */
struct setup {
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    struct moor_device *device;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *stream;
};

static struct setup open_setup(const char *path)
{
    struct setup setup = {.runtime = open_runtime()};
    expect(moor_provider_load(setup.runtime, path, NULL, &setup.provider), MOOR_OK, "", path);
    expect(moor_provider_get_device(setup.provider, 0, &setup.device), MOOR_OK, "", "device");
    expect(moor_device_get_authority(setup.device, 0, &setup.authority), MOOR_OK, "", "authority");
    expect(moor_holder_create(setup.authority, NULL, &setup.holder), MOOR_OK, "", "holder");
    expect(moor_binding_open(setup.device, 0, setup.holder, &setup.binding), MOOR_OK, "", "binding");
    expect(moor_stream_create(setup.device, NULL, &setup.stream), MOOR_OK, "", "stream");
    return setup;
}

static uint64_t deadline(void)
{
    return moor_clock_ns() + 5000000000;
}

static struct moor_object_counts counts_of(const struct setup *setup)
{
    struct moor_object_counts counts;
    expect(moor_runtime_get_counts(setup->runtime, &counts), MOOR_OK, "", "counts");
    return counts;
}

static uint64_t charged_bytes(const struct setup *setup)
{
    struct moor_authority_stats stats;
    expect(moor_authority_get_stats(setup->authority, &stats, NULL, 0, NULL), MOOR_OK, "", "stats");
    cr_assert(stats.charged_bytes == stats.live_bytes + stats.pending_bytes + stats.quarantined_bytes);
    cr_assert(stats.reserved_bytes == 0, "%llu bytes reserved", (unsigned long long)stats.reserved_bytes);
    return stats.charged_bytes;
}

/* Closes everything. By then no byte may be charged and no buffer or release may be left. */
static void close_setup(struct setup *setup)
{
    expect(moor_stream_destroy(setup->stream), MOOR_OK, "", "stream");
    expect(moor_runtime_reap(setup->runtime, deadline()), MOOR_OK, "", "reap");
    cr_assert(charged_bytes(setup) == 0, "%llu bytes are charged", (unsigned long long)charged_bytes(setup));
    cr_assert(counts_of(setup).buffers == 0 && counts_of(setup).releases == 0);
    expect(moor_binding_close(setup->binding), MOOR_OK, "", "binding");
    expect(moor_holder_destroy(setup->holder), MOOR_OK, "", "holder");
    expect(moor_runtime_destroy(setup->runtime), MOOR_OK, "", "runtime");
}

static moor_buffer allocate(const struct setup *setup)
{
    moor_buffer buffer = 0;
    expect(moor_buffer_allocate(setup->binding, 4096, NULL, &buffer), MOOR_OK, "", "allocate");
    return buffer;
}

/* ---- Devices ---- */

/* Two providers have a device with the same key. */
Test(life, device_key_of_another_provider)
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
    expect(moor_provider_load(runtime, zoo_path("good_twin"), &options, &second), MOOR_OK, "",
           "allowed by the flag");
    expect(moor_provider_unload(first), MOOR_OK, "", "first");
    expect(moor_provider_unload(second), MOOR_OK, "", "second");
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "runtime");
}

/* The second of three devices fails. The other two are usable. */
Test(life, device_hole)
{
    struct setup setup = open_setup(zoo_path("device_hole"));
    struct moor_provider_info info;
    struct moor_abi_device_info device_info;
    struct moor_device *device = NULL;
    expect(moor_provider_get_info(setup.provider, &info), MOOR_OK, "", "info");
    cr_assert(info.device_count == 2);
    expect(moor_provider_get_device(setup.provider, 1, &device), MOOR_OK, "", "the last");
    expect(moor_device_get_info(device, &device_info), MOOR_OK, "", "its info");
    cr_assert_str_eq(device_info.key, "zoo-2");
    expect(moor_buffer_release(setup.runtime, allocate(&setup)), MOOR_OK, "", "a buffer");
    close_setup(&setup);
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
        struct setup setup = open_setup(zoo_path(cases[i].animal));
        for (int times = 0; times < 100; times++) {
            moor_buffer untouched = 77;
            expect(moor_buffer_allocate(setup.binding, 4096, NULL, &untouched), cases[i].status,
                   cases[i].message, cases[i].animal);
            cr_assert(untouched == 77);
        }
        close_setup(&setup);
    }
}

/* The core never reads device memory and cannot detect two allocations at one address; `moor check` does.
 * The core releases each allocation once. */
Test(life, allocations_that_overlap)
{
    struct setup setup = open_setup(zoo_path("allocates_twice_the_same"));
    moor_buffer buffers[2] = {allocate(&setup), allocate(&setup)};
    struct moor_view views[2];
    for (int i = 0; i < 2; i++)
        expect(moor_buffer_get_view(setup.runtime, buffers[i], &views[i]), MOOR_OK, "", "view");
    cr_assert(views[0].address == views[1].address && views[0].owner != views[1].owner);
    for (int i = 0; i < 2; i++)
        expect(moor_buffer_release(setup.runtime, buffers[i]), MOOR_OK, "", "release");
    close_setup(&setup);
}

/* No wrong release reaches the provider, which would free its block twice. */
Test(life, foreign_and_double_free)
{
    struct setup setup = open_setup(zoo_path("good"));
    struct moor_runtime *other = open_runtime();
    moor_buffer buffer = allocate(&setup);
    expect(moor_buffer_release(other, buffer), MOOR_FOREIGN, "", "in another runtime");
    expect(moor_buffer_release(setup.runtime, buffer + 1), MOOR_INVALID, "", "forged");
    cr_assert(charged_bytes(&setup) == 4096);
    expect(moor_buffer_release(setup.runtime, buffer), MOOR_OK, "", "once");
    expect(moor_buffer_release(setup.runtime, buffer), MOOR_STALE, "", "twice");
    expect(moor_runtime_reap(setup.runtime, deadline()), MOOR_OK, "", "reap");
    expect(moor_buffer_release(setup.runtime, buffer), MOOR_STALE, "", "after the reap");
    expect(moor_runtime_destroy(other), MOOR_OK, "", "other runtime");
    close_setup(&setup);
}

/* The bytes of a lost device stay charged until the binding is closed. */
Test(life, device_lost)
{
    struct setup setup = open_setup(zoo_path("device_lost"));
    moor_buffer buffer = allocate(&setup);
    moor_buffer more = 77;
    struct moor_view view;
    struct moor_fence fence;
    expect(moor_buffer_get_view(setup.runtime, buffer, &view), MOOR_OK, "", "view");
    expect(moor_stream_used(setup.stream, &view), MOOR_OK, "", "used");
    expect(moor_buffer_allocate(setup.binding, 4096, NULL, &more), MOOR_DEVICE_LOST, "fell off the bus",
           "allocate");
    cr_assert(moor_last_error()->native_code == 79 && more == 77);
    expect(moor_stream_record(setup.stream, &fence), MOOR_DEVICE_LOST, "zoo: record: fell off the bus",
           "record");
    expect(moor_buffer_release(setup.runtime, buffer), MOOR_OK, "", "release");
    cr_assert(charged_bytes(&setup) == 4096 && counts_of(&setup).quarantined == 1);
    cr_assert(strstr(log_text, "4096 bytes of holder are in quarantine") != NULL, "%s", log_text);
    expect(moor_stream_destroy(setup.stream), MOOR_OK, "", "stream");
    setup.stream = NULL;
    (void)moor_binding_close(setup.binding); /* retries the release, which succeeds now or at the reap */
    expect(moor_runtime_reap(setup.runtime, deadline()), MOOR_OK, "", "reap");
    cr_assert(charged_bytes(&setup) == 0 && counts_of(&setup).quarantined == 0);
}

Test(life, bytes_of_a_failed_release_stay_charged)
{
    struct setup setup = open_setup(zoo_path("fails_to_free"));
    expect(moor_buffer_release(setup.runtime, allocate(&setup)), MOOR_OK, "", "release");
    expect(moor_runtime_reap(setup.runtime, deadline()), MOOR_OK, "", "no release is pending");
    cr_assert(charged_bytes(&setup) == 4096 && counts_of(&setup).quarantined == 1);
    cr_assert(strstr(log_text, "the memory cannot be freed") != NULL, "%s", log_text);
    expect(moor_binding_close(setup.binding), MOOR_PROVIDER, "quarantine", "binding");
    expect(moor_stream_destroy(setup.stream), MOOR_OK, "", "stream");
    expect(moor_provider_unload(setup.provider), MOOR_BUSY, "1 quarantined", "unload");
    cr_assert(charged_bytes(&setup) == 4096 && counts_of(&setup).quarantined == 1);
}

/* The core counts one completion for each release, and reports a repeated or unknown one. */
Test(life, completions_that_are_repeated_or_invented)
{
    static const char *const animals[] = {"completes_twice", "completes_the_unknown"};
    for (size_t i = 0; i < sizeof animals / sizeof animals[0]; i++) {
        struct setup setup = open_setup(zoo_path(animals[i]));
        moor_buffer kept = allocate(&setup);
        log_text[0] = '\0';
        for (int times = 0; times < 10; times++) {
            expect(moor_buffer_release(setup.runtime, allocate(&setup)), MOOR_OK, "", animals[i]);
            expect(moor_runtime_reap(setup.runtime, deadline()), MOOR_OK, "", animals[i]);
            cr_assert(charged_bytes(&setup) == 4096, "%s", animals[i]);
        }
        cr_assert(strstr(log_text, "zoo") != NULL, "%s is not reported", animals[i]);
        expect(moor_buffer_release(setup.runtime, kept), MOOR_OK, "", animals[i]);
        close_setup(&setup);
    }
}

/* The core drops completions if their count exceeds the capacity. The release stays pending and charged, and
 * unload answers BUSY. */
Test(life, more_completions_than_the_capacity)
{
    struct setup setup = open_setup(zoo_path("completes_too_many"));
    expect(moor_buffer_release(setup.runtime, allocate(&setup)), MOOR_OK, "", "release");
    expect(moor_runtime_reap(setup.runtime, moor_clock_ns() + 20000000), MOOR_PENDING, "1 releases", "reap");
    cr_assert(strstr(log_text, "zoo: reap") != NULL, "%s", log_text);
    cr_assert(charged_bytes(&setup) == 4096 && counts_of(&setup).releases == 1);
    expect(moor_stream_destroy(setup.stream), MOOR_OK, "", "stream");
    expect(moor_provider_unload(setup.provider), MOOR_BUSY, "1 releases pending", "unload");
}

/* ---- Unload ---- */

static void expect_busy(const struct setup *setup, const char *part)
{
    expect(moor_provider_unload(setup->provider), MOOR_BUSY, part, part);
}

static _Atomic int gate;

static void wait_at_gate(void *user)
{
    (void)user;
    while (atomic_load(&gate) == 0)
        (void)sched_yield();
}

/* Objects of every kind, in a provider that has every capability. */
Test(life, unload_with_objects_alive)
{
    struct setup setup = open_setup(path_of("MOOR_CPU_PROVIDER", NULL));
    moor_range range = 0;
    moor_segment segment = 0;
    moor_buffer buffer = allocate(&setup);
    expect(moor_range_reserve(setup.binding, 1 << 20, NULL, &range), MOOR_OK, "", "range");
    expect(moor_segment_create(setup.binding, 1 << 21, 0, 0, &segment), MOOR_OK, "", "segment");
    expect_busy(&setup, "1 buffers, 1 ranges, 1 segments, 1 streams, 1 bindings, 0 releases pending");
    expect(moor_range_release(setup.runtime, range), MOOR_OK, "", "range");
    expect(moor_segment_release(setup.runtime, segment), MOOR_OK, "", "segment");
    expect(moor_runtime_reap(setup.runtime, deadline()), MOOR_OK, "", "reap");

    struct moor_view view;
    expect(moor_buffer_get_view(setup.runtime, buffer, &view), MOOR_OK, "", "view");
    expect(moor_stream_host_function(setup.stream, wait_at_gate, NULL, &view, 1), MOOR_OK, "", "gate");
    expect(moor_buffer_release(setup.runtime, buffer), MOOR_OK, "", "behind a fence");
    expect_busy(&setup, "1 buffers, 0 ranges, 0 segments, 1 streams, 1 bindings, 1 releases pending");
    atomic_store(&gate, 1);
    close_setup(&setup);
}

Test(life, shutdown_that_fails)
{
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    for (int times = 0; times < 3; times++) {
        log_text[0] = '\0';
        expect(moor_provider_load(runtime, zoo_path("shutdown_fails"), NULL, &provider), MOOR_OK, "", "load");
        expect(moor_provider_unload(provider), MOOR_OK, "", "unload after a failed shutdown");
        cr_assert(strstr(log_text, "zoo: shutdown: objects are still alive") != NULL, "%s", log_text);
    }
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "runtime");
}

/* The code of the provider stays mapped, so the remaining thread may run. */
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

struct worker {
    struct moor_runtime *runtime;
    const char *path;
    moor_status status; /* status of the first failed call */
};

static void *load_and_unload(void *user)
{
    struct worker *worker = user;
    for (int i = 0; i < 200 && worker->status == MOOR_OK; i++) {
        struct moor_provider *provider = NULL;
        worker->status = moor_provider_load(worker->runtime, worker->path, NULL, &provider);
        if (worker->status == MOOR_OK)
            worker->status = moor_provider_unload(provider);
    }
    return NULL;
}

/* The animal aborts the process when shutdown is called more often than init. */
Test(life, loads_and_unloads_of_one_path_at_once)
{
    enum { WORKERS = 8 };
    struct worker workers[WORKERS];
    pthread_t threads[WORKERS];
    struct moor_runtime *runtime = open_runtime();
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.runtime = runtime, .path = zoo_path("shutdown_counts")};
        cr_assert(pthread_create(&threads[i], NULL, load_and_unload, &workers[i]) == 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        cr_assert(pthread_join(threads[i], NULL) == 0);
        cr_assert(workers[i].status == MOOR_OK, "%s", moor_status_name(workers[i].status));
    }
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "runtime");
}
