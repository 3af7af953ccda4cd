/* SPDX-License-Identifier: MIT */
/* One scenario: its faults, trial by trial, and the checks after each trial. */
#include "trial.h"

#include "malloc_fail.h"
#include "thread_fail.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sanitizer.h"
#if HAS_ADDRESS_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif

#define NTH_MAX 200u      /* a scenario with more calls than that does not end */
#define LATER_MAX 16u     /* the largest distance between the two failures of a pair */
#define ENDS_CALLS_MAX 8u /* calls tried if their number is unknown */

/* ---- the faults ---- */

static const moor_status statuses[] = {MOOR_PROVIDER, MOOR_DEVICE_NOMEM, MOOR_HOST_NOMEM, MOOR_DEVICE_LOST};
static const char *const makers[] = {"context_open",  "allocate", "stream.create", "reserve", "commit",
                                     "shared.create", "pin"};
static const char *const fences[] = {"record", "watermark", "wait", "wait_stream"};

/* The driver functions that the provider calls. After a failed cuCtxPopCurrent the current context is
 * unknown. */
static const char *const driver_functions[DRIVER_FUNCTIONS] = {
#define NAME(name_, version_) #name_,
    CUDA_SYMBOLS(NAME) "cuGetProcAddress"
#undef NAME
};
#define POP "cuCtxPopCurrent"

/* CUresults. */
#define OUT_OF_MEMORY 2
#define ILLEGAL_ADDRESS 700 /* ends the context */
#define UNKNOWN 999
static const int driver_codes[] = {UNKNOWN, OUT_OF_MEMORY};

struct driver_plan {
    const char *function; /* NULL: no fault */
    uint32_t nth;
    int code;
    bool onward; /* the fault hits all later calls, too */
};

struct injection {
    enum kind kind;
    struct driver_plan driver;
    struct moor_fault_plan plans[2];
    uint32_t plan_count;
    uint64_t memory_nth;
    uint64_t thread_nth;
    uint64_t thread_times;
};

static struct moor_fault_plan plan(const char *function, uint32_t nth, uint32_t times, moor_status status,
                                   uint32_t flags)
{
    return (struct moor_fault_plan){function, nth, times, status, flags, 0};
}

static void describe_plan(const struct moor_fault_plan *each, char *text, size_t capacity)
{
    char times[24] = "";
    if (each->times > 1)
        (void)snprintf(times, sizeof times, " times=%u", each->times);
    (void)snprintf(text, capacity, "%s nth=%u%s status=%s%s", each->function, each->nth, times,
                   moor_status_name(each->status), each->flags & MOOR_FAULT_AFTER ? " after" : "");
}

static void describe_driver_plan(const struct driver_plan *each, char *text, size_t capacity)
{
    (void)snprintf(text, capacity, "fault=%s:%u:%d%s", each->function, each->nth, each->code,
                   each->onward ? ":all" : "");
}

/* Formats the plans as the setting `faults`. */
static void describe(const struct injection *injection, char *text, size_t capacity)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < injection->plan_count; i++) {
        size_t length = strlen(text);
        (void)snprintf(text + length, capacity - length, "%s", i ? "; " : "");
        length = strlen(text);
        describe_plan(&injection->plans[i], text + length, capacity - length);
    }
    if (injection->memory_nth)
        (void)snprintf(text, capacity, "host memory nth=%llu", (unsigned long long)injection->memory_nth);
    if (injection->thread_nth)
        (void)snprintf(text, capacity, "thread nth=%llu times=%llu",
                       (unsigned long long)injection->thread_nth,
                       (unsigned long long)injection->thread_times);
    if (injection->driver.function)
        describe_driver_plan(&injection->driver, text, capacity);
}

/* Without witnesses the core has no objects yet, and needs memory for the first one of each kind. */
static bool has_witnesses(const struct injection *injection)
{
    return injection->memory_nth == 0;
}

static bool loses_device(const struct injection *injection)
{
    bool loses = false;
    for (uint32_t i = 0; i < injection->plan_count; i++)
        loses |= injection->plans[i].status == MOOR_DEVICE_LOST;
    return loses;
}

/* The driver ends the context for this process: only closing is possible afterwards. */
static bool ends_context(const struct injection *injection)
{
    return injection->driver.code == ILLEGAL_ADDRESS;
}

/* ---- one scenario ---- */

