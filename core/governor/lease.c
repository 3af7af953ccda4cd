/* SPDX-License-Identifier: MIT */
/*
 * Leases: charges for memory that no provider made. One is drawn from a grant, and changes by requests of its
 * own. Only who has changed its number of bytes moves them in the account, so calls on one lease at once add
 * up.
 */
#include "governor/account.h"
#include "governor/grant.h"
#include "governor/pressure.h"
#include "observe/trace.h"
#include "util/error.h"

struct moor__lease {
    struct moor__slot slot;
    struct moor_holder *holder;
    _Atomic uint64_t bytes;
};

_Static_assert(sizeof(struct moor__grant) <= MOOR__CACHE_LINE &&
                   sizeof(struct moor__lease) <= MOOR__CACHE_LINE,
               "each in a line of its own");

void moor__grants_init(struct moor_runtime *runtime, uint32_t tag)
{
    moor__handles_init(&runtime->grants, MOOR__KIND_GRANT, tag, MOOR__CACHE_LINE);
    moor__handles_init(&runtime->leases, MOOR__KIND_LEASE, tag, MOOR__CACHE_LINE);
    moor__handles_init(&runtime->tickets, MOOR__KIND_TICKET, tag, sizeof(struct moor__ticket));
}

static inline void publish(struct moor_runtime *runtime, struct moor__slot *slot, struct moor_holder *holder,
                           uint64_t bytes, moor_lease *ret_lease)
{
    struct moor__lease *lease = (struct moor__lease *)slot;
    lease->holder = holder;
    atomic_store_explicit(&lease->bytes, bytes, memory_order_relaxed); /* publishing releases it */
    *ret_lease = moor__handle_of(&runtime->leases, slot);
    moor__trace(runtime, MOOR_TRACE_COMMIT, holder->authority, holder, bytes, *ret_lease);
    moor__handles_publish(slot); /* last: then it is anybody's, and the holder may go */
}

static moor_status refuse_arguments(void)
{
    return moor__fail(MOOR_INVALID, "ret_lease must not be NULL, bytes not 0");
}

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
    struct moor__thread_cache *cache = moor__thread_cache_of(runtime);
    status = moor__thread_cache_take(MOOR__LEASES_OF(runtime, cache), &slot);
    if (status)
        goto out;
    status = moor__grant_draw(grant, bytes);
    if (status) {
        moor__thread_cache_return(MOOR__LEASES_OF(runtime, cache), slot);
        goto out;
    }
    moor__transfer_apply(
        cache, grant->holder,
        (struct moor__transfer){MOOR__RESERVED, MOOR__LEASED, bytes, .counts = MOOR__ONE_LEASE});
    publish(runtime, slot, grant->holder, bytes, ret_lease);
out:
    moor__grant_unpin(grant);
    return moor__leave(status);
}

/* The grant is gone for all others, and its bytes are moved at once. The ordinary case: all of them, in the
 * thread's thread_account, and it has a free slot and room for another. False: nothing has changed. */
static inline bool commit_at_hand(struct moor_runtime *runtime, struct moor__grant *grant, uint64_t bytes,
                                  moor_lease *ret_lease)
{
    const struct moor__transfer step = {MOOR__RESERVED, MOOR__LEASED, bytes,
                                        .counts = MOOR__ONE_LEASE - MOOR__ONE_GRANT};
    struct moor_holder *holder = grant->holder;
    struct moor__thread_cache *cache = moor__thread_cache_last.cache;
    if (!moor__thread_cache_is_last(runtime) || cache->leases.count == 0 ||
        cache->grants.count == MOOR__THREAD_SLOTS ||
        atomic_load_explicit(&grant->remaining, memory_order_relaxed) != bytes ||
        !moor__transfer_in_thread(cache, holder, &step))
        return false;
    if (moor__handles_renew(&grant->slot))
        cache->grants.slot[cache->grants.count++] = &grant->slot;
    publish(runtime, cache->leases.slot[--cache->leases.count], holder, bytes, ret_lease);
    return true;
}

static moor_status commit_removed(struct moor_runtime *runtime, struct moor__grant *grant, uint64_t bytes,
                                  moor_lease *ret_lease)
{
    struct moor_holder *holder = grant->holder;
    struct moor__thread_cache *cache = moor__thread_cache_of(runtime);
    struct moor__slot *slot;
    uint64_t remaining = atomic_load_explicit(&grant->remaining, memory_order_relaxed);
    moor_status status = remaining < bytes ? moor__grant_draw(grant, bytes)
                                           : moor__thread_cache_take(MOOR__LEASES_OF(runtime, cache), &slot);
    if (status) {
        moor__handles_publish(&grant->slot); /* as it was */
        return status;
    }
    moor__thread_cache_return(MOOR__GRANTS_OF(runtime, cache), &grant->slot);
    moor__transfer_apply(cache, holder,
                         (struct moor__transfer){MOOR__RESERVED, MOOR__LEASED, bytes,
                                                 .counts = MOOR__ONE_LEASE - MOOR__ONE_GRANT});
    if (remaining > bytes)
        moor__unreserve(cache, holder, remaining - bytes, 0, true);
    publish(runtime, slot, holder, bytes, ret_lease);
    return MOOR_OK;
}

