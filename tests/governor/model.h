/* SPDX-License-Identifier: MIT */
/*
 * The governor once more, from its specification (core/README.md, "Under pressure", and the headers), and in
 * the plainest way: there is a list of things that have bytes, and every sum is made anew from that list
 * whenever somebody asks for it. It has no threads: a call that would have holders asked calls their
 * stand-ins, one after another, in the order in which they are asked.
 *
 * Things are named by their index here. Times are on the clock that the test moves by hand.
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

/* Constants from core/README.md. */
#define MODEL_REST_NS UINT64_C(10000000)
#define MODEL_REST_MAX_NS UINT64_C(1000000000)
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
    uint64_t total; /* at the last refresh, as the next */
    uint64_t external;
    uint64_t peak;
    bool has_relief;          /* the reclaim ticket is open */
    uint64_t device_total;    /* the devices' report, if they were read now */
    uint64_t device_external; /* MODEL_ABSURD: that more is free than there is */
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
    uint64_t cool_down_ns; /* how long it rested last; 0: it gave all it was asked for */
    uint64_t rest_until;
    uint64_t answered; /* number of its last answer among all answers */
};

struct model_grant {
    bool alive;
    bool is_claim; /* belongs to a running call: the host has no handle for it */
    uint32_t holder;
    uint64_t bytes; /* not drawn yet */
};

enum model_kind { MODEL_LEASE, MODEL_BUFFER, MODEL_WRAPPED };
enum model_life { MODEL_GONE, MODEL_LIVE, MODEL_LEAVING, MODEL_QUARANTINED };

struct model_item {
    enum model_life life;
    enum model_kind kind;
    uint32_t holder;
    uint64_t bytes;
    uint64_t requested;
    uint32_t stream;  /* LEAVING: the stream that holds it back; MODEL_NONE: it is due */
    uint64_t order;   /* LEAVING, QUARANTINED: since when */
    uint64_t request; /* the ticket that its holder was asked for when it evicted this; 0: none */
};

struct model_part {
    uint32_t holder;
    uint64_t bytes;
};

enum model_state { MODEL_FREE, MODEL_OPEN, MODEL_SERVED, MODEL_EXPIRED };

/* A request that waits; also one that does not, while holders are asked for it. */
struct model_ticket {
    enum model_state state;
    uint64_t name; /* never used twice, rising: also the order of arrival */
    struct model_part parts[MODEL_PARTS];
    uint32_t count;
    uint64_t error_bytes; /* EXPIRED: those it was short of */
    uint64_t deadline;
    uint64_t opened;
    uint64_t passed;
    bool has_turn;
    uint64_t turn_end;
    uint64_t next_turn;      /* not before */
    uint64_t answers_before; /* answers given before it was opened */
    uint64_t evicted;
    uint64_t stuck; /* evicted bytes that came into quarantine */
    uint64_t asked;
    int32_t priority;     /* the highest of its holders', when it was opened */
    uint32_t device_pool; /* a full device's requester: the ticket has no parts, and only asks; or MODEL_NONE */
    uint64_t device_bytes;
    uint32_t requester;
    bool waits;       /* false: the call has not returned yet */
    bool is_inside;   /* opened inside a pressure function */
    bool turned_away; /* somebody would have been asked, but rests */
};

struct model_ask {
    uint32_t holder;
    uint64_t ticket; /* the ticket's number; 0: none */
    struct moor_pressure pressure;
    uint64_t had; /* without pending bytes */
    uint64_t let_go;
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
    struct model_ask asks[MODEL_ASKS]; /* in the order in which they run */
    uint32_t ask_count;
    uint64_t now;
    uint64_t names;      /* given out so far: holders, tickets, releases */
    uint64_t answers;    /* calls of pressure functions so far */
    uint32_t inside;     /* the holder of the function that runs; MODEL_NONE: none runs */
    bool no_new_turn;    /* all others are gone through first */
    uint32_t busy_item;  /* a call that is under way uses it; or MODEL_NONE */
    uint32_t busy_grant; /* the same for a grant */
    uint32_t submitted;  /* releases since the device was last looked at */
    uint32_t free_fails; /* the next so many frees do */
    model_function function;
    void *user;
    uint64_t error_bytes; /* bytes of the last shortage */
};

void model_init(struct model *model, model_function function, void *user);

/* ---- the books ---- */

/* The bytes of each holder, summed over all things. */
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
/* How far it is above its limit. */
uint64_t model_over_limit(const struct model *model, uint32_t holder);
/* Returns true if the pool is over its limits, or a holder in it that can be asked is. */
bool model_needs_relief(const struct model *model, uint32_t pool);
/* Returns true if the holder has a pressure function, or is in one that it has just removed. */
bool model_is_askable(const struct model *model, uint32_t holder);

