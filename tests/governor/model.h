/* SPDX-License-Identifier: MIT */
/*
 * The governor again, from its specification (core/README.md, "Under pressure", and the headers), in the
 * plainest way: there is a list of objects with bytes, and every sum is computed from that list when it is
 * needed. The model has no threads: a call that causes pressure requests calls the holders' stand-ins one
 * after another, in the order of the requests.
 *
 * Objects are named by their index. Times are on the clock that the test advances.
 */
#ifndef MOOR_TESTS_GOVERNOR_MODEL_H
#define MOOR_TESTS_GOVERNOR_MODEL_H

#include <moorage/stats.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_POOLS 2u
#define MODEL_HOLDERS 12u
#define MODEL_GRANTS 48u
#define MODEL_ITEMS 160u
#define MODEL_TICKETS 32u
#define MODEL_PARTS 4u
#define MODEL_ASKS 64u
#define MODEL_STREAMS 3u
#define MODEL_NONE UINT32_MAX
#define MODEL_ABSURD UINT64_MAX

/* Constants of core/README.md. */
#define MODEL_COOL_DOWN_NS UINT64_C(10000000)
#define MODEL_COOL_DOWN_MAX_NS UINT64_C(1000000000)
#define MODEL_TURN_NS UINT64_C(100000000)
#define MODEL_TURN_MAX_NS UINT64_C(10000000000)
#define MODEL_PASSED 16u
#define MODEL_REAP_EVERY 64u

struct model_pool {
    uint64_t capacity;
    uint64_t revision;
    uint64_t set_aside;
    bool external_known;
    bool inconsistent;
    uint64_t total; /* at the last refresh, as the next field */
    uint64_t external;
    uint64_t peak;
    bool has_reclaim;         /* a ticket exists for the bytes over the capacity */
    uint64_t device_total;    /* the present answer of the devices */
    uint64_t device_external; /* MODEL_ABSURD: the free figure exceeds the total */
};

struct model_holder {
    bool alive;
    uint32_t pool;
    uint32_t role;
    uint64_t created;
    struct moor_holder_limits limits; /* limit_bytes: 0: none */
    uint64_t revision;
    bool has_function;
    bool has_binding;
    uint64_t evictable;
    uint64_t peak;
    uint64_t asked;
    uint64_t evicted;
    uint64_t cool_down_ns; /* the last cool-down; 0: the holder evicted all requested bytes */
    uint64_t cool_until;
    uint64_t answered; /* the number of its last answer among all answers */
};

struct model_grant {
    bool alive;
    bool is_reservation; /* in a call under way: the host has no handle of it */
    uint32_t holder;
    uint64_t bytes; /* bytes not yet drawn */
};

enum model_kind { MODEL_LEASE, MODEL_BUFFER, MODEL_WRAPPED };
enum model_life { MODEL_GONE, MODEL_LIVE, MODEL_LEAVING, MODEL_QUARANTINED };

struct model_item {
    enum model_life life;
    enum model_kind kind;
    uint32_t holder;
    uint64_t bytes;
    uint64_t requested;
    uint32_t stream;  /* LEAVING: the held stream in front of it; MODEL_NONE: due */
    uint64_t order;   /* LEAVING, QUARANTINED: the order of arrival */
    uint64_t request; /* the pressure request for which the holder evicted it; 0: none */
};

struct model_part {
    uint32_t holder;
    uint64_t bytes;
};

enum model_state { MODEL_FREE, MODEL_OPEN, MODEL_SERVED, MODEL_EXPIRED };

/* A request that waits; also one without a deadline, during its pressure requests. */
struct model_ticket {
    enum model_state state;
    uint64_t name; /* never reused, rising: also the order of arrival */
    struct model_part parts[MODEL_PARTS];
    uint32_t count;
    uint64_t error_bytes; /* EXPIRED: the missing bytes */
    uint64_t deadline;
    uint64_t opened;
    uint64_t passed;
    bool has_turn;
    uint64_t turn_end;
    uint64_t next_turn;      /* no turn before this time */
    uint64_t answers_before; /* number of answers at its opening */
    uint64_t evicted;
    uint64_t stuck; /* the part of it that came into quarantine */
    uint64_t asked;
    int32_t priority; /* the highest priority of its holders, at its opening */
    /* the ticket has no parts and only sends pressure requests, for a full device; or MODEL_NONE */
    uint32_t device_pool;
    uint64_t device_bytes;
    uint32_t requester;
    bool waits;       /* false: the call has not returned yet */
    bool is_inside;   /* opened inside a pressure function */
    bool turned_away; /* a victim exists, but is cooling down */
};

