/* SPDX-License-Identifier: MIT */
/*
 * Holders: who holds memory of an authority. Making and ending one takes the queue's lock, for it may be
 * asked, and the authority's, for its account.
 */
#include "governor/account.h"
#include "governor/limits.h"
#include "governor/pressure.h"
#include "observe/trace.h"
#include "util/error.h"

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

/* authority->lock held. The others' guarantees leave room for this one. */
static moor_status check_guarantee(const struct moor_authority *authority, uint64_t before, uint64_t bytes)
{
    uint64_t others = authority->guarantees - before;
    others = others < UINT64_MAX - authority->set_aside ? others + authority->set_aside : UINT64_MAX;
    uint64_t room = authority->capacity > others ? authority->capacity - others : 0;
    if (bytes <= before || bytes <= room)
        return MOOR_OK;
    return moor__fail_short(MOOR_OVER_BUDGET, bytes - room,
                            "%llu bytes are to be guaranteed; %llu are not yet", (unsigned long long)bytes,
                            (unsigned long long)room);
}

/* Both locks held. */
static void set_limits(struct moor_holder *holder, const struct moor_holder_limits *limits, uint64_t revision)
{
    struct moor__queue *queue = holder->authority->runtime->queue;
    moor__holder_account_guarantee(holder, limits->guarantee_bytes);
    holder->limits.limit_bytes = limit_of(limits);
    holder->revision = moor__revision_after(holder->revision, revision);
    if (holder->limits.priority == limits->priority)
        return;
    moor__victim_remove(queue, holder);
    holder->limits.priority = limits->priority;
    if (holder->pressure || holder->running)
        moor__victim_add(queue, holder);
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
    struct moor__queue *queue = authority->runtime->queue;
    bool known = false;
    uint64_t over = 0;
    moor_status status = moor__enter(authority->runtime);
    if (!status)
        status = check_limits(limits);
    if (status)
        return moor__leave(status);
    moor__lock_acquire(&queue->lock);
    moor__lock_acquire(&authority->lock);
    status = moor__revision_check(holder->revision, revision, is_same(limits, &holder->limits), &known);
    if (!status && !known)
        status = check_guarantee(authority, holder->limits.guarantee_bytes, limits->guarantee_bytes);
    if (!status) {
        moor__credit_take_back(authority, MOOR__STRICT_READ);
        if (!known)
            set_limits(holder, limits, revision);
        over = holder->has > holder->limits.limit_bytes ? holder->has - holder->limits.limit_bytes : 0;
        moor__credit_allow(authority, MOOR__STRICT_READ);
    }
    moor__lock_release(&authority->lock);
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
    if (!holder)
        return moor__leave(moor__fail(MOOR_INVALID, "the holder is NULL"));
    struct moor_runtime *runtime = holder->authority->runtime;
    moor_status status = moor__enter(runtime);
    if (status)
        return moor__leave(status);
    moor__lock_acquire(&runtime->queue->lock);
    status = moor__pressure_await(runtime->queue, holder);
    if (!status) {
        moor__victim_remove(runtime->queue, holder);
        holder->pressure = pressure;
        holder->pressure_user = user;
        holder->cool_down_ns = holder->cool_until_ns = 0;
        if (pressure ||
            holder->running) /* this thread is inside it: what it will let go is waited for all the same */
            moor__victim_add(runtime->queue, holder);
    }
    moor__lock_release(&runtime->queue->lock);
    if (!status)
        moor__reclaim_review(holder->authority);
    return moor__leave(status);
}

moor_status moor_holder_set_evictable(struct moor_holder *holder, uint64_t bytes)
{
    if (!holder)
        return moor__leave(moor__fail(MOOR_INVALID, "the holder is NULL"));
    struct moor_runtime *runtime = holder->authority->runtime;
    moor_status status = moor__enter(runtime);
    if (status)
        return moor__leave(status);
    moor__lock_acquire(&holder->authority->lock);
    holder->evictable = bytes;
    bool heed = holder->authority->tickets > 0;
    moor__lock_release(&holder->authority->lock);
    if (bytes == 0)
        return MOOR_OK;
    moor__lock_acquire(&runtime->queue->lock);
    holder->cool_down_ns = holder->cool_until_ns = 0;
    if (heed)
        moor__queue_scan_locked(runtime->queue);
    moor__lock_release(&runtime->queue->lock);
    return MOOR_OK;
}