void model_pool_stats(const struct model *model, uint32_t pool, struct moor_authority_stats *ret_stats);
void model_holder_stats(const struct model *model, uint32_t holder, struct moor_holder_stats *ret_stats);
void model_ticket_stats(const struct model *model, uint32_t ticket, struct moor_ticket_stats *ret_stats);

/* ---- operations: each does the same as the call of its name, and returns its status ---- */

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
/* footprint: bytes that the provider takes. grant: to draw from, or MODEL_NONE. device_fails: number of provider calls
 * that fail because the device is out of memory. */
moor_status model_allocate(struct model *model, uint32_t holder, uint64_t bytes, uint64_t footprint,
                           uint32_t grant, uint32_t device_fails, uint32_t *ret_item);
moor_status model_wrap(struct model *model, uint32_t holder, uint64_t bytes, uint32_t *ret_item);
/* Buffers and wrapped memory. stream: it was used there last, and that is held; or MODEL_NONE. */
void model_release(struct model *model, uint32_t item, uint32_t stream);

moor_status model_ticket_open(struct model *model, const struct model_part *parts, uint32_t count,
                              uint64_t deadline, uint32_t *ret_ticket);
/* Returns the outcome of a ticket that is not open any more. */
moor_status model_ticket_wait(struct model *model, uint32_t ticket, uint32_t *ret_grants);
void model_ticket_cancel(struct model *model, uint32_t ticket);

void model_stream_open(struct model *model, uint32_t stream); /* and held again at once */
void model_reap(struct model *model);
/* Until nobody is asked any more. */
void model_settle(struct model *model);
/* Returns the time when a rule for waiting tickets applies without any other change; UINT64_MAX: never. */
uint64_t model_due(const struct model *model);
/* Returns true if a ticket waits or a limit is exceeded: then due releases are reaped without a call. */
bool model_is_attended(const struct model *model);
/* Releases that have not come back. */
uint32_t model_leaving(const struct model *model);

/* ---- between the files of the model ---- */

/* The bytes of each holder in a case that is being examined. */
struct model_view {
    int64_t has[MODEL_HOLDERS];
};
struct model_view model_view_now(const struct model *model);
int64_t model_capacity(const struct model *model, uint32_t pool); /* beside external use */
int64_t model_claim(const struct model *model, const struct model_view *view, uint32_t holder);
/* How many bytes the holder could take. */
int64_t model_own_room(const struct model *model, const struct model_view *view, uint32_t holder);
int64_t model_pool_room(const struct model *model, const struct model_view *view, uint32_t holder);
/* Takes the parts in the view, one after another. Returns the first that does not fit, or their number. */
uint32_t model_take(const struct model *model, struct model_view *view, const struct model_part *parts,
                    uint32_t count);
/* Returns the bytes beyond the pool's capacity, and those lent out of guarantees and the emergency reserve. */
struct model_over {
    uint64_t beyond;
    uint64_t lent;
};
struct model_over model_over(const struct model *model, const struct model_view *view, uint32_t pool);
uint64_t model_over_pool(const struct model *model, uint32_t pool); /* the larger, now */
bool model_request_names(const struct model *model, const struct model_part *parts, uint32_t count,
                         uint32_t pool);
/* Opens one that waits for answers alone, and asks. */
uint32_t model_ask_briefly(struct model *model, const struct model_ticket *ticket);

/* After limits of the pool have changed: asks for bytes over them from now on. */
void model_review(struct model *model, uint32_t pool);
/* Something changed: the queue is looked at, and holders are asked that should be. */
void model_look(struct model *model);
/* Counts bytes that the holder has evicted. Returns the ticket that it is asked for. */
uint64_t model_let_go(struct model *model, uint32_t holder, uint64_t bytes);
/* Makes the place where the ticket was opened count from here on. Returns the place that counted before. */
uint32_t model_stand_in(struct model *model, const struct model_ticket *ticket);
/* The next of the queue after `ticket`; MODEL_NONE: the first, and none. */
uint32_t model_queue_next(const struct model *model, uint32_t ticket);
uint32_t model_ticket_find(const struct model *model, uint64_t name);

/* Returns true if it would fit with every byte free. ret_most: may be NULL; [out] the most that would. */
bool model_can_ever_fit(const struct model *model, const struct model_part *parts, uint32_t count,
                        uint64_t *ret_most);
void model_plan(struct model *model); /* whom to ask */
/* Until nobody is asked any more; or, if `ticket` is one, as long as it is open and somebody is asked in its
 * pools. */
void model_run_asks(struct model *model, uint32_t ticket);

#endif
