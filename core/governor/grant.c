/* SPDX-License-Identifier: MIT */
/*
 * Grants. A grant's bytes are reserved in its holder's account from the moment it is made, so drawing from it
 * needs no room and no lock: it only moves the right to charge them (promise I2). Who draws keeps it pinned;
 * what comes back to a grant that was released meanwhile returns to the budget with the last pin.
 */
#include "governor/grant.h"

#include "governor/account.h"
#include "governor/pressure.h"
#include "governor/request.h"
#include "observe/trace.h"
#include "util/error.h"

#include <stdlib.h>

void moor__count_grants(struct moor_holder *holder, uint64_t change)
{
    moor__transfer_apply(
        moor__thread_cache_for(holder), holder,
        (struct moor__transfer){MOOR__RESERVED, MOOR__RESERVED, .counts = change * MOOR__ONE_GRANT});
}

moor_grant moor__grant_publish(struct moor_runtime *runtime, struct moor__slot *slot,
                               struct moor_holder *holder, uint64_t bytes)
{
    struct moor__grant *grant = (struct moor__grant *)slot;
    grant->holder = holder;
    atomic_store_explicit(&grant->remaining, bytes, memory_order_relaxed); /* publishing releases it */
    moor_grant handle = moor__handle_of(&runtime->grants, slot);
    moor__handles_publish(slot);
    return handle;
}

/* ---- making ---- */

/* The ordinary case: the thread has credit and a free slot. False: nothing has changed. */
static inline bool reserve_at_hand(struct moor_runtime *runtime, struct moor_holder *holder, uint64_t bytes,
                                   moor_grant *ret_grant)
{
    const struct moor__transfer step = {MOOR__CREDIT, MOOR__RESERVED, bytes, .counts = MOOR__ONE_GRANT};
    struct moor_authority *authority = holder->authority; /* from publication on the holder may go */
    struct moor__thread_cache *cache = moor__thread_cache_last.cache;
    if (!moor__thread_cache_is_last(runtime) || cache->grants.count == 0 ||
        !moor__transfer_in_thread(cache, holder, &step))
        return false;
    *ret_grant = moor__grant_publish(runtime, cache->grants.slot[--cache->grants.count], holder, bytes);
    moor__trace(runtime, MOOR_TRACE_RESERVE, authority, holder, bytes, 0);
    return true;
}

static moor_status reserve(struct moor_runtime *runtime, struct moor_holder *holder, uint64_t bytes,
                           uint64_t deadline_ns, moor_grant *ret_grant)
{
    struct moor__thread_cache *cache = moor__thread_cache_of(runtime);
    struct moor__slot *slot;
    moor_status status = moor__thread_cache_take(MOOR__GRANTS_OF(runtime, cache), &slot);
    if (status)
        return status;
    status = moor__reserve(cache, holder, bytes, MOOR__ONE_GRANT, deadline_ns);
    if (status) {
        moor__thread_cache_return(MOOR__GRANTS_OF(runtime, cache), slot);
        return status;
    }
    *ret_grant = moor__grant_publish(runtime, slot, holder, bytes);
    return MOOR_OK;
}

moor_status moor_grant_reserve(struct moor_holder *holder, uint64_t bytes, uint64_t deadline_ns,
                               moor_grant *ret_grant)
{
    if (!holder || !ret_grant || bytes == 0)
        return moor__leave(moor__fail(MOOR_INVALID, "holder and ret_grant must not be NULL, bytes not 0"));
    struct moor_runtime *runtime = holder->authority->runtime;
    if (!moor__may_enter(runtime))
        return moor__leave(moor__enter_refused(runtime));
    if (reserve_at_hand(runtime, holder, bytes, ret_grant))
        return MOOR_OK;
    return moor__leave(reserve(runtime, holder, bytes, deadline_ns, ret_grant));
}

