/* SPDX-License-Identifier: MIT */
/*
 * Admission. A request's parts are taken one after another as if each fitted, and given back at the end
 * unless all did; nobody sees that, for the locks of all its authorities are held. On the way it is seen
 * whether they would fit with all pending bytes back, and whether they could ever.
 */
#include "governor/admission.h"

#include "governor/account.h"
#include "util/error.h"

#include <stdlib.h>
#include <string.h>

_Thread_local struct moor_holder *moor__pressured_holder;

static int compare_ranks(const void *a, const void *b)
{
    uint32_t left = (*(struct moor_authority *const *)a)->rank,
             right = (*(struct moor_authority *const *)b)->rank;
    return (left > right) - (left < right);
}

moor_status moor__request_set_copy(const struct moor_request *requests, size_t count,
                                   struct moor__request_set *ret_wish)
{
    struct moor_authority **pools = malloc(count * (sizeof *pools + sizeof *requests));
    if (!pools)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a request of %zu parts", count);
    struct moor_request *parts = (struct moor_request *)(pools + count);
    memcpy(parts, requests, count * sizeof *parts);
    for (size_t i = 0; i < count; i++)
        pools[i] = parts[i].holder->authority;
    qsort(pools, count, sizeof *pools, compare_ranks);
    size_t pool_count = 1;
    for (size_t i = 1; i < count; i++)
        if (pools[i] != pools[pool_count - 1])
            pools[pool_count++] = pools[i];
    *ret_wish = (struct moor__request_set){parts, count, pools, pool_count};
    return MOOR_OK;
}

void moor__request_set_lock(const struct moor__request_set *set)
{
    for (size_t i = 0; i < set->pool_count; i++)
        moor__lock_acquire(&set->pools[i]->lock);
}

void moor__request_set_unlock(const struct moor__request_set *set)
{
    for (size_t i = set->pool_count; i-- > 0;)
        moor__lock_release(&set->pools[i]->lock);
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a < UINT64_MAX - b ? a + b : UINT64_MAX;
}

static uint64_t set_aside(const struct moor_authority *authority)
{
    return moor__is_inside_pressure(authority->runtime) ? 0 : authority->set_aside;
}

uint64_t moor__pool_room(const struct moor_holder *holder)
{
    const struct moor_authority *authority = holder->authority;
    uint64_t others = authority->commitments - holder->commitment + holder->has;
    return minus(moor__authority_capacity(authority), plus(others, set_aside(authority)));
}

static uint64_t pool_room_later(const struct moor_holder *holder)
{
    const struct moor_authority *authority = holder->authority;
    uint64_t has = holder->has - moor__account_get(&holder->account, MOOR__PENDING);
    uint64_t others = authority->commitments_later - holder->commitment_later + has;
    return minus(moor__authority_capacity(authority), plus(others, set_aside(authority)));
}

static uint64_t own_room_later(const struct moor_holder *holder)
{
    return minus(holder->limits.limit_bytes,
                 holder->has - moor__account_get(&holder->account, MOOR__PENDING));
}

/* It is somebody else's turn, and this is not within what is guaranteed. */
static bool is_barred(const struct moor_holder *holder, uint64_t bytes, const struct moor__ticket *whose)
{
    const struct moor__ticket *turn = holder->authority->turn;
    return turn && turn != whose && !moor__is_inside_pressure(holder->authority->runtime) &&
           plus(holder->has, bytes) > holder->limits.guarantee_bytes;
}

