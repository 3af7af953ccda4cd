/* SPDX-License-Identifier: MIT */
/*
 * Traces of a provider in the process, in the calling thread, after shutdown and after fork.
 *
 * Each check makes a trip: it calls every function that the provider has, from init to shutdown.
 */
#include "check/backing.h"
#include "check/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <fenv.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- a trip ---- */

#define TRIP_BYTES 16384u
#define TRIP_GRANULES 4u

struct trip {
    struct check_place place; /* in the trip's own instance */
    struct moor_abi_allocation allocation;
    struct moor_abi_stream *stream;
    struct moor_abi_stream *other;
    uint64_t value; /* recorded on stream */
    struct check_range range;
    struct moor_abi_segment segment;
    unsigned char host_memory[2 * TRIP_BYTES];
    void *pinned_memory; /* one page */
    uint64_t pin;
};

static void go_init(struct trip *trip)
{
    trip->place.instance = check_init();
}

static void go_device_count(struct trip *trip)
{
    uint32_t count = 0;
    check_ok(CALL(base, device_count, trip->place.instance, &count), "device_count");
}

static void go_device_info(struct trip *trip)
{
    trip->place.device_info.struct_size = MOOR_ABI_DEVICE_INFO_SIZE;
    check_ok(CALL(base, device_info, trip->place.instance, trip->place.device, &trip->place.device_info),
             "device_info");
}

static void go_domain_info(struct trip *trip)
{
    trip->place.info.struct_size = MOOR_ABI_DOMAIN_INFO_SIZE;
    check_ok(CALL(base, domain_info, trip->place.instance, trip->place.device, trip->place.domain,
                  &trip->place.info),
             "domain_info");
}

static void go_context_open(struct trip *trip)
{
    trip->place.context = check_context_open(trip->place.instance, trip->place.device);
}

static void go_context_native(struct trip *trip)
{
    uint64_t native = 0;
    (void)CALL(base, context_native, trip->place.context, &native); /* or UNSUPPORTED */
}

static void go_get_extension(struct trip *trip)
{
    const void *table = NULL;
    check_refused(CALL(base, get_extension, trip->place.instance, "moorage-check.none", 1, &table),
                  CHECK_MAY(MOOR_UNSUPPORTED), "get_extension");
}

static void go_footprint(struct trip *trip)
{
    const struct moor_abi_alloc_args args = check_alloc_args(&trip->place, TRIP_BYTES);
    uint64_t bytes = 0;
    check_ok(CALL(alloc, footprint, trip->place.context, &args, &bytes), "footprint");
}

static void go_allocate(struct trip *trip)
{
    trip->allocation = check_allocate(&trip->place, TRIP_BYTES, MOOR_ABI_ALLOC_ZERO);
}

static void go_allocate_badly(struct trip *trip)
{
    const struct moor_abi_alloc_args args = check_alloc_args(&trip->place, UINT64_MAX / 2);
    struct moor_abi_allocation allocation = {.struct_size = MOOR_ABI_ALLOCATION_SIZE};
    check_refused(CALL(alloc, allocate, trip->place.context, &args, &allocation), CHECK_BAD_SIZE,
                  "allocate of 2^63 - 1 bytes");
}

static void go_stream_create(struct trip *trip)
{
    trip->stream = check_stream_create(&trip->place);
    trip->other = check_stream_create(&trip->place);
}

static void go_native(struct trip *trip)
{
    uint64_t native = 0;
    (void)CALL(stream, native, trip->stream, &native); /* or UNSUPPORTED */
}

static void do_nothing(void *user)
{
    (void)user;
}

static void go_host_function(struct trip *trip)
{
    check_host_function(trip->stream, do_nothing, NULL);
}

static void go_record(struct trip *trip)
{
    trip->value = check_record(trip->stream);
}

static void go_wait_stream(struct trip *trip)
{
    check_wait_stream(trip->other, trip->stream, trip->value);
}

static void go_watermark(struct trip *trip)
{
    (void)check_watermark(trip->stream);
}

