/* SPDX-License-Identifier: MIT */
/* Credit, the rare side: lending it, and taking it back. The protocol and its proof stand in credit.h. */
#include "governor/credit.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool moor__has_membarrier;

static void register_for_barriers(void)
{
    moor__has_membarrier = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void moor__credit_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, register_for_barriers); /* cannot fail */
}

/* Merges the thread account into its holder's account. Requires the authority's lock, and that the thread
 * account is this thread's or no thread is inside. */
static void empty(struct moor__thread_account *thread_account)
{
    struct moor_holder *holder = atomic_load_explicit(&thread_account->holder, memory_order_relaxed);
    uint64_t highest = atomic_load_explicit(&thread_account->highest, memory_order_relaxed);
    assert(moor__account_get(&thread_account->account, MOOR__CREDIT) <= holder->has);
    atomic_store_explicit(&thread_account->charged, 0, memory_order_relaxed);
    atomic_store_explicit(&thread_account->highest, 0, memory_order_relaxed);
    moor__holder_account_merge(holder, &thread_account->account, highest);
    /* Last: from here on its thread may fill it again, under another authority's lock. */
    atomic_store_explicit(&thread_account->holder, NULL, memory_order_relaxed);
}

void moor__thread_account_clear(struct moor__thread_cache *cache, const struct moor_holder *holder)
{
    struct moor__thread_account *thread_account = &cache->thread_accounts[holder->thread_account];
    const struct moor_holder *other = atomic_load_explicit(&thread_account->holder, memory_order_relaxed);
    /* Another thread may destroy that holder at this moment, which empties the thread account; its authority
     * stays. */
    struct moor_authority *authority = atomic_load_explicit(&thread_account->authority, memory_order_relaxed);
    if (!other || authority == holder->authority)
        return;
    moor__lock_acquire(&authority->lock);
    if (atomic_load_explicit(&thread_account->holder, memory_order_relaxed))
        empty(thread_account);
    moor__lock_release(&authority->lock);
}

/* Returns true if bytes above a limit are to come back, rather than be credit. */
static bool is_over(const struct moor_holder *holder)
{
    const struct moor_authority *authority = holder->authority;
    uint64_t capacity = moor__authority_capacity(authority), commitments = authority->sums.commitments;
    return holder->has > holder->limits.limit_bytes || capacity < commitments ||
           capacity - commitments < authority->limits.set_aside;
}

void moor__credit_lend(struct moor__thread_cache *cache, struct moor_holder *holder, uint64_t room)
{
    struct moor_authority *authority = holder->authority;
    moor__assert_held(&authority->lock);
    if (!cache || atomic_load_explicit(&authority->strict, memory_order_relaxed) || is_over(holder))
        return;
    struct moor__thread_account *thread_account = &cache->thread_accounts[holder->thread_account];
    if (atomic_load_explicit(&thread_account->holder, memory_order_relaxed))
        empty(thread_account);
    uint64_t bytes = moor__min(room / MOOR__THREAD_ACCOUNTS, MOOR_CREDIT_BYTES / 2);
    moor__holder_account_lend(holder, bytes);
    uint64_t used = atomic_load_explicit(&cache->used, memory_order_relaxed);
    atomic_store_explicit(&cache->used, used | UINT64_C(1) << holder->thread_account, memory_order_relaxed);
    atomic_store_explicit(&thread_account->account.line[MOOR__CREDIT], bytes, memory_order_relaxed);
    atomic_store_explicit(&thread_account->authority, authority, memory_order_relaxed);
    /* Release: a thread that sees the holder sees its authority. */
    atomic_store_explicit(&thread_account->holder, holder, memory_order_release);
}

/* ---- taking back ---- */

static void pass_barrier(void)
{
    /* The process is registered, so the call cannot fail. */
    if (moor__has_membarrier)
        (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/* Waits until the thread is outside. It is inside for some nanoseconds, unless it is preempted there. */
static void await_outside(struct moor__thread_cache *cache)
{
    for (int tries = 0; atomic_load_explicit(&cache->inside, memory_order_seq_cst); tries++) {
        if (tries < 100)
            (void)sched_yield();
        else
            (void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); /* woken early is fine */
    }
}

static void take_back(struct moor__thread_cache *cache, void *user)
{
    const struct moor_authority *authority = user;
    await_outside(cache);
    for (uint64_t left = atomic_load_explicit(&cache->used, memory_order_relaxed); left; left &= left - 1) {
        struct moor__thread_account *thread_account = &cache->thread_accounts[__builtin_ctzll(left)];
        if (atomic_load_explicit(&thread_account->holder, memory_order_acquire) &&
            atomic_load_explicit(&thread_account->authority, memory_order_relaxed) == authority)
            empty(thread_account);
    }
}

void moor__credit_take_back(struct moor_authority *authority, uint32_t reason)
{
    moor__assert_held(&authority->lock);
    if (atomic_fetch_or_explicit(&authority->strict, reason, memory_order_seq_cst))
        return; /* strict already: no thread has credit */
    pass_barrier();
    moor__thread_caches_visit(authority->caches, take_back, authority);
}

void moor__credit_allow(struct moor_authority *authority, uint32_t reason)
{
    if (MOOR__CHECKS_LOCKS)
        moor__accounts_check(authority);
    uint64_t capacity = moor__authority_capacity(authority);
    uint64_t free_bytes = moor__sub_sat(capacity, authority->sums.commitments);
    if (free_bytes >= MOOR_CREDIT_AMPLE || free_bytes > capacity / 8)
        reason |= MOOR__STRICT_TIGHT;
    /* Release: a thread that enters a thread account from here on sees it as it was left. */
    if (atomic_load_explicit(&authority->strict, memory_order_relaxed) & reason)
        atomic_fetch_and_explicit(&authority->strict, ~reason, memory_order_release);
}

void moor__accounts_lock(struct moor_authority *authority)
{
    moor__lock_acquire(&authority->lock);
    moor__credit_take_back(authority, MOOR__STRICT_READ);
}

void moor__accounts_unlock(struct moor_authority *authority)
{
    moor__credit_allow(authority, MOOR__STRICT_READ);
    moor__lock_release(&authority->lock);
}
