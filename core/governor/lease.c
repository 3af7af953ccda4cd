/* SPDX-License-Identifier: MIT */
/*
 * Leases: charges for memory that no provider made. A lease is drawn from a grant, and grows by requests of
 * its own. Only the thread that has changed a lease's number of bytes moves them in the account, so
 * concurrent calls on one lease add up.
 */
#include "governor/governor.h"

struct moor__lease {
    struct moor__slot slot;
    struct moor_holder *holder;
    _Atomic uint64_t bytes;
};

_Static_assert(sizeof(struct moor__lease) <= MOOR__CACHE_LINE, "each lease has a cache line of its own");

static inline void publish(struct moor__governor *governor, struct moor__slot *slot,
                           struct moor_holder *holder, uint64_t bytes, moor_lease *ret_lease)
{
    struct moor__lease *lease = (struct moor__lease *)slot;
    lease->holder = holder;
    atomic_store_explicit(&lease->bytes, bytes, memory_order_relaxed); /* publishing releases it */
    *ret_lease = moor__handle_of(&governor->leases, slot);
    moor__trace(governor->runtime, MOOR_TRACE_COMMIT, holder->authority, holder, bytes, *ret_lease);
    moor__handles_publish(slot); /* last: from here on any thread may end it, and destroy the holder */
}

static moor_status refuse_arguments(void)
{
    return moor__fail(MOOR_INVALID, "ret_lease must not be NULL, bytes not 0");
}

/* ---- committing ---- */

moor_status moor_lease_commit(struct moor_runtime *runtime, moor_grant handle, uint64_t bytes,
                              moor_lease *ret_lease)
{
    struct moor__grant *grant;
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status && (!ret_lease || bytes == 0))
        status = refuse_arguments();
    if (!status)
        status = moor__grant_pin(runtime, handle, &grant);
    if (status)
        return moor__leave(status);
    struct moor__governor *governor = runtime->governor;
    struct moor__thread_cache *cache = moor__thread_cache_of(&governor->caches);
    status = moor__thread_slot_take(cache, &governor->leases, &slot);
    if (status)
        goto out;
    status = moor__grant_draw(grant, bytes);
    if (status) {
        moor__thread_slot_return(cache, &governor->leases, slot);
        goto out;
    }
    moor__transfer_apply(cache, grant->holder, MOOR__TRANSFER(MOOR__COMMIT_LEASE, bytes, MOOR__ONE_LEASE));
    publish(governor, slot, grant->holder, bytes, ret_lease);
out:
    moor__grant_unpin(grant);
    return moor__leave(status);
}

/* Commits a grant that no other thread can find. The ordinary case: all its bytes, in the thread's thread
 * account, with a slot for the lease in the cache and room there for the grant's. False: nothing has
 * changed. */
static inline bool commit_in_thread(struct moor__governor *governor, struct moor__grant *grant,
                                    uint64_t bytes, moor_lease *ret_lease)
{
    const struct moor__transfer step =
        MOOR__TRANSFER(MOOR__COMMIT_LEASE, bytes, MOOR__ONE_LEASE - MOOR__ONE_GRANT);
    struct moor_holder *holder = grant->holder;
    struct moor__thread_cache *cache = moor__thread_cache_last.cache;
    if (!moor__thread_cache_is_last(&governor->caches) || cache->leases.count == 0 ||
        cache->grants.count == MOOR__THREAD_SLOTS ||
        atomic_load_explicit(&grant->remaining, memory_order_relaxed) != bytes ||
        !moor__transfer_in_thread(cache, holder, &step))
        return false;
    if (moor__handles_renew(&grant->slot))
        cache->grants.slot[cache->grants.count++] = &grant->slot;
    publish(governor, cache->leases.slot[--cache->leases.count], holder, bytes, ret_lease);
    return true;
}

static moor_status commit_removed(struct moor__governor *governor, struct moor__grant *grant, uint64_t bytes,
                                  moor_lease *ret_lease)
{
    struct moor_holder *holder = grant->holder;
    struct moor__thread_cache *cache = moor__thread_cache_of(&governor->caches);
    struct moor__slot *slot;
    uint64_t remaining = atomic_load_explicit(&grant->remaining, memory_order_relaxed);
    moor_status status = remaining < bytes ? moor__grant_draw(grant, bytes)
                                           : moor__thread_slot_take(cache, &governor->leases, &slot);
    if (status) {
        moor__handles_publish(&grant->slot); /* the grant is as it was */
        return status;
    }
    moor__thread_slot_return(cache, &governor->grants, &grant->slot);
    moor__transfer_apply(cache, holder,
                         MOOR__TRANSFER(MOOR__COMMIT_LEASE, bytes, MOOR__ONE_LEASE - MOOR__ONE_GRANT));
    if (remaining > bytes)
        moor__unreserve(holder, remaining - bytes, 0, true);
    publish(governor, slot, holder, bytes, ret_lease);
    return MOOR_OK;
}

/* Draws from a grant that running calls have pinned, and then releases it. */
static moor_status commit_shared(struct moor_runtime *runtime, moor_grant handle, uint64_t bytes,
                                 moor_lease *ret_lease)
{
    moor_lease lease;
    moor_status status = moor_lease_commit(runtime, handle, bytes, &lease);
    if (status)
        return status;
    status = moor_grant_release(runtime, handle);
    if (status)
        (void)moor_lease_refund(runtime, lease); /* another thread has released the grant first */
    else
        *ret_lease = lease;
    return status;
}

