/* SPDX-License-Identifier: MIT */
/* The steps of a charge, each one move in the books, and one event. */
#include "governor/books.h"
#include "governor/pressure.h"
#include "governor/request.h"
#include "observe/trace.h"
#include "util/error.h"

static inline void move(struct moor_holder *holder, struct moor__step_of step)
{
    moor__move(moor__local_for(holder), holder, step);
}

static inline void tell(struct moor_holder *holder, uint32_t kind, uint64_t bytes)
{
    moor__trace(holder->authority->runtime, kind, holder->authority, holder, bytes, 0);
}

/* In the account. False: tickets are open, or it does not fit; the refusal says so only if it can never fit. */
static bool reserve_in_account(struct moor__local *local, const struct moor__wish *wish, uint64_t counts,
                               struct moor__refusal *refusal)
{
    struct moor_holder *holder = wish->parts[0].holder;
    struct moor_authority *authority = holder->authority;
    *refusal = (struct moor__refusal){0};
    if (local)
        moor__cell_clear(local, holder);
    moor__lock_acquire(&authority->lock);
    bool granted = authority->tickets == 0 && moor__wish_grant(wish, NULL, refusal);
    if (granted) {
        moor__account_count(holder, MOOR__ALIVE, counts);
        moor__credit_allow(authority, 0);
        uint64_t own = moor__own_room(holder), pool = moor__pool_room(holder);
        /* What is set aside is not to become credit, which outlasts the pressure function. */
        bool inside = moor__is_inside_pressure(authority->runtime);
        moor__credit_lend(local, holder, inside ? 0 : own < pool ? own : pool);
    }
    moor__lock_release(&authority->lock);
    return granted;
}

__attribute__((noinline)) static moor_status reserve_otherwise(struct moor__local *local,
                                                               struct moor_holder *holder, uint64_t bytes,
                                                               uint64_t counts, uint64_t deadline_ns)
{
    struct moor_runtime *runtime = holder->authority->runtime;
    const struct moor_request request = {holder, bytes};
    struct moor_authority *pool = holder->authority;
    const struct moor__wish wish = {&request, 1, &pool, 1};
    struct moor__refusal refusal;
    if (reserve_in_account(local, &wish, counts, &refusal))
        return MOOR_OK;
    if (refusal.status == MOOR_NEVER_FITS)
        return moor__refuse(&refusal);
    moor_status status = moor__request(runtime, &wish, deadline_ns, NULL);
    if (status || !counts)
        return status;
    moor__move(local, holder, (struct moor__step_of){MOOR__RESERVED, MOOR__RESERVED, .counts = counts});
    return MOOR_OK;
}

moor_status moor__reserve(struct moor__local *local, struct moor_holder *holder, uint64_t bytes,
                          uint64_t counts, uint64_t deadline_ns)
{
    const struct moor__step_of step = {MOOR__CREDIT, MOOR__RESERVED, bytes, .counts = counts};
    moor_status status = MOOR_OK;
    if (!moor__move_in_cell(local, holder, &step))
        status = reserve_otherwise(local, holder, bytes, counts, deadline_ns);
    if (!status)
        tell(holder, MOOR_TRACE_RESERVE, bytes);
    return status;
}

void moor__unreserve(struct moor__local *local, struct moor_holder *holder, uint64_t bytes, uint64_t counts,
                     bool lets_go)
{
    struct moor_authority *authority = holder->authority;
    const struct moor__step_of step = {MOOR__RESERVED, MOOR__CREDIT, bytes, .counts = -counts};
    if (lets_go)
        (void)moor__let_go(local, holder, step, false);
    else
        moor__move(local, holder, step);
    /* The holder may be gone: it was perhaps the last that it had. */
    moor__trace(authority->runtime, MOOR_TRACE_RETURN, authority, holder, bytes, 0);
}

void moor__charge(struct moor_holder *holder, enum moor__figure where, uint64_t bytes, uint64_t requested,
                  uint64_t exceed)
{
    struct moor_authority *authority = holder->authority;
    if (exceed) {
        moor__lock_acquire(&authority->lock);
        moor__account_add(holder, MOOR__RESERVED, exceed);
        moor__lock_release(&authority->lock);
        tell(holder, MOOR_TRACE_EXCEED, exceed);
    }
    move(holder, (struct moor__step_of){MOOR__RESERVED, where, bytes, .requested = requested});
    tell(holder, MOOR_TRACE_COMMIT, bytes - exceed);
}

moor_ticket moor__pending(struct moor_holder *holder, enum moor__figure from, uint64_t bytes, bool lets_go)
{
    const struct moor__step_of step = {from, MOOR__PENDING, .bytes = bytes};
    moor_ticket ticket = 0;
    if (lets_go)
        ticket = moor__let_go(moor__local_for(holder), holder, step, true);
    else
        move(holder, step);
    tell(holder, MOOR_TRACE_RELEASE, bytes);
    return ticket;
}

void moor__unpending(struct moor_holder *holder, enum moor__figure to, uint64_t bytes)
{
    move(holder, (struct moor__step_of){MOOR__PENDING, to, .bytes = bytes});
    tell(holder, MOOR_TRACE_RECALL, bytes);
}

void moor__refund(struct moor_holder *holder, uint64_t bytes, uint64_t requested, uint64_t restored)
{
    if (restored) {
        move(holder, (struct moor__step_of){MOOR__PENDING, MOOR__RESERVED, .bytes = restored});
        tell(holder, MOOR_TRACE_RESTORE, restored);
    }
    move(holder,
         (struct moor__step_of){MOOR__PENDING, MOOR__CREDIT, bytes - restored, .requested = -requested});
    tell(holder, MOOR_TRACE_REFUND, bytes - restored);
}

void moor__quarantine(struct moor_holder *holder, uint64_t bytes)
{
    move(holder, (struct moor__step_of){MOOR__PENDING, MOOR__QUARANTINED, .bytes = bytes});
    tell(holder, MOOR_TRACE_QUARANTINE, bytes);
}

void moor__unquarantine(struct moor_holder *holder, uint64_t bytes)
{
    move(holder, (struct moor__step_of){MOOR__QUARANTINED, MOOR__PENDING, .bytes = bytes});
    tell(holder, MOOR_TRACE_RETRY, bytes);
}

void moor__refund_leased(struct moor__local *local, struct moor_holder *holder, uint64_t bytes,
                         uint64_t counts)
{
    struct moor_authority *authority = holder->authority;
    const struct moor__step_of step = {MOOR__LEASED, MOOR__CREDIT, bytes, .counts = -counts};
    (void)moor__let_go(local, holder, step, false);
    /* As above. */
    moor__trace(authority->runtime, MOOR_TRACE_REFUND, authority, holder, bytes, 0);
}
