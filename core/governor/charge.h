/* SPDX-License-Identifier: MIT */
/* The transitions of a holder's bytes: one table, and one function that carries a transition out. */
#ifndef MOOR_GOVERNOR_CHARGE_H
#define MOOR_GOVERNOR_CHARGE_H

#include "governor/credit.h"
#include "governor/queue.h"

#include <moorage/trace.h>

enum moor__transition_kind {
    MOOR__RESERVE,
    MOOR__RETURN,
    MOOR__COMMIT,
    MOOR__COMMIT_LEASE,
    MOOR__RELEASE,
    MOOR__RECALL,
    MOOR__REFUND,
    MOOR__REFUND_LEASE,
    MOOR__RESTORE,
    MOOR__QUARANTINE,
    MOOR__RETRY,
    MOOR__TRANSITIONS
};

struct moor__transition {
    enum moor__account_line from;
    enum moor__account_line to;
    uint32_t event; /* MOOR_TRACE_* */
};

/* In `from` or `to`: the caller says which of the live lines. */
#define MOOR__LIVE_LINE MOOR__ACCOUNT_LINES

static const struct moor__transition moor__transitions[MOOR__TRANSITIONS] = {
    [MOOR__RESERVE] = {MOOR__CREDIT, MOOR__RESERVED, MOOR_TRACE_RESERVE},
    [MOOR__RETURN] = {MOOR__RESERVED, MOOR__CREDIT, MOOR_TRACE_RETURN},
    [MOOR__COMMIT] = {MOOR__RESERVED, MOOR__LIVE_LINE, MOOR_TRACE_COMMIT},
    [MOOR__COMMIT_LEASE] = {MOOR__RESERVED, MOOR__LEASED, MOOR_TRACE_COMMIT},
    [MOOR__RELEASE] = {MOOR__LIVE_LINE, MOOR__PENDING, MOOR_TRACE_RELEASE},
    [MOOR__RECALL] = {MOOR__PENDING, MOOR__LIVE_LINE, MOOR_TRACE_RECALL},
    [MOOR__REFUND] = {MOOR__PENDING, MOOR__CREDIT, MOOR_TRACE_REFUND},
    [MOOR__REFUND_LEASE] = {MOOR__LEASED, MOOR__CREDIT, MOOR_TRACE_REFUND},
    [MOOR__RESTORE] = {MOOR__PENDING, MOOR__RESERVED, MOOR_TRACE_RESTORE},
    [MOOR__QUARANTINE] = {MOOR__PENDING, MOOR__QUARANTINED, MOOR_TRACE_QUARANTINE},
    [MOOR__RETRY] = {MOOR__QUARANTINED, MOOR__PENDING, MOOR_TRACE_RETRY},
};

/* ---- transfers: the account's part of a transition ---- */

/* The transfer of a transition without a choice of line. A macro, because a struct that a function returns is
 * copied through memory, which costs the draw from a grant a third of its time. */
#define MOOR__TRANSFER(kind, bytes_, counts_)                                                                \
    ((struct moor__transfer){moor__transitions[kind].from, moor__transitions[kind].to, (bytes_),             \
                             .counts = (counts_)})

/* Makes a transfer in the holder's account; it is not from credit. cache: may be NULL. Requires no lock of
 * the governor, or queue->lock if the transfer says is_passing. */
void moor__transfer_in_account(struct moor__thread_cache *cache, struct moor_holder *holder,
                               struct moor__transfer step);

__attribute__((always_inline)) static inline void
moor__transfer_apply(struct moor__thread_cache *cache, struct moor_holder *holder, struct moor__transfer step)
{
    if (!moor__transfer_in_thread(cache, holder, &step))
        moor__transfer_in_account(cache, holder, step);
}

moor_ticket moor__evict_under_pressure(struct moor_holder *holder, struct moor__transfer step);
/* Makes a transfer by which the holder evicts bytes. If the holder is being asked, no plan is made between the
 * transfer and its accounting, which would count the bytes twice or not at all. Returns the ticket for which
 * the bytes count, or 0. Requires no lock of the governor. */
static inline moor_ticket moor__evict(struct moor_holder *holder, struct moor__transfer step)
{
    if (__builtin_expect(atomic_load_explicit(&holder->is_asked, memory_order_relaxed), 0))
        return moor__evict_under_pressure(holder, step);
    moor__transfer_apply(moor__thread_cache_for(holder), holder, step);
    return 0;
}

/* ---- transitions. None can fail but the first. Each requires no lock of the governor ---- */

/* Reserves bytes, with the statuses of moor_grant_reserve. counts: MOOR__ONE_GRANT for a grant, or 0. */
moor_status moor__reserve(struct moor_holder *holder, uint64_t bytes, uint64_t counts, uint64_t deadline_ns);
/* Returns reserved bytes. evicts: the holder gives them up of its own accord, so they count if it is being
 * asked. */
void moor__unreserve(struct moor_holder *holder, uint64_t bytes, uint64_t counts, bool evicts);
/* Charges reserved bytes to the line. requested: bytes asked for. exceed: the part of the bytes that is not
 * reserved. */
void moor__charge(struct moor_holder *holder, enum moor__account_line line, uint64_t bytes,
                  uint64_t requested, uint64_t exceed);
/* Makes charged bytes pending. Returns the ticket for which they count, or 0. */
moor_ticket moor__pending(struct moor_holder *holder, enum moor__account_line from, uint64_t bytes,
                          bool evicts);
/* Makes pending bytes live again: the provider has not accepted the release. */
void moor__unpending(struct moor_holder *holder, enum moor__account_line to, uint64_t bytes);
/* Refunds pending bytes, `restored` of them as reserved bytes of a grant. */
void moor__refund(struct moor_holder *holder, uint64_t bytes, uint64_t requested, uint64_t restored);
/* Quarantines pending bytes, and makes quarantined bytes pending again. */
void moor__quarantine(struct moor_holder *holder, uint64_t bytes);
void moor__unquarantine(struct moor_holder *holder, uint64_t bytes);
/* Refunds leased bytes. */
void moor__refund_leased(struct moor_holder *holder, uint64_t bytes, uint64_t counts);

#endif
