/* SPDX-License-Identifier: MIT */
/*
 * The governor from the inside: the life of a charge.
 *
 *     reserve -> charge -> pending -> refund            the ordinary way
 *             \-> unreserve         \-> quarantine -> pending (tried again) or refund (written off)
 *
 * Each step moves bytes between the counters of one holder and its authority in one critical section, so
 * their sums hold at every instant. A claim is a reservation on its way to becoming a charge, drawn from a
 * grant or made anew.
 */
#ifndef MOOR_GOVERNOR_GOVERNOR_H
#define MOOR_GOVERNOR_GOVERNOR_H

#include "memory/runtime.h"

#include <moorage/governor.h>

/* Bytes of one holder, or of all holders of an authority. */
struct moor__account {
    uint64_t reserved;
    uint64_t charged; /* includes the next three */
    uint64_t pending;
    uint64_t quarantined;
    uint64_t external;
    uint64_t peak_charged;
};

struct moor_authority {
    struct moor_runtime *runtime;
    struct moor_authority *next; /* runtime->lock */
    char pool_key[64];
    pthread_mutex_t lock; /* everything below, and the accounts of its holders */
    uint64_t capacity;
    bool is_unknown; /* nobody has said yet how large the pool is: the capacity is 0 */
    struct moor__account total;
    struct moor_holder *holders;
    uint32_t holder_count;
};

struct moor_holder {
    struct moor_authority *authority;
    struct moor_holder *next; /* authority->lock, as all below */
    char name[64];
    uint32_t role;
    uint64_t limit; /* UINT64_MAX: none */
    struct moor__account account;
    _Atomic uint32_t users; /* bindings and grants; no lock */
};

/* Finds the runtime's authority for a pool, or makes it. total_bytes: of the pool, or NULL if unknown.
 * HOST_NOMEM. */
moor_status moor__authority_for_pool(struct moor_runtime *runtime, const char *pool_key,
                                     const uint64_t *total_bytes, struct moor_authority **ret_authority);
void moor__authorities_destroy(struct moor_runtime *runtime);
void moor__grants_init(struct moor_runtime *runtime, uint32_t tag); /* the tables of grants and leases */

moor_status moor__reserve(struct moor_holder *holder, uint64_t bytes);
void moor__unreserve(struct moor_holder *holder, uint64_t bytes);
void moor__pending(struct moor_holder *holder, uint64_t bytes);
void moor__unpending(struct moor_holder *holder, uint64_t bytes);       /* the release was not accepted */
void moor__refund(struct moor_holder *holder, uint64_t bytes);          /* of pending */
void moor__rereserve(struct moor_holder *holder, uint64_t bytes);       /* of pending: back to a grant */
void moor__quarantine(struct moor_holder *holder, uint64_t bytes);      /* of pending */
void moor__unquarantine(struct moor_holder *holder, uint64_t bytes);    /* back to pending */
void moor__charge_external(struct moor_holder *holder, uint64_t bytes); /* of reserved */
void moor__refund_external(struct moor_holder *holder, uint64_t bytes);

struct moor__grant;

struct moor__claim {
    struct moor_holder *holder;
    struct moor__grant *grant; /* pinned; NULL: none */
    uint64_t bytes;
};

/* Draws bytes from the grant, or reserves them if grant is 0. FOREIGN: the grant is another holder's.
 * OVER_BUDGET also if the grant has too little left. Looks at what has completed, and tries again, before it
 * says no. */
moor_status moor__claim_take(struct moor_holder *holder, moor_grant grant, uint64_t bytes,
                             struct moor__claim *ret_claim);
/* Turns the claim into a charge of `actual` bytes; what is over goes back, what is short is reserved. On
 * OVER_BUDGET the claim stands as it was. */
moor_status moor__claim_charge(struct moor__claim *claim, uint64_t actual);
/* Charges memory that exists although it is not to be, until it has been released again: also beyond the
 * budget. */
void moor__claim_charge_doomed(struct moor__claim *claim, uint64_t actual);
/* Gives it back where it came from. */
void moor__claim_return(struct moor__claim *claim);

/* Pins a grant that is to get bytes back when what was drawn from it has gone; NULL if it was 0 or is stale.
 */
struct moor__grant *moor__grant_expect(struct moor_runtime *runtime, moor_grant grant);
/* Ends that: `bytes` of pending go back to the grant. */
void moor__grant_restore(struct moor__grant *grant, uint64_t bytes);

#endif
