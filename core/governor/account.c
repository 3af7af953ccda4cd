/* SPDX-License-Identifier: MIT */
/*
 * Accounts, and the credit that threads have of them.
 *
 * Invariants, under the authority's lock, for each holder:
 *     has = the sum of its byte lines, in its account and in all thread_accounts;
 *     commitment = has or the guarantee, whichever is more;
 *     the authority's has, commitments and lines are the sums of its holders'.
 * A step in a thread_account changes none of has and commitment, so limits are checked against the truth whatever threads do; it is
 * only credit, bytes that a holder has without a use, that may have to be taken back before one is refused. While an
 * authority or holder is strict, its thread_accounts are empty and its account is all there is.
 */
#include "governor/account.h"

#include "governor/queue.h"

#include <assert.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool moor__has_membarrier;

uint64_t moor__own_room(const struct moor_holder *holder)
{
    return holder->limits.limit_bytes > holder->has ? holder->limits.limit_bytes - holder->has : 0;
}

static void register_for_barriers(void)
{
    moor__has_membarrier = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void moor__credit_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, register_for_barriers); /* cannot fail */
}

/* ---- accounts ---- */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void update_commitments(struct moor_holder *holder)
{
    struct moor_authority *authority = holder->authority;
    uint64_t pending = moor__account_get(&holder->account, MOOR__PENDING);
    uint64_t commitment = larger(holder->has, holder->limits.guarantee_bytes);
    uint64_t later = larger(holder->has - pending, holder->limits.guarantee_bytes);
    authority->commitments += commitment - holder->commitment;
    authority->commitments_later += later - holder->commitment_later;
    holder->commitment = commitment;
    holder->commitment_later = later;
}

void moor__holder_account_guarantee(struct moor_holder *holder, uint64_t bytes)
{
    holder->authority->guarantees += bytes - holder->limits.guarantee_bytes;
    holder->limits.guarantee_bytes = bytes;
    update_commitments(holder);
}

uint64_t moor__account_charged(const struct moor__account *account)
{
    uint64_t sum = 0;
    for (int i = MOOR__LIVE; i < MOOR__BYTES; i++)
        sum += moor__account_get(account, (enum moor__account_line)i);
    return sum;
}

/* `more` than is charged in the account was charged at some moment. What other thread_accounts have is missing. */
static void note_peak(uint64_t *peak, const struct moor__account *account, uint64_t more)
{
    int64_t charged = (int64_t)(moor__account_charged(account) + more);
    if (charged > (int64_t)*peak)
        *peak = (uint64_t)charged;
}

static void note_peaks(struct moor_holder *holder, uint64_t more)
{
    note_peak(&holder->peak_charged, &holder->account, more);
    note_peak(&holder->authority->peak_charged, &holder->authority->total_account, more);
}

void moor__holder_account_count(struct moor_holder *holder, enum moor__account_line which, uint64_t change)
{
    moor__account_change(&holder->account, which, change);
    moor__account_change(&holder->authority->total_account, which, change);
}

void moor__holder_account_add(struct moor_holder *holder, enum moor__account_line which, uint64_t change)
{
    holder->has += change;
    holder->authority->has += change;
    moor__holder_account_count(holder, which, change);
    update_commitments(holder);
}

/* What is credit in the account belongs to nobody. */
static void free_credit(struct moor_holder *holder)
{
    note_peaks(holder, 0);
    moor__holder_account_add(holder, MOOR__CREDIT, -moor__account_get(&holder->account, MOOR__CREDIT));
}

void moor__holder_account_apply(struct moor_holder *holder, const struct moor__transfer *step)
{
    moor__account_apply(&holder->account, step);
    moor__account_apply(&holder->authority->total_account, step);
    free_credit(holder);
}

/* ---- thread_accounts ---- */

/* The account takes over what is in the thread_account. What was credit there is free. The authority's lock is held,
 * and the thread_account is this thread's or nobody is inside. */
