/* SPDX-License-Identifier: MIT */
/* Admission: whether a request fits, will fit, or never can. See core/README.md, "Under pressure". */
#ifndef MOOR_GOVERNOR_ADMISSION_H
#define MOOR_GOVERNOR_ADMISSION_H

#include "governor/governor.h"

/* A request: its parts, and the authorities of them, each once and in the order of their ranks. */
struct moor__request_set {
    const struct moor_request *parts;
    size_t count;
    struct moor_authority **pools;
    size_t pool_count;
};

/* Copies a request of one runtime that has been checked. ret_wish: [out] free(ret_wish->pools) ends it.
 * HOST_NOMEM. */
moor_status moor__request_set_copy(const struct moor_request *requests, size_t count,
                                   struct moor__request_set *ret_wish);

/* What stands in the way. */
enum moor__obstacle { MOOR__NO_OBSTACLE, MOOR__OBSTACLE_LIMIT, MOOR__OBSTACLE_POOL, MOOR__OBSTACLE_TURN };

/* Why a request was not granted; for its status and its text, when no lock is held any more. */
struct moor__refusal {
    moor_status status; /* PENDING, OVER_BUDGET, NEVER_FITS */
    enum moor__obstacle obstacle;
    size_t part;                                      /* the first that does not fit */
    char name[sizeof((struct moor_holder *)0)->name]; /* the holder may be gone when this is read */
    uint64_t wanted;
    uint64_t bytes; /* as moor_last_error()->bytes */
    uint64_t room;  /* that there is */
    uint64_t most;  /* the limit, or the capacity */
    bool external;  /* others hold what is missing */
};

/* The holder in whose pressure function this thread is, or NULL. */
extern _Thread_local struct moor_holder *moor__pressured_holder;

static inline bool moor__is_inside_pressure(const struct moor_runtime *runtime)
{
    return moor__pressured_holder && moor__pressured_holder->authority->runtime == runtime;
}

/* Locks all its authorities; and unlocks them. */
void moor__request_set_lock(const struct moor__request_set *set);
void moor__request_set_unlock(const struct moor__request_set *set);

/* Locks held. Takes all parts as reserved, or none. whose: the ticket, or NULL. Threads' credit is taken back
 * before it says no. */
bool moor__request_set_grant(const struct moor__request_set *set, const struct moor__ticket *whose,
                             struct moor__refusal *ret_refusal);
/* Locks held. Whether it could be granted if nobody had anything. */
bool moor__request_set_can(const struct moor__request_set *set, struct moor__refusal *ret_refusal);
/* Locks held. Only its own limits, or nothing, would keep it from being served. */
bool moor__request_set_is_limited(const struct moor__request_set *set);

/* Room in the pool for one holder, beside all others' commitments. lock held. */
uint64_t moor__pool_room(const struct moor_holder *holder);

/* Records the failure, and returns its status. */
moor_status moor__refuse(const struct moor__refusal *refusal);

#endif
