/* SPDX-License-Identifier: MIT */
/* Authorities: the one account of a physical pool, its capacity, and what others hold of it. */
#include "governor/account.h"
#include "governor/limits.h"
#include "governor/pressure.h"
#include "observe/trace.h"
#include "util/error.h"

#include <stdlib.h>
#include <string.h>

/* runtime->lock held. NULL: no memory. */
static struct moor_authority *find_or_make(struct moor_runtime *runtime, const char *pool_key)
{
    uint32_t rank = 0;
    for (struct moor_authority *known = runtime->authorities; known; known = known->next) {
        if (strcmp(known->pool_key, pool_key) == 0)
            return known;
        rank = known->rank >= rank ? known->rank + 1 : rank;
    }
    struct moor_authority *authority = calloc(1, sizeof *authority);
    if (!authority)
        return NULL;
    authority->runtime = runtime;
    authority->rank = rank;
    authority->is_unknown = true;
    TAILQ_INIT(&authority->holders);
    (void)strncpy(authority->pool_key, pool_key, sizeof authority->pool_key - 1);
    moor__lock_init_at(&authority->lock, MOOR__RANK_AUTHORITY, rank, "authority.lock");
    authority->next = runtime->authorities;
    runtime->authorities = authority;
    return authority;
}

/* Of what its providers say the least: one of them knows of a limit, and it holds for all. lock held. */
static void take_total(struct moor_authority *authority, uint64_t total_bytes)
{
    if (!authority->is_unknown && authority->capacity <= total_bytes)
        return;
    moor__credit_take_back(authority, MOOR__STRICT_READ);
    authority->capacity = total_bytes;
    authority->is_unknown = false;
    moor__credit_allow(authority, MOOR__STRICT_READ);
}

moor_status moor__authority_for_pool(struct moor_runtime *runtime, const char *pool_key,
                                     const uint64_t *total_bytes, struct moor_authority **ret_authority)
{
    moor__lock_acquire(&runtime->lock);
    struct moor_authority *authority = find_or_make(runtime, pool_key);
    moor__lock_release(&runtime->lock);
    if (!authority)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for an authority");
    moor__lock_acquire(&authority->lock);
    if (total_bytes && authority->revision == 0)
        take_total(authority, *total_bytes);
    moor__lock_release(&authority->lock);
    *ret_authority = authority;
    return MOOR_OK;
}

void moor__authorities_destroy(struct moor_runtime *runtime)
{
    while (runtime->authorities) {
        struct moor_authority *authority = runtime->authorities;
        runtime->authorities = authority->next;
        if (authority->reclaim)
            moor__ticket_free(runtime, authority->reclaim);
        moor__lock_finish(&authority->lock);
        free(authority);
    }
}

void moor__authorities_count(struct moor_runtime *runtime, uint64_t *ret_grants, uint64_t *ret_leases)
{
    *ret_grants = *ret_leases = 0;
    moor__lock_acquire(&runtime->lock);
    struct moor_authority *first = runtime->authorities; /* entries are only ever added, at the front */
    moor__lock_release(&runtime->lock);
    for (struct moor_authority *authority = first; authority; authority = authority->next) {
        moor__lock_acquire(&authority->lock);
        moor__credit_take_back(authority, MOOR__STRICT_READ);
        uint64_t counts = moor__account_get(&authority->total_account, MOOR__ALIVE);
        *ret_grants += counts % MOOR__ONE_LEASE;
        *ret_leases += counts / MOOR__ONE_LEASE;
        moor__credit_allow(authority, MOOR__STRICT_READ);
        moor__lock_release(&authority->lock);
    }
}

uint64_t moor__authority_capacity(const struct moor_authority *authority)
{
    if (!authority->external_known)
        return authority->capacity;
    uint64_t there = authority->total - authority->external;
    return there < authority->capacity ? there : authority->capacity;
}

void moor__authority_set_external(struct moor_authority *authority, uint64_t total_bytes, uint64_t free_bytes,
                                  uint64_t held_bytes, bool inconsistent)
{
    moor__lock_acquire(&authority->lock);
    moor__credit_take_back(authority, MOOR__STRICT_READ);
    /* What hosts have leased is on the pool too, and no provider counts it. */
    uint64_t ours = held_bytes + moor__account_get(&authority->total_account, MOOR__LEASED);
    uint64_t used = free_bytes < total_bytes ? total_bytes - free_bytes : 0;
    authority->total = total_bytes;
    authority->external = used > ours ? used - ours : 0;
    authority->inconsistent = inconsistent;
    authority->external_known = true;
    moor__credit_allow(authority, MOOR__STRICT_READ);
    bool heed = authority->tickets > 0;
    moor__lock_release(&authority->lock);
    if (heed)
        moor__queue_scan(authority->runtime);
}

/* ---- limits ---- */

uint64_t moor__revision_after(uint64_t current, uint64_t revision)
{
    if (revision)
        return revision;
    return current < UINT64_MAX ? current + 1 : current;
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
        return moor__fail(MOOR_REFUSED, "revision %llu is in force with other lines", now);
    *ret_known = true;
    return MOOR_OK;
}

moor_status moor_authority_set_capacity(struct moor_authority *authority, uint64_t capacity_bytes,
                                        uint64_t revision, uint64_t *ret_over_bytes)
{
    if (!authority)
        return moor__leave(moor__fail(MOOR_INVALID, "the authority is NULL"));
    moor_status status = moor__enter(authority->runtime);
    if (status)
        return moor__leave(status);
    bool known;
    moor__lock_acquire(&authority->lock);
    status =
        moor__revision_check(authority->revision, revision, capacity_bytes == authority->capacity, &known);
    if (status) {
        moor__lock_release(&authority->lock);
        return moor__leave(status);
    }
    moor__credit_take_back(authority, MOOR__STRICT_READ);
    if (!known) {
        authority->capacity = capacity_bytes;
        authority->revision = moor__revision_after(authority->revision, revision);
    }
    uint64_t over = moor__over_bytes(authority);
    moor__credit_allow(authority, MOOR__STRICT_READ);
    moor__lock_release(&authority->lock);
    if (!known)
        moor__trace(authority->runtime, MOOR_TRACE_CAPACITY, authority, NULL, capacity_bytes, 0);
    moor__reclaim_review(authority);
    if (ret_over_bytes)
        *ret_over_bytes = over;
    return MOOR_OK;
}

moor_status moor_authority_set_aside(struct moor_authority *authority, uint64_t bytes)
{
    if (!authority)
        return moor__leave(moor__fail(MOOR_INVALID, "the authority is NULL"));
    moor_status status = moor__enter(authority->runtime);
    if (status)
        return moor__leave(status);
    moor__lock_acquire(&authority->lock);
    uint64_t room =
        authority->capacity > authority->guarantees ? authority->capacity - authority->guarantees : 0;
    if (bytes > room && bytes > authority->set_aside)
        status = moor__fail_short(MOOR_OVER_BUDGET, bytes - room,
                                  "%llu bytes are to be set aside; %llu are not guaranteed",
                                  (unsigned long long)bytes, (unsigned long long)room);
    if (!status) {
        moor__credit_take_back(authority, MOOR__STRICT_READ);
        authority->set_aside = bytes;
        moor__credit_allow(authority, MOOR__STRICT_READ);
    }
    moor__lock_release(&authority->lock);
    if (status)
        return moor__leave(status);
    moor__reclaim_review(authority);
    return MOOR_OK;
}