static void arm_driver(struct world *world, const struct sweep *sweep, const struct driver_plan *each)
{
    char text[128];
    describe_driver_plan(each, text, sizeof text);
    world->driver_is_ending = sweep->scenario->flags & SWEEP_ENDS;
    world->driver_has_ended = each->code == ILLEGAL_ADDRESS;
    world->driver_keeps_context = strcmp(each->function, "cuDevicePrimaryCtxRelease") == 0;
    world->injected = world->driver->calls(each->function);
    CHECK(world->driver->configure(text) == 0, "a fault of the driver cannot be planned");
}

/* Returns true if the fault has happened. */
static bool disarm_driver(struct world *world, const struct driver_plan *each)
{
    uint64_t calls = world->driver->calls(each->function) - world->injected;
    CHECK(world->driver->configure("faults=none") == 0, "faults of the driver cannot be cleared");
    return calls >= each->nth;
}

static void arm(struct world *world, const struct sweep *sweep, const struct injection *injection)
{
    if (!world->control && injection->plan_count)
        describe(injection, world->faults, sizeof world->faults);
    for (uint32_t i = 0; world->control && i < injection->plan_count; i++)
        CHECK(world->control->inject(world->control->fault, &injection->plans[i]) == MOOR_OK,
              "a fault cannot be planned");
    world->injected = world->control ? world->control->injected(world->control->fault) : 0;
    atomic_store(&world->told, 0);
    if (injection->memory_nth)
        malloc_fail_at(injection->memory_nth);
    if (injection->thread_nth)
        thread_fail_at(injection->thread_nth, injection->thread_times);
    if (injection->driver.function)
        arm_driver(world, sweep, &injection->driver);
}

/* Removes all faults. Returns true if all of them have happened. */
static bool disarm(struct world *world, const struct sweep *sweep, const struct injection *injection,
                   moor_status status)
{
    uint64_t failed = 0;
    if (injection->driver.function)
        return disarm_driver(world, &injection->driver);
    if (injection->memory_nth) {
        failed = malloc_fail_count() >= injection->memory_nth;
        malloc_fail_at(0);
    }
    if (injection->thread_nth) {
        failed = thread_fail_count() >= injection->thread_nth;
        thread_fail_at(0, 0);
    }
    world->faults[0] = '\0';
    if (injection->plan_count == 0)
        return failed;
    if (sweep->scenario->flags & SWEEP_ENDS)
        failed = status ? injection->plan_count : atomic_load(&world->told);
    else if (world->control)
        failed = world->control->injected(world->control->fault) - world->injected;
    else
        failed = status ? injection->plan_count : 0;
    if (world->control)
        CHECK(world->control->clear(world->control->fault) == MOOR_OK, "faults cannot be cleared");
    return failed >= injection->plan_count;
}

static void start(struct world *world, const struct sweep *sweep, const struct injection *injection)
{
    const struct scenario *scenario = sweep->scenario;
    world_start(world, sweep->target);
    world->never_holds = loses_device(injection);
    world->is_small = scenario->flags & SWEEP_SMALL;
    if (!(scenario->flags & SWEEP_BARE))
        world_open(world, has_witnesses(injection));
    if (scenario->flags & SWEEP_FAR)
        world_open_far(world);
    if (scenario->prepare)
        scenario->prepare(world);
}

static struct world_state settle(struct world *world)
{
    if (world->runtime)
        world_settle(world);
    return world_state(world);
}

/* The budget has the bytes that a grant did not get back. */
static void renew_grant(struct world *world, const struct world_state *expected)
{
    if (!world->emptied || !world->grant || world_state(world).grant_bytes == expected->grant_bytes)
        return;
    MUST(moor_grant_release(world->runtime, world->grant));
    MUST(moor_grant_reserve(world->holder, expected->grant_bytes, MOOR_NO_WAIT, &world->grant));
}

static void check(struct world *world, const struct world_state *expected, const char *when)
{
    struct world_state state = settle(world);
    renew_grant(world, expected);
    state = world_state(world);
    world_same(expected, &state, when);
    if (state.counts.quarantined <= expected->counts.quarantined || !world->binding)
        return;
    world_empty_quarantine(world);
    (void)settle(world);
    renew_grant(world, expected);
    state = settle(world);
    CHECK(state.counts.quarantined <= expected->counts.quarantined, "%s: the quarantine is not emptied",
          when);
    world_same(expected, &state, when);
}