moor_status moor_grant_commit(struct moor_runtime *runtime, moor_grant handle, uint64_t bytes,
                              moor_lease *ret_lease)
{
    struct moor__slot *slot;
    if (!moor__may_enter(runtime))
        return moor__leave(moor__enter_refused(runtime));
    struct moor__governor *governor = runtime->governor;
    if (!ret_lease || bytes == 0)
        return moor__leave(refuse_arguments());
    if (!moor__handles_remove(&governor->grants, handle, &slot))
        return moor__leave(commit_shared(runtime, handle, bytes, ret_lease));
    if (commit_in_thread(governor, (struct moor__grant *)slot, bytes, ret_lease))
        return MOOR_OK;
    return moor__leave(commit_removed(governor, (struct moor__grant *)slot, bytes, ret_lease));
}

/* ---- changing ---- */

static moor_status pin(struct moor_runtime *runtime, moor_lease handle, struct moor__lease **ret_lease)
{
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__handles_pin(&runtime->governor->leases, handle, &slot);
    if (!status)
        *ret_lease = (struct moor__lease *)slot;
    return status;
}

/* Refunds a lease that no other thread can find. */
static void finish(struct moor__lease *lease)
{
    struct moor_holder *holder = lease->holder;
    uint64_t bytes = atomic_load_explicit(&lease->bytes, memory_order_relaxed);
    moor__thread_slot_return(moor__thread_cache_for(holder), &holder->authority->governor->leases,
                             &lease->slot);
    moor__refund_leased(holder, bytes, MOOR__ONE_LEASE);
}

static void unpin(struct moor__lease *lease)
{
    if (moor__handles_unpin(&lease->slot))
        finish(lease);
}

static moor_status adjust(struct moor__lease *lease, uint64_t bytes, uint64_t deadline_ns)
{
    struct moor_holder *holder = lease->holder;
    for (;;) {
        uint64_t before = atomic_load_explicit(&lease->bytes, memory_order_relaxed);
        uint64_t more = moor__sub_sat(bytes, before);
        moor_status status = more ? moor__reserve(holder, more, 0, deadline_ns) : MOOR_OK;
        if (status)
            return status;
        /* Relaxed: the number alone decides which thread moves the bytes in the account. */
        if (atomic_compare_exchange_strong_explicit(&lease->bytes, &before, bytes, memory_order_relaxed,
                                                    memory_order_relaxed)) {
            if (more)
                moor__charge(holder, MOOR__LEASED, more, 0, 0);
            else if (before > bytes)
                moor__refund_leased(holder, before - bytes, 0);
            return MOOR_OK;
        }
        if (more)
            moor__unreserve(holder, more, 0, false);
    }
}

moor_status moor_lease_adjust(struct moor_runtime *runtime, moor_lease handle, uint64_t bytes,
                              uint64_t deadline_ns)
{
    struct moor__lease *lease = NULL;
    moor_status status = pin(runtime, handle, &lease);
    if (status)
        return moor__leave(status);
    status = bytes ? adjust(lease, bytes, deadline_ns) : moor__fail(MOOR_INVALID, "bytes must not be 0");
    unpin(lease);
    return moor__leave(status);
}

moor_status moor_lease_get_bytes(struct moor_runtime *runtime, moor_lease handle, uint64_t *ret_bytes)
{
    if (!ret_bytes)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_bytes is NULL"));
    struct moor__lease *lease = NULL;
    moor_status status = pin(runtime, handle, &lease);
    if (status)
        return moor__leave(status);
    *ret_bytes = atomic_load_explicit(&lease->bytes, memory_order_relaxed);
    unpin(lease);
    return MOOR_OK;
}

/* ---- refunding ---- */

/* Does the same as finish in the ordinary case: in the thread's thread account, with room in the cache for
 * the slot. False: nothing has changed. */
static inline bool finish_in_thread(struct moor__governor *governor, struct moor__lease *lease)
{
    struct moor_holder *holder = lease->holder;
    struct moor_authority *authority = holder->authority; /* the last lease may end the holder */
    struct moor__thread_cache *cache = moor__thread_cache_last.cache;
    uint64_t bytes = atomic_load_explicit(&lease->bytes, memory_order_relaxed);
    const struct moor__transfer step = MOOR__TRANSFER(MOOR__REFUND_LEASE, bytes, -MOOR__ONE_LEASE);
    if (!moor__thread_cache_is_last(&governor->caches) || cache->leases.count == MOOR__THREAD_SLOTS ||
        atomic_load_explicit(&holder->is_asked, memory_order_relaxed) ||
        !moor__transfer_in_thread(cache, holder, &step))
        return false;
    if (moor__handles_renew(&lease->slot))
        cache->leases.slot[cache->leases.count++] = &lease->slot;
    moor__trace(governor->runtime, MOOR_TRACE_REFUND, authority, holder, bytes, 0);
    return true;
}

/* Retires a lease that running calls have pinned: the last of them finishes it. */
static moor_status refund_shared(struct moor_runtime *runtime, moor_lease handle)
{
    struct moor__lease *lease = NULL;
    moor_status status = pin(runtime, handle, &lease);
    if (status)
        return status;
    status = moor__handles_retire(&lease->slot);
    unpin(lease);
    return status;
}

moor_status moor_lease_refund(struct moor_runtime *runtime, moor_lease handle)
{
    struct moor__slot *slot;
    if (!moor__may_enter(runtime))
        return moor__leave(moor__enter_refused(runtime));
    struct moor__governor *governor = runtime->governor;
    if (handle == 0)
        return MOOR_OK;
    if (!moor__handles_remove(&governor->leases, handle, &slot))
        return moor__leave(refund_shared(runtime, handle));
    if (!finish_in_thread(governor, (struct moor__lease *)slot))
        finish((struct moor__lease *)slot);
    return MOOR_OK;
}
