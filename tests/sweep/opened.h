/* SPDX-License-Identifier: MIT */
/* Worlds under Criterion: over a provider that an environment variable names, with little words for faults.
 */
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

/* Its runtime is up and its provider loaded. Ends the test early where the provider lacks what is needed. */
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
        cr_skip_test("%s lacks what this is about", target.name);
    }
}

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

#endif