/* A stream that has once returned DEVICE_LOST is lost to the host. */
static void replace_stream(struct world *world)
{
    if (!world->stream)
        return;
    MUST(moor_stream_destroy(world->stream));
    MUST(moor_stream_create(world->device, NULL, &world->stream));
}

/* The act failed, and there are no more faults: the state is unchanged, and the act succeeds now. */
static void check_failure(struct world *world, const struct sweep *sweep, const struct injection *injection)
{
    const struct scenario *scenario = sweep->scenario;
    if (scenario->tidy)
        scenario->tidy(world);
    check(world, &sweep->prepared[has_witnesses(injection)], "after the failure");
    moor_status status = scenario->act(world);
    if (status == MOOR_DEVICE_LOST && loses_device(injection))
        return;
    world_expect(MOOR_OK, status, "the same call when nothing fails", __FILE__, __LINE__);
}

/* The context has ended, or will at the next check: calls on it return now. */
static void check_end(struct world *world, const struct sweep *sweep, moor_status status)
{
    if (world->second_holder) /* no pressure function evicts while everything is released */
        MUST(moor_holder_set_pressure(world->second_holder, NULL, NULL));
    if (world->runtime)
        world_settle(world);
    /* An act of several calls cannot be repeated. */
    if (!status || sweep->scenario->tidy || sweep->scenario->flags & (SWEEP_ENDS | SWEEP_BARE))
        return;
    status = sweep->scenario->act(world);
    CHECK(!status || status == MOOR_DEVICE_LOST || status == MOOR_UNSUPPORTED,
          "%s of a device that may be lost", moor_status_name(status));
    world_settle(world);
}

/* Returns true if the fault happened. */
static bool run_trial(const struct sweep *sweep, const struct injection *injection, struct tally *tally)
{
    struct world world;
    char text[128];
    bool witnesses = has_witnesses(injection);
    describe(injection, text, sizeof text);
    (void)snprintf(world_trial, sizeof world_trial, "%s, %s: %s", sweep->target->name, sweep->scenario->name,
                   text);
    start(&world, sweep, injection);
    arm(&world, sweep, injection);
    moor_status status = sweep->scenario->act(&world);
    bool happened = disarm(&world, sweep, injection, status);
    tally->injected[injection->kind] += happened; /* the trial counts as survived after all later checks */
    CHECK(happened || !status || injection->plan_count == 2, "%s, though nothing was made to fail",
          moor_status_name(status));
    /* A deadline of the scenario itself is no failed call. */
    CHECK(!status || status == MOOR_TIMEOUT || moor_last_error()->status == status,
          "%s, and the last error says %s", moor_status_name(status),
          moor_status_name(moor_last_error()->status));
    if (status && !ends_context(injection))
        check_failure(&world, sweep, injection);
    if (ends_context(injection)) {
        check_end(&world, sweep, status);
    } else if (!loses_device(injection)) {
        check(&world, &sweep->done[witnesses], "after the act");
        if (sweep->scenario->undo)
            sweep->scenario->undo(&world);
        check(&world, &sweep->prepared[witnesses], "after the undo");
    } else {
        (void)settle(&world);
        replace_stream(&world);
    }
    if (!ends_context(injection))
        world_check_witnesses(&world);
    world_close(&world);
    tally->failed += happened && status;
    tally->survived += happened;
    return happened;
}

/* n = 1, 2, 3 ... of one plan. Returns the number of faults that happened. */
static uint32_t sweep_plan(const struct sweep *sweep, enum kind kind, struct moor_fault_plan each,
                           struct tally *tally)
{
    bool ends = sweep->scenario->flags & SWEEP_ENDS;
    uint32_t most = ends ? ENDS_CALLS_MAX : NTH_MAX, count = 0;
    for (each.nth = 1; each.nth <= most; each.nth++) {
        struct injection injection = {.kind = kind, .plans = {each}, .plan_count = 1};
        bool happened = run_trial(sweep, &injection, tally);
        count += happened;
        if (!happened && !ends)
            return count;
    }
    CHECK(ends, "too many calls");
    return count;
}

