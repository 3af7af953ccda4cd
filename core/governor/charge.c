/* SPDX-License-Identifier: MIT */
/* The steps of a charge, each one move in the account, and one event. */
#include "governor/account.h"
#include "governor/pressure.h"
#include "governor/request.h"
#include "observe/trace.h"
#include "util/error.h"

static inline void move(struct moor_holder *holder, struct moor__transfer step)
{
    moor__transfer_apply(moor__thread_cache_for(holder), holder, step);
}

static inline void tell(struct moor_holder *holder, uint32_t kind, uint64_t bytes)
{
    moor__trace(holder->authority->runtime, kind, holder->authority, holder, bytes, 0);
}

/* In the account. False: tickets are open, or it does not fit; the refusal says so only if it can never fit. */
static bool reserve_in_account(struct moor__thread_cache *cache, const struct moor__request_set *set,
                               uint64_t counts, struct moor__refusal *refusal)
{
    struct moor_holder *holder = set->parts[0].holder;
    struct moor_authority *authority = holder->authority;
    *refusal = (struct moor__refusal){0};
    if (cache)
        moor__thread_account_clear(cache, holder);
    moor__lock_acquire(&authority->lock);
    bool granted = authority->tickets == 0 && moor__request_set_grant(set, NULL, refusal);
    if (granted) {
        moor__holder_account_count(holder, MOOR__ALIVE, counts);
        moor__credit_allow(authority, 0);
        uint64_t own = moor__own_room(holder), pool = moor__pool_room(holder);
        /* What is set aside is not to become credit, which outlasts the pressure function. */
        bool inside = moor__is_inside_pressure(authority->runtime);
        moor__credit_lend(cache, holder, inside ? 0 : own < pool ? own : pool);
    }
    moor__lock_release(&authority->lock);
    return granted;
}

__attribute__((noinline)) static moor_status reserve_otherwise(struct moor__thread_cache *cache,
                                                               struct moor_holder *holder, uint64_t bytes,
                                                               uint64_t counts, uint64_t deadline_ns)
{
    struct moor_runtime *runtime = holder->authority->runtime;
    const struct moor_request request = {holder, bytes};
    struct moor_authority *pool = holder->authority;
    const struct moor__request_set set = {&request, 1, &pool, 1};
    struct moor__refusal refusal;
    if (reserve_in_account(cache, &set, counts, &refusal))
        return MOOR_OK;
    if (refusal.status == MOOR_NEVER_FITS)
        return moor__refuse(&refusal);
    moor_status status = moor__request(runtime, &set, deadline_ns, NULL);
    if (status || !counts)
        return status;
    moor__transfer_apply(cache, holder,
                         (struct moor__transfer){MOOR__RESERVED, MOOR__RESERVED, .counts = counts});
    return MOOR_OK;
}

moor_status moor__reserve(struct moor__thread_cache *cache, struct moor_holder *holder, uint64_t bytes,
                          uint64_t counts, uint64_t deadline_ns)
{
    const struct moor__transfer step = {MOOR__CREDIT, MOOR__RESERVED, bytes, .counts = counts};
    moor_status status = MOOR_OK;
    if (!moor__transfer_in_thread(cache, holder, &step))
        status = reserve_otherwise(cache, holder, bytes, counts, deadline_ns);
    if (!status)
        tell(holder, MOOR_TRACE_RESERVE, bytes);
    return status;
}

void moor__unreserve(struct moor__thread_cache *cache, struct moor_holder *holder, uint64_t bytes,
                     uint64_t counts, bool evicts)
{
    struct moor_authority *authority = holder->authority;
    const struct moor__transfer step = {MOOR__RESERVED, MOOR__CREDIT, bytes, .counts = -counts};
    if (evicts)
        (void)moor__evict(cache, holder, step, false);
    else
        moor__transfer_apply(cache, holder, step);
    /* The holder may be gone: it was perhaps the last that it had. */
    moor__trace(authority->runtime, MOOR_TRACE_RETURN, authority, holder, bytes, 0);
}

void moor__charge(struct moor_holder *holder, enum moor__account_line where, uint64_t bytes,
                  uint64_t requested, uint64_t exceed)
{
    struct moor_authority *authority = holder->authority;
    if (exceed) {
        moor__lock_acquire(&authority->lock);
        moor__holder_account_add(holder, MOOR__RESERVED, exceed);
        moor__lock_release(&authority->lock);
        tell(holder, MOOR_TRACE_EXCEED, exceed);
    }
    move(holder, (struct moor__transfer){MOOR__RESERVED, where, bytes, .requested = requested});
    tell(holder, MOOR_TRACE_COMMIT, bytes - exceed);
}

moor_ticket moor__pending(struct moor_holder *holder, enum moor__account_line from, uint64_t bytes,
                          bool evicts)
{
    const struct moor__transfer step = {from, MOOR__PENDING, .bytes = bytes};
    moor_ticket ticket = 0;
    if (evicts)
        ticket = moor__evict(moor__thread_cache_for(holder), holder, step, true);
    else
        move(holder, step);
    tell(holder, MOOR_TRACE_RELEASE, bytes);
    return ticket;
}

void moor__unpending(struct moor_holder *holder, enum moor__account_line to, uint64_t bytes)
{
    move(holder, (struct moor__transfer){MOOR__PENDING, to, .bytes = bytes});
    tell(holder, MOOR_TRACE_RECALL, bytes);
}

void moor__refund(struct moor_holder *holder, uint64_t bytes, uint64_t requested, uint64_t restored)
{
    if (restored) {
        move(holder, (struct moor__transfer){MOOR__PENDING, MOOR__RESERVED, .bytes = restored});
        tell(holder, MOOR_TRACE_RESTORE, restored);
    }
    move(holder,
         (struct moor__transfer){MOOR__PENDING, MOOR__CREDIT, bytes - restored, .requested = -requested});
    tell(holder, MOOR_TRACE_REFUND, bytes - restored);
}

void moor__quarantine(struct moor_holder *holder, uint64_t bytes)
{
    move(holder, (struct moor__transfer){MOOR__PENDING, MOOR__QUARANTINED, .bytes = bytes});
    tell(holder, MOOR_TRACE_QUARANTINE, bytes);
}

void moor__unquarantine(struct moor_holder *holder, uint64_t bytes)
{
    move(holder, (struct moor__transfer){MOOR__QUARANTINED, MOOR__PENDING, .bytes = bytes});
    tell(holder, MOOR_TRACE_RETRY, bytes);
}

void moor__refund_leased(struct moor__thread_cache *cache, struct moor_holder *holder, uint64_t bytes,
                         uint64_t counts)
{
    struct moor_authority *authority = holder->authority;
    const struct moor__transfer step = {MOOR__LEASED, MOOR__CREDIT, bytes, .counts = -counts};
    (void)moor__evict(cache, holder, step, false);
    /* As above. */
    moor__trace(authority->runtime, MOOR_TRACE_REFUND, authority, holder, bytes, 0);
}
