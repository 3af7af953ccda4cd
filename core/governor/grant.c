/* SPDX-License-Identifier: MIT */
/*
 * Grants. A grant's bytes are reserved in its holder's account from the moment it is made, so drawing from it
 * needs no room and no lock: it only moves the right to charge them (promise I2). A thread that draws keeps
 * the grant pinned; bytes that come back to a grant which was released meanwhile return to the budget with
 * the last pin.
 */
#include "governor/governor.h"

#include <stdlib.h>

static moor_grant publish(struct moor__governor *governor, struct moor__slot *slot,
                          struct moor_holder *holder, uint64_t bytes)
{
    struct moor__grant *grant = (struct moor__grant *)slot;
    grant->holder = holder;
    atomic_store_explicit(&grant->remaining, bytes, memory_order_relaxed); /* publishing releases it */
    moor_grant handle = moor__handle_of(&governor->grants, slot);
    moor__handles_publish(slot);
    return handle;
}

/* ---- making ---- */

/* The ordinary case: the thread has credit and a free slot. False: nothing has changed. */
static inline bool reserve_in_thread(struct moor__governor *governor, struct moor_holder *holder,
                                     uint64_t bytes, moor_grant *ret_grant)
{
    const struct moor__transfer step = MOOR__TRANSFER(MOOR__RESERVE, bytes, MOOR__ONE_GRANT);
    struct moor_authority *authority = holder->authority; /* once published, the holder may be destroyed */
    struct moor__thread_cache *cache = moor__thread_cache_last.cache;
    if (!moor__thread_cache_is_last(&governor->caches) || cache->grants.count == 0 ||
        !moor__transfer_in_thread(cache, holder, &step))
        return false;
    *ret_grant = publish(governor, cache->grants.slot[--cache->grants.count], holder, bytes);
    moor__trace(governor->runtime, MOOR_TRACE_RESERVE, authority, holder, bytes, 0);
    return true;
}

static moor_status reserve(struct moor__governor *governor, struct moor_holder *holder, uint64_t bytes,
                           uint64_t deadline_ns, moor_grant *ret_grant)
{
    struct moor__thread_cache *cache = moor__thread_cache_of(&governor->caches);
    struct moor__slot *slot;
    moor_status status = moor__thread_slot_take(cache, &governor->grants, &slot);
    if (status)
        return status;
    status = moor__reserve(holder, bytes, MOOR__ONE_GRANT, deadline_ns);
    if (status) {
        moor__thread_slot_return(cache, &governor->grants, slot);
        return status;
    }
    *ret_grant = publish(governor, slot, holder, bytes);
    return MOOR_OK;
}

moor_status moor_grant_reserve(struct moor_holder *holder, uint64_t bytes, uint64_t deadline_ns,
                               moor_grant *ret_grant)
{
    if (!holder || !ret_grant || bytes == 0)
        return moor__leave(moor__fail(MOOR_INVALID, "holder and ret_grant must not be NULL, bytes not 0"));
    struct moor_runtime *runtime = holder->authority->runtime;
    struct moor__governor *governor = holder->authority->governor;
    if (!moor__may_enter(runtime))
        return moor__leave(moor__enter_refused(runtime));
    if (reserve_in_thread(governor, holder, bytes, ret_grant))
        return MOOR_OK;
    return moor__leave(reserve(governor, holder, bytes, deadline_ns, ret_grant));
}

/* ---- several at once ---- */

moor_status moor__grants_take(struct moor__governor *governor, size_t count, struct moor__slot ***ret_slots)
{
    struct moor__thread_cache *cache = moor__thread_cache_of(&governor->caches);
    struct moor__slot **slots = malloc(count * sizeof *slots);
    if (!slots)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for %zu grants", count);
    for (size_t i = 0; i < count; i++) {
        moor_status status = moor__thread_slot_take(cache, &governor->grants, &slots[i]);
        if (!status)
            continue;
        moor__grants_return(governor, slots, i);
        return status;
    }
    *ret_slots = slots;
    return MOOR_OK;
}

