/* SPDX-License-Identifier: MIT */
/*
 * The fault sweep: every scenario is carried out again and again, each time with one more thing made to fail,
 * or a pair of things, until there is nothing left that could. After each trial: a call that failed has
 * changed nothing (promise I8), the books are equal (I7), handles name what they named (I10), nothing is left
 * at the end, and the same call works once nothing fails any more.
 *
 *     sweep FAULT.so CPU.so MOCK.so [SCENARIO]
 *     sweep --cuda DRIVER FAULT.so CUDA.so MOCK.so [SCENARIO]
 *
 * The second form sweeps the CUDA provider over the simulated driver, a path, once for each kind of timeline.
 * Each scenario runs in a process of its own, so that one that goes wrong is a line and not the end. With a
 * name, only those that contain it.
 */
#include "cuda/symbols.h"
#include "malloc_fail.h"
#include "scenarios.h"
#include "thread_fail.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define LEAK_CHECK
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEAK_CHECK
#endif
#endif
#ifdef LEAK_CHECK
#include <sanitizer/lsan_interface.h>
#endif

#define NTH_MAX 200u      /* a scenario with more calls than that does not end */
#define LATER_MAX 16u     /* how far behind the first failure the second one of a pair may be */
#define WINDOW 8u         /* scenarios at work at once */
#define ENDS_CALLS_MAX 8u /* calls looked at where nothing tells how many there are */

/* ---- what is made to fail ---- */

enum kind {
    KIND_CALL,   /* the n-th call of the provider, with each status that fits */
    KIND_AFTER,  /* the n-th call that makes something, after it made it */
    KIND_ONWARD, /* the n-th call and all that follow */
    KIND_FENCE,  /* the n-th record, watermark, wait, wait between streams */
    KIND_FREE,   /* the n-th carrying out of a release */
    KIND_MEMORY, /* the n-th allocation of host memory */
    KIND_THREAD, /* the n-th thread that the core makes, alone or with all that follow */
    KIND_PAIR,   /* the n-th call, and a later one or a release */
    KIND_DRIVER, /* the n-th call of a driver's function, with each code that fits, alone or with all that follow */
    KIND_COUNT
};

static const char *const kind_names[KIND_COUNT] = {"call",   "after",  "onward", "fence", "free",
                                                   "memory", "thread", "pair",   "driver"};

static const moor_status statuses[] = {MOOR_PROVIDER, MOOR_DEVICE_NOMEM, MOOR_HOST_NOMEM, MOOR_DEVICE_LOST};
static const char *const makers[] = {"context_open",  "allocate", "stream.create", "reserve", "commit",
                                     "shared.create", "pin"};
static const char *const fences[] = {"record", "watermark", "wait", "wait_stream"};

/* What the provider calls of the driver. Of cuCtxPopCurrent nobody says what is current once it has failed. */
static const char *const driver_functions[] = {
#define NAME(name_, version_) #name_,
    CUDA_SYMBOLS(NAME) "cuGetProcAddress"
#undef NAME
};
#define POP "cuCtxPopCurrent"
#define DRIVER_FUNCTIONS (sizeof driver_functions / sizeof driver_functions[0])

/* CUresults. */
#define OUT_OF_MEMORY 2
#define ILLEGAL_ADDRESS 700 /* ends the context */
#define UNKNOWN 999
static const int driver_codes[] = {UNKNOWN, OUT_OF_MEMORY};

#define LENGTH(array_) (sizeof(array_) / sizeof(array_)[0])