/* ---- the holder ---- */

/* Both locks held. */
static void enter(struct moor_holder *holder)
{
    struct moor_authority *authority = holder->authority;
    struct moor__queue *queue = authority->runtime->queue;
    TAILQ_INSERT_TAIL(&authority->holders, holder, entry);
    holder->created = ++queue->created;
    holder->thread_account = (uint32_t)(holder->created % MOOR__THREAD_ACCOUNTS);
    authority->holder_count++;
    if (holder->pressure)
        moor__victim_add(queue, holder);
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
    holder->role = options->role;
    holder->pressure = options->pressure;
    holder->pressure_user = options->pressure_user;
    holder->limits.priority = options->limits.priority;
    (void)strncpy(holder->name, options->name ? options->name : "holder", sizeof holder->name - 1);
    struct moor__queue *queue = authority->runtime->queue;
    moor__lock_acquire(&queue->lock);
    moor__lock_acquire(&authority->lock);
    status = check_guarantee(authority, 0, options->limits.guarantee_bytes);
    if (!status) {
        moor__credit_take_back(authority, MOOR__STRICT_READ);
        enter(holder);
        set_limits(holder, &options->limits, 0);
        holder->revision = 0;
        moor__credit_allow(authority, MOOR__STRICT_READ);
    }
    moor__lock_release(&authority->lock);
    moor__lock_release(&queue->lock);
    if (status) {
        free(holder);
        return moor__leave(status);
    }
    *ret_holder = holder;
    moor__reclaim_review(authority);
    return MOOR_OK;
}

/* Both locks held, its thread_accounts empty. */
static moor_status check_unused(const struct moor_holder *holder)
{
    uint64_t charged = moor__account_charged(&holder->account),
             reserved = moor__account_get(&holder->account, MOOR__RESERVED);
    uint64_t grants = moor__account_get(&holder->account, MOOR__ALIVE) % MOOR__ONE_LEASE;
    uint32_t bindings = atomic_load_explicit(&holder->bindings, memory_order_acquire);
    if (!holder->has && !grants && !bindings && !holder->wanted)
        return MOOR_OK;
    return moor__fail(MOOR_BUSY,
                      "%s holds %llu bytes, %llu reserved, and has %u bindings, %llu grants, %u requests",
                      holder->name, (unsigned long long)charged, (unsigned long long)reserved, bindings,
                      (unsigned long long)grants, holder->wanted);
}

/* Both locks held. */
static void leave(struct moor_holder *holder)
{
    struct moor_authority *authority = holder->authority;
    TAILQ_REMOVE(&authority->holders, holder, entry);
    authority->holder_count--;
    moor__holder_account_guarantee(holder, 0);
    moor__victim_remove(authority->runtime->queue, holder);
    holder->destroyed = true;
}

/* The queue's lock is held. BUSY. leaves: if it can, it does. */
static moor_status leave_if_unused(struct moor_holder *holder, bool leaves)
{
    struct moor_authority *authority = holder->authority;
    moor__lock_acquire(&authority->lock);
    moor__credit_take_back(authority, MOOR__STRICT_READ);
    moor_status status = check_unused(holder);
    if (!status && leaves)
        leave(holder);
    moor__credit_allow(authority, MOOR__STRICT_READ);
    moor__lock_release(&authority->lock);
    return status;
}

moor_status moor_holder_destroy(struct moor_holder *holder)
{
    if (!holder)
        return MOOR_OK;
    struct moor_authority *authority = holder->authority;
    struct moor_runtime *runtime = authority->runtime;
    moor_status status = moor__enter(runtime);
    if (status)
        return moor__leave(status);
    moor__lock_acquire(&runtime->queue->lock);
    status = leave_if_unused(holder, false);
    if (!status)
        status = moor__pressure_await(runtime->queue, holder);
    if (!status)
        status = leave_if_unused(holder, true); /* its function may have done anything */
    if (status && holder->pressure)
        moor__victim_add(runtime->queue, holder);
    bool running = holder->running; /* this thread is in its function: it is freed when that returns */
    moor__queue_scan_locked(runtime->queue);
    moor__lock_release(&runtime->queue->lock);
    if (!status && !running)
        free(holder);
    return moor__leave(status);
}
