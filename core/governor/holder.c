/* SPDX-License-Identifier: MIT */
/*
 * Holders of an authority's memory. A thread that makes, changes or destroys one takes the queue's lock,
 * because the holder may be asked for memory, and the authority's, because it has an account.
 */
#include "governor/governor.h"

#include <stdlib.h>
#include <string.h>

/* ---- limits ---- */

static uint64_t limit_of(const struct moor_holder_limits *limits)
{
    return limits->limit_bytes ? limits->limit_bytes : UINT64_MAX;
}

static moor_status check_limits(const struct moor_holder_limits *limits)
{
    if (limits->reserved != 0)
        return moor__fail(MOOR_INVALID, "reserved is not zero");
    if (limits->guarantee_bytes > limit_of(limits))
        return moor__fail(MOOR_INVALID, "the guarantee of %llu exceeds the limit of %llu",
                          (unsigned long long)limits->guarantee_bytes,
                          (unsigned long long)limits->limit_bytes);
    return MOOR_OK;
}

/* Checks that the other holders' guarantees leave room for this one. Requires authority->lock. */
static moor_status check_guarantee(const struct moor_authority *authority, uint64_t before, uint64_t bytes)
{
    assert(before <= authority->sums.guarantees);
    uint64_t others = moor__add_sat(authority->sums.guarantees - before, authority->limits.set_aside);
    uint64_t room = moor__sub_sat(authority->limits.capacity, others);
    if (bytes <= before || bytes <= room)
        return MOOR_OK;
    return moor__fail_short(MOOR_OVER_BUDGET, bytes - room,
                            "%llu bytes are to be guaranteed; %llu are not yet", (unsigned long long)bytes,
                            (unsigned long long)room);
}

/* Requires both locks. */
static void set_limits(struct moor_holder *holder, const struct moor_holder_limits *limits, uint64_t revision)
{
    struct moor__schedule *schedule = &holder->authority->governor->queue.schedule;
    moor__holder_account_guarantee(holder, limits->guarantee_bytes);
    holder->limits.limit_bytes = limit_of(limits);
    holder->settings.revision = moor__revision_after(holder->settings.revision, revision);
    if (holder->limits.priority == limits->priority)
        return;
    moor__victim_remove(schedule, holder);
    holder->limits.priority = limits->priority;
    if (holder->victim.function || holder->victim.is_running)
        moor__victim_add(schedule, holder);
}

static bool is_same(const struct moor_holder_limits *a, const struct moor_holder_limits *b)
{
    return limit_of(a) == limit_of(b) && a->guarantee_bytes == b->guarantee_bytes &&
           a->priority == b->priority;
}

moor_status moor_holder_set_limits(struct moor_holder *holder, const struct moor_holder_limits *limits,
                                   uint64_t revision, uint64_t *ret_over_bytes)
{
    if (!holder || !limits)
        return moor__leave(moor__fail(MOOR_INVALID, "holder and limits must not be NULL"));
    struct moor_authority *authority = holder->authority;
    struct moor__queue *queue = &authority->governor->queue;
    bool known = false;
    moor_status status = moor__enter(authority->runtime);
    if (!status)
        status = check_limits(limits);
    if (status)
        return moor__leave(status);
    moor__lock_acquire(&queue->lock);
    moor__accounts_lock(authority);
    status =
        moor__revision_check(holder->settings.revision, revision, is_same(limits, &holder->limits), &known);
    if (!status && !known)
        status = check_guarantee(authority, holder->limits.guarantee_bytes, limits->guarantee_bytes);
    if (!status && !known)
        set_limits(holder, limits, revision);
    uint64_t over = moor__sub_sat(holder->has, holder->limits.limit_bytes);
    moor__accounts_unlock(authority);
    moor__lock_release(&queue->lock);
    if (status)
        return moor__leave(status);
    if (!known)
        moor__trace(authority->runtime, MOOR_TRACE_LIMIT, authority, holder, limit_of(limits), 0);
    moor__reclaim_review(authority);
    if (ret_over_bytes)
        *ret_over_bytes = over;
    return MOOR_OK;
}

/* ---- pressure ---- */

moor_status moor_holder_set_pressure(struct moor_holder *holder, moor_pressure_function pressure, void *user)
{
    moor_status status = moor__holder_enter(holder);
    if (status)
        return moor__leave(status);
    struct moor__governor *governor = holder->authority->governor;
    struct moor__queue *queue = &governor->queue;
    struct moor__victim *victim = &holder->victim;
    moor__lock_acquire(&queue->lock);
    status = moor__pressure_await(governor, holder);
    if (!status) {
        moor__victim_remove(&queue->schedule, holder);
        victim->function = pressure;
        victim->user = user;
        victim->cool_down_ns = victim->cool_until_ns = 0;
        /* A function that removes itself is still running, and its bytes are still expected. */
        if (pressure || victim->is_running)
            moor__victim_add(&queue->schedule, holder);
    }
    moor__lock_release(&queue->lock);
    if (!status)
        moor__reclaim_review(holder->authority);
    return moor__leave(status);
}

moor_status moor_holder_set_evictable(struct moor_holder *holder, uint64_t bytes)
{
    moor_status status = moor__holder_enter(holder);
    if (status)
        return moor__leave(status);
    struct moor_authority *authority = holder->authority;
    struct moor__governor *governor = authority->governor;
    moor__lock_acquire(&authority->lock);
    holder->settings.evictable = bytes;
    bool scans = authority->waiting.tickets > 0;
    moor__lock_release(&authority->lock);
    if (bytes == 0)
        return MOOR_OK;
    moor__lock_acquire(&governor->queue.lock);
    holder->victim.cool_down_ns = holder->victim.cool_until_ns = 0;
    if (scans)
        moor__queue_scan_locked(governor);
    moor__lock_release(&governor->queue.lock);
    return MOOR_OK;
}