moor_status moor__grants_take(struct moor_runtime *runtime, size_t count, struct moor__slot ***ret_slots)
{
    struct moor__thread_cache *cache = moor__thread_cache_of(runtime);
    struct moor__slot **slots = malloc(count * sizeof(struct moor__slot *));
    if (!slots)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for %zu grants", count);
    for (size_t i = 0; i < count; i++) {
        moor_status status = moor__thread_cache_take(MOOR__GRANTS_OF(runtime, cache), &slots[i]);
        if (!status)
            continue;
        moor__grants_give(runtime, slots, i);
        return status;
    }
    *ret_slots = slots;
    return MOOR_OK;
}

void moor__grants_give(struct moor_runtime *runtime, struct moor__slot **slots, size_t unused)
{
    struct moor__thread_cache *cache = moor__thread_cache_of(runtime);
    for (size_t i = 0; i < unused; i++)
        moor__thread_cache_return(MOOR__GRANTS_OF(runtime, cache), slots[i]);
    free(slots);
}

moor_status moor_grants_reserve(const struct moor_request *requests, size_t count, uint64_t deadline_ns,
                                moor_grant *ret_grants)
{
    if (!requests || count == 0 || !requests[0].holder || !ret_grants)
        return moor__leave(moor__fail(MOOR_INVALID, "requests and ret_grants must not be NULL, count not 0"));
    struct moor_runtime *runtime = requests[0].holder->authority->runtime;
    struct moor__slot **slots;
    struct moor__request_set set;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__requests_check(runtime, requests, count);
    if (!status)
        status = moor__request_set_copy(requests, count, &set);
    if (status)
        return moor__leave(status);
    status = moor__grants_take(runtime, count, &slots);
    if (!status) {
        status = moor__request(runtime, &set, deadline_ns, NULL);
        for (size_t i = 0; !status && i < count; i++) {
            struct moor_holder *holder = requests[i].holder;
            moor__trace(runtime, MOOR_TRACE_RESERVE, holder->authority, holder, requests[i].bytes, 0);
            moor__count_grants(holder, 1);
            ret_grants[i] = moor__grant_publish(runtime, slots[i], holder, requests[i].bytes);
        }
        moor__grants_give(runtime, slots, status ? count : 0);
    }
    free(set.pools);
    return moor__leave(status);
}

/* ---- using ---- */

moor_status moor__grant_pin(struct moor_runtime *runtime, moor_grant handle, struct moor__grant **ret_grant)
{
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__handles_pin(&runtime->grants, handle, &slot);
    if (!status)
        *ret_grant = (struct moor__grant *)slot;
    return status;
}

/* Nobody has it any more. What is left of it is returned. */
static void finish(struct moor__grant *grant)
{
    struct moor_holder *holder = grant->holder;
    struct moor_runtime *runtime = holder->authority->runtime;
    uint64_t rest = atomic_load_explicit(&grant->remaining, memory_order_relaxed);
    struct moor__thread_cache *cache = moor__thread_cache_of(runtime);
    moor__thread_cache_return(MOOR__GRANTS_OF(runtime, cache), &grant->slot);
    moor__unreserve(cache, holder, rest, MOOR__ONE_GRANT, true);
}

void moor__grant_unpin(struct moor__grant *grant)
{
    if (moor__handles_unpin(&grant->slot))
        finish(grant);
}