struct model_ask {
    uint32_t holder;
    uint64_t ticket; /* number of its handle; 0: no host has it */
    struct moor_pressure pressure;
    uint64_t had; /* without the pending bytes */
    uint64_t evicted;
};

struct model;

/* Stands in for a holder's pressure function. */
typedef void (*model_function)(void *user, struct model *model, const struct model_ask *ask);

struct model {
    struct model_pool pools[MODEL_POOLS];
    struct model_holder holders[MODEL_HOLDERS];
    struct model_grant grants[MODEL_GRANTS];
    struct model_item items[MODEL_ITEMS];
    struct model_ticket tickets[MODEL_TICKETS];
    struct model_ask asks[MODEL_ASKS]; /* in the order of their calls */
    uint32_t ask_count;
    uint64_t now;
    uint64_t names;      /* numbers given out so far: holders, tickets, releases */
    uint64_t answers;    /* answers of pressure functions so far */
    uint32_t inside;     /* the holder with a running function; MODEL_NONE: none */
    bool no_new_turn;    /* all other tickets are scanned first */
    uint32_t busy_item;  /* used by a call under way; or MODEL_NONE */
    uint32_t busy_grant; /* used by a call under way; or MODEL_NONE */
    uint32_t submitted;  /* releases since the last scan of the device */
    uint32_t free_fails; /* results of the next frees */
    model_function function;
    void *user;
    uint64_t error_bytes; /* bytes of the last shortage */
};

void model_init(struct model *model, model_function function, void *user);

/* ---- the accounts ---- */

/* The bytes of each holder, added up over all objects. */
struct model_sums {
    uint64_t reserved[MODEL_HOLDERS];
    uint64_t charged[MODEL_HOLDERS]; /* the next three are parts of it */
    uint64_t pending[MODEL_HOLDERS];
    uint64_t quarantined[MODEL_HOLDERS];
    uint64_t leased[MODEL_HOLDERS];
    uint64_t requested[MODEL_HOLDERS];
};
void model_add_up(const struct model *model, struct model_sums *ret_sums);
uint64_t model_has(const struct model *model, uint32_t holder);
/* Returns the bytes above the holder's limit. */
uint64_t model_over_limit(const struct model *model, uint32_t holder);
/* Returns true if the pool is over its capacity, or one of its holders with a function is over its limit. */
bool model_needs_reclaim(const struct model *model, uint32_t pool);
/* Returns true if the holder has a pressure function, or is inside one that it has just removed. */
bool model_is_askable(const struct model *model, uint32_t holder);

void model_pool_stats(const struct model *model, uint32_t pool, struct moor_authority_stats *ret_stats);
void model_holder_stats(const struct model *model, uint32_t holder, struct moor_holder_stats *ret_stats);
void model_ticket_stats(const struct model *model, uint32_t ticket, struct moor_ticket_stats *ret_stats);

/* ---- the operations: each is the call of that name, with its status ---- */

moor_status model_set_capacity(struct model *model, uint32_t pool, uint64_t bytes, uint64_t revision,
                               uint64_t *ret_over);
moor_status model_set_aside(struct model *model, uint32_t pool, uint64_t bytes);
void model_refresh(struct model *model, uint32_t pool);
moor_status model_holder_create(struct model *model, uint32_t pool, uint32_t role,
                                const struct moor_holder_limits *limits, bool has_function,
                                uint32_t *ret_holder);
moor_status model_holder_destroy(struct model *model, uint32_t holder);
moor_status model_set_limits(struct model *model, uint32_t holder, const struct moor_holder_limits *limits,
                             uint64_t revision, uint64_t *ret_over);
void model_set_function(struct model *model, uint32_t holder, bool has_function);
void model_set_evictable(struct model *model, uint32_t holder, uint64_t bytes);
void model_binding_open(struct model *model, uint32_t holder);
moor_status model_binding_close(struct model *model, uint32_t holder);

moor_status model_reserve(struct model *model, const struct model_part *parts, uint32_t count,
                          uint32_t *ret_grants);
void model_grant_release(struct model *model, uint32_t grant);
moor_status model_lease_commit(struct model *model, uint32_t grant, uint64_t bytes, bool last,
                               uint32_t *ret_item);
