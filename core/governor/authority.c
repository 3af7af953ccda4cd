/* SPDX-License-Identifier: MIT */
/*
 * Authorities: the one account of a physical pool.
 *
 * Invariant, at every instant under the lock, for the authority and for each holder:
 *     charged = live + pending + quarantined, external within live;
 *     the authority's counters are the sums of its holders'.
 * reserved + charged never exceeds the capacity because of anything granted here; only shrinking the capacity
 * can leave it lower than what is held, and then nothing is granted until enough has come back.
 */
#include "governor/governor.h"

#include "util/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* runtime->lock held. NULL: no memory. */
static struct moor_authority *find_or_make(struct moor_runtime *runtime, const char *pool_key)
{
    for (struct moor_authority *known = runtime->authorities; known; known = known->next)
        if (strcmp(known->pool_key, pool_key) == 0)
            return known;
    struct moor_authority *authority = calloc(1, sizeof *authority);
    if (!authority)
        return NULL;
    authority->runtime = runtime;
    authority->is_unknown = true;
    (void)strncpy(authority->pool_key, pool_key, sizeof authority->pool_key - 1);
    pthread_mutex_init(&authority->lock, NULL);
    authority->next = runtime->authorities;
    runtime->authorities = authority;
    return authority;
}

moor_status moor__authority_for_pool(struct moor_runtime *runtime, const char *pool_key,
                                     const uint64_t *total_bytes, struct moor_authority **ret_authority)
{
    pthread_mutex_lock(&runtime->lock);
    struct moor_authority *authority = find_or_make(runtime, pool_key);
    pthread_mutex_unlock(&runtime->lock);
    if (!authority)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for an authority");
    pthread_mutex_lock(&authority->lock);
    if (authority->is_unknown && total_bytes) {
        authority->capacity = *total_bytes;
        authority->is_unknown = false;
    }
    pthread_mutex_unlock(&authority->lock);
    *ret_authority = authority;
    return MOOR_OK;
}

void moor__authorities_destroy(struct moor_runtime *runtime)
{
    while (runtime->authorities) {
        struct moor_authority *authority = runtime->authorities;
        runtime->authorities = authority->next;
        pthread_mutex_destroy(&authority->lock);
        free(authority);
    }
}

moor_status moor_authority_set_capacity(struct moor_authority *authority, uint64_t capacity_bytes)
{
    if (!authority)
        return moor__fail(MOOR_INVALID, "the authority is NULL");
    moor_status status = moor__enter(authority->runtime);
    if (status)
        return status;
    pthread_mutex_lock(&authority->lock);
    authority->capacity = capacity_bytes;
    authority->is_unknown = false;
    pthread_mutex_unlock(&authority->lock);
    return MOOR_OK;
}

static uint64_t room(uint64_t limit, const struct moor__account *account)
{
    uint64_t held = account->reserved + account->charged;
    return held < limit ? limit - held : 0;
}

/* Once all that is pending has come back. bytes <= limit. */
static bool would_fit(uint64_t limit, const struct moor__account *account, uint64_t bytes)
{
    return account->reserved + account->charged - account->pending <= limit - bytes;
}

/* lock held. Which answer a request that does not fit deserves. */
static moor_status refuse(const struct moor_holder *holder, uint64_t bytes)
{
    const struct moor_authority *authority = holder->authority;
    unsigned long long wanted = bytes, capacity = authority->capacity, limit = holder->limit;
    if (bytes > authority->capacity)
        return moor__fail(MOOR_NEVER_FITS, "%s asks for %llu bytes; the whole capacity is %llu", holder->name,
                          wanted, capacity);
    if (bytes > holder->limit)
        return moor__fail(MOOR_NEVER_FITS, "%s asks for %llu bytes; its limit is %llu", holder->name, wanted,
                          limit);
    unsigned long long pool_room = room(authority->capacity, &authority->total);
    unsigned long long own_room = room(holder->limit, &holder->account);
    unsigned long long pool_pending = authority->total.pending;
    if (would_fit(authority->capacity, &authority->total, bytes) &&
        would_fit(holder->limit, &holder->account, bytes))
        return moor__fail(MOOR_PENDING, "%s asks for %llu bytes; %llu are free and %llu behind fences",
                          holder->name, wanted, pool_room, pool_pending);
    if (bytes > own_room)
        return moor__fail(MOOR_OVER_BUDGET, "%s asks for %llu bytes; its limit of %llu leaves %llu",
                          holder->name, wanted, limit, own_room);
    return moor__fail(MOOR_OVER_BUDGET, "%s asks for %llu bytes; %llu of %llu are free", holder->name, wanted,
                      pool_room, capacity);
}

moor_status moor__reserve(struct moor_holder *holder, uint64_t bytes)
{
    struct moor_authority *authority = holder->authority;
    moor_status status = MOOR_OK;
    pthread_mutex_lock(&authority->lock);
    if (bytes <= room(authority->capacity, &authority->total) &&
        bytes <= room(holder->limit, &holder->account)) {
        authority->total.reserved += bytes;
        holder->account.reserved += bytes;
    } else {
        status = refuse(holder, bytes);
    }
    pthread_mutex_unlock(&authority->lock);
    return status;
}

