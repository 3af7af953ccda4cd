/* SPDX-License-Identifier: MIT */
/* Runs worlds one after the other, in a child process, so that a crash or a hang is a result too. */
#ifndef MOOR_SIM_RUN_H
#define MOOR_SIM_RUN_H

#include "generate.h"

#define SIM_OPS_MAX 16384u /* per world */

/* The operations of one world, from which it can be run again. */
struct sim_sequence {
    const struct sim_profile *profile;
    uint64_t seed; /* seed of the world */
    uint32_t count;
    struct sim_op ops[SIM_OPS_MAX];
};

struct sim_totals {
    uint64_t steps; /* operations begun */
    uint64_t worlds;
    uint64_t checks;
    uint64_t digest; /* over all results: equal for equal runs */
    uint64_t kinds[SIM_KIND_COUNT];
    uint64_t effective[SIM_KIND_COUNT]; /* operations per kind that had an effect */
};

/* The result of a run. Shared with the child process, and valid even if the child crashes. */
struct sim_result {
    bool ended; /* the child has run its last step */
    bool failed;
    bool hung; /* the failure is a hang */
    char failure[512];
    struct sim_totals totals;
    struct sim_sequence sequence; /* the last world */
};

struct sim_run {
    const char *path; /* path of the provider */
    const struct sim_profile *profile;
    uint64_t seed;
    uint64_t steps;
    uint64_t bypass_step; /* step of the operation that bypasses the model; 0: none */
    bool shows_progress;
};

/* Returns NULL without shareable memory. */
struct sim_result *sim_result_create(void);
void sim_result_destroy(struct sim_result *result);

/* Runs steps drawn from the seed. */
void sim_run(const struct sim_run *run, struct sim_result *result);
/* Runs the sequence in the result again. */
void sim_run_again(const char *path, struct sim_result *result);

#endif
