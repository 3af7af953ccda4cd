/* SPDX-License-Identifier: MIT */
/*
 * The governor: who may hold how much of which physical pool. It approves, reserves, charges, refunds, and
 * asks holders to let go; it never touches data and picks no victim among them: a holder knows what it holds.
 *
 *     capacity = free + reserved + charged          (all in bytes, of one authority, at any instant)
 *     charged  = live + pending + quarantined
 *
 * reserved: granted, not yet backed by memory. pending: released, behind fences, still held by the provider.
 * quarantined: the provider could not free it; still charged. What a holder *has* is reserved + charged.
 *
 * What a request may take. Every holder's guarantee is kept for it, whether it is used or not; what is beyond
 * the guarantees is borrowed. A request fits if the holder stays within its limit, and the pool has room for
 * it beside the set-aside and what all others have or are guaranteed, whichever is more.
 *
 * When a request does not fit, holders are asked: those with a pressure function that have borrowed, of at
 * most the requester's own priority, lowest first, the requester last among its equals. What they let go
 * is counted by the books, not by their word; bytes that are behind fences are on their way, are promised to
 * one request each, and nobody is asked for them again. core/README.md states the bounds.
 */
#ifndef MOORAGE_GOVERNOR_H
#define MOORAGE_GOVERNOR_H

#include <moorage/provider.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_authority; /* the one account of a physical pool; lives as long as the runtime */
struct moor_holder;    /* somebody who holds memory of one authority */

typedef uint64_t moor_grant;  /* handle: bytes approved and not yet used; 0 is none */
typedef uint64_t moor_lease;  /* handle: a charge for memory that no provider made; 0 is none */
typedef uint64_t moor_ticket; /* handle: a request that waits, and the pressure it makes; 0 is none */

/* ---- authorities ---- */

/* The authority of a domain's pool. Domains with equal pool keys share one, also across providers.
 * ret_authority: [out, borrowed] until the runtime ends. */
MOOR_API moor_status moor_device_get_authority(struct moor_device *device, uint32_t domain,
                                               struct moor_authority **ret_authority);

/* Sets how much of the pool this runtime may hold. Starts as the pool's total, the
 * least that a loaded provider tells, or 0 where that is unknown.
 * Live at once; shrinking below what is held is legal: what exists stays, grants included, new ones wait,
 * holders are asked for what is over, and growing back restores everything.
 * revision: of whoever decides, rising with each decision, so that late ones do no harm; 0: the next one.
 * ret_over_bytes: [out] may be NULL; 0: applied; otherwise it is in force, and so much is still to come back.
 * STALE: a later revision is in force. REFUSED: this one is, with another figure. Nothing has changed then. */
MOOR_API moor_status moor_authority_set_capacity(struct moor_authority *authority, uint64_t capacity_bytes,
                                                 uint64_t revision, uint64_t *ret_over_bytes);

/* Bytes of the capacity that only requests made inside a pressure function may take, so that a holder can
 * allocate in order to let go. 0 at first. OVER_BUDGET: guarantees leave less of the capacity. */
MOOR_API moor_status moor_authority_set_aside(struct moor_authority *authority, uint64_t bytes);

/* Looks at what others hold of the pool, as its devices say. From then on requests also have to fit beside
 * that; before one is refused for it, the core looks again by itself. UNSUPPORTED: no open device of the pool
 * has STATS with total and free bytes. */
MOOR_API moor_status moor_authority_refresh(struct moor_authority *authority);

/* ---- holders ---- */

/* What a holder's memory is for. */
#define MOOR_ROLE_OTHER 0u
#define MOOR_ROLE_WEIGHTS 1u
#define MOOR_ROLE_KV 2u
#define MOOR_ROLE_WORKSPACE 3u
#define MOOR_ROLE_CACHE 4u

/* Why a holder is asked. */
#define MOOR_PRESSURE_REQUEST 1u  /* a request does not fit */
#define MOOR_PRESSURE_CAPACITY 2u /* the pool holds more than its capacity, or guarantees are lent out */
#define MOOR_PRESSURE_LIMIT 3u    /* the holder itself is above its limit */
#define MOOR_PRESSURE_DEVICE 4u   /* the budget has room, but the device has not */