/* What is in the way of one part now; the refusal is filled in if it is the first. */
static enum moor__obstacle find_obstacle(const struct moor__request_set *set, size_t index,
                                         const struct moor__ticket *whose, struct moor__refusal *refusal)
{
    const struct moor_request *part = &set->parts[index];
    const struct moor_holder *holder = part->holder;
    const struct moor_authority *authority = holder->authority;
    uint64_t own = moor__own_room(holder), pool = moor__pool_room(holder);
    enum moor__obstacle obstacle = part->bytes > own                       ? MOOR__OBSTACLE_LIMIT
                                   : part->bytes > pool                    ? MOOR__OBSTACLE_POOL
                                   : is_barred(holder, part->bytes, whose) ? MOOR__OBSTACLE_TURN
                                                                           : MOOR__NO_OBSTACLE;
    if (!obstacle || refusal->obstacle)
        return obstacle;
    bool limit = obstacle == MOOR__OBSTACLE_LIMIT;
    uint64_t room = own < pool ? own : pool;
    *refusal = (struct moor__refusal){
        .status = refusal->status,
        .obstacle = obstacle,
        .part = index,
        .wanted = part->bytes,
        .bytes = obstacle == MOOR__OBSTACLE_TURN ? part->bytes : minus(part->bytes, room),
        .room = room,
        .most = limit ? holder->limits.limit_bytes : authority->capacity,
        .external = !limit && moor__authority_capacity(authority) < authority->capacity,
    };
    memcpy(refusal->name, holder->name, sizeof refusal->name);
    return obstacle;
}

/* Adds a part to what is wished of its holder and authority; false: it would not fit if nobody had anything. */
static bool could_ever(const struct moor__request_set *set, size_t index, struct moor__refusal *refusal)
{
    const struct moor_request *part = &set->parts[index];
    struct moor_holder *holder = part->holder;
    struct moor_authority *authority = holder->authority;
    uint64_t guarantee = holder->limits.guarantee_bytes;
    uint64_t before = holder->planned_bytes > guarantee ? holder->planned_bytes : guarantee;
    holder->planned_bytes = plus(holder->planned_bytes, part->bytes);
    uint64_t after = holder->planned_bytes > guarantee ? holder->planned_bytes : guarantee;
    authority->planned_bytes = plus(authority->planned_bytes, after - before);
    /* Its own guarantee is not in its way, whatever has become of the capacity. */
    uint64_t all = minus(plus(plus(authority->guarantees, authority->planned_bytes), set_aside(authority)),
                         after - holder->planned_bytes);
    bool limit = holder->planned_bytes > holder->limits.limit_bytes;
    if (!limit && all <= authority->capacity && all < UINT64_MAX)
        return true;
    uint64_t others = plus(authority->guarantees - guarantee, set_aside(authority));
    uint64_t most = minus(authority->capacity, others);
    *refusal = (struct moor__refusal){
        .status = MOOR_NEVER_FITS,
        .obstacle = limit ? MOOR__OBSTACLE_LIMIT : MOOR__OBSTACLE_POOL,
        .part = index,
        .wanted = part->bytes,
        .bytes = holder->limits.limit_bytes < most ? holder->limits.limit_bytes : most,
        .most = limit ? holder->limits.limit_bytes : authority->capacity,
    };
    memcpy(refusal->name, holder->name, sizeof refusal->name);
    return false;
}

bool moor__request_set_can(const struct moor__request_set *set, struct moor__refusal *ret_refusal)
{
    bool can = true;
    for (size_t i = 0; i < set->count && can; i++)
        can = could_ever(set, i, ret_refusal);
    for (size_t i = 0; i < set->count; i++)
        set->parts[i].holder->planned_bytes = 0;
    for (size_t i = 0; i < set->pool_count; i++)
        set->pools[i]->planned_bytes = 0;
    return can;
}

/* What is on its way back to where it is missing. */
static uint64_t coming(const struct moor__request_set *set, const struct moor__refusal *refusal)
{
    const struct moor_holder *holder = set->parts[refusal->part].holder;
    return moor__account_get(refusal->obstacle == MOOR__OBSTACLE_LIMIT ? &holder->account
                                                                       : &holder->authority->total_account,
                             MOOR__PENDING);
}