/* Moves bytes between two counters of one account. */
static void move(uint64_t *from, uint64_t *to, uint64_t bytes)
{
    assert(*from >= bytes);
    *from -= bytes;
    *to += bytes;
}

static void take(uint64_t *from, uint64_t bytes)
{
    assert(*from >= bytes);
    *from -= bytes;
}

void moor__unreserve(struct moor_holder *holder, uint64_t bytes)
{
    struct moor_authority *authority = holder->authority;
    pthread_mutex_lock(&authority->lock);
    take(&holder->account.reserved, bytes);
    take(&authority->total.reserved, bytes);
    pthread_mutex_unlock(&authority->lock);
}

static void charge_account(struct moor__account *account, uint64_t bytes)
{
    move(&account->reserved, &account->charged, bytes);
    if (account->charged > account->peak_charged)
        account->peak_charged = account->charged;
}

moor_status moor__claim_charge(struct moor__claim *claim, uint64_t actual)
{
    struct moor_holder *holder = claim->holder;
    if (actual > claim->bytes) {
        moor_status status = moor__reserve(holder, actual - claim->bytes);
        if (status)
            return status;
        claim->bytes = actual;
    }
    struct moor_authority *authority = holder->authority;
    pthread_mutex_lock(&authority->lock);
    charge_account(&holder->account, actual);
    charge_account(&authority->total, actual);
    pthread_mutex_unlock(&authority->lock);
    claim->bytes -= actual;
    moor__claim_return(claim);
    return MOOR_OK;
}

void moor__claim_charge_doomed(struct moor__claim *claim, uint64_t actual)
{
    struct moor_holder *holder = claim->holder;
    struct moor_authority *authority = holder->authority;
    uint64_t covered = actual < claim->bytes ? actual : claim->bytes;
    pthread_mutex_lock(&authority->lock);
    holder->account.reserved += actual - covered;
    authority->total.reserved += actual - covered;
    charge_account(&holder->account, actual);
    charge_account(&authority->total, actual);
    pthread_mutex_unlock(&authority->lock);
    claim->bytes -= covered;
    moor__claim_return(claim);
}

/* The moves of what is charged, see governor.h. */
void moor__pending(struct moor_holder *holder, uint64_t bytes)
{
    struct moor_authority *authority = holder->authority;
    pthread_mutex_lock(&authority->lock);
    holder->account.pending += bytes;
    authority->total.pending += bytes;
    assert(holder->account.pending + holder->account.quarantined <= holder->account.charged);
    pthread_mutex_unlock(&authority->lock);
}

void moor__unpending(struct moor_holder *holder, uint64_t bytes)
{
    struct moor_authority *authority = holder->authority;
    pthread_mutex_lock(&authority->lock);
    take(&holder->account.pending, bytes);
    take(&authority->total.pending, bytes);
    pthread_mutex_unlock(&authority->lock);
}

void moor__refund(struct moor_holder *holder, uint64_t bytes)
{
    struct moor_authority *authority = holder->authority;
    pthread_mutex_lock(&authority->lock);
    take(&holder->account.pending, bytes);
    take(&holder->account.charged, bytes);
    take(&authority->total.pending, bytes);
    take(&authority->total.charged, bytes);
    pthread_mutex_unlock(&authority->lock);
}

void moor__rereserve(struct moor_holder *holder, uint64_t bytes)
{
    struct moor_authority *authority = holder->authority;
    pthread_mutex_lock(&authority->lock);
    take(&holder->account.pending, bytes);
    take(&authority->total.pending, bytes);
    move(&holder->account.charged, &holder->account.reserved, bytes);
    move(&authority->total.charged, &authority->total.reserved, bytes);
    pthread_mutex_unlock(&authority->lock);
}

void moor__quarantine(struct moor_holder *holder, uint64_t bytes)
{
    struct moor_authority *authority = holder->authority;
    pthread_mutex_lock(&authority->lock);
    move(&holder->account.pending, &holder->account.quarantined, bytes);
    move(&authority->total.pending, &authority->total.quarantined, bytes);
    pthread_mutex_unlock(&authority->lock);
}

void moor__unquarantine(struct moor_holder *holder, uint64_t bytes)
{
    struct moor_authority *authority = holder->authority;
    pthread_mutex_lock(&authority->lock);
    move(&holder->account.quarantined, &holder->account.pending, bytes);
    move(&authority->total.quarantined, &authority->total.pending, bytes);
    pthread_mutex_unlock(&authority->lock);
}

void moor__charge_external(struct moor_holder *holder, uint64_t bytes)
{
    struct moor_authority *authority = holder->authority;
    pthread_mutex_lock(&authority->lock);
    charge_account(&holder->account, bytes);
    charge_account(&authority->total, bytes);
    holder->account.external += bytes;
    authority->total.external += bytes;
    pthread_mutex_unlock(&authority->lock);
}

void moor__refund_external(struct moor_holder *holder, uint64_t bytes)
{
    struct moor_authority *authority = holder->authority;
    pthread_mutex_lock(&authority->lock);
    take(&holder->account.external, bytes);
    take(&holder->account.charged, bytes);
    take(&authority->total.external, bytes);
    take(&authority->total.charged, bytes);
    pthread_mutex_unlock(&authority->lock);
}
