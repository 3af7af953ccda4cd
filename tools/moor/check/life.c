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

/* inspect: called after each call of the provider with its name. */
typedef void (*inspection)(const char *step, void *user);

struct trip {
    struct check_place place; /* in the trip's own instance */
    inspection inspect;
    void *user;
};

static void done(const struct trip *trip, const char *step)
{
    if (trip->inspect != NULL)
        trip->inspect(step, trip->user);
}

static bool has(const struct trip *trip, uint64_t capabilities)
{
    return (capabilities & ~trip->place.info.capabilities) == 0;
}

static void describe(struct trip *trip)
{
    struct check_place *place = &trip->place;
    const void *table = NULL;
    uint32_t count = 0;
    check_ok(CALL(base, device_count, place->instance, &count), "device_count");
    done(trip, "device_count");
    place->device_info.struct_size = MOOR_ABI_DEVICE_INFO_SIZE;
    check_ok(CALL(base, device_info, place->instance, place->device, &place->device_info), "device_info");
    done(trip, "device_info");
    check_domain_describe(place);
    done(trip, "domain_info");
    check_refused(CALL(base, get_extension, place->instance, "moorage-check.none", 1, &table),
                  CHECK_MAY(MOOR_UNSUPPORTED), "get_extension");
    done(trip, "get_extension");
}

static struct moor_abi_allocation allocate(struct trip *trip)
{
    struct moor_abi_alloc_args args = check_alloc_args(&trip->place, TRIP_BYTES);
    struct moor_abi_allocation none = {.struct_size = MOOR_ABI_ALLOCATION_SIZE};
    uint64_t bytes = 0;
    check_ok(CALL(alloc, footprint, trip->place.context, &args, &bytes), "footprint");
    done(trip, "footprint");
    struct moor_abi_allocation allocation = check_allocate(&trip->place, TRIP_BYTES, MOOR_ABI_ALLOC_ZERO);
    done(trip, "allocate");
    args.size_bytes = UINT64_MAX / 2;
    check_refused(CALL(alloc, allocate, trip->place.context, &args, &none), CHECK_BAD_SIZE,
                  "allocate of 2^63 - 1 bytes");
    done(trip, "an allocate that fails");
    return allocation;
}

static void copy_and_fill(struct trip *trip, struct moor_abi_stream *stream, uint64_t address, void *memory)
{
    const struct moor_abi_fill_args args = {.struct_size = MOOR_ABI_FILL_ARGS_SIZE,
                                            .pattern_bytes = 1,
                                            .destination = address,
                                            .size_bytes = TRIP_BYTES,
                                            .pattern = 0x11};
    check_copy_submit(stream, MOOR_ABI_COPY_D2H, (uintptr_t)memory, address, TRIP_BYTES);
    done(trip, "copy");
    check_ok(CALL(copy, fill, stream, &args), "fill");
    done(trip, "fill");
}

static void do_nothing(void *user)
{
    (void)user;
}

static void order(struct trip *trip, struct moor_abi_stream *stream, struct moor_abi_stream *other)
{
    check_host_function(stream, do_nothing, NULL);
    done(trip, "host_function");
    uint64_t value = check_record(stream);
    done(trip, "record");
    check_wait_stream(other, stream, value);
    done(trip, "wait_stream");
    (void)check_watermark(stream);
    done(trip, "watermark");
    check_wait(stream, value);
    done(trip, "wait");
}

static void map_segment(struct trip *trip, const struct check_range *range)
{
    struct moor_abi_segment segment = check_segment_create(&trip->place, 1);
    done(trip, "segment create");
    check_map(&trip->place, range, 1, segment.handle, MOOR_ABI_ACCESS_READ_WRITE);
    done(trip, "map");
    const struct moor_abi_map_args args = check_map_args(range, 1, segment.handle, MOOR_ABI_ACCESS_READ);
    check_ok(CALL(shared, protect, trip->place.context, &args), "protect");
    done(trip, "protect");
    check_unmap(&trip->place, range, 1, 1);
    done(trip, "release of a map");
    check_segment_release(&trip->place, &segment);
    done(trip, "release of a segment");
}

