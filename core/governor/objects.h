/* SPDX-License-Identifier: MIT */
/*
 * Authorities and holders: the data that all floors of the governor share.
 *
 * The governor is built in floors; a file calls only its own floor and those below.
 *
 *     api        authority, holder, grant, lease, reservation, ticket, stats, governor
 *     charge     charge: one table of transitions
 *     waiting    queue, worker, reclaim, request: locks, threads, tickets that wait
 *     scheduler  schedule, plan: which ticket is served next, which holders are asked for memory
 *     admission  admission: does a request fit now, later, ever
 *     account    account, credit, thread_cache: lines, sums, threads' credit
 *
 * A byte's life, as lines of its holder's account:
 *
 *     credit -> reserved -> live, shared or leased -> pending -> credit          the ordinary way
 *                                                        \-> quarantined -> pending (tried again)
 *
 * Each transition moves bytes between two lines of one holder, so the sum of the lines is the same before and
 * after. Lines are kept in the holder's account, under its authority's lock, and in thread accounts: a
 * thread's own share of an account (credit.h). "credit" in a thread account are the bytes that the thread may still
 * reserve without a lock; "credit" in the account itself is free, and leaves the account in the same critical
 * section.
 */
#ifndef MOOR_GOVERNOR_OBJECTS_H
#define MOOR_GOVERNOR_OBJECTS_H

#include "util/arith.h"
#include "util/limits.h"
#include "util/lock.h"

#include <moorage/governor.h>
#include <stdatomic.h>
#include <sys/queue.h>

enum moor__account_line {
    MOOR__CREDIT,
    MOOR__RESERVED,
    MOOR__LIVE,   /* provider memory, without segments */
    MOOR__SHARED, /* segments */
    MOOR__LEASED, /* leases and wrapped memory, which no provider holds */
    MOOR__PENDING,
    MOOR__QUARANTINED,
    MOOR__BYTES, /* the lines above sum up to the bytes that a holder has; the lines below count apart */
    MOOR__REQUESTED = MOOR__BYTES, /* bytes asked for, where provider memory is charged */
    MOOR__ALIVE,                   /* grants; leases in the upper half */
    MOOR__ACCOUNT_LINES
};

#define MOOR__ONE_GRANT UINT64_C(1)
#define MOOR__ONE_LEASE (UINT64_C(1) << 32)
#define MOOR__NAME_BYTES 64 /* of a holder's name, with the final zero */

/* All accesses are relaxed: locks and credit.h say which thread may write a line. In a thread account lines
 * are differences and may wrap below zero; their sum with the account's line does not. */
struct moor__account {
    _Atomic uint64_t line[MOOR__ACCOUNT_LINES];
};

/* Reasons why threads keep no credit of an authority. */
#define MOOR__STRICT_TIGHT 1u   /* room is short */
#define MOOR__STRICT_TICKETS 2u /* a ticket waits, or something is over its limit */
#define MOOR__STRICT_READ 4u    /* a thread reads or changes the sums */

struct moor__governor;
struct moor__thread_caches;
struct moor__ticket;

/* The limits of a pool, set by the host or its providers. */
struct moor__pool_limits {
    uint64_t capacity;  /* bytes */
    uint64_t revision;  /* 0: the host has set no capacity, and the least total of the providers counts */
    uint64_t set_aside; /* bytes of the emergency reserve; see admission.h */
    bool is_unknown;    /* no provider has reported a total yet either: the capacity is 0 */
};

/* The last report of a pool's devices. */
struct moor__external_use {
    uint64_t total_bytes; /* size of the pool */
    uint64_t bytes;       /* held by other processes */
    bool is_known;        /* false: no report yet */
    bool is_inconsistent; /* the devices contradicted themselves */
};

/* Sums over an authority's holders. */
struct moor__authority_sums {
    uint64_t has;
    uint64_t guarantees;
    uint64_t commitments;       /* max(has, guarantee) of each */
    uint64_t commitments_later; /* the same without pending bytes; exact in strict mode only */
    struct moor__account account;
    uint64_t peak_charged;
};

