/* SPDX-License-Identifier: MIT */
/*
 * The fault sweep runs every scenario repeatedly, each time with one more call made to fail, or a pair of
 * calls, until no call is left. After each trial: a failed call has changed nothing (promise I8), the
 * accounts are equal (I7), handles name their old objects (I10), no object is left at the end, and the same
 * call succeeds without faults.
 *
 * sweep FAULT.so CPU.so MOCK.so [SCENARIO] sweep --cuda DRIVER FAULT.so CUDA.so MOCK.so [SCENARIO]
 *
 * The second form sweeps the CUDA provider over the simulated driver at that path, once for each kind of
 * timeline. Each scenario runs in a process of its own, so that a failure is one line of the report. SCENARIO
 * selects the scenarios with it in their name.
 */
#include "trial.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WINDOW 8u /* scenarios that run at the same time */

static const char *const kind_names[KIND_COUNT] = {"call",   "after",  "onward", "fence", "free",
                                                   "memory", "thread", "pair",   "driver"};

/* Returns true if the swept domain and the other provider's have the capabilities that the scenario needs. */
static bool is_possible(const struct target *target, const struct scenario *scenario)
{
    struct world world;
    (void)snprintf(world_trial, sizeof world_trial, "%s: capabilities", target->name);
    world_start(&world, target);
    world_open(&world, false);
    world_open_far(&world);
    bool possible = (world.domain.capabilities & scenario->needs) == scenario->needs &&
                    (world.far_domain.capabilities & scenario->far_needs) == scenario->far_needs;
    world_close(&world);
    return possible;
}

enum outcome { SKIPPED, SURVIVED, WENT_WRONG };

/* Runs a scenario in a process of its own, which writes its tally to the pipe at the end. */
struct process {
    const struct scenario *scenario;
    pid_t id;
    int pipe;
};

/* The driver reads the variable when it is loaded, which happens only in the scenario's process. Granules are
 * small and there are no delays, because the sweep creates and frees memory thousands of times. */
static void configure_driver(const struct scenario *scenario)
{
    char text[512];
    const char *more = getenv("MOOR_CUDASIM"); /* another seed, or delays */
    (void)snprintf(text, sizeof text,
                   "total=%s,context=64KiB,granule_min=64KiB,granule=64KiB,delay_us=0,violations=count,%s",
                   scenario->flags & SWEEP_SMALL ? SMALL_BYTES : "1GiB", more ? more : "");
    (void)setenv("MOOR_CUDASIM", text, 1);
}

/* Returns true if the scenario ran, and its tally. */
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
        exit(1); /* the child has printed the failure */
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
        report(true, target->name, name, " # SKIP the provider lacks a needed capability");
        return;
    }
    add(sum, &tally);
    if (outcome == SURVIVED)
        print_row(name, &tally);
    bool good = process->scenario->flags & SWEEP_CANNOT ? tally.failed == 0 : total(&tally) > 0;
    report(outcome == SURVIVED && good && total(&tally) == tally.survived, target->name, name, "");
}

/* Several at once, because some wait for a deadline; reported in their order. */
static void sweep_target(const struct target *target, const char *wanted)
{
    /* The last two scenarios do not use the driver's streams and are slow, so one timeline is enough. */
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