/* Calls that draw from the grant are under way: it is drawn from beside them, and then released. */
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
    if (!ret_lease || bytes == 0)
        return moor__leave(refuse_arguments());
    if (!moor__handles_remove(&runtime->grants, handle, &slot))
        return moor__leave(commit_shared(runtime, handle, bytes, ret_lease));
    if (commit_at_hand(runtime, (struct moor__grant *)slot, bytes, ret_lease))
        return MOOR_OK;
    return moor__leave(commit_removed(runtime, (struct moor__grant *)slot, bytes, ret_lease));
}

/* ---- later ---- */

static moor_status pin(struct moor_runtime *runtime, moor_lease handle, struct moor__lease **ret_lease)
{
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__handles_pin(&runtime->leases, handle, &slot);
    if (!status)
        *ret_lease = (struct moor__lease *)slot;
    return status;
}

/* Nobody has it any more. */
static void finish(struct moor_runtime *runtime, struct moor__lease *lease)
{
    struct moor_holder *holder = lease->holder;
    struct moor__thread_cache *cache = moor__thread_cache_of(runtime);
    uint64_t bytes = atomic_load_explicit(&lease->bytes, memory_order_relaxed);
    moor__thread_cache_return(MOOR__LEASES_OF(runtime, cache), &lease->slot);
    moor__refund_leased(cache, holder, bytes, MOOR__ONE_LEASE);
}

static void unpin(struct moor_runtime *runtime, struct moor__lease *lease)
{
    if (moor__handles_unpin(&lease->slot))
        finish(runtime, lease);
}

/* Sets its bytes if they are still `before`. Relaxed: the number alone decides who moves them in the account. */
static bool replace(struct moor__lease *lease, uint64_t before, uint64_t after)
{
    return atomic_compare_exchange_strong_explicit(&lease->bytes, &before, after, memory_order_relaxed,
                                                   memory_order_relaxed);
}

static moor_status adjust(struct moor__lease *lease, uint64_t bytes, uint64_t deadline_ns)
{
    struct moor_holder *holder = lease->holder;
    for (;;) {
        uint64_t before = atomic_load_explicit(&lease->bytes, memory_order_relaxed);
        uint64_t more = bytes > before ? bytes - before : 0;
        moor_status status =
            more ? moor__reserve(moor__thread_cache_for(holder), holder, more, 0, deadline_ns) : MOOR_OK;
        if (status)
            return status;
        if (replace(lease, before, bytes)) {
            if (more)
                moor__charge(holder, MOOR__LEASED, more, 0, 0);
            else if (before > bytes)
                moor__refund_leased(moor__thread_cache_for(holder), holder, before - bytes, 0);
            return MOOR_OK;
        }
        if (more)
            moor__unreserve(moor__thread_cache_for(holder), holder, more, 0, false);
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
    unpin(runtime, lease);
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
    unpin(runtime, lease);
    return MOOR_OK;
}

/* As finish, in the ordinary case: in the thread's thread_account, and it has room for the slot. False: nothing has
 * changed. */
static inline bool finish_at_hand(struct moor_runtime *runtime, struct moor__lease *lease)
{
    struct moor_holder *holder = lease->holder;
    struct moor_authority *authority = holder->authority; /* the holder may go with its last lease */
    struct moor__thread_cache *cache = moor__thread_cache_last.cache;
    uint64_t bytes = atomic_load_explicit(&lease->bytes, memory_order_relaxed);
    const struct moor__transfer step = {MOOR__LEASED, MOOR__CREDIT, bytes, .counts = -MOOR__ONE_LEASE};
    if (!moor__thread_cache_is_last(runtime) || cache->leases.count == MOOR__THREAD_SLOTS ||
        atomic_load_explicit(&holder->asked, memory_order_relaxed) ||
        !moor__transfer_in_thread(cache, holder, &step))
        return false;
    if (moor__handles_renew(&lease->slot))
        cache->leases.slot[cache->leases.count++] = &lease->slot;
    moor__trace(runtime, MOOR_TRACE_REFUND, authority, holder, bytes, 0);
    return true;
}

/* Calls on the lease are under way: the last of them finishes it. */
static moor_status refund_shared(struct moor_runtime *runtime, moor_lease handle)
{
    struct moor__lease *lease = NULL;
    moor_status status = pin(runtime, handle, &lease);
    if (status)
        return status;
    status = moor__handles_retire(&lease->slot);
    unpin(runtime, lease);
    return status;
}

moor_status moor_lease_refund(struct moor_runtime *runtime, moor_lease handle)
{
    struct moor__slot *slot;
    if (!moor__may_enter(runtime))
        return moor__leave(moor__enter_refused(runtime));
    if (handle == 0)
        return MOOR_OK;
    if (!moor__handles_remove(&runtime->leases, handle, &slot))
        return moor__leave(refund_shared(runtime, handle));
    if (!finish_at_hand(runtime, (struct moor__lease *)slot))
        finish(runtime, (struct moor__lease *)slot);
    return MOOR_OK;
}
