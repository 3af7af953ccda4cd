/* SPDX-License-Identifier: MIT */
/*
 * How lines are moved: in a thread_account of the thread's own, or in the account under the authority's lock.
 *
 * A thread enters a thread_account by saying so (`inside`) and then looking whether its authority is strict; who
 * wants the thread_accounts' contents makes it strict, has every thread pass a barrier, and then looks whether one is
 * inside. Each sees the other or waits for it: Dekker's protocol, with the expensive half on the side that is
 * rare (membarrier(2), MEMBARRIER_CMD_PRIVATE_EXPEDITED; liburcu and folly do the same). Where the system has
 * no membarrier, the thread's store is an exchange.
 */
#ifndef MOOR_GOVERNOR_BOOKS_H
#define MOOR_GOVERNOR_BOOKS_H

#include "governor/thread_cache.h"
#include "util/limits.h"

/* One step: bytes from one line to another, and what else changes with it; differences may be negative. */
struct moor__transfer {
    enum moor__account_line from;
    enum moor__account_line to;
    uint64_t bytes;
    uint64_t requested;
    uint64_t counts;
    bool is_passing; /* another follows at once: who waits is not to look in between */
};

static inline uint64_t moor__account_get(const struct moor__account *account, enum moor__account_line which)
{
    return atomic_load_explicit(&account->line[which], memory_order_relaxed);
}

/* One writer at a time, so no read-modify-write is needed. */
static inline void moor__account_change(struct moor__account *account, enum moor__account_line which,
                                        uint64_t change)
{
    atomic_store_explicit(&account->line[which], moor__account_get(account, which) + change,
                          memory_order_relaxed);
}

__attribute__((always_inline)) static inline void moor__account_apply(struct moor__account *account,
                                                                      const struct moor__transfer *step)
{
    moor__account_change(account, step->from, -step->bytes);
    moor__account_change(account, step->to, step->bytes);
    if (step->requested)
        moor__account_change(account, MOOR__REQUESTED, step->requested);
    if (step->counts)
        moor__account_change(account, MOOR__ALIVE, step->counts);
}

static inline bool moor__is_charged(enum moor__account_line line)
{
    return line >= MOOR__LIVE && line < MOOR__BYTES;
}

__attribute__((always_inline)) static inline void
moor__thread_account_apply(struct moor__thread_account *thread_account, const struct moor__transfer *step)
{
    moor__account_apply(&thread_account->account, step);
    if (moor__is_charged(step->from) == moor__is_charged(step->to))
        return;
    bool more = moor__is_charged(step->to);
    uint64_t charged = atomic_load_explicit(&thread_account->charged, memory_order_relaxed);
    charged += more ? step->bytes : -step->bytes;
    atomic_store_explicit(&thread_account->charged, charged, memory_order_relaxed);
    if (more &&
        (int64_t)charged > (int64_t)atomic_load_explicit(&thread_account->highest, memory_order_relaxed))
        atomic_store_explicit(&thread_account->highest, charged, memory_order_relaxed);
}

extern bool moor__has_membarrier; /* account.c; set before the first thread_account is */

/* The thread's thread_account for the holder, entered; NULL: there is none, or credit is not to be used now. */
static inline struct moor__thread_account *moor__thread_account_enter(struct moor__thread_cache *cache,
                                                                      struct moor_holder *holder)
{
    struct moor__thread_account *thread_account = &cache->thread_accounts[holder->thread_account];
    if (moor__has_membarrier) {
        atomic_store_explicit(&cache->inside, 1, memory_order_relaxed);
        atomic_signal_fence(
            memory_order_seq_cst); /* the compiler keeps the order; membarrier, the processor */
    } else {
        atomic_exchange_explicit(&cache->inside, 1, memory_order_seq_cst);
    }
    /* After the store above, hence sequentially consistent. And who took the credit and is through has left
     * the thread_account as it is to be seen now. */
    if (atomic_load_explicit(&holder->authority->strict, memory_order_seq_cst) == 0 &&
        atomic_load_explicit(&thread_account->holder, memory_order_relaxed) == holder)
        return thread_account;
    atomic_store_explicit(&cache->inside, 0, memory_order_release);
    return NULL;
}