struct driver_plan {
    const char *function; /* NULL: none */
    uint32_t nth;
    int code;
    bool onward; /* and all calls that follow */
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

/* As the setting `faults` has it. */
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

/* Without them the core has made nothing yet, and needs memory for the first thing of each kind. */
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

/* The driver ends the context, for this process: nothing can be done with it any more but to leave. */
static bool ends_context(const struct injection *injection)
{
    return injection->driver.code == ILLEGAL_ADDRESS;
}

/* ---- one scenario ---- */

struct sweep {
    const struct target *target;
    const struct scenario *scenario;
    struct world_state prepared[2]; /* the books before the act, all settled: without witnesses, and with */
    struct world_state done[2];     /* and after it */
};

/* What comes out of a scenario's process. */
struct tally {
    uint64_t calls; /* of the provider, when nothing fails */
    uint64_t allocations;
    uint64_t injected[KIND_COUNT];
    uint64_t failed;                  /* of them, trials whose call failed */
    uint64_t survived;                /* trials that ended as they must */
    bool is_called[DRIVER_FUNCTIONS]; /* in the act, when nothing fails */
};

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

/* Has it come to pass? */
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

/* Nothing fails any more. Has all of it come to pass? */
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

/* The budget has what a grant did not get back. */
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

/* A stream that has once said that its device is lost is lost to the host. */
static void replace_stream(struct world *world)
{
    if (!world->stream)
        return;
    MUST(moor_stream_destroy(world->stream));
    MUST(moor_stream_create(world->device, NULL, &world->stream));
}

/* The act failed, and nothing fails any more: all is as before, and it works now. */
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

/* The context has ended, or will when somebody looks: what is asked of it now is answered. */
static void check_end(struct world *world, const struct sweep *sweep, moor_status status)
{
    if (world->second_holder) /* nobody lets go any more, while all is given back */
        MUST(moor_holder_set_pressure(world->second_holder, NULL, NULL));
    if (world->runtime)
        world_settle(world);
    /* Where the act is several calls, it cannot begin anew. */
    if (!status || sweep->scenario->tidy || sweep->scenario->flags & (SWEEP_ENDS | SWEEP_BARE))
        return;
    status = sweep->scenario->act(world);
    CHECK(!status || status == MOOR_DEVICE_LOST || status == MOOR_UNSUPPORTED,
          "%s of a device that may be lost", moor_status_name(status));
    world_settle(world);
}

/* Returns whether what was to fail did. */
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
    tally->injected[injection->kind] += happened; /* and what comes through all that follows has survived */
    CHECK(happened || !status || injection->plan_count == 2, "%s, though nothing was made to fail",
          moor_status_name(status));
    /* What the scenario itself gave up waiting for is no call's failure. */
    CHECK(!status || status == MOOR_TIMEOUT || moor_last_error()->status == status,
          "%s, and the last error says %s", moor_status_name(status),
          moor_status_name(moor_last_error()->status));
    if (status && !ends_context(injection))
        check_failure(&world, sweep, injection);
    if (ends_context(injection)) {
        check_end(&world, sweep, status);
    } else if (!loses_device(injection)) {
        check(&world, &sweep->done[witnesses], "when it is done");
        if (sweep->scenario->undo)
            sweep->scenario->undo(&world);
        check(&world, &sweep->prepared[witnesses], "after taking it back");
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

/* n = 1, 2, 3 ... of one plan. Returns how many happened. */
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
    CHECK(ends, "there is no end of calls");
    return count;
}

/* The n-th call fails, and then something on the way back. */
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

/* One function of the driver: n = 1, 2, 3 ... of each code. What polls is called as often as it pleases. */
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
    FAIL("there is no end of allocations");
}

static void sweep_threads(const struct sweep *sweep, struct tally *tally)
{
    static const uint64_t times[] = {1, UINT64_MAX};
    for (size_t i = 0; i < LENGTH(times); i++) {
        bool happened = true;
        for (uint64_t n = 1; happened; n++) {
            CHECK(n <= NTH_MAX, "there is no end of threads");
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

/* With nothing failing, which is what all else is compared with. */
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
    check(&world, &sweep->prepared[witnesses], "after taking it back");
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

static void sweep_scenario(struct sweep *sweep, struct tally *tally)
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
    /* A provider that failed to end is kept with all that it has: start.c says why. */
    CHECK(sweep->scenario->flags & SWEEP_ENDS || open_files() == files, "%llu files are open, %llu were",
          (unsigned long long)open_files(), (unsigned long long)files);
#ifdef LEAK_CHECK
    CHECK(__lsan_do_recoverable_leak_check() == 0, "memory is leaked");
#endif
}

/* ---- all of them ---- */

/* Does the domain that is swept have what the scenario needs, and the other provider's? */
static bool is_possible(const struct target *target, const struct scenario *scenario)
{
    struct world world;
    (void)snprintf(world_trial, sizeof world_trial, "%s: what it can do", target->name);
    world_start(&world, target);
    world_open(&world, false);
    world_open_far(&world);
    bool possible = (world.domain.capabilities & scenario->needs) == scenario->needs &&
                    (world.far_domain.capabilities & scenario->far_needs) == scenario->far_needs;
    world_close(&world);
    return possible;
}

enum outcome { SKIPPED, SURVIVED, WENT_WRONG };

/* ---- contexts that end ---- */

enum { HAPPENED = 0, WENT_BAD = 1, HAPPENED_AND_FAILED = 3, DID_NOT_HAPPEN = 4 };

/* A context that has ended comes again in no process, so each trial has its own. */
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
static void sweep_ends(const struct sweep *sweep, struct tally *tally)
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
                exit(1); /* and it has been said what */
            tally->injected[KIND_DRIVER] += outcome != DID_NOT_HAPPEN;
            tally->survived += outcome != DID_NOT_HAPPEN;
            tally->failed += outcome == HAPPENED_AND_FAILED;
        }
    }
}

