/* SPDX-License-Identifier: MIT */
/* Runs: worlds one after the other, in a process of their own, so that a crash or a hang is a result too. */
#ifndef MOOR_SIM_RUN_H
#define MOOR_SIM_RUN_H

#include "generate.h"

#define SIM_OPS_MAX 16384u /* of one world */

/* One world's operations, from which it can be lived again. */
struct sim_sequence {
    const struct sim_profile *profile;
    uint64_t seed; /* of the world */
    uint32_t count;
    struct sim_op ops[SIM_OPS_MAX];
};

struct sim_totals {
    uint64_t steps; /* begun */
    uint64_t worlds;
    uint64_t checks;
    uint64_t digest; /* of all that was answered: equal for equal runs */
    uint64_t kinds[SIM_KIND_COUNT];
    uint64_t effective[SIM_KIND_COUNT]; /* of them: did something, and not in vain */
};

/* How a run has ended. Shared with the process that makes it, and good also if that one crashes. */
struct sim_result {
    bool ended; /* by itself, after its last step */
    bool failed;
    bool hung; /* that is how it failed */
    char failure[512];
    struct sim_totals totals;
    struct sim_sequence sequence; /* of the last world */
};

struct sim_run {
    const char *path; /* of the provider */
    const struct sim_profile *profile;
    uint64_t seed;
    uint64_t steps;
    uint64_t untold_step; /* where something happens that the model is not told; 0: nowhere */
    bool shows_progress;
};

/* NULL: no memory to share. */
struct sim_result *sim_result_create(void);
void sim_result_destroy(struct sim_result *result);

/* Runs steps drawn from the seed. */
void sim_run(const struct sim_run *run, struct sim_result *result);
/* Runs a world's operations again, whose sequence is in the result. */
void sim_run_again(const char *path, struct sim_result *result);

#endif
