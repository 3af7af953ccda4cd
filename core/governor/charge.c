/* SPDX-License-Identifier: MIT */
/*
 * Carrying out transitions: each is one transfer in the account, and then one event. From the transfer on the
 * bytes may have been the holder's last, and another thread may destroy it, so the event uses the authority
 * alone.
 */
#include "governor/charge.h"

#include "governor/governor.h"
#include "governor/request.h"

/* Carries a transition out. step: the numbers, and the line where the table says MOOR__LIVE_LINE. Returns the
 * ticket for which evicted bytes count, or 0. */
__attribute__((always_inline)) static inline moor_ticket
run(struct moor_holder *holder, enum moor__transition_kind kind, struct moor__transfer step, bool evicts)
{
    const struct moor__transition transition = moor__transitions[kind];
    struct moor_authority *authority = holder->authority;
    moor_ticket ticket = 0;
    if (transition.from != MOOR__LIVE_LINE)
        step.from = transition.from;
    if (transition.to != MOOR__LIVE_LINE)
        step.to = transition.to;
    assert(step.from < MOOR__BYTES && step.to < MOOR__BYTES && step.from != step.to);
    if (evicts)
        ticket = moor__evict(holder, step);
    else
        moor__transfer_apply(moor__thread_cache_for(holder), holder, step);
    moor__trace(authority->runtime, transition.event, authority, holder, step.bytes, 0);
    return ticket;
}

/* ---- transfers ---- */

void moor__transfer_in_account(struct moor__thread_cache *cache, struct moor_holder *holder,
                               struct moor__transfer step)
{
    struct moor_authority *authority = holder->authority;
    assert(step.from != MOOR__CREDIT);
    if (cache)
        moor__thread_account_clear(cache, holder);
    moor__lock_acquire(&authority->lock);
    moor__holder_account_apply(holder, &step);
    moor__credit_allow(authority, 0);
    moor__credit_lend(cache, holder, 0);
    bool scans = authority->waiting.tickets > 0 && !step.is_passing;
    moor__lock_release(&authority->lock);
    if (scans)
        moor__queue_scan(authority->governor);
}

moor_ticket moor__evict_under_pressure(struct moor_holder *holder, struct moor__transfer step)
{
    struct moor__governor *governor = holder->authority->governor;
    moor__lock_acquire(&governor->queue.lock);
    moor_ticket ticket = moor__eviction_count(holder, step.bytes, step.to == MOOR__PENDING);
    step.is_passing = true; /* below */
    moor__transfer_apply(moor__thread_cache_for(holder), holder, step);
    moor__queue_scan_locked(governor);
    moor__lock_release(&governor->queue.lock);
    return ticket;
}

/* ---- reserving ---- */

/* Reserves in the account. False: tickets are open, or the bytes do not fit. The refusal is filled in if they
 * never fit. */
static bool reserve_in_account(struct moor__thread_cache *cache, const struct moor__request_set *set,
                               uint64_t counts, struct moor__refusal *refusal)
{
    struct moor_holder *holder = set->parts[0].holder;
    struct moor_authority *authority = holder->authority;
    *refusal = (struct moor__refusal){0};
    if (cache)
        moor__thread_account_clear(cache, holder);
    moor__lock_acquire(&authority->lock);
    bool granted = authority->waiting.tickets == 0 && moor__request_set_grant(set, NULL, refusal);
    if (granted) {
        moor__holder_account_count(holder, MOOR__ALIVE, counts);
        moor__credit_allow(authority, 0);
        uint64_t room = moor__min(moor__own_room(holder), moor__pool_room(holder, set->is_inside));
        /* The emergency reserve must not become credit, which outlasts the pressure function. */
        moor__credit_lend(cache, holder, set->is_inside ? 0 : room);
    }
    moor__lock_release(&authority->lock);
    return granted;
}