/* ---- creation ---- */

/* Requires both locks. */
static void join(struct moor_holder *holder)
{
    struct moor_authority *authority = holder->authority;
    struct moor__schedule *schedule = &authority->governor->queue.schedule;
    TAILQ_INSERT_TAIL(&authority->holders, holder, entry);
    holder->victim.created = ++schedule->holders;
    holder->thread_account = (uint32_t)(holder->victim.created % MOOR__THREAD_ACCOUNTS);
    authority->holder_count++;
    if (holder->victim.function)
        moor__victim_add(schedule, holder);
}

moor_status moor_holder_create(struct moor_authority *authority, const struct moor_holder_options *options,
                               struct moor_holder **ret_holder)
{
    static const struct moor_holder_options defaults = {0};
    if (!authority || !ret_holder)
        return moor__leave(moor__fail(MOOR_INVALID, "authority and ret_holder must not be NULL"));
    moor_status status = moor__enter(authority->runtime);
    if (!options)
        options = &defaults;
    if (!status && (options->role > MOOR_ROLE_CACHE || options->reserved != 0))
        status = moor__fail(MOOR_INVALID, "role %u is unknown or reserved is not zero", options->role);
    if (!status)
        status = check_limits(&options->limits);
    if (status)
        return moor__leave(status);
    struct moor_holder *holder = calloc(1, sizeof *holder);
    if (!holder)
        return moor__leave(moor__fail(MOOR_HOST_NOMEM, "no memory for a holder"));
    holder->authority = authority;
    holder->settings.role = options->role;
    holder->victim.function = options->pressure;
    holder->victim.user = options->pressure_user;
    holder->limits.priority = options->limits.priority;
    (void)strncpy(holder->name, options->name ? options->name : "holder", sizeof holder->name - 1);
    struct moor__queue *queue = &authority->governor->queue;
    moor__lock_acquire(&queue->lock);
    moor__accounts_lock(authority);
    status = check_guarantee(authority, 0, options->limits.guarantee_bytes);
    if (!status) {
        join(holder);
        set_limits(holder, &options->limits, 0);
        holder->settings.revision = 0;
    }
    moor__accounts_unlock(authority);
    moor__lock_release(&queue->lock);
    if (status) {
        free(holder);
        return moor__leave(status);
    }
    *ret_holder = holder;
    moor__reclaim_review(authority);
    return MOOR_OK;
}

/* ---- destruction ---- */

/* Requires both locks, and that no thread has credit of the holder. */
static moor_status check_unused(const struct moor_holder *holder)
{
    uint64_t charged = moor__account_charged(&holder->account),
             reserved = moor__account_get(&holder->account, MOOR__RESERVED);
    uint64_t grants = moor__account_get(&holder->account, MOOR__ALIVE) % MOOR__ONE_LEASE;
    uint32_t bindings = atomic_load_explicit(&holder->bindings, memory_order_acquire);
    uint32_t requests = holder->victim.wanted;
    if (!holder->has && !grants && !bindings && !requests)
        return MOOR_OK;
    return moor__fail(MOOR_BUSY,
                      "%s holds %llu bytes, %llu reserved, and has %u bindings, %llu grants, %u requests",
                      holder->name, (unsigned long long)charged, (unsigned long long)reserved, bindings,
                      (unsigned long long)grants, requests);
}

/* Requires both locks. */
static void leave(struct moor_holder *holder)
{
    struct moor_authority *authority = holder->authority;
    assert(holder->has == 0 && authority->holder_count > 0 && !holder->victim.request.is_waiting);
    moor__holder_account_guarantee(holder, 0);
    TAILQ_REMOVE(&authority->holders, holder, entry);
    authority->holder_count--;
    moor__victim_remove(&authority->governor->queue.schedule, holder);
    holder->victim.is_destroyed = true;
}

/* leaves: the holder leaves its authority if it can. BUSY. Requires queue->lock. */
static moor_status leave_if_unused(struct moor_holder *holder, bool leaves)
{
    struct moor_authority *authority = holder->authority;
    moor__accounts_lock(authority);
    moor_status status = check_unused(holder);
    if (!status && leaves)
        leave(holder);
    moor__accounts_unlock(authority);
    return status;
}

moor_status moor_holder_destroy(struct moor_holder *holder)
{
    if (!holder)
        return MOOR_OK;
    struct moor__governor *governor = holder->authority->governor;
    struct moor__queue *queue = &governor->queue;
    moor_status status = moor__enter(governor->runtime);
    if (status)
        return moor__leave(status);
    moor__lock_acquire(&queue->lock);
    status = leave_if_unused(holder, false);
    if (!status)
        status = moor__pressure_await(governor, holder);
    if (!status)
        status = leave_if_unused(holder, true); /* the pressure function may have done anything meanwhile */
    if (status && holder->victim.function)
        moor__victim_add(&queue->schedule, holder);
    bool running = holder->victim.is_running; /* in this thread: the worker frees the holder afterwards */
    moor__queue_scan_locked(governor);
    moor__lock_release(&queue->lock);
    if (!status && !running)
        free(holder);
    return moor__leave(status);
}
