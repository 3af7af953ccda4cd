/* SPDX-License-Identifier: MIT */
/*
 * A model and the real governor, step by step. A step is an operation, which is chosen by the model's
 * possibilities, carried out in the model, which predicts its result, and then by the real governor.
 *
 * Pressure functions take part. The model runs stand-ins for them, and their operations form a list: a visit.
 * The real function, on a thread of the runtime, takes the next visit and carries it out. All visits of a
 * step are thus known before the step, and a missing or an unexpected call of a function is a mismatch like
 * any other.
 */
#ifndef MOOR_TESTS_GOVERNOR_LOCKSTEP_H
#define MOOR_TESTS_GOVERNOR_LOCKSTEP_H

#include "model.h"
#include "scripted.h"

#include <moorage/moorage.h>

enum op_kind {
    OP_HOLDER_CREATE,
    OP_HOLDER_DESTROY,
    OP_BINDING_OPEN,
    OP_BINDING_CLOSE,
    OP_RESERVE,
    OP_GRANT_RELEASE,
    OP_LEASE_COMMIT,
    OP_GRANT_COMMIT,
    OP_LEASE_ADJUST,
    OP_LEASE_REFUND,
    OP_ALLOCATE,
    OP_WRAP,
    OP_RELEASE,
    OP_SET_CAPACITY,
    OP_SET_ASIDE,
    OP_SET_EXTERNAL, /* external use of the device */
    OP_REFRESH,
    OP_SET_LIMITS,
    OP_SET_FUNCTION,
    OP_SET_EVICTABLE,
    OP_TICKET_OPEN,
    OP_TICKET_WAIT,
    OP_TICKET_CANCEL,
    OP_STREAM_OPEN,
    OP_REAP,
    OP_FAIL_FREES,
    OP_TIME,
    OP_KINDS
};

struct op {
    enum op_kind kind;
    uint32_t pool;
    uint32_t holder;
    uint32_t grant;
    uint32_t item;
    uint32_t ticket;
    uint32_t stream;
    uint32_t count; /* parts */
    struct model_part parts[MODEL_PARTS];
    uint64_t bytes;
    uint64_t revision;
    uint64_t until; /* a deadline, or the time */
    struct moor_holder_limits limits;
    uint32_t role;
    uint32_t device_fails;
    bool has_function;
    /* The model's prediction: */
    moor_status status;
    uint64_t error_bytes; /* bytes of a shortage */
    uint64_t over;
    uint32_t made[MODEL_PARTS];
    bool reaps;          /* a request waits: completed releases are reaped at once on both sides */
    uint32_t leaving;    /* releases still behind fences afterwards */
    uint32_t free_fails; /* frees that have yet to fail */
};

#define VISIT_OPS 24u
#define VISITS 192u

struct visit {
    uint32_t holder;
    struct moor_pressure pressure;  /* ticket: not known before */
    uint64_t request;               /* the model's number of the ticket; 0: no host has its handle */
    bool request_open;              /* the ticket exists when the function is called */
    uint32_t request_ticket;        /* the ticket, if it outlives the step; or MODEL_NONE */
    struct moor_ticket_stats stats; /* the ticket's, when the function is called */
    moor_ticket ticket;             /* bytes of the pressure request */
    struct op ops[VISIT_OPS];
    uint32_t count;
    uint64_t says;
};

struct step {
    struct op op;
    struct visit visits[VISITS];
    uint32_t visit_count;
    uint32_t visits_within; /* visits before the end of the operation */
};

/* ---- choose.c, behave.c: choosing the operations ---- */

/* The character of one seed's run, as frequencies. */
struct profile {
    uint64_t capacity;
    uint32_t weights[OP_KINDS];
    uint32_t small;         /* percent of the sizes */
    uint32_t answers_fully; /* percent of the pressure functions; the other ones misbehave more */
    uint32_t check_every;
};

struct random {
    uint64_t state;
};
uint64_t random_next(struct random *random);
uint64_t random_below(struct random *random, uint64_t bound);
bool random_hit(struct random *random, uint32_t percent);

struct profile profile_make(struct random *random);
uint64_t profile_total(const struct profile *profile, uint32_t pool); /* percent of the device's memory */
/* The next operation of a step. */
void choose_op(struct random *random, const struct profile *profile, const struct model *model,
               struct op *ret_op);
/* Opens a ticket inside the holder's pressure function; false: there are enough. */
bool choose_ticket(struct random *random, const struct profile *profile, const struct model *model,
                   uint32_t holder, struct op *op);
/* The released object, and the stream that holds it. */
void choose_release(struct random *random, const struct model *model, uint32_t item, struct op *ret_op);

struct behaviour {
    struct random random;
    const struct profile *profile;
    struct step *step;
    uint64_t names_before; /* numbers that the model had given out before the step */
};
/* Runs the pressure function in the model and records its operations. A model_function. */
void behave(void *user, struct model *model, const struct model_ask *ask);

/* ---- ops.c: one operation in the model ---- */

/* The objects of an operation, which choose the function that carries it out. */
enum op_group { OP_ON_HOLDER, OP_ON_BYTES, OP_ON_POOL, OP_ON_OTHERS, OP_GROUPS };

struct op_traits {
    const char *name;
    enum op_group group;
    uint32_t weight; /* the usual frequency */
};
extern const struct op_traits op_traits[OP_KINDS];

void op_in_model(struct op *op, struct model *model);
uint64_t op_footprint(uint64_t bytes);

/* ---- world.c, real.c: the real governor ---- */

struct world;
struct world *world_open(const struct profile *profile, const struct model *model, uint64_t seed);
void world_close(struct world *world);
/* Carries the step out, with its visits. A mismatch ends the process with the whole state. */
void world_step(struct world *world, struct step *step, uint64_t number);

#define OUTCOMES 8u
/* The results of each operation, counted; [1]: inside pressure functions. */
struct tally {
    uint64_t ended[OP_KINDS][2][OUTCOMES];
    uint64_t asked;
    uint64_t digest;
};
const struct tally *world_tally(const struct world *world);
const char *outcome_name(uint32_t outcome);

/* ---- check.c: the comparison ---- */

void world_check(struct world *world, const struct model *model);

#endif