/* A scenario in a process of its own; the tally comes through the pipe when it is through. */
struct process {
    const struct scenario *scenario;
    pid_t id;
    int pipe;
};

/* The driver reads it when it is loaded, which it is in the scenario's process alone. Small granules and no
 * delays: the sweep makes and frees memory by the thousand. */
static void configure_driver(const struct scenario *scenario)
{
    char text[128];
    (void)snprintf(text, sizeof text,
                   "total=%s,context=64KiB,granule_min=64KiB,granule=64KiB,delay_us=0,violations=count",
                   scenario->flags & SWEEP_SMALL ? SMALL_BYTES : "1GiB");
    (void)setenv("MOOR_CUDASIM", text, 1);
}

/* Whether there was anything to do, and the tally. */
static bool sweep_in_child(struct sweep *sweep, struct tally *ret_tally)
{
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0, "no pipe");
    pid_t id = fork();
    CHECK(id >= 0, "no process");
    if (id == 0) {
        struct tally tally = {0};
        if (is_possible(sweep->target, sweep->scenario)) {
            sweep_scenario(sweep, &tally);
            if (write(ends[1], &tally, sizeof tally) != sizeof tally)
                exit(1);
        }
        exit(0);
    }
    (void)close(ends[1]);
    bool came = read(ends[0], ret_tally, sizeof *ret_tally) == sizeof *ret_tally;
    (void)close(ends[0]);
    int status = 1;
    CHECK(waitpid(id, &status, 0) == id, "a process is lost");
    CHECK(WIFEXITED(status), "%s, %s: ended by signal %d", sweep->target->name, sweep->scenario->name,
          WTERMSIG(status));
    if (WEXITSTATUS(status))
        exit(1); /* and it has been said what */
    return came;
}

static void run_apart(const struct target *target, const struct scenario *scenario, int pipe_to)
{
    struct sweep sweep = {.target = target, .scenario = scenario};
    struct tally tally = {0};
    if (target->driver_path)
        configure_driver(scenario);
    if (sweep_in_child(&sweep, &tally)) {
        if (target->driver_path)
            sweep_ends(&sweep, &tally);
        if (write(pipe_to, &tally, sizeof tally) != sizeof tally)
            exit(1);
    }
    exit(0);
}

static struct process launch(const struct target *target, const struct scenario *scenario)
{
    struct process process = {.scenario = scenario};
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0, "no pipe");
    (void)fflush(stdout);
    process.id = fork();
    CHECK(process.id >= 0, "no process");
    process.pipe = ends[0];
    if (process.id == 0)
        run_apart(target, scenario, ends[1]);
    (void)close(ends[1]);
    return process;
}

static enum outcome collect(const struct target *target, const struct process *process,
                            struct tally *ret_tally)
{
    bool came = read(process->pipe, ret_tally, sizeof *ret_tally) == sizeof *ret_tally;
    (void)close(process->pipe);
    int status = 1;
    CHECK(waitpid(process->id, &status, 0) == process->id, "a process is lost");
    if (WIFSIGNALED(status))
        fprintf(stderr, "%s, %s: ended by signal %d\n", target->name, process->scenario->name,
                WTERMSIG(status));
    if (status)
        return WENT_WRONG;
    return came ? SURVIVED : SKIPPED;
}

static uint64_t total(const struct tally *tally)
{
    uint64_t sum = 0;
    for (int kind = 0; kind < KIND_COUNT; kind++)
        sum += tally->injected[kind];
    return sum;
}

static void print_row(const char *name, const struct tally *tally)
{
    printf("# %-44s%6llu%6llu ", name, (unsigned long long)tally->calls,
           (unsigned long long)tally->allocations);
    for (int kind = 0; kind < KIND_COUNT; kind++)
        printf("%7llu", (unsigned long long)tally->injected[kind]);
    printf("%8llu%9llu\n", (unsigned long long)tally->failed, (unsigned long long)tally->survived);
}