/* The n-th call fails, and then a call of the undo. */
static void sweep_pairs(const struct sweep *sweep, uint32_t calls, struct tally *tally)
{
    for (uint32_t n = 1; n <= calls; n++) {
        bool happened = true;
        for (uint32_t later = 1; happened && later <= LATER_MAX; later++) {
            struct injection injection = {.kind = KIND_PAIR, .plan_count = 2};
            injection.plans[0] = plan("", n, 1, MOOR_PROVIDER, 0);
            injection.plans[1] = plan("", n + later, 1, MOOR_PROVIDER, 0);
            happened = run_trial(sweep, &injection, tally);
        }
        happened = true;
        for (uint32_t nth = 1; happened && nth <= LATER_MAX; nth++) {
            struct injection injection = {.kind = KIND_PAIR, .plan_count = 2};
            injection.plans[0] = plan("", n, 1, MOOR_PROVIDER, 0);
            injection.plans[1] = plan("free", nth, 1, MOOR_PROVIDER, 0);
            happened = run_trial(sweep, &injection, tally);
        }
    }
}

static void sweep_calls(const struct sweep *sweep, struct tally *tally)
{
    uint32_t calls = 0;
    for (size_t i = 0; i < LENGTH(statuses); i++) {
        uint32_t count = sweep_plan(sweep, KIND_CALL, plan("", 1, 1, statuses[i], 0), tally);
        calls = count > calls ? count : calls;
    }
    for (size_t i = 0; i < LENGTH(makers); i++)
        (void)sweep_plan(sweep, KIND_AFTER, plan(makers[i], 1, 1, MOOR_DEVICE_NOMEM, MOOR_FAULT_AFTER),
                         tally);
    (void)sweep_plan(sweep, KIND_ONWARD, plan("", 1, UINT32_MAX, MOOR_PROVIDER, 0), tally);
    for (size_t i = 0; i < LENGTH(fences); i++)
        (void)sweep_plan(sweep, KIND_FENCE, plan(fences[i], 1, 1, MOOR_DEVICE_LOST, 0), tally);
    (void)sweep_plan(sweep, KIND_FREE, plan("free", 1, 1, MOOR_PROVIDER, 0), tally);
    if (!(sweep->scenario->flags & (SWEEP_BARE | SWEEP_ENDS | SWEEP_WAITS)))
        sweep_pairs(sweep, calls, tally);
}

/* One function of the driver: n = 1, 2, 3 ... with each code. Polling calls it any number of times. */
static void sweep_driver_function(const struct sweep *sweep, const char *function, struct tally *tally)
{
    bool waits = sweep->scenario->flags & SWEEP_WAITS;
    for (size_t i = 0; i < (waits ? 1 : LENGTH(driver_codes)); i++)
        for (int onward = 0; onward < (waits ? 1 : 2); onward++) {
            bool happened = true;
            for (uint32_t n = 1; happened && n <= LATER_MAX; n++) {
                struct injection injection = {.kind = KIND_DRIVER,
                                              .driver = {function, n, driver_codes[i], onward}};
                happened = run_trial(sweep, &injection, tally);
            }
        }
}

static void sweep_driver(const struct sweep *sweep, struct tally *tally)
{
    for (size_t i = 0; i < DRIVER_FUNCTIONS; i++)
        if (tally->is_called[i] && strcmp(driver_functions[i], POP) != 0)
            sweep_driver_function(sweep, driver_functions[i], tally);
}

static void sweep_memory(const struct sweep *sweep, struct tally *tally)
{
    for (uint64_t n = 1; n <= NTH_MAX; n++) {
        struct injection injection = {.kind = KIND_MEMORY, .memory_nth = n};
        if (!run_trial(sweep, &injection, tally))
            return;
    }
    FAIL("too many allocations");
}

static void sweep_threads(const struct sweep *sweep, struct tally *tally)
{
    static const uint64_t times[] = {1, UINT64_MAX};
    for (size_t i = 0; i < LENGTH(times); i++) {
        bool happened = true;
        for (uint64_t n = 1; happened; n++) {
            CHECK(n <= NTH_MAX, "too many threads");
            happened = run_trial(
                sweep, &(struct injection){.kind = KIND_THREAD, .thread_nth = n, .thread_times = times[i]},
                tally);
        }
    }
}

static void count_driver_calls(const struct world *world, uint64_t calls[DRIVER_FUNCTIONS])
{
    for (size_t i = 0; world->driver && i < DRIVER_FUNCTIONS; i++)
        calls[i] = world->driver->calls(driver_functions[i]);
}

