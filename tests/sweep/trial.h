/* SPDX-License-Identifier: MIT */
/* The trials of one scenario (trial.c), for who goes through all scenarios (sweep.c). */
#ifndef SWEEP_TRIAL_H
#define SWEEP_TRIAL_H

#include "cuda/symbols.h"
#include "scenarios.h"

#define LENGTH(array_) (sizeof(array_) / sizeof(array_)[0])

#define ONE(name_, version_) +1
enum { DRIVER_FUNCTIONS = 1 CUDA_SYMBOLS(ONE) }; /* and the one that looks them up */
#undef ONE

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

/* All trials in this process but those that end a context; the tally is filled. */
void sweep_scenario(struct sweep *sweep, struct tally *tally);
/* Those that do, each in a process of its own, after the others. */
void sweep_ends(const struct sweep *sweep, struct tally *tally);

#endif
