/* SPDX-License-Identifier: MIT */
/*
 * Admission: reserves the parts of a request one after another, each as if those before it fitted, and undoes
 * it at the end unless all did. No other thread sees the intermediate state, because the locks of all
 * authorities are held. The formulas stand in admission.h.
 */
#include "governor/admission.h"

#include "governor/credit.h"
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
                                   struct moor__request_set *ret_set)
{
    assert(count > 0 && count <= MOOR_LIMIT_REQUESTS);
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
    *ret_set = (struct moor__request_set){parts, count, pools, pool_count,
                                          moor__is_inside_pressure(pools[0]->governor)};
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

bool moor__request_set_has(const struct moor__request_set *set, const struct moor_authority *pool)
{
    for (size_t i = 0; i < set->pool_count; i++)
        if (set->pools[i] == pool)
            return true;
    return false;
}

/* ---- room ---- */

static uint64_t reserve_of(const struct moor_authority *authority, bool is_inside)
{
    return is_inside ? 0 : authority->limits.set_aside;
}

uint64_t moor__pool_room(const struct moor_holder *holder, bool is_inside)
{
    const struct moor_authority *authority = holder->authority;
    uint64_t others = authority->sums.commitments - holder->commitment + holder->has;
    return moor__sub_sat(moor__authority_capacity(authority),
                         moor__add_sat(others, reserve_of(authority, is_inside)));
}

static uint64_t pool_room_later(const struct moor_holder *holder, bool is_inside)
{
    const struct moor_authority *authority = holder->authority;
    uint64_t others = authority->sums.commitments_later - holder->commitment_later + moor__has_later(holder);
    return moor__sub_sat(moor__authority_capacity(authority),
                         moor__add_sat(others, reserve_of(authority, is_inside)));
}

/* ---- now ---- */

/* Returns true if another ticket's exclusive turn bars these bytes. */
static bool is_barred(const struct moor__request_set *set, const struct moor_request *part,
                      const struct moor__ticket *ticket)
{
    const struct moor_holder *holder = part->holder;
    const struct moor__ticket *turn = holder->authority->waiting.turn;
    return turn && turn != ticket && !set->is_inside &&
           moor__add_sat(holder->has, part->bytes) > holder->limits.guarantee_bytes;
}

/* Returns the obstacle for one part, and fills the refusal in if it is the first. */
static enum moor__obstacle find_obstacle(const struct moor__request_set *set, size_t index,
                                         const struct moor__ticket *ticket, struct moor__refusal *refusal)
{
    const struct moor_request *part = &set->parts[index];
    const struct moor_holder *holder = part->holder;
    const struct moor_authority *authority = holder->authority;
    uint64_t own = moor__own_room(holder), pool = moor__pool_room(holder, set->is_inside);
    enum moor__obstacle obstacle = part->bytes > own              ? MOOR__OBSTACLE_LIMIT
                                   : part->bytes > pool           ? MOOR__OBSTACLE_POOL
                                   : is_barred(set, part, ticket) ? MOOR__OBSTACLE_TURN
                                                                  : MOOR__NO_OBSTACLE;
    if (!obstacle || refusal->obstacle)
        return obstacle;
    bool limit = obstacle == MOOR__OBSTACLE_LIMIT;
    uint64_t room = moor__min(own, pool);
    *refusal = (struct moor__refusal){
        .status = refusal->status,
        .obstacle = obstacle,
        .part = index,
        .wanted = part->bytes,
        .bytes = obstacle == MOOR__OBSTACLE_TURN ? part->bytes : moor__sub_sat(part->bytes, room),
        .room = room,
        .most = limit ? holder->limits.limit_bytes : authority->limits.capacity,
        .external = !limit && moor__authority_capacity(authority) < authority->limits.capacity,
    };
    memcpy(refusal->name, holder->name, sizeof refusal->name);
    return obstacle;
}

/* ---- ever ---- */

/* Adds a part to the planned bytes of its holder and authority. Returns false if it would not fit with every
 * byte free. */
static bool could_ever(const struct moor__request_set *set, size_t index, struct moor__refusal *refusal)
{
    const struct moor_request *part = &set->parts[index];
    struct moor_holder *holder = part->holder;
    struct moor_authority *authority = holder->authority;
    uint64_t guarantee = holder->limits.guarantee_bytes, reserve = reserve_of(authority, set->is_inside);
    uint64_t before = moor__max(holder->planned_bytes, guarantee);
    holder->planned_bytes = moor__add_sat(holder->planned_bytes, part->bytes);
    uint64_t after = moor__max(holder->planned_bytes, guarantee);
    authority->planned_bytes = moor__add_sat(authority->planned_bytes, after - before);
    uint64_t all =
        moor__add_sat(moor__add_sat(authority->sums.guarantees, authority->planned_bytes), reserve);
    /* A holder's own guarantee does not bar its request, even if the capacity has shrunk below the
     * guarantees. */
    all = moor__sub_sat(all, after - holder->planned_bytes);
    bool limit = holder->planned_bytes > holder->limits.limit_bytes;
    if (!limit && all <= authority->limits.capacity && all < UINT64_MAX)
        return true;
    assert(guarantee <= authority->sums.guarantees);
    uint64_t others = moor__add_sat(authority->sums.guarantees - guarantee, reserve);
    *refusal = (struct moor__refusal){
        .status = MOOR_NEVER_FITS,
        .obstacle = limit ? MOOR__OBSTACLE_LIMIT : MOOR__OBSTACLE_POOL,
        .part = index,
        .wanted = part->bytes,
        .bytes = moor__min(holder->limits.limit_bytes, moor__sub_sat(authority->limits.capacity, others)),
        .most = limit ? holder->limits.limit_bytes : authority->limits.capacity,
    };
    memcpy(refusal->name, holder->name, sizeof refusal->name);
    return false;
}

/* Requires the locks of the set. */
static bool all_could_ever(const struct moor__request_set *set, struct moor__refusal *refusal)
{
    bool can = true;
    for (size_t i = 0; i < set->count && can; i++) {
        assert(i > 0 || set->parts[i].holder->planned_bytes == 0);
        can = could_ever(set, i, refusal);
    }
    for (size_t i = 0; i < set->count; i++)
        set->parts[i].holder->planned_bytes = 0;
    for (size_t i = 0; i < set->pool_count; i++)
        set->pools[i]->planned_bytes = 0;
    return can;
}

bool moor__request_set_can(const struct moor__request_set *set, struct moor__refusal *ret_refusal)
{
    moor__request_set_lock(set);
    bool can = all_could_ever(set, ret_refusal);
    moor__request_set_unlock(set);
    return can;
}

bool moor__request_set_is_limited(const struct moor__request_set *set)
{
    bool limited = false;
    moor__request_set_lock(set);
    for (size_t i = 0; i < set->count; i++) {
        struct moor_holder *holder = set->parts[i].holder;
        holder->planned_bytes = moor__add_sat(holder->planned_bytes, set->parts[i].bytes);
        limited |= holder->planned_bytes > moor__own_room(holder);
    }
    for (size_t i = 0; i < set->count; i++)
        set->parts[i].holder->planned_bytes = 0;
    moor__request_set_unlock(set);
    return limited;
}

/* ---- granting ---- */

/* Returns the pending bytes of the holder or pool that lacks room. */
static uint64_t pending_where_missing(const struct moor__request_set *set,
                                      const struct moor__refusal *refusal)
{
    const struct moor_holder *holder = set->parts[refusal->part].holder;
    return moor__account_get(refusal->obstacle == MOOR__OBSTACLE_LIMIT ? &holder->account
                                                                       : &holder->authority->sums.account,
                             MOOR__PENDING);
}

static bool try_to_grant(const struct moor__request_set *set, const struct moor__ticket *ticket,
                         struct moor__refusal *refusal)
{
    bool now = true, later = true;
    *refusal = (struct moor__refusal){.status = MOOR_OVER_BUDGET};
    if (!all_could_ever(set, refusal))
        return false;
    for (size_t i = 0; i < set->count; i++) {
        const struct moor_request *part = &set->parts[i];
        enum moor__obstacle obstacle = find_obstacle(set, i, ticket, refusal);
        now &= !obstacle;
        later &=
            obstacle != MOOR__OBSTACLE_TURN &&
            part->bytes <= moor__sub_sat(part->holder->limits.limit_bytes, moor__has_later(part->holder)) &&
            part->bytes <= pool_room_later(part->holder, set->is_inside);
        moor__holder_account_add(part->holder, MOOR__RESERVED, part->bytes);
    }
    for (size_t i = set->count; !now && i-- > 0;)
        moor__holder_account_add(set->parts[i].holder, MOOR__RESERVED, -set->parts[i].bytes);
    if (!now && later) {
        refusal->status = MOOR_PENDING;
        refusal->bytes = pending_where_missing(set, refusal);
    }
    assert(now == !refusal->obstacle);
    return now;
}

bool moor__request_set_grant(const struct moor__request_set *set, const struct moor__ticket *ticket,
                             struct moor__refusal *ret_refusal)
{
    for (size_t i = 0; i < set->pool_count; i++)
        moor__assert_held(&set->pools[i]->lock);
    if (try_to_grant(set, ticket, ret_refusal))
        return true;
    if (ret_refusal->status == MOOR_NEVER_FITS)
        return false;
    for (size_t i = 0; i < set->pool_count; i++)
        moor__credit_take_back(set->pools[i], MOOR__STRICT_TIGHT);
    return try_to_grant(set, ticket, ret_refusal);
}

moor_status moor__refuse(const struct moor__refusal *refusal)
{
    const char *name = refusal->name;
    unsigned long long wanted = refusal->wanted, room = refusal->room, most = refusal->most,
                       bytes = refusal->bytes;
    moor_status status = refusal->status;
    bool limit = refusal->obstacle == MOOR__OBSTACLE_LIMIT, vain = status == MOOR_NO_VICTIM;
    assert(status > 0);
    if (status == MOOR_NEVER_FITS)
        return moor__fail_short(status, bytes, "%s asks for %llu bytes; %s %llu%s", name, wanted,
                                limit ? "its limit is" : "the whole capacity is", most,
                                limit ? "" : ", and others may be guaranteed some of it");
    if (status == MOOR_PENDING)
        return moor__fail_short(status, bytes, "%s asks for %llu bytes; %llu are free and %llu behind fences",
                                name, wanted, room, bytes);
    if (refusal->obstacle == MOOR__OBSTACLE_TURN)
        return moor__fail_short(
            status, bytes, "%s asks for %llu bytes; they are kept for a request that has been passed often",
            name, wanted);
    if (limit)
        return moor__fail_short(status, bytes, "%s asks for %llu bytes; its limit of %llu leaves %llu%s",
                                name, wanted, most, room, vain ? ", and it gave up too little" : "");
    return moor__fail_short(status, bytes, "%s asks for %llu bytes; %llu of %llu are free for it%s%s", name,
                            wanted, room, most, refusal->external ? ", others hold part of the pool" : "",
                            vain ? ", and the holders that were asked gave too little" : "");
}
