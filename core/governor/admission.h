/* SPDX-License-Identifier: MIT */
/*
 * Admission: does a request fit now, will it fit later, can it ever fit. For a part of `bytes` bytes of
 * holder h in pool p:
 *
 *     own room   = limit(h) - has(h)
 *     pool room  = capacity(p) - (commitments of the other holders + has(h)) - reserve(p)
 *     fits now   : bytes <= own room, bytes <= pool room, and no other ticket has p's exclusive turn
 *     fits later : the same with all pending bytes back, and no exclusive turn in the way
 *     can ever   : limit(h) >= bytes, and capacity(p) >= guarantees of the other holders
 *                                                       + max(guarantee(h), bytes) + reserve(p)
 *
 * reserve(p) is the emergency reserve: bytes that the host has set aside (moor_authority_set_aside) for
 * requests made inside pressure functions, which need memory to give memory back. For them it is 0, and
 * exclusive turns do not bar them. An exclusive turn bars only bytes above the holder's guarantee.
 *
 * Example: capacity 100, reserve 10. Holder a has 30 and a guarantee of 40, holder b has 20. The commitments
 * are max(30, 40) + 20 = 60. The pool room of a is 100 - (20 + 30) - 10 = 40; that of b is 100 - (40 + 20) -
 * 10 = 30.
 */
#ifndef MOOR_GOVERNOR_ADMISSION_H
#define MOOR_GOVERNOR_ADMISSION_H

#include "governor/objects.h"

/* The parts of a request, and their authorities, each once and in the order of ranks. */
struct moor__request_set {
    const struct moor_request *parts;
    size_t count;
    struct moor_authority **pools;
    size_t pool_count;
    bool is_inside; /* made inside a pressure function: may use the emergency reserve, and exclusive turns */
};

/* Copies a request of one runtime that has been checked. ret_set: [out] free(ret_set->pools) ends it.
 * HOST_NOMEM. */
moor_status moor__request_set_copy(const struct moor_request *requests, size_t count,
                                   struct moor__request_set *ret_set);

enum moor__obstacle { MOOR__NO_OBSTACLE, MOOR__OBSTACLE_LIMIT, MOOR__OBSTACLE_POOL, MOOR__OBSTACLE_TURN };

/* The reason why a request was not granted, for its status and text once no lock is held. */
struct moor__refusal {
    moor_status status; /* PENDING, OVER_BUDGET, NEVER_FITS; 0: not tried */
    enum moor__obstacle obstacle;
    size_t part;                 /* index of the first part that does not fit */
    char name[MOOR__NAME_BYTES]; /* a copy, because the holder may be destroyed meanwhile */
    uint64_t wanted;
    uint64_t bytes; /* for moor_last_error()->bytes */
    uint64_t room;  /* available to the part */
    uint64_t most;  /* the limit, or the capacity */
    bool external;  /* other processes hold some of the missing bytes */
};

/* The holder of the pressure function that this thread is in, or NULL. */
extern _Thread_local struct moor_holder *moor__pressured_holder;

/* Returns true if this thread is in a pressure function of that governor. */
static inline bool moor__is_inside_pressure(const struct moor__governor *governor)
{
    return moor__pressured_holder && moor__pressured_holder->authority->governor == governor;
}

/* Returns true if the pool is one of the set's. */
bool moor__request_set_has(const struct moor__request_set *set, const struct moor_authority *pool);
/* Locks all authorities of the set, in the order of ranks. */
void moor__request_set_lock(const struct moor__request_set *set);
void moor__request_set_unlock(const struct moor__request_set *set);

/* Reserves all parts, or none and explains why. Takes threads' credit back before it refuses. ticket: the
 * ticket of the request, or NULL. Requires the locks of the set. */
bool moor__request_set_grant(const struct moor__request_set *set, const struct moor__ticket *ticket,
                             struct moor__refusal *ret_refusal);
/* Returns true if the set would fit with every byte of its pools free. Requires no authority's lock. */
bool moor__request_set_can(const struct moor__request_set *set, struct moor__refusal *ret_refusal);
/* Returns true if a holder's own limit keeps the set from being served. Requires no authority's lock. */
bool moor__request_set_is_limited(const struct moor__request_set *set);

/* Returns the room in the pool for one holder, beside the commitments of the others. Requires
 * authority->lock. */
uint64_t moor__pool_room(const struct moor_holder *holder, bool is_inside);

/* Writes the error for a refusal and returns its status. Requires no lock. */
moor_status moor__refuse(const struct moor__refusal *refusal);

#endif
