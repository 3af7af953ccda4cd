/* SPDX-License-Identifier: MIT */
/* Snapshots of the account, and of what is alive. An authority's is one critical section, so it adds up. */
#include "governor/account.h"
#include "governor/pressure.h"
#include "loader/provider.h"
#include "util/error.h"

#include <moorage/stats.h>
#include <string.h>

/* One instant of an authority and its holders: the queue's lock for what they are asked, the authority's for
 * the account, and nothing in any thread's thread_accounts. */
static void look_at(struct moor_authority *authority)
{
    moor__lock_acquire(&authority->runtime->queue->lock);
    moor__lock_acquire(&authority->lock);
    moor__credit_take_back(authority, MOOR__STRICT_READ);
}

static void look_away(struct moor_authority *authority)
{
    moor__credit_allow(authority, MOOR__STRICT_READ);
    moor__lock_release(&authority->lock);
    moor__lock_release(&authority->runtime->queue->lock);
}

static uint64_t live_of(const struct moor__account *account)
{
    return moor__account_get(account, MOOR__LIVE) + moor__account_get(account, MOOR__SHARED) +
           moor__account_get(account, MOOR__LEASED);
}

/* lock held, thread_accounts empty. */
static void describe_holder(const struct moor_holder *holder, struct moor_holder_stats *ret_stats)
{
    const struct moor__account *account = &holder->account;
    uint64_t live = live_of(account);
    *ret_stats = (struct moor_holder_stats){
        .role = holder->role,
        .priority = holder->limits.priority,
        .revision = holder->revision,
        .limit_bytes = holder->limits.limit_bytes == UINT64_MAX ? 0 : holder->limits.limit_bytes,
        .guarantee_bytes = holder->limits.guarantee_bytes,
        .reserved_bytes = moor__account_get(account, MOOR__RESERVED),
        .charged_bytes = moor__account_charged(account),
        .pending_bytes = moor__account_get(account, MOOR__PENDING),
        .quarantined_bytes = moor__account_get(account, MOOR__QUARANTINED),
        .leased_bytes = moor__account_get(account, MOOR__LEASED),
        .shared_bytes = moor__account_get(account, MOOR__SHARED),
        .requested_bytes =
            moor__account_get(account, MOOR__REQUESTED) + moor__account_get(account, MOOR__LEASED),
        .evictable_bytes = holder->evictable < live ? holder->evictable : live,
        .peak_charged_bytes = holder->peak_charged,
        .asked = holder->asked_count,
        .evicted_bytes = holder->evicted_bytes,
    };
    memcpy(ret_stats->name, holder->name, sizeof ret_stats->name);
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* lock held, thread_accounts empty. */
static void describe_authority(const struct moor_authority *authority, struct moor_authority_stats *ret_stats)
{
    const struct moor__account *total = &authority->total_account;
    uint64_t charged = moor__account_charged(total), leased = moor__account_get(total, MOOR__LEASED),
             evictable = 0;
    const struct moor_holder *holder;
    TAILQ_FOREACH (holder, &authority->holders, entry) {
        uint64_t live = live_of(&holder->account);
        evictable += holder->evictable < live ? holder->evictable : live;
    }
    *ret_stats = (struct moor_authority_stats){
        .capacity_bytes = authority->capacity,
        .revision = authority->revision,
        .over_bytes = moor__over_bytes(authority),
        .set_aside_bytes = authority->set_aside,
        .free_bytes = minus(authority->capacity, authority->has),
        .headroom_bytes = minus(moor__authority_capacity(authority), authority->has),
        .guaranteed_bytes = authority->commitments - authority->has,
        .reserved_bytes = moor__account_get(total, MOOR__RESERVED),
        .charged_bytes = charged,
        .live_bytes = live_of(total),
        .pending_bytes = moor__account_get(total, MOOR__PENDING),
        .quarantined_bytes = moor__account_get(total, MOOR__QUARANTINED),
        .committed_bytes = charged - leased,
        .leased_bytes = leased,
        .shared_bytes = moor__account_get(total, MOOR__SHARED),
        .requested_bytes = moor__account_get(total, MOOR__REQUESTED) + leased,
        .evictable_bytes = evictable,
        .external_bytes = authority->external,
        .peak_charged_bytes = authority->peak_charged,
        .tickets = authority->tickets,
        .holder_count = authority->holder_count,
        .external_known = authority->external_known,
        .inconsistent = authority->inconsistent,
    };
}

moor_status moor_authority_get_stats(struct moor_authority *authority, struct moor_authority_stats *ret_stats,
                                     struct moor_holder_stats *ret_holders, size_t capacity,
                                     size_t *ret_count)
{
    if (!authority || !ret_stats || (capacity && !ret_holders))
        return moor__leave(moor__fail(
            MOOR_INVALID, "authority and ret_stats must not be NULL, nor ret_holders with a capacity"));
    moor_status status = moor__enter(authority->runtime);
    if (status)
        return moor__leave(status);
    size_t count = 0;
    look_at(authority);
    describe_authority(authority, ret_stats);
    const struct moor_holder *holder;
    TAILQ_FOREACH (holder, &authority->holders, entry) {
        if (count == capacity)
            break;
        describe_holder(holder, &ret_holders[count++]);
    }
    look_away(authority);
    if (ret_count)
        *ret_count = count;
    return MOOR_OK;
}

moor_status moor_holder_get_stats(struct moor_holder *holder, struct moor_holder_stats *ret_stats)
{
    if (!holder || !ret_stats)
        return moor__leave(moor__fail(MOOR_INVALID, "holder and ret_stats must not be NULL"));
    moor_status status = moor__enter(holder->authority->runtime);
    if (status)
        return moor__leave(status);
    look_at(holder->authority);
    describe_holder(holder, ret_stats);
    look_away(holder->authority);
    return MOOR_OK;
}

static void add_device(const struct moor_device *device, struct moor_object_counts *counts)
{
    uint64_t *const sums[MOOR__COUNTS] = {
        [MOOR__COUNT_BUFFER] = &counts->buffers,         [MOOR__COUNT_RANGE] = &counts->ranges,
        [MOOR__COUNT_SEGMENT] = &counts->segments,       [MOOR__COUNT_STREAM] = &counts->streams,
        [MOOR__COUNT_BINDING] = &counts->bindings,       [MOOR__COUNT_RELEASE] = &counts->releases,
        [MOOR__COUNT_QUARANTINE] = &counts->quarantined,
    };
    for (int kind = 0; kind < MOOR__COUNTS; kind++)
        *sums[kind] += atomic_load_explicit(&device->counts[kind], memory_order_acquire);
}

moor_status moor_runtime_get_counts(struct moor_runtime *runtime, struct moor_object_counts *ret_counts)
{
    moor_status status = moor__enter(runtime);
    if (status)
        return moor__leave(status);
    if (!ret_counts)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_counts is NULL"));
    struct moor_object_counts counts = {.tickets = moor__queue_count(runtime->queue)};
    moor__authorities_count(runtime, &counts.grants, &counts.leases);
    moor__lock_acquire(&runtime->lock);
    for (const struct moor_provider *provider = runtime->providers; provider; provider = provider->next)
        for (uint32_t i = 0; i < provider->device_count; i++)
            add_device(&provider->devices[i], &counts);
    moor__lock_release(&runtime->lock);
    *ret_counts = counts;
    return MOOR_OK;
}
