/* SPDX-License-Identifier: MIT */
/*
 * governor: the cost of reserve, charge and refund while no pool is short: with more threads, more holders, a
 * trace function, many live leases. The same run measures an atomic add and a mutex pair, so that figures of
 * different machines can be compared.
 *
 * A figure is the processor time of one operation, waiting included:
 *     figure = (end of the last thread - start of the first) * processors used / operations of all threads
 * Threads that do not hinder each other have the figure of one thread, even when four of them share two
 * processors.
 */
#include "bench/bench.h"

#include <moorage/moorage.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 4u
#define CAPACITY_BYTES (UINT64_C(1) << 40) /* the pool is never short */
#define BYTES (UINT64_C(64) << 10)
#define DRAWN_BYTES (UINT64_C(4) << 10)

/* ---- places ---- */

/* Each place has its own runtime, made once. */
enum place { PLAIN, TRACED, LEASES_1E3, LEASES_1E5, HOLDERS_1E3, HOLDERS_1E5, PLACES };

static const struct {
    size_t holders;
    size_t leases; /* live for the whole run: all of one holder, or one of each */
    bool traced;
} shapes[PLACES] = {
    [PLAIN] = {THREADS_MAX, 0, false},   [TRACED] = {THREADS_MAX, 0, true},
    [LEASES_1E3] = {1, 1000, false},     [LEASES_1E5] = {1, 100000, false},
    [HOLDERS_1E3] = {1000, 1000, false}, [HOLDERS_1E5] = {100000, 100000, false},
};

struct world {
    struct moor_runtime *runtime;
    struct moor_authority *authority;
    struct moor_holder **holders; /* [owned] */
    size_t holder_count;          /* created so far */
    moor_lease *leases;           /* [owned] */
    size_t lease_count;
    size_t next; /* the next lease to refund */
};

/* The threads of one sample, and their shared state. */
struct crew {
    const struct bench_case *what;
    struct world *world;
    uint64_t operations; /* per thread */
    cpu_set_t processors;
    _Atomic uint32_t arrived;
    /* not 0: the measured thread has ended, or a thread has failed */
    _Atomic uint32_t ended;
    _Alignas(64) _Atomic uint64_t number;
    _Alignas(64) pthread_mutex_t mutex;
};

struct worker {
    _Alignas(64) _Atomic uint64_t number; /* alone in its cache line */
    struct crew *crew;
    uint32_t index;
    pthread_t thread;
    uint64_t start_ns; /* 0: not measured */
    uint64_t end_ns;
    struct moor_error error; /* the error that ended the thread */
};

/* One row of the report: a sample is `operations` by each thread. own: each thread has its own holder. */
struct bench_case {
    const char *name;
    const char *param;
    uint32_t threads;
    enum place place;
    bool own;
    uint64_t operations;
    moor_status (*run)(struct worker *worker);
};

/* Starts all threads of the sample at once. */
static void begin(struct worker *worker)
{
    struct crew *crew = worker->crew;
    atomic_fetch_add(&crew->arrived, 1);
    while (atomic_load(&crew->arrived) < crew->what->threads && !atomic_load(&crew->ended))
        (void)sched_yield();
    worker->start_ns = moor_clock_ns();
}

static void end(struct worker *worker)
{
    worker->end_ns = moor_clock_ns();
}

static struct moor_holder *holder_of(const struct worker *worker)
{
    return worker->crew->world->holders[worker->crew->what->own ? worker->index : 0];
}

/* ---- reference operations ---- */

static moor_status run_adds(struct worker *worker)
{
    _Atomic uint64_t *number = worker->crew->what->own ? &worker->number : &worker->crew->number;
    begin(worker);
    for (uint64_t i = 0; i < worker->crew->operations; i++)
        atomic_fetch_add_explicit(number, 1, memory_order_relaxed);
    end(worker);
    return MOOR_OK;
}

static moor_status run_mutex_pairs(struct worker *worker)
{
    pthread_mutex_t *mutex = &worker->crew->mutex;
    begin(worker);
    for (uint64_t i = 0; i < worker->crew->operations; i++) {
        pthread_mutex_lock(mutex);
        pthread_mutex_unlock(mutex);
    }
    end(worker);
    return MOOR_OK;
}

/* ---- operations ---- */

