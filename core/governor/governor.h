/* SPDX-License-Identifier: MIT */
/*
 * The governor from the inside: accounts, and the life of a charge.
 *
 *     credit -> reserved -> live, shared or leased -> pending -> credit          the ordinary way
 *                                                        \-> quarantined -> pending (tried again)
 *
 * Each step moves bytes between two lines of one holder, so their sum holds whatever happens. Figures are kept
 * in the holder's account, under its authority's lock, and in thread_accounts: a thread's own share of an account
 * (account.h). "credit" in a thread_account is what the thread may still give out; in the account it is what is free again,
 * and leaves it with the same critical section.
 */
#ifndef MOOR_GOVERNOR_GOVERNOR_H
#define MOOR_GOVERNOR_GOVERNOR_H

#include "util/runtime.h"

#include <moorage/governor.h>
#include <moorage/trace.h>
#include <sys/queue.h>

enum moor__account_line {
    MOOR__CREDIT,
    MOOR__RESERVED,
    MOOR__LIVE,   /* memory of providers, but for segments */
    MOOR__SHARED, /* segments */
    MOOR__LEASED, /* leases and wrapped memory: no provider holds it */
    MOOR__PENDING,
    MOOR__QUARANTINED,
    MOOR__BYTES, /* the ones before are what a holder has; those that follow are not in the sum */
    MOOR__REQUESTED = MOOR__BYTES, /* what was asked for where memory of providers was charged */
    MOOR__ALIVE,                   /* grants, and leases in the upper half */
    MOOR__ACCOUNT_LINES
};

#define MOOR__ONE_GRANT UINT64_C(1)
#define MOOR__ONE_LEASE (UINT64_C(1) << 32)

/* Relaxed throughout: who may touch which is settled by locks and by account.h. In a thread_account, lines are
 * differences and may wrap below zero; the sum with the account does not. */
struct moor__account {
    _Atomic uint64_t line[MOOR__ACCOUNT_LINES];
};

/* Why threads keep no credit of an authority. */
#define MOOR__STRICT_TIGHT 1u   /* room is short */
#define MOOR__STRICT_TICKETS 2u /* somebody waits, or something is over its limit */
#define MOOR__STRICT_READ 4u    /* while it is being looked at */

struct moor__ticket;
struct moor__thread_cache;

struct moor_authority {
    struct moor_runtime *runtime;
    struct moor_authority *next; /* runtime->lock */
    uint32_t rank;               /* locks of several authorities are taken in this order */
    _Atomic uint32_t strict;     /* MOOR__STRICT_*; written under the lock, and a cache line away from it */
    char pool_key[64];

    struct moor__lock lock; /* everything below, and the accounts of its holders */
    uint64_t capacity;
    uint64_t revision; /* 0: nobody has set the capacity, and it is what providers say */
    uint64_t set_aside;
    bool is_unknown;            /* nor have they said anything: it is 0 */
    bool external_known;        /* the next two say something */
    bool inconsistent;          /* the devices contradicted themselves */
    uint64_t total;             /* of the pool, as its devices say */
    uint64_t external;          /* of it, held by others */
    uint64_t has;               /* sums over the holders, from here on */
    uint64_t guarantees;        /* of what is guaranteed */
    uint64_t commitments;       /* of what they have or are guaranteed, whichever is more */
    uint64_t commitments_later; /* the same with all that is pending back; exact in strict mode only */
    struct moor__account total_account;
    uint64_t peak_charged;
    uint64_t planned_bytes;            /* admission.c, while it looks at a request */
    TAILQ_HEAD(, moor_holder) holders; /* in order of creation */
    uint32_t holder_count;
    uint32_t tickets;             /* open ones with a part here, and reclaim; under the queue's lock, too */
    struct moor__ticket *turn;    /* only this request may borrow; likewise */
    struct moor__ticket *reclaim; /* asks for what is over; the queue's lock, as the next */
    uint64_t pressed;             /* the last time that was looked at who is to be asked */
};

/* What one holder is being asked. The queue's lock. */
struct moor__pressure_request {
    STAILQ_ENTRY(moor__pressure_request) entry; /* while it waits for a thread to take it */
    bool is_waiting;
    bool counts;        /* what is still to come is expected */
    moor_ticket ticket; /* 0: it is not being asked */
    uint64_t bytes;
    uint64_t evicted; /* so far, by the account */
    uint64_t had;     /* by the holder, apart from what was on its way */
    uint64_t since_ns;
    uint32_t reason;
    int32_t priority;
    uint64_t deadline_ns;
};

struct moor_holder {
    struct moor_authority *authority;
    uint32_t thread_account; /* of each thread's thread_accounts */
    _Atomic uint32_t asked;  /* it is being asked; a hint for those who do not hold the queue's lock */
    /* authority->lock, as all below. What every step in the account needs comes first: holders are many. */
    struct moor_holder_limits limits; /* limit_bytes: UINT64_MAX: none */
    uint64_t has;                     /* with all thread_accounts: it does not change in them */
    uint64_t commitment;
    uint64_t commitment_later;
    struct moor__account account;
    uint64_t peak_charged;
    TAILQ_ENTRY(moor_holder) entry; /* of the authority's */
    char name[64];
    uint32_t role;
    uint64_t revision;
    uint64_t evictable;
    uint64_t planned_bytes;    /* admission.c, pressure.c: while they look at requests */
    _Atomic uint32_t bindings; /* no lock */
    uint32_t wanted;           /* parts of open tickets; the queue's lock, too */
    uint64_t asked_count;      /* the queue's lock, as all below */
    uint64_t evicted_bytes;
    moor_pressure_function pressure;
    void *pressure_user;
    struct moor_holder *next_victim; /* by priority, then by creation */
    uint64_t created;                /* order of creation, over all authorities */
    struct moor__pressure_request ask;
    uint64_t answered;      /* which of all answers its last one was */
    uint64_t cool_down_ns;  /* how long it rested last; 0: it gave all it was asked for */
    uint64_t cool_until_ns; /* it is not asked before that */
    bool running;           /* a thread is in its pressure function */
    bool destroyed;         /* by that: freed when it returns */
};