struct moor_pressure {
    uint64_t bytes;       /* to let go; more is welcome where it comes in larger pieces */
    uint64_t deadline_ns; /* of the request; MOOR_FOREVER: none */
    moor_ticket ticket;   /* who asks; for moor_ticket_get_stats */
    uint32_t reason;      /* MOOR_PRESSURE_* */
    int32_t priority;     /* of who asks */
};

/* Lets go of memory, by the ordinary calls, and returns how many bytes that were; 0 is an honest answer. The
 * books decide: what it says beyond them is logged. Called on a thread of the runtime's, for one holder by one
 * thread at a time, with none of our locks held. It may do anything: allocate (without waiting; the set-aside
 * serves it), release, wait for fences, sleep, remove or destroy its own holder or others. One that takes
 * longer than the runtime's patience is not waited for: others are asked meanwhile. pressure: [borrowed] for
 * the call. */
typedef uint64_t (*moor_pressure_function)(void *user, const struct moor_pressure *pressure);

/* All zeros is a holder without limits or guarantee, of priority 0. */
struct moor_holder_limits {
    uint64_t limit_bytes;     /* most it may have; 0: no limit but the capacity */
    uint64_t guarantee_bytes; /* always there for it, at once; nobody else may borrow it */
    int32_t priority;         /* asked the later the higher it is, and only by its equals or betters */
    uint32_t reserved;        /* zero */
};

struct moor_holder_options {
    const char *name;  /* [in] copied; for reports; NULL: "holder" */
    uint32_t role;     /* MOOR_ROLE_* */
    uint32_t reserved; /* zero */
    struct moor_holder_limits limits;
    moor_pressure_function pressure; /* NULL: it is never asked */
    void *pressure_user;             /* [borrowed] until the function is removed or the holder destroyed */
};

/* ret_holder: [out, owned] until moor_holder_destroy. options: [in] may be NULL. OVER_BUDGET: the guarantees of
 * all holders would exceed the capacity. */
MOOR_API moor_status moor_holder_create(struct moor_authority *authority,
                                        const struct moor_holder_options *options,
                                        struct moor_holder **ret_holder) MOOR_MUST_USE;

/* BUSY while it has bytes reserved or charged, a binding, or an open ticket. Waits for its pressure function to
 * return, so hold no lock that this takes; inside any pressure function it does not wait: its own holder is
 * gone at once for all others, one whose function is running is BUSY. NULL is a no-op. */
MOOR_API moor_status moor_holder_destroy(struct moor_holder *holder);

/* Live at once, with revisions, as moor_authority_set_capacity. ret_over_bytes: [out] may be NULL; how far the
 * holder is above its limit. OVER_BUDGET: the guarantees of all holders would exceed the capacity; INVALID: the
 * guarantee exceeds the limit. */
MOOR_API moor_status moor_holder_set_limits(struct moor_holder *holder,
                                            const struct moor_holder_limits *limits, uint64_t revision,
                                            uint64_t *ret_over_bytes);

/* Replaces the pressure function; NULL removes it. When this returns, the old one is not running, unless this
 * is called inside it; BUSY inside another one while it is. */
MOOR_API moor_status moor_holder_set_pressure(struct moor_holder *holder, moor_pressure_function pressure,
                                              void *user);

/* Tells how much the holder could let go now: shown in its stats, and a holder that had nothing to give is
 * asked again at once. A hint, of which nothing else depends. */
MOOR_API moor_status moor_holder_set_evictable(struct moor_holder *holder, uint64_t bytes);

/* ---- grants ---- */

/* Reserves bytes for later: what is drawn from a grant always has room (promise I2), unless the provider
 * itself fails. ret_grant: [out, owned] until released or committed. bytes: not 0.
 * deadline_ns: MOOR_NO_WAIT: holders are asked, but no fence is waited for. Otherwise it waits its turn:
 * higher priority first, then first come; see core/README.md for how long one may pass another.
 * NEVER_FITS: more than its limit, or than the capacity leaves beside the guarantees of others. OVER_BUDGET:
 * no room, and nobody to ask. NO_VICTIM: holders were asked, and could not give enough. PENDING: enough is on
 * its way back. TIMEOUT: at the deadline. All of these say in moor_last_error()->bytes how many bytes: the most
 * that could fit; those short; those on their way. LIMIT: too many wait. */
MOOR_API moor_status moor_grant_reserve(struct moor_holder *holder, uint64_t bytes, uint64_t deadline_ns,
                                        moor_grant *ret_grant) MOOR_MUST_USE;