void moor__grants_return(struct moor__governor *governor, struct moor__slot **slots, size_t unused)
{
    struct moor__thread_cache *cache = moor__thread_cache_of(&governor->caches);
    for (size_t i = 0; i < unused; i++)
        moor__thread_slot_return(cache, &governor->grants, slots[i]);
    free(slots);
}

void moor__grants_publish(struct moor__governor *governor, const struct moor_request *parts, size_t count,
                          struct moor__slot **slots, moor_grant *ret_grants)
{
    for (size_t i = 0; i < count; i++) {
        struct moor_holder *holder = parts[i].holder;
        moor__trace(governor->runtime, MOOR_TRACE_RESERVE, holder->authority, holder, parts[i].bytes, 0);
        moor__transfer_apply(
            moor__thread_cache_for(holder), holder,
            (struct moor__transfer){MOOR__RESERVED, MOOR__RESERVED, .counts = MOOR__ONE_GRANT});
        ret_grants[i] = publish(governor, slots[i], holder, parts[i].bytes);
    }
}

moor_status moor_grants_reserve(const struct moor_request *requests, size_t count, uint64_t deadline_ns,
                                moor_grant *ret_grants)
{
    if (!ret_grants)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_grants is NULL"));
    struct moor__slot **slots;
    struct moor__request_set set;
    moor_status status = moor__request_set_make(requests, count, &set);
    if (status)
        return moor__leave(status);
    struct moor__governor *governor = set.pools[0]->governor;
    status = moor__grants_take(governor, count, &slots);
    if (status)
        goto out;
    status = moor__request(governor, &set, deadline_ns, NULL);
    if (!status)
        moor__grants_publish(governor, requests, count, slots, ret_grants);
    moor__grants_return(governor, slots, status ? count : 0);
out:
    free(set.pools);
    return moor__leave(status);
}

/* ---- using ---- */

moor_status moor__grant_pin(struct moor_runtime *runtime, moor_grant handle, struct moor__grant **ret_grant)
{
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__handles_pin(&runtime->governor->grants, handle, &slot);
    if (!status)
        *ret_grant = (struct moor__grant *)slot;
    return status;
}

/* Returns the rest of a grant that no other thread can find. */
static void finish(struct moor__grant *grant)
{
    struct moor_holder *holder = grant->holder;
    struct moor__governor *governor = holder->authority->governor;
    uint64_t rest = atomic_load_explicit(&grant->remaining, memory_order_relaxed);
    moor__thread_slot_return(moor__thread_cache_of(&governor->caches), &governor->grants, &grant->slot);
    moor__unreserve(holder, rest, MOOR__ONE_GRANT, true);
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
        /* Relaxed: the number alone decides; the bytes themselves are in the account. */
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
    if (moor__handles_remove(&runtime->governor->grants, handle, &slot)) {
        finish((struct moor__grant *)slot);
        return MOOR_OK;
    }
    struct moor__grant *grant = NULL;
    status = moor__grant_pin(runtime, handle, &grant);
    if (status)
        return moor__leave(status);
    status = moor__handles_retire(&grant->slot);
    /* The rest goes back now; the bytes that running calls have drawn follow with the last of them. */
    if (!status) {
        uint64_t rest = atomic_exchange_explicit(&grant->remaining, 0, memory_order_relaxed);
        moor__unreserve(grant->holder, rest, 0, true);
    }
    moor__grant_unpin(grant);
    return moor__leave(status);
}

struct moor__grant *moor__grant_expect(struct moor_runtime *runtime, moor_grant handle)
{
    struct moor__grant *grant = NULL;
    struct moor__error_scope aside;
    if (handle == 0)
        return NULL;
    moor__error_scope_begin(&aside);
    (void)moor__grant_pin(runtime, handle, &grant); /* released meanwhile: the budget gets the bytes */
    moor__error_scope_end(&aside);
    return grant;
}

void moor__grant_restore(struct moor__grant *grant, uint64_t bytes)
{
    atomic_fetch_add_explicit(&grant->remaining, bytes, memory_order_relaxed);
    moor__grant_unpin(grant);
}
