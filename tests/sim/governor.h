/* SPDX-License-Identifier: MIT */
/*
 * The governor in the model: accounts, limits, requests and tickets, as far as a host can see them.
 *
 * The model does not order requests or select holders: tests/governor/lockstep models the exact algorithm. No
 * holder here has a pressure function, so nothing is evicted.
 */
#ifndef MOOR_SIM_GOVERNOR_H
#define MOOR_SIM_GOVERNOR_H

#include "bounds.h"
#include "op.h"

#include <moorage/stats.h>

struct sim_world;

/* ---- verdicts ---- */

/* Sets of statuses, one bit each. If `must` is empty, the call succeeds or returns one of `may`. Else it returns
 * one of `must` or `may`. */
struct sim_verdict {
    uint32_t must;
    uint32_t may;
};

static inline uint32_t sim_bit(int status)
{
    return UINT32_C(1) << (status + 16);
}

static inline void sim_must(struct sim_verdict *verdict, int status)
{
    verdict->must |= sim_bit(status);
}

static inline void sim_may(struct sim_verdict *verdict, int status)
{
    verdict->may |= sim_bit(status);
}

/* ---- accounts ---- */

struct sim_authority {
    struct moor_authority *authority; /* NULL: the authority belongs to another device */
    uint64_t capacity;
    uint64_t set_aside; /* the emergency reserve, which pressure functions alone may use */
    uint64_t revision;
    bool may_refresh;  /* the current operation may refresh the external bytes */
    uint64_t external; /* external bytes before the operation */
    bool external_known;
    struct moor_authority_stats seen; /* after the last operation */
};

struct sim_holder {
    struct moor_holder *holder;
    int authority;
    uint64_t limit; /* UINT64_MAX: none */
    uint64_t guarantee;
    int32_t priority;
    uint64_t revision;
    uint64_t reserved;
    uint64_t live;      /* charged for live memory */
    uint64_t leased;    /* part of live: held by no provider */
    uint64_t shared;    /* part of live: in segments */
    uint64_t requested; /* requested for the live bytes, before rounding */
    uint64_t evictable; /* the host's setting */
    uint32_t users;     /* bindings, grants, parts of tickets */
    uint64_t charged;   /* after the last operation */
    uint64_t peak;      /* after the last operation */
};

struct sim_grant {
    moor_grant handle;
    int holder;
    uint64_t remaining;
};

struct sim_lease {
    moor_lease handle;
    int holder;
    uint64_t bytes;
};

struct sim_part {
    int holder;
    uint64_t bytes;
};

struct sim_ticket {
    moor_ticket handle;
    uint32_t count;
    struct sim_part parts[SIM_PARTS];
    uint64_t bytes;
    uint64_t deadline_ns;
    int32_t priority;
    bool served;
    bool ended; /* by its deadline */
};

/* ---- requests ---- */

/* The demand of one call on the governor and the devices. */
struct sim_request {
    struct sim_part parts[SIM_STEPS]; /* bytes to reserve */
    uint32_t count;
    uint64_t draws[SIM_GRANTS];  /* bytes drawn from grants */
    bool is_foreign;             /* a grant belongs to another holder */
    uint64_t rooms[SIM_DEVICES]; /* bytes of each pool's device memory */
    uint64_t deadline_ns;        /* MOOR_NO_WAIT, or a deadline that has passed */
    bool is_refused;             /* the verdict on the call's other arguments refuses it */
    struct sim_verdict verdict;
};

/* Add a demand of budget, or of memory: its budget, drawn from a grant unless that is SIM_NONE, and its device
 * memory. */
void sim_want_budget(struct sim_world *world, struct sim_request *request, int holder, uint64_t bytes);
void sim_want_memory(struct sim_world *world, struct sim_request *request, int binding, int grant,
                     uint64_t bytes);
/* Adds the statuses that the demand allows, unless the verdict already requires a refusal. */
void sim_judge(struct sim_world *world, const struct sim_request *request, struct sim_verdict *verdict);
/* Returns true if the parts would not fit even if no holder had any bytes. */
bool sim_never_fits(const struct sim_world *world, const struct sim_part *parts, uint32_t count);
/* Returns true if the parts fit now, by the library's own statistics. */
bool sim_fits_now(struct sim_world *world, const struct sim_part *parts, uint32_t count);

/* Around a call with a demand, like sim_begin_with and sim_end. verdict: on the call's other arguments.
 * sim_request_begin returns false if the simulation skips the call. */
bool sim_request_begin(struct sim_world *world, const struct sim_op *op, const struct sim_verdict *verdict,
                       struct sim_request *request, const uint64_t *output);
bool sim_request_end(struct sim_world *world, const struct sim_op *op, moor_status status,
                     struct sim_request *request);

/* Computes the external bytes of a pool from the devices' present figures: used bytes that are not ours. Leases
 * are ours. */
uint64_t sim_external_now(const struct sim_world *world, int pool);
/* Returns the bytes over the capacity, or lent out of guarantees, if each holder has has[] bytes. */
uint64_t sim_over(const struct sim_world *world, int pool, const uint64_t *has);
/* Returns the sum of the guarantees of a pool. */
uint64_t sim_guaranteed(const struct sim_world *world, int pool);
/* Returns the bytes of each holder after the last operation. */
void sim_last_seen(const struct sim_world *world, uint64_t *ret_has);

/* Puts a grant into its place of the table. */
void sim_put_grant(struct sim_world *world, uint64_t place, moor_grant handle, int holder, uint64_t bytes);
/* Charges new memory, to a grant unless that is SIM_NONE. */
void sim_charge(struct sim_world *world, int binding, int grant, uint64_t bytes, uint64_t requested);
/* Charges bytes that no provider holds; a negative number refunds. */
void sim_charge_leased(struct sim_world *world, int holder, int64_t bytes);
/* Decodes an argument, 0 or 1 + the place of a grant. Returns SIM_NONE if no grant is there. */
int sim_grant_at(const struct sim_world *world, uint64_t arg, moor_grant *ret_handle);

/* Returns a revision that is new, equal or late, by an argument. current: the revision in force. same: the
 * figures are those in force. ret_known: true if nothing changes. */
uint64_t sim_revision(uint64_t how, uint64_t current, bool same, struct sim_verdict *verdict,
                      bool *ret_known);
uint64_t sim_draw_revision(struct sim_random *random);

/* ---- tickets (tickets.c) ---- */

bool sim_ticket_is_open(const struct sim_ticket *ticket);
/* Returns the open tickets with a part in the pool. */
uint32_t sim_open_tickets(const struct sim_world *world, int pool);
/* Returns true if any ticket is open. */
bool sim_someone_waits(const struct sim_world *world);
/* Finds out which tickets have been served. */
void sim_observe_tickets(struct sim_world *world);
/* ticket_ops.c. After each operation: reaps for the open tickets, and cancels those that the library is about to give an
 * exclusive turn, which would last for a stretch of real time. */
void sim_settle(struct sim_world *world);

/* ---- check_governor.c ---- */

void sim_check_authority(struct sim_world *world, int index);
void sim_check_tickets(struct sim_world *world);

#endif
