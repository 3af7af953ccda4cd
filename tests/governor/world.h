/* SPDX-License-Identifier: MIT */
/* The real side of the lockstep: the objects behind the model's numbers. */
#ifndef MOOR_TESTS_GOVERNOR_WORLD_H
#define MOOR_TESTS_GOVERNOR_WORLD_H

#include "lockstep.h"

#include <pthread.h>
#include <stdio.h>

#define HISTORY 16u

struct world;

struct world_slot { /* the user pointer of a pressure function */
    struct world *world;
    uint32_t holder;
};

struct world {
    struct scripted *script;
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    struct moor_device *device;
    struct moor_authority *pools[MODEL_POOLS];
    uint64_t external[MODEL_POOLS];
    struct moor_holder *holders[MODEL_HOLDERS];
    struct moor_binding *bindings[MODEL_HOLDERS];
    struct world_slot slots[MODEL_HOLDERS];
    moor_grant grants[MODEL_GRANTS];
    uint64_t items[MODEL_ITEMS]; /* leases and buffers */
    moor_ticket tickets[MODEL_TICKETS];
    struct moor_stream *streams[MODEL_STREAMS];
    struct moor_abi_stream *queues[MODEL_STREAMS]; /* the provider's streams */

    pthread_t host;       /* the thread that carries out the steps */
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t changed;
    struct step *step;
    const struct model *model; /* the state after the step */
    uint64_t number;
    uint32_t next;                   /* visit */
    bool is_open;                    /* visits may begin */
    bool is_awaited;                 /* the operation waits for the visits */
    uint32_t entered[MODEL_HOLDERS]; /* calls of the holder's function */
    uint32_t entered_before;         /* calls of the last visit's holder, at its start */
    uint64_t seed;
    uint64_t total;             /* external bytes of the device */
    struct op history[HISTORY]; /* a ring of the latest operations */
    uint64_t done;
    struct tally tally;
    pthread_mutex_t trace_lock;              /* guards the two fields below */
    uint64_t traced_reserved[MODEL_HOLDERS]; /* the sums of the events */
    uint64_t traced_charged[MODEL_HOLDERS];
    bool shows_trace;
};

/* real.c: carries out one operation and compares its result. inside: in a pressure function. */
void world_do(struct world *world, const struct op *op, bool inside);

/* Ends the process with the operation, the expected and the seen facts. */
void world_mismatch(struct world *world, const char *what, uint64_t expected, uint64_t seen)
    __attribute__((noreturn));
void world_expect(struct world *world, const char *what, uint64_t expected, uint64_t seen);
void world_mismatch_status(struct world *world, const char *what, moor_status expected, moor_status seen)
    __attribute__((noreturn));
/* Fails for a reason of the test itself. */
void world_must(struct world *world, const char *what, moor_status status);

void world_check_ticket(struct world *world, uint32_t index, const struct moor_ticket_stats *expected,
                        const struct moor_ticket_stats *seen);
/* Counts the result. */
void world_note(struct world *world, const struct op *op, bool inside);
/* Returns the governor's time. */
void world_set_time(uint64_t now);
uint64_t world_time(void);

/* Waits until that many visits of the step have ended and the runtime has handled their answers. */
void world_await_visits(struct world *world, uint32_t count);

/* The real function of a slot's holder. */
uint64_t world_asked(void *user, const struct moor_pressure *pressure);

#endif