__attribute__((noinline)) static moor_status reserve_otherwise(struct moor__thread_cache *cache,
                                                               struct moor_holder *holder, uint64_t bytes,
                                                               uint64_t counts, uint64_t deadline_ns)
{
    const struct moor_request request = {holder, bytes};
    struct moor_authority *pool = holder->authority;
    const struct moor__request_set set = {&request, 1, &pool, 1, moor__is_inside_pressure(pool->governor)};
    struct moor__refusal refusal;
    if (reserve_in_account(cache, &set, counts, &refusal))
        return MOOR_OK;
    if (refusal.status == MOOR_NEVER_FITS)
        return moor__refuse(&refusal);
    moor_status status = moor__request(pool->governor, &set, deadline_ns, NULL);
    if (!status && counts)
        moor__transfer_apply(cache, holder,
                             (struct moor__transfer){MOOR__RESERVED, MOOR__RESERVED, .counts = counts});
    return status;
}

moor_status moor__reserve(struct moor_holder *holder, uint64_t bytes, uint64_t counts, uint64_t deadline_ns)
{
    struct moor__thread_cache *cache = moor__thread_cache_for(holder);
    const struct moor__transfer step = MOOR__TRANSFER(MOOR__RESERVE, bytes, counts);
    struct moor_authority *authority = holder->authority;
    moor_status status = MOOR_OK;
    if (!moor__transfer_in_thread(cache, holder, &step))
        status = reserve_otherwise(cache, holder, bytes, counts, deadline_ns);
    if (!status)
        moor__trace(authority->runtime, moor__transitions[MOOR__RESERVE].event, authority, holder, bytes, 0);
    return status;
}

void moor__unreserve(struct moor_holder *holder, uint64_t bytes, uint64_t counts, bool evicts)
{
    (void)run(holder, MOOR__RETURN, (struct moor__transfer){.bytes = bytes, .counts = -counts}, evicts);
}

/* ---- charging ---- */

void moor__charge(struct moor_holder *holder, enum moor__account_line line, uint64_t bytes,
                  uint64_t requested, uint64_t exceed)
{
    struct moor_authority *authority = holder->authority;
    assert(exceed <= bytes && line >= MOOR__LIVE && line <= MOOR__LEASED);
    if (exceed) {
        moor__lock_acquire(&authority->lock);
        moor__holder_account_add(holder, MOOR__RESERVED, exceed);
        moor__lock_release(&authority->lock);
        moor__trace(authority->runtime, MOOR_TRACE_EXCEED, authority, holder, exceed, 0);
    }
    const struct moor__transfer step = {MOOR__RESERVED, line, bytes, .requested = requested};
    moor__transfer_apply(moor__thread_cache_for(holder), holder, step);
    moor__trace(authority->runtime, moor__transitions[MOOR__COMMIT].event, authority, holder, bytes - exceed,
                0);
}

moor_ticket moor__pending(struct moor_holder *holder, enum moor__account_line from, uint64_t bytes,
                          bool evicts)
{
    return run(holder, MOOR__RELEASE, (struct moor__transfer){.from = from, .bytes = bytes}, evicts);
}

void moor__unpending(struct moor_holder *holder, enum moor__account_line to, uint64_t bytes)
{
    (void)run(holder, MOOR__RECALL, (struct moor__transfer){.to = to, .bytes = bytes}, false);
}

void moor__refund(struct moor_holder *holder, uint64_t bytes, uint64_t requested, uint64_t restored)
{
    assert(restored <= bytes);
    if (restored)
        (void)run(holder, MOOR__RESTORE, (struct moor__transfer){.bytes = restored}, false);
    (void)run(holder, MOOR__REFUND,
              (struct moor__transfer){.bytes = bytes - restored, .requested = -requested}, false);
}

void moor__quarantine(struct moor_holder *holder, uint64_t bytes)
{
    (void)run(holder, MOOR__QUARANTINE, (struct moor__transfer){.bytes = bytes}, false);
}

void moor__unquarantine(struct moor_holder *holder, uint64_t bytes)
{
    (void)run(holder, MOOR__RETRY, (struct moor__transfer){.bytes = bytes}, false);
}

void moor__refund_leased(struct moor_holder *holder, uint64_t bytes, uint64_t counts)
{
    (void)run(holder, MOOR__REFUND_LEASE, (struct moor__transfer){.bytes = bytes, .counts = -counts}, true);
}