static moor_status charge(struct moor_runtime *runtime, struct moor_holder *holder, moor_lease *ret_lease)
{
    moor_grant grant;
    moor_status status = moor_grant_reserve(holder, BYTES, MOOR_NO_WAIT, &grant);
    return status ? status : moor_grant_commit(runtime, grant, BYTES, ret_lease);
}

static moor_status charge_and_refund(struct moor_runtime *runtime, struct moor_holder *holder)
{
    moor_lease lease;
    moor_status status = charge(runtime, holder, &lease);
    return status ? status : moor_lease_refund(runtime, lease);
}

static moor_status run_charges(struct worker *worker)
{
    struct moor_runtime *runtime = worker->crew->world->runtime;
    struct moor_holder *holder = holder_of(worker);
    moor_status status = MOOR_OK;
    begin(worker);
    for (uint64_t i = 0; i < worker->crew->operations && !status; i++)
        status = charge_and_refund(runtime, holder);
    end(worker);
    return status;
}

/* The same with many live leases, of which the next one in stride order is refunded each time. A processor
 * cannot predict the stride, so the cost of fetching the lease is included. */
#define STRIDE 617u /* coprime to the number of leases */

static moor_status run_rounds(struct worker *worker)
{
    struct world *world = worker->crew->world;
    size_t next = world->next;
    moor_status status = MOOR_OK;
    begin(worker);
    for (uint64_t i = 0; i < worker->crew->operations && !status; i++) {
        moor_lease *lease = &world->leases[next], made;
        status = charge(world->runtime, world->holders[next < world->holder_count ? next : 0], &made);
        if (!status)
            status = moor_lease_refund(world->runtime, *lease);
        if (!status)
            *lease = made;
        next += STRIDE;
        if (next >= world->lease_count)
            next -= world->lease_count;
    }
    end(worker);
    world->next = next;
    return status;
}

static moor_status run_releases(struct worker *worker)
{
    struct moor_runtime *runtime = worker->crew->world->runtime;
    struct moor_holder *holder = holder_of(worker);
    moor_status status = MOOR_OK;
    begin(worker);
    for (uint64_t i = 0; i < worker->crew->operations && !status; i++) {
        moor_grant grant;
        status = moor_grant_reserve(holder, BYTES, MOOR_NO_WAIT, &grant);
        if (!status)
            status = moor_grant_release(runtime, grant);
    }
    end(worker);
    return status;
}

/* The drawn leases stay until the clock has been read. */
static moor_status run_draws(struct worker *worker)
{
    struct moor_runtime *runtime = worker->crew->world->runtime;
    uint64_t operations = worker->crew->operations, drawn = 0;
    moor_lease *leases = tool_allocate(operations, sizeof *leases);
    moor_grant grant;
    moor_status status =
        moor_grant_reserve(holder_of(worker), operations * DRAWN_BYTES, MOOR_NO_WAIT, &grant);
    if (status)
        goto out;
    begin(worker);
    while (drawn < operations && !status) {
        status = moor_lease_commit(runtime, grant, DRAWN_BYTES, &leases[drawn]);
        drawn += !status;
    }
    end(worker);
    for (uint64_t i = 0; i < drawn && !status; i++)
        status = moor_lease_refund(runtime, leases[i]);
    if (!status)
        status = moor_grant_release(runtime, grant);
out:
    free(leases);
    return status;
}

static moor_status run_adjustments(struct worker *worker)
{
    struct moor_runtime *runtime = worker->crew->world->runtime;
    moor_lease lease;
    moor_status status = charge(runtime, holder_of(worker), &lease);
    if (status)
        return status;
    begin(worker);
    for (uint64_t i = 0; i < worker->crew->operations && !status; i++) {
        status = moor_lease_adjust(runtime, lease, 2 * BYTES, MOOR_NO_WAIT);
        if (!status)
            status = moor_lease_adjust(runtime, lease, BYTES, MOOR_NO_WAIT);
    }
    end(worker);
    return status ? status : moor_lease_refund(runtime, lease);
}

/* The first thread takes snapshots; the other threads allocate meanwhile. */
static moor_status run_snapshots(struct worker *worker)
{
    struct crew *crew = worker->crew;
    struct moor_authority_stats stats;
    moor_status status = MOOR_OK;
    begin(worker);
    if (worker->index > 0) {
        worker->start_ns = 0;
        while (!atomic_load_explicit(&crew->ended, memory_order_relaxed) && !status)
            status = charge_and_refund(crew->world->runtime, holder_of(worker));
        return status;
    }
    for (uint64_t i = 0; i < crew->operations && !status; i++)
        status = moor_authority_get_stats(crew->world->authority, &stats, NULL, 0, NULL);
    end(worker);
    atomic_store(&crew->ended, 1);
    return status;
}