/* ---- authorities ---- */

/* Finds the runtime's authority for a pool, or makes it. total_bytes: of the pool, or NULL if unknown; until
 * the host sets the capacity it is the least of them. If that has become less, moor__reclaim_review is still to
 * be called. HOST_NOMEM. */
moor_status moor__authority_for_pool(struct moor_runtime *runtime, const char *pool_key,
                                     const uint64_t *total_bytes, struct moor_authority **ret_authority);
void moor__authorities_destroy(struct moor_runtime *runtime);
/* What its devices have beside external use, and never more than the capacity. lock held. */
uint64_t moor__authority_capacity(const struct moor_authority *authority);
/* Takes what the pool's devices say of themselves. total_bytes: of the pool; free_bytes: of it; held_bytes:
 * by providers of this runtime. */
void moor__authority_set_external(struct moor_authority *authority, uint64_t total_bytes, uint64_t free_bytes,
                                  uint64_t held_bytes, bool inconsistent);
/* Sums of grants and leases that are alive, over all authorities of the runtime. */
void moor__authorities_count(struct moor_runtime *runtime, uint64_t *ret_grants, uint64_t *ret_leases);

/* ---- steps of a charge: of a holder's bytes. None can fail but the first. ---- */

/* As moor_grant_reserve. counts: MOOR__ONE_GRANT if it is for a
 * grant. cache: the thread's, as moor__thread_cache_for, here and below. */
moor_status moor__reserve(struct moor__thread_cache *cache, struct moor_holder *holder, uint64_t bytes,
                          uint64_t counts, uint64_t deadline_ns);
/* evicts: the holder gives them back of itself, which counts if it is being asked; here and below. */
void moor__unreserve(struct moor__thread_cache *cache, struct moor_holder *holder, uint64_t bytes,
                     uint64_t counts, bool evicts);
/* reserved -> where. requested: what was asked for. exceed: of the bytes, not reserved before. */
void moor__charge(struct moor_holder *holder, enum moor__account_line where, uint64_t bytes,
                  uint64_t requested, uint64_t exceed);
/* Returns the ticket that they count for, or 0. */
moor_ticket moor__pending(struct moor_holder *holder, enum moor__account_line from, uint64_t bytes,
                          bool evicts);
void moor__unpending(struct moor_holder *holder, enum moor__account_line to, uint64_t bytes);
/* Of pending: `restored` of the bytes are reserved again, for a grant; the rest is free. */
void moor__refund(struct moor_holder *holder, uint64_t bytes, uint64_t requested, uint64_t restored);
void moor__quarantine(struct moor_holder *holder, uint64_t bytes);   /* of pending */
void moor__unquarantine(struct moor_holder *holder, uint64_t bytes); /* back to pending */
void moor__refund_leased(struct moor__thread_cache *cache, struct moor_holder *holder, uint64_t bytes,
                         uint64_t counts);

/* ---- commitments: a reservation on its way to becoming a charge ---- */

struct moor__grant;

void moor__grants_init(struct moor_runtime *runtime, uint32_t tag); /* grants, leases and tickets */

struct moor__reservation {
    struct moor_holder *holder;
    struct moor__grant *grant; /* pinned; NULL: none */
    uint64_t bytes;
};

/* Draws bytes from the grant, or reserves them if grant is 0, waiting to the deadline. FOREIGN: the grant is
 * another holder's. OVER_BUDGET also if the grant has too little left. */
moor_status moor__reservation_take(struct moor_holder *holder, moor_grant grant, uint64_t bytes,
                                   uint64_t deadline_ns, struct moor__reservation *ret_claim);
/* Turns the reservation into a charge of `actual` bytes; what is over goes back, what is short is reserved. On
 * failure, as moor__reserve, the reservation stands as it was. */
moor_status moor__reservation_charge(struct moor__reservation *reservation, enum moor__account_line where,
                                     uint64_t requested, uint64_t actual);
/* Charges memory that exists although it is not to be, until it has been released again: also beyond the
 * budget. */
void moor__reservation_charge_for_rollback(struct moor__reservation *reservation,
                                           enum moor__account_line where, uint64_t requested,
                                           uint64_t actual);
/* Gives it back where it came from. */
void moor__reservation_return(struct moor__reservation *reservation);

/* Pins a grant that is to get bytes back when what was drawn from it has gone; NULL if it was 0 or is stale.
 */
struct moor__grant *moor__grant_expect(struct moor_runtime *runtime, moor_grant grant);
/* Ends that: `bytes`, which are reserved again, go back to the grant. */
void moor__grant_restore(struct moor__grant *grant, uint64_t bytes);

#endif
