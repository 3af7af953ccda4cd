/* SPDX-License-Identifier: MIT */
/*
 * Charge, then make, or roll back:
 *
 *     reservation (no other holder can have the bytes) -> provider -> charge
 *
 * A full device may hold released memory that a reap would free, and memory that holders can evict.
 * DEVICE_NOMEM is final after one try of each.
 */
#include "memory/charge.h"

#include "memory/release.h"
#include "util/error.h"

/* Frees device memory after a DEVICE_NOMEM. Returns true if some became free and the call is worth another
 * try. */
static bool made_room(const struct moor_binding *binding, uint64_t bytes, unsigned *tries)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside); /* the provider's own reason must last */
    bool made = (*tries)++ == 0 && moor__poll(moor__runtime_of(binding));
    if (!made && *tries <= 2) {
        *tries = 3; /* holders are asked once */
        made = moor__pressure_for_device(binding->holder, bytes);
    }
    moor__error_scope_end(&aside);
    return made;
}

/* Charges memory that exists although its call fails, and starts its release. */
static void roll_back(struct moor__object *object, struct moor__reservation *reservation, moor_grant grant)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    struct moor_device *device = moor__device_hold(object->binding->device);
    moor__object_expect_grant(object, grant, reservation->bytes);
    moor__reservation_charge_for_rollback(reservation, object->ops->line, object->requested_bytes,
                                          object->bytes);
    object->ops->leave(object);
    moor__device_reap(device, MOOR_NO_WAIT);
    moor__device_unhold(device);
    moor__error_scope_end(&aside);
}

moor_status moor__charge_and_make(struct moor__object *object, struct moor__reservation *reservation,
                                  moor_grant grant, moor__make make, const void *args)
{
    assert(reservation->holder == object->binding->holder && object->requested_bytes);
    assert(reservation->bytes >= object->requested_bytes);
    const uint64_t bytes = object->requested_bytes;
    bool is_made = false;
    moor_status status = make(object, args, &is_made);
    for (unsigned tries = 0; status == MOOR_DEVICE_NOMEM && made_room(object->binding, bytes, &tries);)
        status = make(object, args, &is_made);
    assert(status || is_made);
    if (!is_made) {
        moor__reservation_return(reservation);
        moor__object_free(object);
        return status;
    }
    if (!status)
        status = moor__reservation_charge(reservation, object->ops->line, bytes, object->bytes);
    if (status)
        roll_back(object, reservation, grant);
    return status;
}