static void go_wait(struct trip *trip)
{
    check_wait(trip->stream, trip->value);
}

static void go_copy(struct trip *trip)
{
    check_copy_submit(trip->stream, MOOR_ABI_COPY_D2H, (uintptr_t)trip->host_memory, trip->allocation.address,
                      TRIP_BYTES);
}

static void go_fill(struct trip *trip)
{
    const struct moor_abi_fill_args args = {.struct_size = MOOR_ABI_FILL_ARGS_SIZE,
                                            .pattern_bytes = 1,
                                            .destination = trip->allocation.address,
                                            .size_bytes = TRIP_BYTES,
                                            .pattern = 0x11};
    check_ok(CALL(copy, fill, trip->stream, &args), "fill");
}

static void go_stats(struct trip *trip)
{
    struct moor_abi_stats stats = {.struct_size = MOOR_ABI_STATS_SIZE};
    check_ok(CALL(stats, stats, trip->place.context, trip->place.domain, &stats), "stats");
}

static void go_reserve(struct trip *trip)
{
    trip->range = check_reserve(&trip->place, TRIP_GRANULES);
}

static void go_commit(struct trip *trip)
{
    check_commit(&trip->place, &trip->range, 0, 1);
}

static void go_committed(struct trip *trip)
{
    check_committed(&trip->place, &trip->range, 0, TRIP_GRANULES, 1, "with one committed");
}

static void go_segment_create(struct trip *trip)
{
    trip->segment = check_segment_create(&trip->place, 1);
}

static void go_map(struct trip *trip)
{
    check_map(&trip->place, &trip->range, 1, trip->segment.handle, MOOR_ABI_ACCESS_READ_WRITE);
}

static void go_protect(struct trip *trip)
{
    const struct moor_abi_map_args args =
        check_map_args(&trip->range, 1, trip->segment.handle, MOOR_ABI_ACCESS_READ);
    check_ok(CALL(shared, protect, trip->place.context, &args), "protect");
}

static void go_pin(struct trip *trip)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    trip->pinned_memory = aligned_alloc(page_bytes, page_bytes);
    check_that(trip->pinned_memory != NULL, "no host memory for the check itself");
    const struct moor_abi_pin_args args = {.struct_size = MOOR_ABI_PIN_ARGS_SIZE,
                                           .address = (uintptr_t)trip->pinned_memory,
                                           .size_bytes = page_bytes};
    check_ok(CALL(pinned, pin, trip->place.context, &args, &trip->pin), "pin");
}

static void go_unpin(struct trip *trip)
{
    const struct moor_abi_release release = check_release_args(MOOR_ABI_RELEASE_PIN, trip->pin, 1, NULL, 0);
    (void)check_release_and_reap(&trip->place, &release); /* a pin has no bytes */
    free(trip->pinned_memory);
}

static void go_unmap(struct trip *trip)
{
    check_unmap(&trip->place, &trip->range, 1, 1);
}

static void go_segment_release(struct trip *trip)
{
    check_segment_release(&trip->place, &trip->segment);
}

static void go_decommit(struct trip *trip)
{
    check_decommit(&trip->place, &trip->range, 0, 1);
}

static void go_range_release(struct trip *trip)
{
    check_range_release(&trip->place, &trip->range);
}

static void go_release(struct trip *trip)
{
    const struct moor_abi_fence_point point = {trip->stream, check_record(trip->stream)};
    const struct moor_abi_release release =
        check_release_args(MOOR_ABI_RELEASE_ALLOCATION, trip->allocation.handle, 1, &point, 1);
    (void)check_release_and_reap(&trip->place, &release); /* release.actual_bytes compares the bytes */
}

static void go_stream_destroy(struct trip *trip)
{
    check_stream_destroy(trip->other);
    check_stream_destroy(trip->stream);
}

static void go_context_close(struct trip *trip)
{
    check_context_close(trip->place.context);
}