static void add(struct tally *sum, const struct tally *tally)
{
    sum->calls += tally->calls;
    sum->allocations += tally->allocations;
    sum->failed += tally->failed;
    sum->survived += tally->survived;
    for (int kind = 0; kind < KIND_COUNT; kind++)
        sum->injected[kind] += tally->injected[kind];
}

static unsigned int test_count, bad_count;

static void report(bool good, const char *what, const char *which, const char *directive)
{
    test_count++;
    bad_count += !good;
    printf("%sok %u - %s: %s%s\n", good ? "" : "not ", test_count, what, which, directive);
}

static void print_head(const char *name)
{
    printf("# %-44s%6s%6s ", name, "calls", "alloc");
    for (int kind = 0; kind < KIND_COUNT; kind++)
        printf("%7s", kind_names[kind]);
    printf("%8s%9s\n", "failed", "survived");
}

static void finish(const struct target *target, const struct process *process, struct tally *sum)
{
    struct tally tally = {0};
    const char *name = process->scenario->name;
    enum outcome outcome = collect(target, process, &tally);
    if (outcome == SKIPPED) {
        report(true, target->name, name, " # SKIP the provider lacks what it needs");
        return;
    }
    add(sum, &tally);
    if (outcome == SURVIVED)
        print_row(name, &tally);
    bool good = process->scenario->flags & SWEEP_CANNOT ? tally.failed == 0 : total(&tally) > 0;
    report(outcome == SURVIVED && good && total(&tally) == tally.survived, target->name, name, "");
}

/* Several at once, for some of them wait for what does not come; told in their order. */
static void sweep_target(const struct target *target, const char *wanted)
{
    /* The last two know nothing of the driver's streams, and take their time: once is enough. */
    static const struct scenarios *const groups[] = {
        &life_scenarios,   &buffer_scenarios,   &range_scenarios,   &segment_scenarios,
        &stream_scenarios, &governor_scenarios, &pressure_scenarios};
    size_t group_count =
        LENGTH(groups) - (target->timeline && strcmp(target->timeline, "events") == 0 ? 2 : 0);
    struct process window[WINDOW];
    size_t launched = 0, finished = 0;
    struct tally sum = {0};
    print_head(target->name);
    for (size_t group = 0; group < group_count; group++)
        for (size_t i = 0; i < groups[group]->count; i++) {
            const struct scenario *scenario = &groups[group]->list[i];
            if (wanted && !strstr(scenario->name, wanted))
                continue;
            if (launched - finished == WINDOW)
                finish(target, &window[finished++ % WINDOW], &sum);
            window[launched++ % WINDOW] = launch(target, scenario);
        }
    while (finished < launched)
        finish(target, &window[finished++ % WINDOW], &sum);
    print_row("all", &sum);
    for (int kind = 0; !wanted && kind < KIND_COUNT - !target->driver_path; kind++)
        report(sum.injected[kind] > 0, target->name, kind_names[kind], " failures were injected");
}

int main(int argc, char **argv)
{
    const char *driver = NULL;
    if (argc > 2 && strcmp(argv[1], "--cuda") == 0) {
        driver = argv[2];
        argc -= 2;
        argv += 2;
    }
    if (argc < 4) {
        fprintf(stderr, "usage: sweep FAULT.so CPU.so MOCK.so [SCENARIO]\n"
                        "       sweep --cuda DRIVER FAULT.so CUDA.so MOCK.so [SCENARIO]\n");
        return 2;
    }
    const char *wanted = argc > 4 ? argv[4] : NULL;
    char folder[4096];
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(argv[1], '/') - argv[1]), argv[1]);
    (void)setenv("MOORAGE_PROVIDER_PATH", folder, 1);
    const struct target plain[] = {{"cpu", argv[1], argv[2], argv[3], true, NULL, NULL},
                                   {"mock", argv[1], argv[3], argv[2], false, NULL, NULL}};
    const struct target cuda[] = {{"cuda", argv[1], argv[2], argv[3], true, driver, "memory"},
                                  {"cuda, events", argv[1], argv[2], argv[3], true, driver, "events"}};
    const struct target *targets = driver ? cuda : plain;
    for (size_t i = 0; i < 2; i++)
        sweep_target(&targets[i], wanted);
    printf("1..%u\n", test_count);
    return bad_count > 0;
}
