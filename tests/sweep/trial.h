/* SPDX-License-Identifier: MIT */
/* The trials of one scenario (trial.c), for the loop over all scenarios (sweep.c). */
#ifndef SWEEP_TRIAL_H
#define SWEEP_TRIAL_H

#include "cuda/symbols.h"
#include "scenarios.h"

#define LENGTH(array_) (sizeof(array_) / sizeof(array_)[0])

#define ONE(name_, version_) +1
enum { DRIVER_FUNCTIONS = 1 CUDA_SYMBOLS(ONE) }; /* and cuGetProcAddress, which looks them up */
#undef ONE

enum kind {
    KIND_CALL,   /* the n-th call of the provider, with each fitting status */
    KIND_AFTER,  /* the n-th call that creates an object, after its work */
    KIND_ONWARD, /* the n-th call and all that follow */
    KIND_FENCE,  /* the n-th record, watermark, wait, wait between streams */
    KIND_FREE,   /* the n-th free of a release */
    KIND_MEMORY, /* the n-th allocation of host memory */
    KIND_THREAD, /* the n-th thread that the core makes, alone or with all that follow */
    KIND_PAIR,   /* the n-th call, and a later one or a release */
    /* the n-th call of a driver function, with each fitting code, alone or with all that follow */
    KIND_DRIVER,
    KIND_COUNT
};

struct sweep {
    const struct target *target;
    const struct scenario *scenario;
    /* the settled accounts before the act: without witnesses, and with them */
    struct world_state prepared[2];
    struct world_state done[2]; /* the settled accounts after the act */
};

/* The result of a scenario's process. */
struct tally {
    uint64_t calls; /* provider calls in the act without faults */
    uint64_t allocations;
    uint64_t injected[KIND_COUNT];
    uint64_t failed;                  /* trials with a failed act */
    uint64_t survived;                /* trials that ended correctly */
    bool is_called[DRIVER_FUNCTIONS]; /* called in the act without faults */
};

/* Runs all trials in this process except those that end a context; fills the tally. */
void sweep_scenario(struct sweep *sweep, struct tally *tally);
/* Runs the trials that end a context, each in a process of its own. Call it last. */
void sweep_ends(const struct sweep *sweep, struct tally *tally);

#endif
