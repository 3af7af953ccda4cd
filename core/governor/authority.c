/* SPDX-License-Identifier: MIT */
/* Authorities: one for each physical pool, with its capacity and the external use of it. */
#include "governor/governor.h"

#include <stdlib.h>
#include <string.h>

/* Requires governor->lock. NULL: no memory. */
static struct moor_authority *find_or_make(struct moor__governor *governor, const char *pool_key)
{
    uint32_t rank = 0;
    for (struct moor_authority *known = governor->authorities; known; known = known->next) {
        if (strcmp(known->pool_key, pool_key) == 0)
            return known;
        rank = known->rank >= rank ? known->rank + 1 : rank;
    }
    struct moor_authority *authority = calloc(1, sizeof *authority);
    if (!authority)
        return NULL;
    assert(strlen(pool_key) < sizeof authority->pool_key);
    authority->runtime = governor->runtime;
    authority->governor = governor;
    authority->caches = &governor->caches;
    authority->rank = rank;
    authority->limits.is_unknown = true;
    TAILQ_INIT(&authority->holders);
    (void)strncpy(authority->pool_key, pool_key, sizeof authority->pool_key - 1);
    moor__lock_init_at(&authority->lock, MOOR__RANK_AUTHORITY, rank, "authority.lock");
    authority->next = governor->authorities;
    governor->authorities = authority;
    return authority;
}

moor_status moor__authority_for_pool(struct moor_runtime *runtime, const char *pool_key,
                                     const uint64_t *total_bytes, struct moor_authority **ret_authority)
{
    struct moor__governor *governor = runtime->governor;
    moor__lock_acquire(&governor->lock);
    struct moor_authority *authority = find_or_make(governor, pool_key);
    moor__lock_release(&governor->lock);
    if (!authority)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for an authority");
    struct moor__pool_limits *limits = &authority->limits;
    moor__accounts_lock(authority);
    /* The least total counts: one provider knows of a limit that holds for all. */
    if (total_bytes && limits->revision == 0 && (limits->is_unknown || *total_bytes < limits->capacity)) {
        limits->capacity = *total_bytes;
        limits->is_unknown = false;
    }
    moor__accounts_unlock(authority);
    *ret_authority = authority;
    return MOOR_OK;
}

void moor__authority_set_external(struct moor_authority *authority, uint64_t total_bytes, uint64_t free_bytes,
                                  uint64_t held_bytes, bool inconsistent)
{
    moor__accounts_lock(authority);
    /* Leased bytes are on the pool too, and no provider counts them. */
    uint64_t ours = held_bytes + moor__account_get(&authority->sums.account, MOOR__LEASED);
    uint64_t used = moor__sub_sat(total_bytes, free_bytes);
    authority->external = (struct moor__external_use){
        .total_bytes = total_bytes,
        .bytes = moor__sub_sat(used, ours),
        .is_known = true,
        .is_inconsistent = inconsistent,
    };
    assert(authority->external.bytes <= total_bytes);
    bool scans = authority->waiting.tickets > 0;
    moor__accounts_unlock(authority);
    if (scans)
        moor__queue_scan(authority->governor);
}

/* ---- limits ---- */

uint64_t moor__revision_after(uint64_t current, uint64_t revision)
{
    return revision ? revision : moor__add_sat(current, 1);
}

moor_status moor__revision_check(uint64_t current, uint64_t revision, bool same, bool *ret_known)
{
    unsigned long long now = current, asked = revision;
    *ret_known = false;
    if (revision == 0 || revision > current)
        return MOOR_OK;
    if (revision < current)
        return moor__fail(MOOR_STALE, "revision %llu comes after revision %llu", asked, now);
    if (!same)
        return moor__fail(MOOR_REFUSED, "revision %llu is in force with other values", now);
    *ret_known = true;
    return MOOR_OK;
}

moor_status moor_authority_set_capacity(struct moor_authority *authority, uint64_t capacity_bytes,
                                        uint64_t revision, uint64_t *ret_over_bytes)
{
    moor_status status = moor__authority_enter(authority);
    if (status)
        return moor__leave(status);
    struct moor__pool_limits *limits = &authority->limits;
    bool known;
    moor__accounts_lock(authority);
    status = moor__revision_check(limits->revision, revision, capacity_bytes == limits->capacity, &known);
    if (!status && !known) {
        limits->capacity = capacity_bytes;
        limits->revision = moor__revision_after(limits->revision, revision);
    }
    uint64_t over = moor__over_bytes(authority);
    moor__accounts_unlock(authority);
    if (status)
        return moor__leave(status);
    if (!known)
        moor__trace(authority->runtime, MOOR_TRACE_CAPACITY, authority, NULL, capacity_bytes, 0);
    moor__reclaim_review(authority);
    if (ret_over_bytes)
        *ret_over_bytes = over;
    return MOOR_OK;
}

moor_status moor_authority_set_aside(struct moor_authority *authority, uint64_t bytes)
{
    moor_status status = moor__authority_enter(authority);
    if (status)
        return moor__leave(status);
    moor__accounts_lock(authority);
    uint64_t room = moor__sub_sat(authority->limits.capacity, authority->sums.guarantees);
    if (bytes > room && bytes > authority->limits.set_aside)
        status = moor__fail_short(MOOR_OVER_BUDGET, bytes - room,
                                  "%llu bytes are to be set aside; %llu are not guaranteed",
                                  (unsigned long long)bytes, (unsigned long long)room);
    if (!status)
        authority->limits.set_aside = bytes;
    moor__accounts_unlock(authority);
    if (status)
        return moor__leave(status);
    moor__reclaim_review(authority);
    return MOOR_OK;
}