/* The holder is at its limit. */
static moor_status run_refusals(struct worker *worker)
{
    struct world *world = worker->crew->world;
    const struct moor_holder_options options = {.name = "full", .limits.limit_bytes = BYTES};
    struct moor_holder *full;
    moor_lease lease;
    moor_grant grant;
    moor_status status = moor_holder_create(world->authority, &options, &full);
    if (!status)
        status = charge(world->runtime, full, &lease);
    if (status)
        return status;
    begin(worker);
    for (uint64_t i = 0; i < worker->crew->operations && !status; i++) {
        moor_status answer = moor_grant_reserve(full, BYTES, MOOR_NO_WAIT, &grant);
        if (answer != MOOR_OVER_BUDGET)
            status = answer ? answer : MOOR_CORRUPT;
    }
    end(worker);
    if (!status)
        status = moor_lease_refund(world->runtime, lease);
    return status ? status : moor_holder_destroy(full);
}

/* ---- rows ---- */

enum row {
    ADD,
    ADD_SHARED,
    MUTEX,
    CHARGE,
    CHARGE_2,
    CHARGE_4,
    CHARGE_2_OWN,
    CHARGE_4_OWN,
    TRACED_CHARGE,
    TRACED_CHARGE_2,
    TRACED_CHARGE_4,
    TRACED_CHARGE_2_OWN,
    TRACED_CHARGE_4_OWN,
    AMONG_1E3_LEASES,
    AMONG_1E5_LEASES,
    AMONG_1E3_HOLDERS,
    AMONG_1E5_HOLDERS,
    RELEASE,
    DRAW,
    ADJUST,
    SNAPSHOT,
    SNAPSHOT_BESIDE,
    REFUSAL,
    ROWS
};

#define CHARGES "governor/reserve + commit + refund"
#define TRACED_CHARGES CHARGES ", traced"
/* Operations of a sample: about a millisecond, so that most samples are not interrupted. */
#define MANY 20000u
#define SOME 4000u
#define FEW 500u

static const struct bench_case cases[ROWS] = {
    [ADD] = {"governor/yardstick: atomic add", "own line", 1, PLAIN, true, 2 * MANY, run_adds},
    [ADD_SHARED] = {"governor/yardstick: atomic add", "one line", 2, PLAIN, false, 2 * MANY, run_adds},
    [MUTEX] = {"governor/yardstick: mutex pair", "own", 1, PLAIN, true, 2 * MANY, run_mutex_pairs},
    [CHARGE] = {CHARGES, "one holder", 1, PLAIN, false, MANY, run_charges},
    [CHARGE_2] = {CHARGES, "one holder", 2, PLAIN, false, MANY, run_charges},
    [CHARGE_4] = {CHARGES, "one holder", 4, PLAIN, false, MANY, run_charges},
    [CHARGE_2_OWN] = {CHARGES, "own holders", 2, PLAIN, true, MANY, run_charges},
    [CHARGE_4_OWN] = {CHARGES, "own holders", 4, PLAIN, true, MANY, run_charges},
    [TRACED_CHARGE] = {TRACED_CHARGES, "one holder", 1, TRACED, false, MANY, run_charges},
    [TRACED_CHARGE_2] = {TRACED_CHARGES, "one holder", 2, TRACED, false, MANY, run_charges},
    [TRACED_CHARGE_4] = {TRACED_CHARGES, "one holder", 4, TRACED, false, MANY, run_charges},
    [TRACED_CHARGE_2_OWN] = {TRACED_CHARGES, "own holders", 2, TRACED, true, MANY, run_charges},
    [TRACED_CHARGE_4_OWN] = {TRACED_CHARGES, "own holders", 4, TRACED, true, MANY, run_charges},
    [AMONG_1E3_LEASES] = {CHARGES, "1e3 leases", 1, LEASES_1E3, false, SOME, run_rounds},
    [AMONG_1E5_LEASES] = {CHARGES, "1e5 leases", 1, LEASES_1E5, false, SOME, run_rounds},
    [AMONG_1E3_HOLDERS] = {CHARGES, "1e3 holders", 1, HOLDERS_1E3, false, SOME, run_rounds},
    [AMONG_1E5_HOLDERS] = {CHARGES, "1e5 holders", 1, HOLDERS_1E5, false, SOME, run_rounds},
    [RELEASE] = {"governor/reserve + release", "64 KiB", 1, PLAIN, false, MANY, run_releases},
    [DRAW] = {"governor/draw", "4 KiB", 1, PLAIN, false, MANY, run_draws},
    [ADJUST] = {"governor/adjust up + down", "64 KiB", 1, PLAIN, false, MANY, run_adjustments},
    [SNAPSHOT] = {"governor/snapshot", "alone", 1, PLAIN, false, FEW, run_snapshots},
    [SNAPSHOT_BESIDE] = {"governor/snapshot", "one busy", 2, PLAIN, false, FEW, run_snapshots},
    [REFUSAL] = {"governor/refusal at the limit", "64 KiB", 1, PLAIN, false, FEW, run_refusals},
};