static void empty(struct moor__thread_account *thread_account)
{
    struct moor_holder *holder = atomic_load_explicit(&thread_account->holder, memory_order_relaxed);
    note_peaks(holder, atomic_load_explicit(&thread_account->highest, memory_order_relaxed));
    atomic_store_explicit(&thread_account->charged, 0, memory_order_relaxed);
    atomic_store_explicit(&thread_account->highest, 0, memory_order_relaxed);
    for (int i = 0; i < MOOR__ACCOUNT_LINES; i++) {
        uint64_t change = moor__account_get(&thread_account->account, (enum moor__account_line)i);
        if (!change)
            continue;
        moor__holder_account_count(holder, (enum moor__account_line)i, change);
        atomic_store_explicit(&thread_account->account.line[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&thread_account->holder, NULL, memory_order_relaxed);
    free_credit(holder);
}

void moor__thread_account_clear(struct moor__thread_cache *cache, const struct moor_holder *holder)
{
    struct moor__thread_account *thread_account = &cache->thread_accounts[holder->thread_account];
    const struct moor_holder *other = atomic_load_explicit(&thread_account->holder, memory_order_relaxed);
    /* The other one may be destroyed this moment, which empties the thread_account; its authority stays. */
    struct moor_authority *authority = atomic_load_explicit(&thread_account->authority, memory_order_relaxed);
    if (!other || authority == holder->authority)
        return;
    moor__lock_acquire(&authority->lock);
    if (atomic_load_explicit(&thread_account->holder, memory_order_relaxed))
        empty(thread_account);
    moor__lock_release(&authority->lock);
}

void moor__credit_lend(struct moor__thread_cache *cache, struct moor_holder *holder, uint64_t room)
{
    struct moor_authority *authority = holder->authority;
    if (!cache || atomic_load_explicit(&authority->strict, memory_order_relaxed))
        return;
    /* What is above its limits is to come back, and not to be credit. */
    if (holder->has > holder->limits.limit_bytes ||
        moor__authority_capacity(authority) < authority->commitments ||
        moor__authority_capacity(authority) - authority->commitments < authority->set_aside)
        return;
    struct moor__thread_account *thread_account = &cache->thread_accounts[holder->thread_account];
    if (atomic_load_explicit(&thread_account->holder, memory_order_relaxed))
        empty(thread_account);
    uint64_t bytes = room / MOOR__THREAD_ACCOUNTS < MOOR_CREDIT_BYTES / 2 ? room / MOOR__THREAD_ACCOUNTS
                                                                          : MOOR_CREDIT_BYTES / 2;
    holder->has += bytes;
    authority->has += bytes;
    update_commitments(holder);
    uint64_t used = atomic_load_explicit(&cache->used, memory_order_relaxed);
    atomic_store_explicit(&cache->used, used | UINT64_C(1) << holder->thread_account, memory_order_relaxed);
    atomic_store_explicit(&thread_account->account.line[MOOR__CREDIT], bytes, memory_order_relaxed);
    atomic_store_explicit(&thread_account->authority, authority, memory_order_relaxed);
    /* Release: who sees the holder sees whose authority it is. */
    atomic_store_explicit(&thread_account->holder, holder, memory_order_release);
}

/* ---- taking back ---- */

static void pass_barrier(void)
{
    if (moor__has_membarrier)
        (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0,
                      0); /* registered: it cannot fail */
}

/* A thread is inside for some nanoseconds, unless it is preempted there. */
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
    if (atomic_fetch_or_explicit(&authority->strict, reason, memory_order_seq_cst))
        return; /* it was strict before: nobody has any */
    pass_barrier();
    moor__thread_caches_visit(authority->runtime, take_back, authority);
}

void moor__credit_allow(struct moor_authority *authority, uint32_t reason)
{
    uint64_t capacity = moor__authority_capacity(authority);
    uint64_t free_bytes = authority->commitments < capacity ? capacity - authority->commitments : 0;
    if (free_bytes >= MOOR_CREDIT_AMPLE || free_bytes > capacity / 8)
        reason |= MOOR__STRICT_TIGHT;
    /* Release: who enters a thread_account from here on sees it as it was left. */
    if (atomic_load_explicit(&authority->strict, memory_order_relaxed) & reason)
        atomic_fetch_and_explicit(&authority->strict, ~reason, memory_order_release);
}

/* ---- steps ---- */

void moor__transfer_in_account(struct moor__thread_cache *cache, struct moor_holder *holder,
                               struct moor__transfer step)
{
    struct moor_authority *authority = holder->authority;
    if (cache)
        moor__thread_account_clear(cache, holder);
    moor__lock_acquire(&authority->lock);
    moor__holder_account_apply(holder, &step);
    moor__credit_allow(authority, 0);
    moor__credit_lend(cache, holder, 0);
    bool heed = authority->tickets > 0 && !step.is_passing;
    moor__lock_release(&authority->lock);
    if (heed)
        moor__queue_scan(authority->runtime);
}