/* One part of a request; each becomes a grant of its own. */
struct moor_request {
    struct moor_holder *holder;
    uint64_t bytes; /* not 0 */
};

/* All parts in one step, or none, also of several authorities of one runtime: no part is ever held while
 * another is waited for. requests: [in] 1 to 1,024; holders may repeat. ret_grants: [out] as many, owned. */
MOOR_API moor_status moor_grants_reserve(const struct moor_request *requests, size_t count,
                                         uint64_t deadline_ns, moor_grant *ret_grants) MOOR_MUST_USE;

/* What is left of a grant. */
MOOR_API moor_status moor_grant_get_remaining(struct moor_runtime *runtime, moor_grant grant,
                                              uint64_t *ret_bytes);

/* Returns the rest of a grant. What was drawn from it stays. 0 is a no-op. */
MOOR_API moor_status moor_grant_release(struct moor_runtime *runtime, moor_grant grant);

/* ---- leases ---- */

/* Charges memory that no provider made (a host's own allocation on the same pool). Draws `bytes` from the
 * grant, which stays. ret_lease: [out, owned] until refunded. OVER_BUDGET: the grant has less left. */
MOOR_API moor_status moor_lease_commit(struct moor_runtime *runtime, moor_grant grant, uint64_t bytes,
                                       moor_lease *ret_lease) MOOR_MUST_USE;
/* The same as the last thing that is done with a grant: what is left of it is returned, and it is gone. */
MOOR_API moor_status moor_grant_commit(struct moor_runtime *runtime, moor_grant grant, uint64_t bytes,
                                       moor_lease *ret_lease) MOOR_MUST_USE;
/* Makes a lease larger or smaller. bytes: not 0. Growing is a request as moor_grant_reserve's, with its
 * statuses; on failure the lease is as before. */
MOOR_API moor_status moor_lease_adjust(struct moor_runtime *runtime, moor_lease lease, uint64_t bytes,
                                       uint64_t deadline_ns);
MOOR_API moor_status moor_lease_get_bytes(struct moor_runtime *runtime, moor_lease lease,
                                          uint64_t *ret_bytes);
/* 0 is a no-op. */
MOOR_API moor_status moor_lease_refund(struct moor_runtime *runtime, moor_lease lease);

/* ---- tickets: requests that wait by themselves ---- */

/* Makes a request, as moor_grants_reserve, and does not wait for it: it may be served at once, or by whoever
 * makes room. deadline_ns: not MOOR_NO_WAIT. ret_ticket: [out, owned] until waited for or cancelled. NEVER_FITS
 * at once; LIMIT. */
MOOR_API moor_status moor_ticket_open(const struct moor_request *requests, size_t count, uint64_t deadline_ns,
                                      moor_ticket *ret_ticket) MOOR_MUST_USE;

/* Waits until the ticket is served or its deadline comes, and ends it. ret_grants: [out, owned] as many as the
 * request has parts; capacity: room for them. TIMEOUT; CANCELLED: meanwhile, by another thread. INVALID: too
 * little room; the ticket stays. */
MOOR_API moor_status moor_ticket_wait(struct moor_runtime *runtime, moor_ticket ticket,
                                      moor_grant *ret_grants, size_t capacity) MOOR_MUST_USE;

/* Ends it, served or not, at once: who waits gets CANCELLED. 0 is a no-op. */
MOOR_API moor_status moor_ticket_cancel(struct moor_runtime *runtime, moor_ticket ticket);

/* evicted = pending + returned, and what has come into quarantine. */
struct moor_ticket_stats {
    uint64_t bytes;          /* of all parts */
    uint64_t deadline_ns;    /* MOOR_FOREVER: none */
    uint64_t evicted_bytes;  /* let go by holders while they were asked for it */
    uint64_t pending_bytes;  /* of them: behind fences */
    uint64_t returned_bytes; /* of them: physically back */
    uint64_t asked;          /* how often holders were asked */
    uint64_t passed;         /* requests that came later and were served first, since its last turn */
    int32_t priority;        /* the highest of its holders' */
    uint32_t served;         /* 1: it has its bytes, and moor_ticket_wait will not wait */
};
MOOR_API moor_status moor_ticket_get_stats(struct moor_runtime *runtime, moor_ticket ticket,
                                           struct moor_ticket_stats *ret_stats);

#ifdef __cplusplus
}
#endif
#endif