static void use_range(struct trip *trip)
{
    struct check_range range = check_reserve(&trip->place, TRIP_GRANULES);
    done(trip, "reserve");
    check_commit(&trip->place, &range, 0, 1);
    done(trip, "commit");
    check_committed(&trip->place, &range, 0, TRIP_GRANULES, 1, "with one committed");
    done(trip, "committed");
    if (has(trip, MOOR_ABI_CAP_SHARED))
        map_segment(trip, &range);
    check_decommit(&trip->place, &range, 0, 1);
    done(trip, "decommit");
    check_range_release(&trip->place, &range);
    done(trip, "release of a range");
}

static void use_pin(struct trip *trip)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), pin = 0;
    void *page = aligned_alloc(page_bytes, page_bytes);
    check_that(page != NULL, "no host memory for the check itself");
    const struct moor_abi_pin_args args = {
        .struct_size = MOOR_ABI_PIN_ARGS_SIZE, .address = (uintptr_t)page, .size_bytes = page_bytes};
    check_ok(CALL(pinned, pin, trip->place.context, &args, &pin), "pin");
    done(trip, "pin");
    const struct moor_abi_release release = check_release_args(MOOR_ABI_RELEASE_PIN, pin, 1, NULL, 0);
    (void)check_release_and_reap(&trip->place, &release); /* a pin has no bytes */
    done(trip, "release of a pin");
    free(page);
}

static void use_context(struct trip *trip)
{
    static unsigned char memory[TRIP_BYTES];
    struct check_place *place = &trip->place;
    uint64_t native = 0;
    struct moor_abi_allocation allocation = allocate(trip);
    struct moor_abi_stream *stream = check_stream_create(place), *other = check_stream_create(place);
    done(trip, "stream create");
    (void)CALL(stream, native, stream, &native); /* or UNSUPPORTED */
    done(trip, "native");
    if (has(trip, MOOR_ABI_CAP_COPY))
        copy_and_fill(trip, stream, allocation.address, memory);
    order(trip, stream, other);
    if (has(trip, MOOR_ABI_CAP_STATS)) {
        (void)check_stats_now(place);
        done(trip, "stats");
    }
    if (has(trip, MOOR_ABI_CAP_VIRTUAL))
        use_range(trip);
    if (has(trip, MOOR_ABI_CAP_PINNED))
        use_pin(trip);
    const struct moor_abi_fence_point point = {stream, check_record(stream)};
    const struct moor_abi_release release =
        check_release_args(MOOR_ABI_RELEASE_ALLOCATION, allocation.handle, 1, &point, 1);
    (void)check_release_and_reap(place, &release); /* release.actual_bytes compares the bytes */
    done(trip, "release of an allocation");
    check_stream_destroy(other);
    check_stream_destroy(stream);
    done(trip, "stream destroy");
}

/* Makes a trip to the domain of `place`, which has the required capabilities, and back. inspect: may be
 * NULL. */
static void travel(const struct check_place *place, inspection inspect, void *user)
{
    struct trip trip = {.place = {.device = place->device, .domain = place->domain, .instance = check_init()},
                        .inspect = inspect,
                        .user = user};
    uint64_t native = 0;
    done(&trip, "init");
    describe(&trip);
    trip.place.context = check_context_open(trip.place.instance, place->device);
    done(&trip, "context_open");
    (void)CALL(base, context_native, trip.place.context, &native); /* or UNSUPPORTED */
    done(&trip, "context_native");
    use_context(&trip);
    check_context_close(trip.place.context);
    done(&trip, "context_close");
    check_shutdown(trip.place.instance);
    done(&trip, "shutdown");
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
        (void)nanosleep(&pause, NULL); /* a short sleep only polls sooner */
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
