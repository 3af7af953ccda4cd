/* SPDX-License-Identifier: MIT */
/*
 * The governor: the budget of each physical pool and the accounts of its holders. The governor approves,
 * reserves, charges and refunds bytes, and asks holders to evict. It never touches data and never chooses the
 * data to evict: only the holder knows the meaning of its data (promise I6).
 *
 * Accounts. For each authority, at any instant, in bytes:
 *
 *     capacity = free + reserved + charged
 *     charged  = live + pending + quarantined
 *
 * reserved: granted, not yet backed by memory. pending: released, but the provider still holds the memory
 * behind fences. quarantined: the provider failed to free the memory; the bytes stay charged. A holder *has*
 * reserved + charged. Example: capacity 100, a grant of 20, buffers of 50, of which 10 are released and
 * pending: free 30, reserved 20, charged 50, live 40, pending 10.
 *
 * Admission. Each holder's guarantee is kept free for it, used or not; bytes beyond its guarantee are
 * borrowed. Let commitment = max(has, guarantee). A request of holder h fits if
 *
 *     bytes <= limit(h) - has(h)                                                    and
 *     bytes <= capacity - emergency reserve - commitments of all others - has(h)
 *
 * Example: capacity 100, guarantees h 0 and k 30, k has 10, h has 40: h may get
 * 100 - 30 - 40 = 30 more.
 *
 * Pressure. When a request does not fit, the governor asks holders that have a pressure function, have
 * borrowed, and have at most the requester's priority: lowest priority first, the requester last among its
 * equals. The accounts, not the holder's answer, measure the evicted bytes. Pending bytes count for one
 * waiting request each, and no holder is asked for them again. core/README.md states the order and its
 * bounds.
 */
#ifndef MOORAGE_GOVERNOR_H
#define MOORAGE_GOVERNOR_H

#include <moorage/provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The account of one physical pool; lives as long as its runtime. */
struct moor_authority;
/* A user of memory of one authority, for example a cache: it has an account, limits and perhaps a pressure
 * function. */
struct moor_holder;

/* Handles: see moorage/runtime.h. */
typedef uint64_t moor_grant;  /* bytes reserved and not yet used */
typedef uint64_t moor_lease;  /* a charge for memory that no provider made */
typedef uint64_t moor_ticket; /* a request that waits, and the pressure that it makes */

/* ---- authorities ---- */

/* Returns the authority of a domain's pool. Domains with equal pool keys share one, also across providers.
 * ret_authority: [out, borrowed] until the runtime is destroyed. */
MOOR_API moor_status moor_device_get_authority(struct moor_device *device, uint32_t domain,
                                               struct moor_authority **ret_authority);

/* Sets the bytes of the pool that this runtime may hold, effective at once. The initial capacity is the least
 * total that a loaded provider reports for the pool, or 0 if none does. Shrinking below the present use is
 * legal: existing memory and grants stay, new requests wait, and holders are asked for the excess. Growing
 * back restores everything.
 * revision: a number your controller increases with each decision; an older one is refused (STALE). 0 if only
 *     one thread decides.
 * ret_over_bytes: [out] may be NULL; the bytes above the new capacity that holders still have to return, 0 if
 *     none.
 * STALE: a later revision is in force.
 * REFUSED: this revision is in force with another capacity. */
MOOR_API moor_status moor_authority_set_capacity(struct moor_authority *authority, uint64_t capacity_bytes,
                                                 uint64_t revision, uint64_t *ret_over_bytes);

/* Sets the emergency reserve: bytes of the capacity that only requests from inside a pressure function may
 * take, so that a holder can allocate (a staging buffer, say) in order to evict. Initially 0.
 * OVER_BUDGET: the holders' guarantees leave fewer bytes of the capacity; moor_last_error()->bytes are
 *     missing. */
MOOR_API moor_status moor_authority_set_aside(struct moor_authority *authority, uint64_t bytes);