/* All parts, also those that do not fit; sign -1: undoes that. */
static void take(const struct moor_request *part, uint64_t sign)
{
    moor__holder_account_add(part->holder, MOOR__RESERVED, sign * part->bytes);
}

static bool try_to_take(const struct moor__request_set *set, const struct moor__ticket *whose,
                        struct moor__refusal *refusal)
{
    bool now = true, later = true;
    *refusal = (struct moor__refusal){.status = MOOR_OVER_BUDGET};
    if (!moor__request_set_can(set, refusal))
        return false;
    for (size_t i = 0; i < set->count; i++) {
        const struct moor_request *part = &set->parts[i];
        enum moor__obstacle obstacle = find_obstacle(set, i, whose, refusal);
        now &= !obstacle;
        later &= obstacle != MOOR__OBSTACLE_TURN && part->bytes <= own_room_later(part->holder) &&
                 part->bytes <= pool_room_later(part->holder);
        take(part, 1);
    }
    for (size_t i = set->count; !now && i-- > 0;)
        take(&set->parts[i], (uint64_t)-1);
    if (!now && later) {
        refusal->status = MOOR_PENDING;
        refusal->bytes = coming(set, refusal);
    }
    return now;
}

bool moor__request_set_grant(const struct moor__request_set *set, const struct moor__ticket *whose,
                             struct moor__refusal *ret_refusal)
{
    if (try_to_take(set, whose, ret_refusal))
        return true;
    if (ret_refusal->status == MOOR_NEVER_FITS)
        return false;
    for (size_t i = 0; i < set->pool_count; i++)
        moor__credit_take_back(set->pools[i], MOOR__STRICT_TIGHT);
    return try_to_take(set, whose, ret_refusal);
}

bool moor__request_set_is_limited(const struct moor__request_set *set)
{
    bool limited = false;
    for (size_t i = 0; i < set->count; i++) {
        struct moor_holder *holder = set->parts[i].holder;
        holder->planned_bytes = plus(holder->planned_bytes, set->parts[i].bytes);
        limited |= holder->planned_bytes > moor__own_room(holder);
    }
    for (size_t i = 0; i < set->count; i++)
        set->parts[i].holder->planned_bytes = 0;
    return limited;
}

moor_status moor__refuse(const struct moor__refusal *refusal)
{
    const char *name = refusal->name;
    unsigned long long wanted = refusal->wanted, room = refusal->room, most = refusal->most,
                       bytes = refusal->bytes;
    bool limit = refusal->obstacle == MOOR__OBSTACLE_LIMIT;
    switch (refusal->status) {
    case MOOR_NEVER_FITS:
        return moor__fail_short(MOOR_NEVER_FITS, bytes, "%s asks for %llu bytes; %s %llu%s", name, wanted,
                                limit ? "its limit is" : "the whole capacity is", most,
                                limit ? "" : ", and others may be guaranteed some of it");
    case MOOR_PENDING:
        return moor__fail_short(MOOR_PENDING, bytes,
                                "%s asks for %llu bytes; %llu are free and %llu behind fences", name, wanted,
                                room, bytes);
    default:
        break;
    }
    if (refusal->obstacle == MOOR__OBSTACLE_TURN)
        return moor__fail_short(
            refusal->status, bytes,
            "%s asks for %llu bytes; they are kept for a request that has been passed often", name, wanted);
    if (limit)
        return moor__fail_short(refusal->status, bytes,
                                "%s asks for %llu bytes; its limit of %llu leaves %llu%s", name, wanted, most,
                                room, refusal->status == MOOR_NO_VICTIM ? ", and it gave up too little" : "");
    return moor__fail_short(
        refusal->status, bytes, "%s asks for %llu bytes; %llu of %llu are free for it%s%s", name, wanted,
        room, most, refusal->external ? ", others hold part of the pool" : "",
        refusal->status == MOOR_NO_VICTIM ? ", and those who were asked gave too little" : "");
}
