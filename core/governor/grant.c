/* SPDX-License-Identifier: MIT */
/*
 * Grants, claims and leases. A grant's bytes are counted as reserved in its holder's account from the moment
 * it is made, so drawing from it needs no room and no lock: it only moves the right to charge them (promise
 * I2). A claim keeps its grant pinned; what comes back to a grant that was released meanwhile returns to the
 * budget with the last pin.
 */
#include "governor/governor.h"

#include "memory/release.h"
#include "util/error.h"

struct moor__grant {
    struct moor__slot slot;
    struct moor_holder *holder;
    _Atomic uint64_t remaining; /* bytes */
};

struct moor__lease {
    struct moor__slot slot;
    struct moor_holder *holder;
    uint64_t bytes;
};

void moor__grants_init(struct moor_runtime *runtime, uint32_t tag)
{
    moor__handles_init(&runtime->grants, MOOR__KIND_GRANT, tag, sizeof(struct moor__grant));
    moor__handles_init(&runtime->leases, MOOR__KIND_LEASE, tag, sizeof(struct moor__lease));
}

/* Reserves; before it says no for want of room, takes back what has completed. */
static moor_status reserve(struct moor_holder *holder, uint64_t bytes)
{
    struct moor_error before = *moor_last_error();
    moor_status status = moor__reserve(holder, bytes);
    if (status != MOOR_PENDING)
        return status;
    (void)moor__poll(holder->authority->runtime); /* the budget says whether that helped */
    status = moor__reserve(holder, bytes);
    if (!status)
        moor__error_restore(&before);
    return status;
}

static void unpin_grant(struct moor__grant *grant)
{
    if (!moor__handles_unpin(&grant->slot))
        return;
    struct moor_runtime *runtime = grant->holder->authority->runtime;
    struct moor_holder *holder = grant->holder;
    moor__unreserve(holder, atomic_load_explicit(&grant->remaining, memory_order_relaxed));
    moor__handles_free(&runtime->grants, &grant->slot);
    atomic_fetch_sub_explicit(&holder->users, 1, memory_order_release);
    atomic_fetch_sub_explicit(&runtime->grant_count, 1, memory_order_relaxed);
}

static moor_status pin_grant(struct moor_runtime *runtime, moor_grant handle, struct moor__grant **ret_grant)
{
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__handles_pin(&runtime->grants, handle, &slot);
    if (!status)
        *ret_grant = (struct moor__grant *)slot;
    return status;
}

moor_status moor_grant_reserve(struct moor_holder *holder, uint64_t bytes, moor_grant *ret_grant)
{
    if (!holder || !ret_grant || bytes == 0)
        return moor__fail(MOOR_INVALID, "holder and ret_grant must not be NULL, bytes not 0");
    struct moor_runtime *runtime = holder->authority->runtime;
    moor_status status = moor__enter(runtime);
    if (status)
        return status;
    struct moor__slot *slot;
    status = moor__handles_take(&runtime->grants, &slot);
    if (status)
        return status;
    status = reserve(holder, bytes);
    if (status) {
        moor__handles_free(&runtime->grants, slot);
        return status;
    }
    struct moor__grant *grant = (struct moor__grant *)slot;
    grant->holder = holder;
    atomic_init(&grant->remaining, bytes);
    atomic_fetch_add_explicit(&holder->users, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&runtime->grant_count, 1, memory_order_relaxed);
    *ret_grant = moor__handles_name(&runtime->grants, slot);
    moor__handles_publish(slot);
    return MOOR_OK;
}

moor_status moor_grant_get_remaining(struct moor_runtime *runtime, moor_grant handle, uint64_t *ret_bytes)
{
    if (!ret_bytes)
        return moor__fail(MOOR_INVALID, "ret_bytes is NULL");
    struct moor__grant *grant = NULL;
    moor_status status = pin_grant(runtime, handle, &grant);
    if (status)
        return status;
    *ret_bytes = atomic_load_explicit(&grant->remaining, memory_order_relaxed);
    unpin_grant(grant);
    return MOOR_OK;
}

moor_status moor_grant_release(struct moor_runtime *runtime, moor_grant handle)
{
    if (handle == 0)
        return moor__enter(runtime);
    struct moor__grant *grant = NULL;
    moor_status status = pin_grant(runtime, handle, &grant);
    if (status)
        return status;
    status = moor__handles_retire(&grant->slot);
    /* What is left goes back now; what calls under way still hold follows with the last of them. */
    if (!status)
        moor__unreserve(grant->holder, atomic_exchange_explicit(&grant->remaining, 0, memory_order_relaxed));
    unpin_grant(grant);
    return status;
}