/* Reads from the pool's devices how much of it others hold. From then on a request must also fit beside that
 * external use, and the core refreshes the figure automatically before it refuses a request for it.
 * UNSUPPORTED: no open device of the pool has STATS with total and free bytes. */
MOOR_API moor_status moor_authority_refresh(struct moor_authority *authority);

/* ---- holders ---- */

/* Purpose of a holder's memory; for reports. */
#define MOOR_ROLE_OTHER 0u
#define MOOR_ROLE_WEIGHTS 1u
#define MOOR_ROLE_KV 2u
#define MOOR_ROLE_WORKSPACE 3u
#define MOOR_ROLE_CACHE 4u

/* Reasons for a pressure request. */
#define MOOR_PRESSURE_REQUEST 1u  /* a request does not fit */
#define MOOR_PRESSURE_CAPACITY 2u /* the pool is above its capacity, or borrowed bytes cover guarantees */
#define MOOR_PRESSURE_LIMIT 3u    /* the holder is above its own limit */
#define MOOR_PRESSURE_DEVICE 4u   /* the budget has room, but the device has not */

/* A pressure request. */
struct moor_pressure {
    uint64_t bytes;       /* to evict; more is welcome if the data comes in larger units */
    uint64_t deadline_ns; /* the waiting request's; MOOR_FOREVER: none */
    moor_ticket ticket;   /* the waiting request, for moor_ticket_get_stats; 0: none */
    uint32_t reason;      /* MOOR_PRESSURE_* */
    int32_t priority;     /* the waiting request's */
};

/*
 * Evicts memory of one holder by the ordinary calls (release, decommit, unmap) and returns the number of
 * evicted bytes. 0 is an honest answer. The accounts decide: an answer that they do not confirm is logged.
 *
 * Runs on a thread of the runtime, on at most one thread for a holder at a time, with no lock of the runtime
 * held. It may allocate (without waiting; the emergency reserve serves it), release, wait for fences, sleep,
 * and remove or destroy its own holder or others. The governor asks other holders too if the function needs
 * longer than the runtime's patience.
 * user: as given with the function. pressure: [borrowed] for the call.
 *
 *     static uint64_t evict_oldest(void *user, const struct moor_pressure *pressure)
 *     {
 *         struct cache *cache = user;
 *         uint64_t evicted = 0;
 *         cache_lock(cache);
 *         while (evicted < pressure->bytes && cache->oldest) {
 *             struct entry *entry = cache_remove_oldest(cache);
 *             evicted += entry->bytes;
 *             (void)moor_buffer_release(cache->runtime, entry->buffer);  never waits
 *         }
 *         cache_unlock(cache);
 *         return evicted;
 *     }
 */
typedef uint64_t (*moor_pressure_function)(void *user, const struct moor_pressure *pressure);

/* Limits of a holder. All zeros: no limit, no guarantee, priority 0. */
struct moor_holder_limits {
    uint64_t limit_bytes;     /* the most that the holder may have; 0: limited by the capacity only */
    uint64_t guarantee_bytes; /* kept free for the holder, available to it at once; at most limit_bytes */
    int32_t priority;  /* higher: served first and asked last; asked only by equal or higher priorities */
    uint32_t reserved; /* zero */
};

struct moor_holder_options {
    const char *name;  /* [in] copied, at most 63 bytes, for reports; NULL: "holder" */
    uint32_t role;     /* MOOR_ROLE_* */
    uint32_t reserved; /* zero */
    struct moor_holder_limits limits;
    moor_pressure_function pressure; /* NULL: the holder is never asked */
    void *pressure_user; /* [borrowed] until the function is replaced or the holder destroyed; may be NULL */
};

/* Makes a holder with an empty account.
 * ret_holder: [out, owned] until moor_holder_destroy.
 * OVER_BUDGET: the capacity has no room for the guarantee beside all others. */
MOOR_API moor_status moor_holder_create(struct moor_authority *authority,
                                        const struct moor_holder_options *options,
                                        struct moor_holder **ret_holder) MOOR_MUST_USE;