/* Runs without faults; the result is the reference of all trials. */
static void run_dry(struct sweep *sweep, const struct injection *like, struct tally *tally)
{
    struct world world;
    bool witnesses = has_witnesses(like);
    (void)snprintf(world_trial, sizeof world_trial, "%s, %s: nothing fails", sweep->target->name,
                   sweep->scenario->name);
    start(&world, sweep, like);
    sweep->prepared[witnesses] = settle(&world);
    world_close(&world);
    start(&world, sweep, like);
    uint64_t calls = world.control ? world.control->calls(world.control->fault, "") : 0;
    uint64_t driver_calls[2][DRIVER_FUNCTIONS] = {0};
    count_driver_calls(&world, driver_calls[0]);
    malloc_fail_at(0);
    MUST(sweep->scenario->act(&world));
    uint64_t allocations = malloc_fail_count();
    tally->allocations = allocations > tally->allocations ? allocations : tally->allocations;
    if (world.control)
        tally->calls = world.control->calls(world.control->fault, "") - calls;
    sweep->done[witnesses] = settle(&world);
    count_driver_calls(&world, driver_calls[1]);
    for (size_t i = 0; i < DRIVER_FUNCTIONS; i++)
        tally->is_called[i] = driver_calls[1][i] > driver_calls[0][i];
    if (sweep->scenario->undo)
        sweep->scenario->undo(&world);
    check(&world, &sweep->prepared[witnesses], "after the undo");
    world_close(&world);
}

static uint64_t open_files(void)
{
    uint64_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder, "no /proc/self/fd");
    while (readdir(folder))
        count++;
    (void)closedir(folder);
    return count;
}

void sweep_scenario(struct sweep *sweep, struct tally *tally)
{
    run_dry(sweep, &(struct injection){.kind = KIND_MEMORY, .memory_nth = 1}, tally);
    run_dry(sweep, &(struct injection){.kind = KIND_CALL}, tally);
    uint64_t files = open_files();
    if (!(sweep->scenario->flags & SWEEP_NO_CALLS))
        sweep_calls(sweep, tally);
    sweep_memory(sweep, tally);
    sweep_threads(sweep, tally);
    sweep_driver(sweep, tally);
    (void)snprintf(world_trial, sizeof world_trial, "%s, %s", sweep->target->name, sweep->scenario->name);
    /* A provider that failed to end is kept with all its memory: see start.c. */
    CHECK(sweep->scenario->flags & SWEEP_ENDS || open_files() == files, "%llu files are open, %llu were",
          (unsigned long long)open_files(), (unsigned long long)files);
#if HAS_ADDRESS_SANITIZER
    CHECK(__lsan_do_recoverable_leak_check() == 0, "memory is leaked");
#endif
}

/* ---- contexts that end ---- */

enum { HAPPENED = 0, WENT_BAD = 1, HAPPENED_AND_FAILED = 3, DID_NOT_HAPPEN = 4 };

/* An ended context cannot be reopened in the same process, so each trial has its own process. */
static int run_end_apart(const struct sweep *sweep, const struct injection *injection)
{
    pid_t id = fork();
    CHECK(id >= 0, "no process");
    if (id == 0) {
        struct tally tally = {0};
        bool happened = run_trial(sweep, injection, &tally);
        exit(!happened ? DID_NOT_HAPPEN : tally.failed ? HAPPENED_AND_FAILED : HAPPENED);
    }
    int status = 0;
    CHECK(waitpid(id, &status, 0) == id, "a process is lost");
    CHECK(WIFEXITED(status), "fault=%s:%u:%d: ended by signal %d", injection->driver.function,
          injection->driver.nth, injection->driver.code, WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* The n-th call of each function that the act calls. */
void sweep_ends(const struct sweep *sweep, struct tally *tally)
{
    uint32_t most = sweep->scenario->flags & SWEEP_WAITS ? 1 : LATER_MAX;
    for (size_t i = 0; i < DRIVER_FUNCTIONS; i++) {
        int outcome =
            tally->is_called[i] && strcmp(driver_functions[i], POP) != 0 ? HAPPENED : DID_NOT_HAPPEN;
        for (uint32_t n = 1; outcome != DID_NOT_HAPPEN && n <= most; n++) {
            struct injection injection = {.kind = KIND_DRIVER,
                                          .driver = {driver_functions[i], n, ILLEGAL_ADDRESS, false}};
            outcome = run_end_apart(sweep, &injection);
            if (outcome == WENT_BAD)
                exit(1); /* the child has printed the failure */
            tally->injected[KIND_DRIVER] += outcome != DID_NOT_HAPPEN;
            tally->survived += outcome != DID_NOT_HAPPEN;
            tally->failed += outcome == HAPPENED_AND_FAILED;
        }
    }
}