static void go_shutdown(struct trip *trip)
{
    check_shutdown(trip->place.instance);
}

#define REQUIRED MOOR_ABI_CAPS_REQUIRED

/* In the order of the trip. needs: capabilities of the domain. */
static const struct step {
    const char *name;
    uint64_t needs;
    void (*go)(struct trip *trip);
} steps[] = {
    {"init", 0, go_init},
    {"device_count", 0, go_device_count},
    {"device_info", 0, go_device_info},
    {"domain_info", 0, go_domain_info},
    {"get_extension", 0, go_get_extension},
    {"context_open", 0, go_context_open},
    {"context_native", 0, go_context_native},
    {"footprint", REQUIRED, go_footprint},
    {"allocate", REQUIRED, go_allocate},
    {"an allocate that fails", REQUIRED, go_allocate_badly},
    {"stream create", REQUIRED, go_stream_create},
    {"native", REQUIRED, go_native},
    {"copy", REQUIRED | MOOR_ABI_CAP_COPY, go_copy},
    {"fill", REQUIRED | MOOR_ABI_CAP_COPY, go_fill},
    {"host_function", REQUIRED, go_host_function},
    {"record", REQUIRED, go_record},
    {"wait_stream", REQUIRED, go_wait_stream},
    {"watermark", REQUIRED, go_watermark},
    {"wait", REQUIRED, go_wait},
    {"stats", MOOR_ABI_CAP_STATS, go_stats},
    {"reserve", MOOR_ABI_CAP_VIRTUAL, go_reserve},
    {"commit", MOOR_ABI_CAP_VIRTUAL, go_commit},
    {"committed", MOOR_ABI_CAP_VIRTUAL, go_committed},
    {"segment create", MOOR_ABI_CAP_SHARED, go_segment_create},
    {"map", MOOR_ABI_CAP_SHARED, go_map},
    {"protect", MOOR_ABI_CAP_SHARED, go_protect},
    {"pin", MOOR_ABI_CAP_PINNED, go_pin},
    {"release of a pin", MOOR_ABI_CAP_PINNED, go_unpin},
    {"release of a map", MOOR_ABI_CAP_SHARED, go_unmap},
    {"release of a segment", MOOR_ABI_CAP_SHARED, go_segment_release},
    {"decommit", MOOR_ABI_CAP_VIRTUAL, go_decommit},
    {"release of a range", MOOR_ABI_CAP_VIRTUAL, go_range_release},
    {"release of an allocation", REQUIRED, go_release},
    {"stream destroy", REQUIRED, go_stream_destroy},
    {"context_close", 0, go_context_close},
    {"shutdown", 0, go_shutdown},
};

/* Makes a trip to the domain of `place` and back. inspect: NULL, or called after each step with the step's
 * name. */
static void travel(const struct check_place *place, void (*look)(const char *step, void *user), void *user)
{
    struct trip trip = {.place = {.device = place->device, .domain = place->domain}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if ((steps[i].needs & ~place->info.capabilities) != 0)
            continue;
        steps[i].go(&trip);
        if (look != NULL)
            look(steps[i].name, user);
    }
}

/* Returns true under AddressSanitizer, which keeps freed memory for a while and searches for leaks at exit,
 * where a forked child lacks the threads. */
static bool is_sanitized(void)
{
    return dlsym(RTLD_DEFAULT, "__asan_init") != NULL;
}

/* ---- leaks ---- */

#define CYCLES_MAX 100u
#define CYCLES_MIN 20u
#define CYCLES_SETTLED 10u /* caches and pools have reached their size by then */

/* Growth by one per cycle would exceed this. One-time growth is allowed. */
#define THREADS_GROWN_MAX 4u
#define FILES_GROWN_MAX 4u
#define MAPS_GROWN_MAX 8u
#define RESIDENT_GROWN_MAX (UINT64_C(8) << 20)
#define HEAP_GROWN_CYCLE_MAX UINT64_C(128) /* per cycle, so that one-time growth is allowed */

