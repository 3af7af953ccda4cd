/* SPDX-License-Identifier: MIT */
/* Grants from the inside, and reservations: bytes on their way to becoming a charge. */
#ifndef MOOR_GOVERNOR_GRANT_H
#define MOOR_GOVERNOR_GRANT_H

#include "governor/charge.h"
#include "util/handles.h"

struct moor__grant {
    struct moor__slot slot;
    struct moor_holder *holder;
    _Atomic uint64_t remaining; /* bytes */
};

/* Each requires no lock. */

/* Takes slots for that many grants; and ends the list, returning its first `unused` slots. */
moor_status moor__grants_take(struct moor__governor *governor, size_t count, struct moor__slot ***ret_slots);
void moor__grants_return(struct moor__governor *governor, struct moor__slot **slots, size_t unused);
/* Makes grants of the parts of a request that has been served: one slot for each. */
void moor__grants_publish(struct moor__governor *governor, const struct moor_request *parts, size_t count,
                          struct moor__slot **slots, moor_grant *ret_grants);

/* Pins a grant, which may be released meanwhile. */
moor_status moor__grant_pin(struct moor_runtime *runtime, moor_grant handle, struct moor__grant **ret_grant);
void moor__grant_unpin(struct moor__grant *grant);
/* Draws bytes from a grant that is pinned, or removed. OVER_BUDGET: it has less left. */
moor_status moor__grant_draw(struct moor__grant *grant, uint64_t bytes);

/* Pins a grant that is to get bytes back later; NULL if the handle is 0 or stale. */
struct moor__grant *moor__grant_expect(struct moor_runtime *runtime, moor_grant grant);
/* Ends that: the bytes, which are reserved again, go back to the grant. */
void moor__grant_restore(struct moor__grant *grant, uint64_t bytes);

/* ---- reservations ---- */

struct moor__reservation {
    struct moor_holder *holder;
    struct moor__grant *grant; /* pinned; NULL: none */
    uint64_t bytes;
};

/* Draws bytes from the grant, or reserves them until the deadline if the grant is 0. FOREIGN: the grant is
 * another holder's. OVER_BUDGET also if the grant has too little left. */
moor_status moor__reservation_take(struct moor_holder *holder, moor_grant grant, uint64_t bytes,
                                   uint64_t deadline_ns, struct moor__reservation *ret_reservation);
/* Turns the reservation into a charge of `actual` bytes: returns bytes that are too many, reserves those that
 * are too few. On failure, with the statuses of moor__reserve, the reservation is unchanged. */
moor_status moor__reservation_charge(struct moor__reservation *reservation, enum moor__account_line line,
                                     uint64_t requested, uint64_t actual);
/* Charges memory that exists although its call fails, until it has been released again: also beyond the
 * budget. */
void moor__reservation_charge_for_rollback(struct moor__reservation *reservation,
                                           enum moor__account_line line, uint64_t requested, uint64_t actual);
/* Returns the bytes to the grant or the budget. */
void moor__reservation_return(struct moor__reservation *reservation);

#endif