moor_status model_lease_adjust(struct model *model, uint32_t item, uint64_t bytes);
void model_lease_refund(struct model *model, uint32_t item);
/* footprint: the bytes that the provider takes. grant: the grant to draw from, or MODEL_NONE. device_fails:
 * the number of provider calls that run out of device memory. */
moor_status model_allocate(struct model *model, uint32_t holder, uint64_t bytes, uint64_t footprint,
                           uint32_t grant, uint32_t device_fails, uint32_t *ret_item);
moor_status model_wrap(struct model *model, uint32_t holder, uint64_t bytes, uint32_t *ret_item);
/* Buffers and wrapped memory. stream: the held stream of the last use, or MODEL_NONE. */
void model_release(struct model *model, uint32_t item, uint32_t stream);

moor_status model_ticket_open(struct model *model, const struct model_part *parts, uint32_t count,
                              uint64_t deadline, uint32_t *ret_ticket);
/* The ticket must no longer be open. */
moor_status model_ticket_wait(struct model *model, uint32_t ticket, uint32_t *ret_grants);
void model_ticket_cancel(struct model *model, uint32_t ticket);

void model_stream_open(struct model *model, uint32_t stream); /* the stream is held again at once */
void model_reap(struct model *model);
/* Runs until all pressure requests have ended. */
void model_settle(struct model *model);
/* Returns the time of the next event for the waiting requests; UINT64_MAX: none. */
uint64_t model_due(const struct model *model);
/* Returns true if a request waits or a limit is exceeded: then completed releases are reaped
 * automatically. */
bool model_is_attended(const struct model *model);
/* Returns the number of pending releases. */
uint32_t model_leaving(const struct model *model);

/* ---- between the files of the model ---- */

static inline uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns a - b, or 0 if b is larger. */
static inline uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* The bytes of each holder in a hypothetical case. */
struct model_view {
    int64_t has[MODEL_HOLDERS];
};
struct model_view model_view_now(const struct model *model);
int64_t model_capacity(const struct model *model, uint32_t pool); /* besides the external use */
int64_t model_commitment(const struct model *model, const struct model_view *view, uint32_t holder);
/* Returns the bytes that the holder could take. */
int64_t model_own_room(const struct model *model, const struct model_view *view, uint32_t holder);
int64_t model_pool_room(const struct model *model, const struct model_view *view, uint32_t holder);
/* Takes the parts in the view, one after another. Returns the first part that does not fit, or their
 * number. */
uint32_t model_take(const struct model *model, struct model_view *view, const struct model_part *parts,
                    uint32_t count);
/* Returns the larger of two figures: the bytes over the pool's capacity, and the bytes lent out of guarantees
 * and the emergency reserve. */
struct model_over {
    uint64_t beyond;
    uint64_t lent;
};
struct model_over model_over(const struct model *model, const struct model_view *view, uint32_t pool);
uint64_t model_over_pool(const struct model *model, uint32_t pool); /* the larger one, now */
bool model_request_names(const struct model *model, const struct model_part *parts, uint32_t count,
                         uint32_t pool);
/* Opens a ticket that only waits for answers, and sends its pressure requests. */
uint32_t model_ask_briefly(struct model *model, const struct model_ticket *ticket);

/* Handles changed limits of the pool: exceeding bytes are requested from now on. */
void model_review(struct model *model, uint32_t pool);
/* Handles a change: scans the queue and sends the due pressure requests. */
void model_scan(struct model *model);
/* Counts bytes that the holder has released itself. Returns the ticket of its pressure request. */
uint64_t model_evict(struct model *model, uint32_t holder, uint64_t bytes);
/* Counts from here on for the place where that ticket was opened; returns the previous place. */
uint32_t model_stand_in(struct model *model, const struct model_ticket *ticket);
/* Returns the ticket after `ticket` in the queue; MODEL_NONE: the first one, or no further one. */
uint32_t model_queue_next(const struct model *model, uint32_t ticket);
uint32_t model_ticket_find(const struct model *model, uint64_t name);

/* Returns true if the request would fit with no other holder. ret_most: may be NULL; the largest request that
 * would. */
bool model_can_ever_fit(const struct model *model, const struct model_part *parts, uint32_t count,
                        uint64_t *ret_most);
void model_plan(struct model *model); /* the victim */
/* Runs until all pressure requests have ended; or, for a `ticket`, as long as it is open and a holder of its
 * pools has one. */
void model_run_asks(struct model *model, uint32_t ticket);

#endif