static inline void moor__thread_account_leave(struct moor__thread_cache *cache)
{
    atomic_store_explicit(&cache->inside, 0, memory_order_release); /* pairs with who waits for it */
}

/* Carries out the step in the thread's thread_account; false: it has to be done in the account. Inlined, so that what
 * does not change costs nothing. */
__attribute__((always_inline)) static inline bool moor__transfer_in_thread(struct moor__thread_cache *cache,
                                                                           struct moor_holder *holder,
                                                                           const struct moor__transfer *step)
{
    if (!cache || step->bytes > MOOR_CREDIT_STEP_BYTES)
        return false;
    struct moor__thread_account *thread_account = moor__thread_account_enter(cache, holder);
    if (!thread_account)
        return false;
    /* Bounded both ways: what a thread_account gives out it has, and neither a line nor what is charged grows by more
     * than this in it. */
    bool charges = moor__is_charged(step->to) && !moor__is_charged(step->from);
    uint64_t grows = charges ? atomic_load_explicit(&thread_account->charged, memory_order_relaxed)
                             : moor__account_get(&thread_account->account, step->to);
    bool can = step->from == MOOR__CREDIT
                   ? moor__account_get(&thread_account->account, MOOR__CREDIT) >= step->bytes
                   : (int64_t)(grows + step->bytes) <= (int64_t)MOOR_CREDIT_BYTES;
    if (__builtin_expect(can, 1))
        moor__thread_account_apply(thread_account, step);
    moor__thread_account_leave(cache);
    return can;
}

/* In the account; the step is not from credit. cache: may be NULL. */
void moor__transfer_in_account(struct moor__thread_cache *cache, struct moor_holder *holder,
                               struct moor__transfer step);

__attribute__((always_inline)) static inline void
moor__transfer_apply(struct moor__thread_cache *cache, struct moor_holder *holder, struct moor__transfer step)
{
    if (!moor__transfer_in_thread(cache, holder, &step))
        moor__transfer_in_account(cache, holder, step);
}

static inline struct moor__thread_cache *moor__thread_cache_for(const struct moor_holder *holder)
{
    return moor__thread_cache_of(holder->authority->runtime);
}

/* ---- authority->lock held ---- */

/* What its limit leaves it. */
uint64_t moor__own_room(const struct moor_holder *holder);
/* Of all charged kinds. */
uint64_t moor__account_charged(const struct moor__account *account);
/* Threads keep no credit of the authority from here on, and what they had is in the accounts. */
void moor__credit_take_back(struct moor_authority *authority, uint32_t reason);
/* The reason is gone; and shortage of room is none any more, if there is plenty again. */
void moor__credit_allow(struct moor_authority *authority, uint32_t reason);
/* Gives some to the thread's thread_account, where that is sensible. room: that there is for the holder now. */
void moor__credit_lend(struct moor__thread_cache *cache, struct moor_holder *holder, uint64_t room);

/* The holder has so much more (or, negative, less) of a kind of bytes than before. */
void moor__holder_account_add(struct moor_holder *holder, enum moor__account_line which, uint64_t change);
/* Changes a line that is no part of what it has. */
void moor__holder_account_count(struct moor_holder *holder, enum moor__account_line which, uint64_t change);
/* A step in the account. What is credit then is free. */
void moor__holder_account_apply(struct moor_holder *holder, const struct moor__transfer *step);

/* Changes the guarantee, and all that follows from it. */
void moor__holder_account_guarantee(struct moor_holder *holder, uint64_t bytes);

/* ---- no lock held ---- */

/* Once, before the first thread_account is used: whether the system has membarrier. */
void moor__credit_init(void);
/* Empties the thread's thread_account for this holder if it is one of another authority's, before any authority's lock
 * is taken. */
void moor__thread_account_clear(struct moor__thread_cache *cache, const struct moor_holder *holder);

#endif