/* Destroys a holder. Waits until its pressure function has returned, so the caller must hold no lock that the
 * function takes. Inside a pressure function the call does not wait: the function's own holder is destroyed
 * at once.
 * BUSY: the holder has reserved or charged bytes, a binding, a grant or an open ticket; or the call comes
 *     from inside a pressure function while the function of this other holder is running. */
MOOR_API moor_status moor_holder_destroy(struct moor_holder *holder);

/* Replaces a holder's limits, effective at once, as moor_authority_set_capacity does for the capacity.
 * ret_over_bytes: [out] may be NULL; the bytes that the holder has above its new limit.
 * OVER_BUDGET: the capacity has no room for the guarantee beside all others.
 * STALE, REFUSED: as moor_authority_set_capacity.
 * INVALID: the guarantee exceeds the limit. */
MOOR_API moor_status moor_holder_set_limits(struct moor_holder *holder,
                                            const struct moor_holder_limits *limits, uint64_t revision,
                                            uint64_t *ret_over_bytes);

/* Replaces a holder's pressure function. When the call returns, the old function is not running, unless the
 * call comes from inside it.
 * pressure: NULL removes the function. user: [borrowed] until the next replacement; may be NULL.
 * BUSY: the old function is running, and the call comes from inside another holder's pressure function. */
MOOR_API moor_status moor_holder_set_pressure(struct moor_holder *holder, moor_pressure_function pressure,
                                              void *user);

/* Reports how many bytes the holder could evict now. A hint: statistics show it, and a holder in cool-down
 * after it evicted too little may be asked again at once. */
MOOR_API moor_status moor_holder_set_evictable(struct moor_holder *holder, uint64_t bytes);

/* ---- grants ---- */

/* Reserves bytes for later use. A draw from a grant always has room (promise I2); only a failure of the
 * provider itself can stop it.
 * bytes: not 0.
 * deadline_ns: MOOR_NO_WAIT asks holders but waits for no fence. Any other deadline waits in the queue:
 *     higher priority first, then first come, first served; core/README.md bounds how often a later request
 *     may pass.
 * ret_grant: [out, owned] until moor_grant_release or moor_grant_commit.
 * moor_last_error()->bytes holds the number that a status below names.
 * NEVER_FITS: more than the limit, or than the capacity beside the guarantees of others, even if every other
 *     holder freed everything; bytes: the most that could fit.
 * OVER_BUDGET: no room, and no holder to ask; bytes: short.
 * NO_VICTIM: holders were asked and evicted too little; bytes: short.
 * PENDING: enough bytes are behind fences; bytes: pending.
 * TIMEOUT: the deadline passed first; bytes: short.
 * LIMIT: 4,096 requests wait already. */
MOOR_API moor_status moor_grant_reserve(struct moor_holder *holder, uint64_t bytes, uint64_t deadline_ns,
                                        moor_grant *ret_grant) MOOR_MUST_USE;

/* A part of a request for several grants. */
struct moor_request {
    struct moor_holder *holder;
    uint64_t bytes; /* not 0 */
};

/* Reserves all parts of a request in one step, or none. Parts may belong to several authorities of one
 * runtime; no part is held while another waits, so two such requests cannot deadlock.
 * requests: [in] count parts, 1 to 1,024; a holder may occur several times.
 * ret_grants: [out, owned] count grants, one for each part.
 * FOREIGN: the holders belong to different runtimes.
 * Other statuses: as moor_grant_reserve. */
MOOR_API moor_status moor_grants_reserve(const struct moor_request *requests, size_t count,
                                         uint64_t deadline_ns, moor_grant *ret_grants) MOOR_MUST_USE;

/* Returns the bytes of a grant that are not drawn yet. */
MOOR_API moor_status moor_grant_get_remaining(struct moor_runtime *runtime, moor_grant grant,
                                              uint64_t *ret_bytes);

/* Releases a grant and the bytes that it has left. Memory drawn from it stays. */
MOOR_API moor_status moor_grant_release(struct moor_runtime *runtime, moor_grant grant);