static const struct {
    const char *name;
    const char *param;
    enum row over;
    enum row under;
} ratios[] = {
    {"governor/ratio: to a mutex pair", "one holder", CHARGE, MUTEX},
    {"governor/ratio: 2 threads to 1", "one holder", CHARGE_2, CHARGE},
    {"governor/ratio: 2 threads to 1", "own holders", CHARGE_2_OWN, CHARGE},
    {"governor/ratio: 4 threads to 1", "one holder", CHARGE_4, CHARGE},
    {"governor/ratio: 4 threads to 1", "own holders", CHARGE_4_OWN, CHARGE},
    {"governor/ratio: traced to untraced", "one holder", TRACED_CHARGE, CHARGE},
    {"governor/ratio: 1e5 leases to 1e3", "one holder", AMONG_1E5_LEASES, AMONG_1E3_LEASES},
    {"governor/ratio: 1e5 leases to 1e3", "own holders", AMONG_1E5_HOLDERS, AMONG_1E3_HOLDERS},
};

/* ---- set-up ---- */

/* Empty, so that only the cost of calling a trace function is measured. */
static void ignore_event(void *user, const struct moor_trace_event *event)
{
    (void)user;
    (void)event;
}

static moor_status fill_world(struct world *world, enum place place)
{
    size_t holders = shapes[place].holders, leases = shapes[place].leases;
    moor_status status = moor_authority_set_capacity(world->authority, CAPACITY_BYTES, 0, NULL);
    world->holders = tool_allocate(holders, sizeof(struct moor_holder *));
    world->leases = tool_allocate(leases + 1, sizeof *world->leases);
    for (; world->holder_count < holders && !status; world->holder_count += !status)
        status = moor_holder_create(world->authority, NULL, &world->holders[world->holder_count]);
    for (; world->lease_count < leases && !status; world->lease_count += !status)
        status = charge(world->runtime, world->holders[world->lease_count % holders],
                        &world->leases[world->lease_count]);
    return status || !shapes[place].traced ? status
                                           : moor_runtime_set_trace(world->runtime, ignore_event, NULL);
}

static bool open_world(const struct bench_options *options, enum place place, struct world *world)
{
    struct tool_failure *failure = options->failure;
    struct moor_provider *provider;
    struct moor_device *device;
    if (moor_runtime_create(NULL, &world->runtime))
        return tool_fail_last(failure, TOOL_FAILED, "runtime");
    if (!bench_load_provider(options, world->runtime, 0, &provider))
        return false;
    if (!bench_get_device(options, provider, &device))
        return false;
    if (moor_device_get_authority(device, 0, &world->authority))
        return tool_fail_last(failure, TOOL_REFUSED, options->provider);
    if (fill_world(world, place))
        return tool_fail_last(failure, TOOL_FAILED, "holders and leases");
    return true;
}

static void close_world(struct world *world)
{
    /* The process ends next: a failure of these releases would not change a figure. */
    for (size_t i = 0; i < world->lease_count; i++)
        (void)moor_lease_refund(world->runtime, world->leases[i]);
    for (size_t i = 0; i < world->holder_count; i++)
        (void)moor_holder_destroy(world->holders[i]);
    (void)moor_runtime_destroy(world->runtime);
    free(world->holders);
    free(world->leases);
}

/* ---- measuring ---- */