static void expect_growth(const char *what, uint64_t before, uint64_t after, uint64_t most, uint32_t cycles)
{
    check_that(after <= before + most, "%s: %" PRIu64 " after %u cycles, and %" PRIu64 " after %u", what,
               before, CYCLES_SETTLED, after, cycles);
}

/* Returns true if a device driver serves the place: a driver allocates on its own account. */
static bool has_driver(struct check_place *place)
{
    uint64_t native = 0;
    return CALL(base, context_native, place->context, &native) == MOOR_OK;
}

static void cycle(struct check_place *place)
{
    struct check_usage settled = {0};
    uint64_t stop_ns = moor_clock_ns() + (run.deadline_ns - moor_clock_ns()) / 2;
    uint32_t cycles = 0;
    while (cycles < CYCLES_MAX && (cycles < CYCLES_MIN || moor_clock_ns() < stop_ns)) {
        travel(place, NULL, NULL);
        if (++cycles == CYCLES_SETTLED)
            settled = check_usage_now();
    }
    struct check_usage now = check_usage_now();
    expect_growth("threads", settled.threads, now.threads, THREADS_GROWN_MAX, cycles);
    expect_growth("open files", settled.files, now.files, FILES_GROWN_MAX, cycles);
    if (is_sanitized())
        return;
    expect_growth("mappings", settled.maps, now.maps, MAPS_GROWN_MAX, cycles);
    expect_growth("resident bytes", settled.resident_bytes, now.resident_bytes, RESIDENT_GROWN_MAX, cycles);
    if (!has_driver(place))
        expect_growth("bytes of malloc", settled.heap_bytes, now.heap_bytes,
                      HEAP_GROWN_CYCLE_MAX * (cycles - CYCLES_SETTLED), cycles);
}

/* ---- the state of thread and process ---- */

static void expect_surroundings(const char *step, void *user)
{
    struct check_surroundings *now = check_surroundings_now();
    const char *difference = check_surroundings_differ(user, now);
    check_that(difference == NULL, "%s has changed %s", step, difference);
    free(now);
}

/* Starts from values that no process starts with, so that a reset to the defaults is found too. */
static void keep_surroundings(struct check_place *place)
{
    sigset_t blocked, before;
    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, SIGUSR1);
    (void)pthread_sigmask(SIG_BLOCK, &blocked, &before); /* cannot fail with valid arguments */
    int rounding = fegetround();
    (void)fesetround(FE_UPWARD);
    mode_t mask = umask(027);
    struct check_surroundings *expected = check_surroundings_now();
    travel(place, expect_surroundings, expected);
    free(expected);
    (void)umask(mask);
    (void)fesetround(rounding);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void keep_process(struct check_place *place)
{
    travel(place, NULL, NULL);
    struct check_surroundings *now = check_surroundings_now();
    const char *difference = check_surroundings_differ(run.surroundings, now);
    if (difference != NULL && check_surroundings_differ_by_driver(run.surroundings, now))
        check_skip("the provider's driver, not the provider itself, changed %s", difference);
    check_that(difference == NULL, "since the provider was loaded, %s has changed", difference);
    free(now);
}

/* ---- the current device ---- */

/* The calls of the CUDA driver that are used here. Their types are pointers and ints. */
struct driver {
    int (*get_current)(void **ret_context);
    int (*set_current)(void *context);
    int (*retain_primary)(void **ret_context, int device);
    int (*release_primary)(int device);
    void *expected;
};

static bool find_function(void *library, const char *name, void *ret_function)
{
    void *symbol = dlsym(library, name);
    memcpy(ret_function, &symbol, sizeof symbol); /* POSIX lets an object pointer carry a function */
    return symbol != NULL;
}

/* Returns false if the process has no CUDA driver, and therefore no current context. */
static bool find_driver(struct driver *driver)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return library != NULL && find_function(library, "cuCtxGetCurrent", &driver->get_current) &&
           find_function(library, "cuCtxSetCurrent", &driver->set_current) &&
           find_function(library, "cuDevicePrimaryCtxRetain", &driver->retain_primary) &&
           find_function(library, "cuDevicePrimaryCtxRelease_v2", &driver->release_primary);
}