/* Written under both the queue's lock and the authority's. */
struct moor__authority_waiting {
    uint32_t tickets;                /* open tickets with a part here, and the reclaim ticket */
    const struct moor__ticket *turn; /* has the exclusive turn; see schedule.h */
    struct moor__ticket *reclaim;    /* asks for bytes over limits; the queue's lock alone, as the next */
    uint64_t planned;                /* number of the last pressure plan that covered this pool */
};

struct moor_authority {
    struct moor_runtime *runtime;
    struct moor__governor *governor;
    struct moor__thread_caches *caches;
    struct moor_authority *next; /* governor->lock */
    uint32_t rank;               /* a thread locks several authorities in this order */
    _Atomic uint32_t strict;     /* MOOR__STRICT_*; written under the lock, and a cache line away from it */
    char pool_key[64];

    struct moor__lock lock; /* guards the fields below, and the accounts of all holders */
    struct moor__pool_limits limits;
    struct moor__external_use external;
    struct moor__authority_sums sums;
    uint64_t planned_bytes;            /* scratch of admission.c; 0 between calls */
    TAILQ_HEAD(, moor_holder) holders; /* in order of creation */
    uint32_t holder_count;
    struct moor__authority_waiting waiting;
};

/* A request to one holder to give memory back. */
struct moor__pressure_request {
    STAILQ_ENTRY(moor_holder) entry; /* in the schedule's list, while no worker has taken it */
    bool is_waiting;                 /* in that list */
    bool is_expected;                /* the bytes that are missing are expected to come */
    moor_ticket ticket;              /* 0: the holder is not being asked */
    uint64_t bytes;
    uint64_t evicted_bytes; /* evicted so far, by the account */
    uint64_t had_bytes;     /* by the holder when it was asked, without pending ones */
    uint64_t since_ns;
    uint32_t reason;
    int32_t priority;
    uint64_t deadline_ns;
};

/* A holder as a victim of pressure. All fields: the queue's lock. */
struct moor__victim {
    moor_pressure_function function; /* NULL: the holder cannot be asked */
    void *user;
    struct moor_holder *next; /* in the list of victims: by priority, then by creation */
    uint64_t created;         /* order of creation, over all authorities */
    struct moor__pressure_request request;
    uint64_t asked; /* calls of its function */
    uint64_t evicted_bytes;
    uint64_t answered;      /* number of its last answer among all answers */
    uint64_t cool_down_ns;  /* length of its last cool-down; 0: its last answer was enough */
    uint64_t cool_until_ns; /* no request before this time */
    uint32_t wanted;        /* parts of open tickets */
    bool is_listed;         /* in the list of victims */
    bool is_running;        /* a thread is in its pressure function */
    bool is_destroyed;      /* from inside that function: the worker frees it afterwards */
};

/* Set by the host; the authority's lock. */
struct moor__holder_settings {
    uint32_t role;
    uint64_t revision;
    uint64_t evictable;
};

struct moor_holder {
    struct moor_authority *authority;
    uint32_t thread_account;   /* index among each thread's thread accounts */
    _Atomic uint32_t is_asked; /* a pressure request is open; a hint for threads without the queue's lock */
    /* The authority's lock. Fields that every transfer in the account needs come first: there are many
     * holders. */
    struct moor_holder_limits limits; /* limit_bytes: UINT64_MAX for none */
    uint64_t has; /* bytes, those in thread accounts included: transfers there do not change it */
    uint64_t commitment;
    uint64_t commitment_later;
    struct moor__account account;
    uint64_t peak_charged;
    TAILQ_ENTRY(moor_holder) entry; /* in the authority's list */
    char name[MOOR__NAME_BYTES];
    struct moor__holder_settings settings;
    uint64_t planned_bytes;    /* scratch of admission.c and plan.c; 0 between calls */
    _Atomic uint32_t bindings; /* no lock */
    struct moor__victim victim;
};

/* Returns min(capacity, total - external use): the bytes that the pool's holders can have now. Requires
 * authority->lock. */
static inline uint64_t moor__authority_capacity(const struct moor_authority *authority)
{
    uint64_t capacity = authority->limits.capacity;
    if (!authority->external.is_known)
        return capacity;
    return moor__min(authority->external.total_bytes - authority->external.bytes, capacity);
}

#endif