static void *work(void *user)
{
    struct worker *worker = user;
    struct crew *crew = worker->crew;
    size_t nth = worker->index % (size_t)CPU_COUNT(&crew->processors), processor = 0;
    while (!CPU_ISSET(processor, &crew->processors) || nth-- > 0)
        processor++;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    (void)sched_setaffinity(0, sizeof set, &set); /* if pinning fails, the spread grows */
    moor_status status = crew->what->run(worker);
    if (status) {
        worker->error = *moor_last_error();
        worker->error.status = status;
        atomic_store(&crew->ended, 1);
    }
    return NULL;
}

static double figure_of(const struct crew *crew, const struct worker *workers)
{
    uint32_t measured = 0;
    uint64_t start_ns = UINT64_MAX, end_ns = 0;
    for (uint32_t i = 0; i < crew->what->threads; i++) {
        const struct worker *worker = &workers[i];
        if (worker->start_ns == 0)
            continue;
        measured++;
        start_ns = worker->start_ns < start_ns ? worker->start_ns : start_ns;
        end_ns = worker->end_ns > end_ns ? worker->end_ns : end_ns;
    }
    uint32_t processors = (uint32_t)CPU_COUNT(&crew->processors);
    uint32_t had = measured < processors ? measured : processors;
    return (double)(end_ns - start_ns) * had / (double)(measured * crew->operations);
}

static bool run_crew(const struct bench_options *options, struct crew *crew, double *ret_ns)
{
    struct worker workers[THREADS_MAX] = {0};
    const struct worker *failed = NULL;
    uint32_t started = 0;
    int error = 0;
    for (; started < crew->what->threads && !error; started += !error) {
        workers[started].crew = crew;
        workers[started].index = started;
        error = pthread_create(&workers[started].thread, NULL, work, &workers[started]);
        if (error)
            atomic_store(&crew->ended, 1); /* no thread waits for this value */
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].error.status && !failed)
            failed = &workers[i];
    }
    if (error)
        return tool_fail(options->failure, TOOL_FAILED, MOOR_LIMIT, "no thread: %s", strerror(error));
    if (failed)
        return tool_fail(options->failure, TOOL_FAILED, failed->error.status, "%s: %s", crew->what->name,
                         failed->error.text);
    *ret_ns = figure_of(crew, workers);
    return true;
}

static bool sample(const struct bench_options *options, const cpu_set_t *processors,
                   const struct bench_case *what, struct world *world, double *ret_ns)
{
    /* The first, uncounted operations replace the caches of the case before. */
    const uint64_t counts[] = {what->operations / 8, what->operations};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct crew crew = {.what = what,
                            .world = world,
                            .operations = counts[i],
                            .processors = *processors,
                            .mutex = PTHREAD_MUTEX_INITIALIZER};
        if (!run_crew(options, &crew, ret_ns))
            return false;
    }
    return true;
}

static void report_all(const struct bench_options *options, double (*samples)[BENCH_ROUNDS_MAX],
                       struct bench_report *report)
{
    size_t rounds = options->rounds;
    double values[BENCH_ROUNDS_MAX];
    for (size_t i = 0; i < ROWS; i++) {
        memcpy(values, samples[i], rounds * sizeof *values);
        struct bench_result result = bench_summarise(cases[i].name, cases[i].param, "ns", values, rounds);
        result.threads = cases[i].threads;
        bench_add(report, result);
    }
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        for (size_t round = 0; round < rounds; round++)
            values[round] = samples[ratios[i].over][round] / samples[ratios[i].under][round];
        struct bench_result result = bench_summarise(ratios[i].name, ratios[i].param, "x", values, rounds);
        result.threads = cases[ratios[i].over].threads;
        bench_add(report, result);
    }
}

bool bench_governor(const struct bench_options *options, struct bench_report *report)
{
    static double samples[ROWS][BENCH_ROUNDS_MAX];
    struct world worlds[PLACES] = {0};
    cpu_set_t processors;
    bool good = sched_getaffinity(0, sizeof processors, &processors) == 0;
    if (!good)
        (void)tool_fail(options->failure, TOOL_FAILED, MOOR_UNSUPPORTED,
                        "the thread's processors are unknown");
    for (int place = 0; place < PLACES && good; place++)
        good = open_world(options, (enum place)place, &worlds[place]);
    for (size_t round = 0; round < options->rounds; round++)
        for (size_t i = 0; i < ROWS && good; i++)
            good = sample(options, &processors, &cases[i], &worlds[cases[i].place], &samples[i][round]);
    if (good)
        report_all(options, samples, report);
    for (int place = 0; place < PLACES; place++)
        close_world(&worlds[place]);
    return good;
}
