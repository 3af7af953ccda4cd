/* SPDX-License-Identifier: MIT */
/*
 * Credit: bytes of a holder that a thread may reserve, charge and refund in a thread account of its own,
 * without a lock.
 *
 * A thread enters a thread account with a store (`inside`) and then reads whether its authority is strict. A
 * thread that wants the contents of all thread accounts makes the authority strict, sends every thread
 * through a barrier, and then reads whether one is inside. Each sees the other or waits for it: Dekker's
 * protocol, with the expensive half on the rare side (membarrier(2), MEMBARRIER_CMD_PRIVATE_EXPEDITED;
 * liburcu and folly do the same). Where the system has no membarrier, the entering store is an exchange.
 *
 * While an authority is strict, its thread accounts are empty and the holders' accounts are all there is.
 */
#ifndef MOOR_GOVERNOR_CREDIT_H
#define MOOR_GOVERNOR_CREDIT_H

#include "governor/account.h"
#include "governor/thread_cache.h"

extern bool moor__has_membarrier; /* set once, before the first thread account is used */

/* Enters the thread's thread account for the holder. NULL: there is none, or the authority is strict. */
static inline struct moor__thread_account *moor__thread_account_enter(struct moor__thread_cache *cache,
                                                                      struct moor_holder *holder)
{
    struct moor__thread_account *thread_account = &cache->thread_accounts[holder->thread_account];
    if (moor__has_membarrier) {
        atomic_store_explicit(&cache->inside, 1, memory_order_relaxed);
        /* The compiler keeps the order; the other side's membarrier makes the processor keep it. */
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_exchange_explicit(&cache->inside, 1, memory_order_seq_cst);
    }
    /* Sequentially consistent, because it comes after the store above. It also synchronizes with a thread
     * that took the credit back: its changes of the thread account are visible here. */
    if (atomic_load_explicit(&holder->authority->strict, memory_order_seq_cst) == 0 &&
        atomic_load_explicit(&thread_account->holder, memory_order_relaxed) == holder)
        return thread_account;
    atomic_store_explicit(&cache->inside, 0, memory_order_release);
    return NULL;
}

static inline void moor__thread_account_leave(struct moor__thread_cache *cache)
{
    atomic_store_explicit(&cache->inside, 0,
                          memory_order_release); /* pairs with the thread that waits for it */
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

/* Makes a transfer in the thread's thread account. False: nothing has changed, and the account must make it.
 * Inlined, so that lines which a transfer leaves alone cost nothing. */
__attribute__((always_inline)) static inline bool moor__transfer_in_thread(struct moor__thread_cache *cache,
                                                                           struct moor_holder *holder,
                                                                           const struct moor__transfer *step)
{
    if (!cache || step->bytes > MOOR_CREDIT_STEP_BYTES)
        return false;
    struct moor__thread_account *thread_account = moor__thread_account_enter(cache, holder);
    if (!thread_account)
        return false;
    /* Bounded both ways: a thread account reserves only credit that it has, and neither a line nor the
     * charged bytes in it grow beyond MOOR_CREDIT_BYTES. */
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

/* Finds out, once, whether the system has membarrier. Requires no lock. */
void moor__credit_init(void);
/* Empties the thread's thread account for this holder if it serves a holder of another authority: before a
 * thread locks its own authority. Requires no authority's lock. */
void moor__thread_account_clear(struct moor__thread_cache *cache, const struct moor_holder *holder);

/* Locks the authority and makes it strict, so that its accounts hold every byte; and ends that. Requires no
 * authority's lock. */
void moor__accounts_lock(struct moor_authority *authority);
void moor__accounts_unlock(struct moor_authority *authority);

/* ---- each requires authority->lock ---- */

/* Makes the authority strict: moves the contents of all thread accounts into the holders' accounts. */
void moor__credit_take_back(struct moor_authority *authority, uint32_t reason);
/* Removes a reason for strictness; TIGHT as well once there is ample room. */
void moor__credit_allow(struct moor_authority *authority, uint32_t reason);
/* Lends credit to the thread's thread account, at most MOOR_CREDIT_BYTES / 2, and no more than its share of
 * the room for the holder. Lends nothing while the authority is strict or over its limits. cache: may be
 * NULL. */
void moor__credit_lend(struct moor__thread_cache *cache, struct moor_holder *holder, uint64_t room);

#endif