static void expect_current(const char *step, void *user)
{
    const struct driver *driver = user;
    void *current = NULL;
    int error = driver->get_current(&current);
    check_that(error == 0 && current == driver->expected, "%s has changed the current context from %p to %p",
               step, driver->expected, current);
}

static void keep_current(struct check_place *place)
{
    struct driver driver = {0};
    if (!find_driver(&driver)) {
        check_pass_over("no driver with a current device is loaded (libcuda.so.1)");
        return;
    }
    expect_current("a call before", &driver); /* NULL: this thread has no context yet */
    travel(place, expect_current, &driver);
    void *primary = NULL;
    check_that(driver.retain_primary(&primary, 0) == 0 && driver.set_current(primary) == 0,
               "the driver made no context for the check itself");
    driver.expected = primary;
    travel(place, expect_current, &driver);
    (void)driver.set_current(NULL); /* made by this check */
    (void)driver.release_primary(0);
}

/* ---- fork ---- */

#define FORKED_END_NS (UINT64_C(5) * 1000 * 1000 * 1000)

/* Forks a child that makes no call and exits as a program does. Returns its wait status. */
static int fork_and_exit(void)
{
    static const struct timespec pause = {.tv_nsec = 1000 * 1000};
    pid_t child = fork();
    check_that(child >= 0, "no process for the check itself: %s", strerror(errno));
    if (child == 0) {
        close(run.answer_fd);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends with the check's process */
        exit(0);
    }
    int status = 0;
    uint64_t deadline_ns = moor_clock_ns() + FORKED_END_NS;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (moor_clock_ns() > deadline_ns) {
            (void)kill(child, SIGKILL);
            check_that(false, "a forked child that only calls exit(0) does not end within 5 s");
        }
        (void)nanosleep(&pause, NULL); /* a short sleep only looks again sooner */
    }
    return status;
}

static void fork_in_the_middle(struct check_place *place)
{
    if (is_sanitized())
        check_skip("a sanitizer is active: it changes the exit of a forked child");
    struct moor_abi_allocation allocation = check_allocate(place, TRIP_BYTES, 0);
    struct moor_abi_stream *stream = check_stream_create(place);
    check_fill(place, allocation.address, TRIP_BYTES, 0x5a);
    (void)check_record(stream);
    int status = fork_and_exit();
    check_that(WIFEXITED(status) && WEXITSTATUS(status) == 0,
               "a forked child that only calls exit(0) ended with %s %d",
               WIFSIGNALED(status) ? "signal" : "exit status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    check_bytes(place, allocation.address, TRIP_BYTES, 0x5a, "memory of before a fork");
    check_finish(stream);
    check_stream_destroy(stream);
    (void)check_free(place, allocation.handle);
    travel(place, NULL, NULL);
}

#define NEEDS MOOR_ABI_CAPS_REQUIRED

const struct check check_life[] = {
    {"life.cycles", "100 cycles from init to shutdown leave no thread, file, mapping or memory behind.",
     NEEDS, CHECK_ONE_DOMAIN, .visit = cycle},
    {"life.thread_state",
     "No call changes the signal mask, rounding mode, umask, working directory, handlers or environment.",
     NEEDS, CHECK_ONE_DOMAIN, .visit = keep_surroundings},
    {"life.process_state",
     "Loading and using the provider changes none of these either, apart from its driver's needs.", NEEDS,
     CHECK_ONE_DOMAIN, .visit = keep_process},
    {"life.current_device", "The caller's current device is the same after each call.", NEEDS,
     CHECK_ONE_DOMAIN, .visit = keep_current},
    {"life.fork", "A forked child that makes no call can exit, and the parent continues.", NEEDS,
     CHECK_ONE_DOMAIN | CHECK_TOUCHES, .visit = fork_in_the_middle},
    {0},
};
