/* SPDX-License-Identifier: MIT */
/* The one way in: memory is charged to its holder before a provider makes it (promise I1), or the call
 * changes nothing (promise I8). */
#ifndef MOOR_MEMORY_CHARGE_H
#define MOOR_MEMORY_CHARGE_H

#include "memory/object.h"

/* Has the provider make the object's memory. If the provider has made some, sets *ret_made and the object's
 * bytes, also on failure. Called again if it returns DEVICE_NOMEM and some device memory has become free. */
typedef moor_status (*moor__make)(struct moor__object *object, const void *args, bool *ret_made);

/*
 * Turns the reservation into a charge for the memory that `make` makes. Uses the reservation up in every
 * case. On failure the object is gone for the caller:
 *     nothing was made    The reservation is returned, and the object freed.
 *     memory was made     The memory is charged, also beyond the budget, until it has left through the queue.
 *                         Then the reserved bytes return to `grant` (0: none).
 * Requires object->requested_bytes. args: passed to make.
 */
moor_status moor__charge_and_make(struct moor__object *object, struct moor__reservation *reservation,
                                  moor_grant grant, moor__make make, const void *args);

#endif