/* The grant is pinned. */
static moor_status draw(struct moor__grant *grant, uint64_t bytes)
{
    uint64_t remaining = atomic_load_explicit(&grant->remaining, memory_order_relaxed);
    do {
        if (remaining < bytes)
            return moor__fail(MOOR_OVER_BUDGET, "%llu bytes are drawn from a grant that has %llu left",
                              (unsigned long long)bytes, (unsigned long long)remaining);
        /* Relaxed: the count alone decides; the account it stands for is under the authority's lock. */
    } while (!atomic_compare_exchange_weak_explicit(&grant->remaining, &remaining, remaining - bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return MOOR_OK;
}

moor_status moor__claim_take(struct moor_holder *holder, moor_grant handle, uint64_t bytes,
                             struct moor__claim *ret_claim)
{
    struct moor__grant *grant = NULL;
    moor_status status;
    if (handle == 0) {
        status = reserve(holder, bytes);
    } else {
        status = pin_grant(holder->authority->runtime, handle, &grant);
        if (status)
            return status;
        status = grant->holder == holder ? draw(grant, bytes)
                                         : moor__fail(MOOR_FOREIGN, "the grant is of %s, not of %s",
                                                      grant->holder->name, holder->name);
        if (status)
            unpin_grant(grant);
    }
    if (!status)
        *ret_claim = (struct moor__claim){.holder = holder, .grant = grant, .bytes = bytes};
    return status;
}

void moor__claim_return(struct moor__claim *claim)
{
    if (claim->grant) {
        atomic_fetch_add_explicit(&claim->grant->remaining, claim->bytes, memory_order_relaxed);
        unpin_grant(claim->grant);
    } else if (claim->bytes) {
        moor__unreserve(claim->holder, claim->bytes);
    }
    *claim = (struct moor__claim){0};
}

struct moor__grant *moor__grant_expect(struct moor_runtime *runtime, moor_grant handle)
{
    struct moor__grant *grant = NULL;
    if (handle != 0)
        (void)pin_grant(runtime, handle, &grant); /* released meanwhile: then the budget gets the bytes */
    return grant;
}

void moor__grant_restore(struct moor__grant *grant, uint64_t bytes)
{
    moor__rereserve(grant->holder, bytes);
    atomic_fetch_add_explicit(&grant->remaining, bytes, memory_order_relaxed);
    unpin_grant(grant);
}

moor_status moor_lease_commit(struct moor_runtime *runtime, moor_grant handle, uint64_t bytes,
                              moor_lease *ret_lease)
{
    moor_status status = moor__enter(runtime);
    if (status)
        return status;
    if (!ret_lease || bytes == 0)
        return moor__fail(MOOR_INVALID, "ret_lease must not be NULL, bytes not 0");
    struct moor__grant *grant;
    status = pin_grant(runtime, handle, &grant);
    if (status)
        return status;
    struct moor__slot *slot;
    status = moor__handles_take(&runtime->leases, &slot);
    if (status)
        goto out;
    status = draw(grant, bytes);
    if (status) {
        moor__handles_free(&runtime->leases, slot);
        goto out;
    }
    struct moor__lease *lease = (struct moor__lease *)slot;
    lease->holder = grant->holder;
    lease->bytes = bytes;
    moor__charge_external(grant->holder, bytes);
    atomic_fetch_add_explicit(&runtime->lease_count, 1, memory_order_relaxed);
    *ret_lease = moor__handles_name(&runtime->leases, slot);
    moor__handles_publish(slot);
out:
    unpin_grant(grant);
    return status;
}

moor_status moor_lease_refund(struct moor_runtime *runtime, moor_lease handle)
{
    moor_status status = moor__enter(runtime);
    if (status || handle == 0)
        return status;
    struct moor__slot *slot;
    status = moor__handles_pin(&runtime->leases, handle, &slot);
    if (status)
        return status;
    struct moor__lease *lease = (struct moor__lease *)slot;
    status = moor__handles_retire(slot);
    if (moor__handles_unpin(slot)) {
        moor__refund_external(lease->holder, lease->bytes);
        moor__handles_free(&runtime->leases, slot);
        atomic_fetch_sub_explicit(&runtime->lease_count, 1, memory_order_relaxed);
    }
    return status;
}
