/* SPDX-License-Identifier: MIT */
/* Statistics of accounts. A snapshot of an authority is one critical section, so its sums hold exactly. */
#include "governor/governor.h"

#include <moorage/stats.h>
#include <string.h>

static uint64_t evictable_of(const struct moor_holder *holder)
{
    return moor__min(holder->settings.evictable, moor__account_live(&holder->account));
}

/* Describes a holder. Requires both locks: the queue's for pressure requests, the authority's for the accounts,
 * with no credit in any thread account. */
static struct moor_holder_stats holder_stats(const struct moor_holder *holder)
{
    const struct moor__account *account = &holder->account;
    struct moor_holder_stats stats = {
        .role = holder->settings.role,
        .priority = holder->limits.priority,
        .revision = holder->settings.revision,
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
        .evictable_bytes = evictable_of(holder),
        .peak_charged_bytes = holder->peak_charged,
        .asked = holder->victim.asked,
        .evicted_bytes = holder->victim.evicted_bytes,
    };
    assert(holder->has == stats.reserved_bytes + stats.charged_bytes);
    memcpy(stats.name, holder->name, sizeof stats.name);
    return stats;
}

/* Describes an authority. Requires both locks. */
static struct moor_authority_stats authority_stats(const struct moor_authority *authority)
{
    const struct moor__authority_sums *sums = &authority->sums;
    uint64_t charged = moor__account_charged(&sums->account);
    uint64_t leased = moor__account_get(&sums->account, MOOR__LEASED), evictable = 0;
    const struct moor_holder *holder;
    assert(sums->has == charged + moor__account_get(&sums->account, MOOR__RESERVED));
    TAILQ_FOREACH (holder, &authority->holders, entry)
        evictable += evictable_of(holder);
    return (struct moor_authority_stats){
        .capacity_bytes = authority->limits.capacity,
        .revision = authority->limits.revision,
        .over_bytes = moor__over_bytes(authority),
        .set_aside_bytes = authority->limits.set_aside,
        .free_bytes = moor__sub_sat(authority->limits.capacity, sums->has),
        .headroom_bytes = moor__sub_sat(moor__authority_capacity(authority), sums->has),
        .guaranteed_bytes = sums->commitments - sums->has,
        .reserved_bytes = moor__account_get(&sums->account, MOOR__RESERVED),
        .charged_bytes = charged,
        .live_bytes = moor__account_live(&sums->account),
        .pending_bytes = moor__account_get(&sums->account, MOOR__PENDING),
        .quarantined_bytes = moor__account_get(&sums->account, MOOR__QUARANTINED),
        .committed_bytes = charged - leased,
        .leased_bytes = leased,
        .shared_bytes = moor__account_get(&sums->account, MOOR__SHARED),
        .requested_bytes = moor__account_get(&sums->account, MOOR__REQUESTED) + leased,
        .evictable_bytes = evictable,
        .external_bytes = authority->external.bytes,
        .peak_charged_bytes = sums->peak_charged,
        .tickets = authority->waiting.tickets,
        .holder_count = authority->holder_count,
        .external_known = authority->external.is_known,
        .inconsistent = authority->external.is_inconsistent,
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
    struct moor__queue *queue = &authority->governor->queue;
    size_t count = 0;
    moor__lock_acquire(&queue->lock);
    moor__accounts_lock(authority);
    *ret_stats = authority_stats(authority);
    const struct moor_holder *holder;
    TAILQ_FOREACH (holder, &authority->holders, entry) {
        if (count == capacity)
            break;
        ret_holders[count++] = holder_stats(holder);
    }
    moor__accounts_unlock(authority);
    moor__lock_release(&queue->lock);
    if (ret_count)
        *ret_count = count;
    return MOOR_OK;
}

moor_status moor_holder_get_stats(struct moor_holder *holder, struct moor_holder_stats *ret_stats)
{
    if (!holder || !ret_stats)
        return moor__leave(moor__fail(MOOR_INVALID, "holder and ret_stats must not be NULL"));
    struct moor_authority *authority = holder->authority;
    struct moor__queue *queue = &authority->governor->queue;
    moor_status status = moor__enter(authority->runtime);
    if (status)
        return moor__leave(status);
    moor__lock_acquire(&queue->lock);
    moor__accounts_lock(authority);
    *ret_stats = holder_stats(holder);
    moor__accounts_unlock(authority);
    moor__lock_release(&queue->lock);
    return MOOR_OK;
}