moor_status moor__grant_draw(struct moor__grant *grant, uint64_t bytes)
{
    uint64_t remaining = atomic_load_explicit(&grant->remaining, memory_order_relaxed);
    do {
        if (remaining < bytes)
            return moor__fail_short(MOOR_OVER_BUDGET, bytes - remaining,
                                    "%llu bytes are drawn from a grant that has %llu left",
                                    (unsigned long long)bytes, (unsigned long long)remaining);
        /* Relaxed: the count alone decides; what it stands for is in the account. */
    } while (!atomic_compare_exchange_weak_explicit(&grant->remaining, &remaining, remaining - bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return MOOR_OK;
}

moor_status moor_grant_get_remaining(struct moor_runtime *runtime, moor_grant handle, uint64_t *ret_bytes)
{
    if (!ret_bytes)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_bytes is NULL"));
    struct moor__grant *grant = NULL;
    moor_status status = moor__grant_pin(runtime, handle, &grant);
    if (status)
        return moor__leave(status);
    *ret_bytes = atomic_load_explicit(&grant->remaining, memory_order_relaxed);
    moor__grant_unpin(grant);
    return MOOR_OK;
}

moor_status moor_grant_release(struct moor_runtime *runtime, moor_grant handle)
{
    moor_status status = moor__enter(runtime);
    if (status || handle == 0)
        return moor__leave(status);
    struct moor__slot *slot;
    if (moor__handles_remove(&runtime->grants, handle, &slot)) {
        finish((struct moor__grant *)slot);
        return MOOR_OK;
    }
    struct moor__grant *grant = NULL;
    status = moor__grant_pin(runtime, handle, &grant);
    if (status)
        return moor__leave(status);
    status = moor__handles_retire(&grant->slot);
    /* What is left goes back now; what calls under way still hold follows with the last of them. */
    if (!status) {
        uint64_t rest = atomic_exchange_explicit(&grant->remaining, 0, memory_order_relaxed);
        moor__unreserve(moor__thread_cache_for(grant->holder), grant->holder, rest, 0, true);
    }
    moor__grant_unpin(grant);
    return moor__leave(status);
}

/* ---- commitments ---- */

moor_status moor__reservation_take(struct moor_holder *holder, moor_grant handle, uint64_t bytes,
                                   uint64_t deadline_ns, struct moor__reservation *ret_claim)
{
    struct moor__grant *grant = NULL;
    moor_status status;
    if (handle == 0) {
        status = moor__reserve(moor__thread_cache_for(holder), holder, bytes, 0, deadline_ns);
    } else {
        status = moor__grant_pin(holder->authority->runtime, handle, &grant);
        if (status)
            return status;
        status = grant->holder == holder ? moor__grant_draw(grant, bytes)
                                         : moor__fail(MOOR_FOREIGN, "the grant is of %s, not of %s",
                                                      grant->holder->name, holder->name);
        if (status)
            moor__grant_unpin(grant);
    }
    if (!status)
        *ret_claim = (struct moor__reservation){.holder = holder, .grant = grant, .bytes = bytes};
    return status;
}

void moor__reservation_return(struct moor__reservation *reservation)
{
    if (reservation->grant) {
        atomic_fetch_add_explicit(&reservation->grant->remaining, reservation->bytes, memory_order_relaxed);
        moor__grant_unpin(reservation->grant);
    } else if (reservation->bytes) {
        moor__unreserve(moor__thread_cache_for(reservation->holder), reservation->holder, reservation->bytes,
                        0, false);
    }
    *reservation = (struct moor__reservation){0};
}

moor_status moor__reservation_charge(struct moor__reservation *reservation, enum moor__account_line where,
                                     uint64_t requested, uint64_t actual)
{
    struct moor_holder *holder = reservation->holder;
    if (actual > reservation->bytes) {
        moor_status status = moor__reserve(moor__thread_cache_for(holder), holder,
                                           actual - reservation->bytes, 0, MOOR_NO_WAIT);
        if (status)
            return status;
        reservation->bytes = actual;
    }
    moor__charge(holder, where, actual, requested, 0);
    reservation->bytes -= actual;
    moor__reservation_return(reservation);
    return MOOR_OK;
}

void moor__reservation_charge_for_rollback(struct moor__reservation *reservation,
                                           enum moor__account_line where, uint64_t requested, uint64_t actual)
{
    uint64_t covered = actual < reservation->bytes ? actual : reservation->bytes;
    moor__charge(reservation->holder, where, actual, requested, actual - covered);
    reservation->bytes -= covered;
    moor__reservation_return(reservation);
}

struct moor__grant *moor__grant_expect(struct moor_runtime *runtime, moor_grant handle)
{
    struct moor__grant *grant = NULL;
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    if (handle != 0)
        (void)moor__grant_pin(runtime, handle,
                              &grant); /* released meanwhile: then the budget gets the bytes */
    moor__error_scope_end(&aside);
    return grant;
}

void moor__grant_restore(struct moor__grant *grant, uint64_t bytes)
{
    atomic_fetch_add_explicit(&grant->remaining, bytes, memory_order_relaxed);
    moor__grant_unpin(grant);
}
