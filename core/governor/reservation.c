/* SPDX-License-Identifier: MIT */
/* Reservations: the bytes of one call of the memory code, from its grant or the budget, until they are
 * charged. */
#include "governor/governor.h"

moor_status moor__reservation_take(struct moor_holder *holder, moor_grant handle, uint64_t bytes,
                                   uint64_t deadline_ns, struct moor__reservation *ret_reservation)
{
    struct moor__grant *grant = NULL;
    moor_status status;
    if (handle == 0) {
        status = moor__reserve(holder, bytes, 0, deadline_ns);
    } else {
        status = moor__grant_pin(holder->authority->governor->runtime, handle, &grant);
        if (status)
            return status;
        status = grant->holder == holder ? moor__grant_draw(grant, bytes)
                                         : moor__fail(MOOR_FOREIGN, "the grant is of %s, not of %s",
                                                      grant->holder->name, holder->name);
        if (status)
            moor__grant_unpin(grant);
    }
    if (!status)
        *ret_reservation = (struct moor__reservation){.holder = holder, .grant = grant, .bytes = bytes};
    return status;
}

void moor__reservation_return(struct moor__reservation *reservation)
{
    if (reservation->grant)
        moor__grant_restore(reservation->grant, reservation->bytes);
    else if (reservation->bytes)
        moor__unreserve(reservation->holder, reservation->bytes, 0, false);
    *reservation = (struct moor__reservation){0};
}

/* Charges bytes, `exceed` of them beyond the reservation, and ends it. */
static void charge(struct moor__reservation *reservation, enum moor__account_line line, uint64_t requested,
                   uint64_t actual, uint64_t exceed)
{
    assert(actual - exceed <= reservation->bytes);
    moor__charge(reservation->holder, line, actual, requested, exceed);
    reservation->bytes -= actual - exceed;
    moor__reservation_return(reservation);
}

moor_status moor__reservation_charge(struct moor__reservation *reservation, enum moor__account_line line,
                                     uint64_t requested, uint64_t actual)
{
    if (actual > reservation->bytes) {
        moor_status status = moor__reserve(reservation->holder, actual - reservation->bytes, 0, MOOR_NO_WAIT);
        if (status)
            return status;
        reservation->bytes = actual;
    }
    charge(reservation, line, requested, actual, 0);
    return MOOR_OK;
}

void moor__reservation_charge_for_rollback(struct moor__reservation *reservation,
                                           enum moor__account_line line, uint64_t requested, uint64_t actual)
{
    charge(reservation, line, requested, actual, moor__sub_sat(actual, reservation->bytes));
}
