/* SPDX-License-Identifier: MIT */
/* Worlds under Criterion, over a provider that an environment variable names, and helpers for faults. */
#ifndef MOOR_TESTS_SWEEP_OPENED_H
#define MOOR_TESTS_SWEEP_OPENED_H

#include "world.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define LENGTH(array_) (sizeof(array_) / sizeof(array_)[0])

static inline const char *path_of(const char *variable)
{
    const char *path = getenv(variable);
    CHECK(path, "%s is not set", variable);
    return path;
}

enum which { CPU, MOCK };

/* Starts a runtime and loads the provider. Skips the test if the provider lacks a needed capability. */
static inline void open_world(struct world *world, enum which which, uint64_t needs)
{
    static struct target target;
    target = (struct target){
        .name = which == CPU ? "cpu" : "mock",
        .fault_path = path_of("MOOR_FAULT_PROVIDER"),
        .inner_path = path_of(which == CPU ? "MOOR_CPU_PROVIDER" : "MOOR_MOCK_PROVIDER"),
        .far_path = path_of(which == CPU ? "MOOR_MOCK_PROVIDER" : "MOOR_CPU_PROVIDER"),
        .threads = which == CPU,
    };
    (void)snprintf(world_trial, sizeof world_trial, "%s", target.name);
    world_start(world, &target);
    world_open(world, true);
    if ((world->domain.capabilities & needs) != needs) {
        world_close(world);
        cr_skip_test("%s lacks a capability that the case needs", target.name);
    }
}

static inline void run_case(enum which which, uint64_t needs, void (*body)(struct world *world))
{
    struct world world;
    open_world(&world, which, needs);
    body(&world);
    world_close(&world);
}

/* A case with an open world `world` on one provider. */
#define CASE(suite_, name_, which_, needs_)                                                                  \
    static void suite_##_##name_(struct world *world);                                                       \
    Test(suite_, name_)                                                                                      \
    {                                                                                                        \
        run_case(which_, needs_, suite_##_##name_);                                                          \
    }                                                                                                        \
    static void suite_##_##name_(struct world *world)

/* A case on each provider, as two tests: name_cpu and name_mock. */
#define CASE_ON_BOTH(suite_, name_, needs_)                                                                  \
    static void suite_##_##name_(struct world *world);                                                       \
    Test(suite_, name_##_cpu)                                                                                \
    {                                                                                                        \
        run_case(CPU, needs_, suite_##_##name_);                                                             \
    }                                                                                                        \
    Test(suite_, name_##_mock)                                                                               \
    {                                                                                                        \
        run_case(MOCK, needs_, suite_##_##name_);                                                            \
    }                                                                                                        \
    static void suite_##_##name_(struct world *world)

static inline void fail_nth(struct world *world, const char *function, uint32_t nth, moor_status status)
{
    const struct moor_fault_plan plan = {function, nth, 1, status, 0, 0};
    CHECK(world->control->inject(world->control->fault, &plan) == MOOR_OK, "a fault cannot be planned");
}

static inline void fail_nothing(struct world *world)
{
    CHECK(world->control->clear(world->control->fault) == MOOR_OK, "faults cannot be cleared");
}

static inline uint64_t calls(struct world *world, const char *function)
{
    return world->control->calls(world->control->fault, function);
}

/* The state once all work is done. */
static inline struct world_state settled(struct world *world)
{
    world_settle(world);
    return world_state(world);
}

static inline void expect_same(struct world *world, const struct world_state *before, const char *when)
{
    struct world_state after = settled(world);
    world_same(before, &after, when);
    CHECK(after.counts.quarantined == before->counts.quarantined, "%s: an object is in quarantine", when);
}

#endif