/* ---- leases ---- */

/* Charges memory that no provider made, such as a host's own allocation on the same pool. Draws the bytes
 * from a grant, which stays.
 * bytes: not 0.
 * ret_lease: [out, owned] until moor_lease_refund.
 * OVER_BUDGET: the grant has fewer bytes left; moor_last_error()->bytes are missing. */
MOOR_API moor_status moor_lease_commit(struct moor_runtime *runtime, moor_grant grant, uint64_t bytes,
                                       moor_lease *ret_lease) MOOR_MUST_USE;

/* Does the same and releases the grant in one step, with the bytes that it has left. */
MOOR_API moor_status moor_grant_commit(struct moor_runtime *runtime, moor_grant grant, uint64_t bytes,
                                       moor_lease *ret_lease) MOOR_MUST_USE;

/* Changes the size of a lease. Growth is a request, with the statuses of moor_grant_reserve; a failure leaves
 * the lease unchanged.
 * bytes: the new size, not 0. */
MOOR_API moor_status moor_lease_adjust(struct moor_runtime *runtime, moor_lease lease, uint64_t bytes,
                                       uint64_t deadline_ns);

/* Returns the size of a lease. */
MOOR_API moor_status moor_lease_get_bytes(struct moor_runtime *runtime, moor_lease lease,
                                          uint64_t *ret_bytes);

/* Ends a lease and returns its bytes to the pool. */
MOOR_API moor_status moor_lease_refund(struct moor_runtime *runtime, moor_lease lease);

/* ---- tickets: requests that wait in the background ---- */

/* Opens a request, as moor_grants_reserve, without waiting for it. It may be served at once, or later by any
 * thread that makes room.
 * deadline_ns: not MOOR_NO_WAIT.
 * ret_ticket: [out, owned] until moor_ticket_wait or moor_ticket_cancel.
 * NEVER_FITS, LIMIT: as moor_grant_reserve. */
MOOR_API moor_status moor_ticket_open(const struct moor_request *requests, size_t count, uint64_t deadline_ns,
                                      moor_ticket *ret_ticket) MOOR_MUST_USE;

/* Waits until a ticket is served or its deadline passes, and ends it.
 * ret_grants: [out, owned] one grant for each part of the request. capacity: the number of grants that fit
 *     there.
 * TIMEOUT: the deadline passed first; the ticket has ended.
 * CANCELLED: another thread cancelled the ticket meanwhile.
 * INVALID: capacity is below the number of parts; the ticket stays. */
MOOR_API moor_status moor_ticket_wait(struct moor_runtime *runtime, moor_ticket ticket,
                                      moor_grant *ret_grants, size_t capacity) MOOR_MUST_USE;

/* Ends a ticket at once, served or not, and returns its bytes. A thread that waits for it gets CANCELLED. */
MOOR_API moor_status moor_ticket_cancel(struct moor_runtime *runtime, moor_ticket ticket);

/* Progress of a ticket. evicted = pending + returned + the bytes that went into quarantine. */
struct moor_ticket_stats {
    uint64_t bytes;          /* sum of all parts */
    uint64_t deadline_ns;    /* MOOR_FOREVER: none */
    uint64_t evicted_bytes;  /* evicted by holders that were asked for this ticket */
    uint64_t pending_bytes;  /* evicted and behind fences */
    uint64_t returned_bytes; /* evicted and physically back */
    uint64_t asked;          /* pressure requests sent */
    uint64_t passed;         /* later requests served first, since the ticket's last exclusive turn */
    int32_t priority;        /* the highest of its holders' */
    uint32_t served;         /* 1: the bytes are reserved, and moor_ticket_wait will return them at once */
};

/* Returns the progress of an open ticket. */
MOOR_API moor_status moor_ticket_get_stats(struct moor_runtime *runtime, moor_ticket ticket,
                                           struct moor_ticket_stats *ret_stats);

#ifdef __cplusplus
}
#endif
#endif
