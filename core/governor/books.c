/* SPDX-License-Identifier: MIT */
/*
 * Accounts, and the credit that threads have of them.
 *
 * Invariants, under the authority's lock, for each holder:
 *     has = the sum of its byte figures, in its account and in all cells;
 *     claim = has or the guarantee, whichever is more;
 *     the authority's has, claims and figures are the sums of its holders'.
 * A step in a cell changes none of has and claim, so limits are checked against the truth whatever threads do; it is
 * only credit, bytes that a holder has without a use, that may have to be taken back before one is refused. While an
 * authority or holder is strict, its cells are empty and its account is all there is.
 */
#include "governor/books.h"

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

static void update_claims(struct moor_holder *holder)
{
    struct moor_authority *authority = holder->authority;
    uint64_t pending = moor__figure(&holder->books, MOOR__PENDING);
    uint64_t claim = larger(holder->has, holder->limits.guarantee_bytes);
    uint64_t later = larger(holder->has - pending, holder->limits.guarantee_bytes);
    authority->claims += claim - holder->claim;
    authority->claims_later += later - holder->claim_later;
    holder->claim = claim;
    holder->claim_later = later;
}

void moor__account_guarantee(struct moor_holder *holder, uint64_t bytes)
{
    holder->authority->guarantees += bytes - holder->limits.guarantee_bytes;
    holder->limits.guarantee_bytes = bytes;
    update_claims(holder);
}

uint64_t moor__books_charged(const struct moor__books *books)
{
    uint64_t sum = 0;
    for (int i = MOOR__LIVE; i < MOOR__BYTES; i++)
        sum += moor__figure(books, (enum moor__figure)i);
    return sum;
}

/* `more` than is charged in the account was charged at some moment. What other cells have is missing. */
static void note_peak(uint64_t *peak, const struct moor__books *books, uint64_t more)
{
    int64_t charged = (int64_t)(moor__books_charged(books) + more);
    if (charged > (int64_t)*peak)
        *peak = (uint64_t)charged;
}

static void note_peaks(struct moor_holder *holder, uint64_t more)
{
    note_peak(&holder->peak_charged, &holder->books, more);
    note_peak(&holder->authority->peak_charged, &holder->authority->total_books, more);
}

void moor__account_count(struct moor_holder *holder, enum moor__figure which, uint64_t change)
{
    moor__figure_add(&holder->books, which, change);
    moor__figure_add(&holder->authority->total_books, which, change);
}

void moor__account_add(struct moor_holder *holder, enum moor__figure which, uint64_t change)
{
    holder->has += change;
    holder->authority->has += change;
    moor__account_count(holder, which, change);
    update_claims(holder);
}

/* What is credit in the account belongs to nobody. */
static void free_credit(struct moor_holder *holder)
{
    note_peaks(holder, 0);
    moor__account_add(holder, MOOR__CREDIT, -moor__figure(&holder->books, MOOR__CREDIT));
}

void moor__account_apply(struct moor_holder *holder, const struct moor__step_of *step)
{
    moor__books_apply(&holder->books, step);
    moor__books_apply(&holder->authority->total_books, step);
    free_credit(holder);
}

/* ---- cells ---- */

/* The account takes over what is in the cell. What was credit there is free. The authority's lock is held,
 * and the cell is this thread's or nobody is inside. */
static void empty(struct moor__cell *cell)
{
    struct moor_holder *holder = atomic_load_explicit(&cell->holder, memory_order_relaxed);
    note_peaks(holder, atomic_load_explicit(&cell->highest, memory_order_relaxed));
    atomic_store_explicit(&cell->charged, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->highest, 0, memory_order_relaxed);
    for (int i = 0; i < MOOR__FIGURES; i++) {
        uint64_t change = moor__figure(&cell->books, (enum moor__figure)i);
        if (!change)
            continue;
        moor__account_count(holder, (enum moor__figure)i, change);
        atomic_store_explicit(&cell->books.figure[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&cell->holder, NULL, memory_order_relaxed);
    free_credit(holder);
}

void moor__cell_clear(struct moor__local *local, const struct moor_holder *holder)
{
    struct moor__cell *cell = &local->cells[holder->cell];
    const struct moor_holder *other = atomic_load_explicit(&cell->holder, memory_order_relaxed);
    /* The other one may be destroyed this moment, which empties the cell; its authority stays. */
    struct moor_authority *authority = atomic_load_explicit(&cell->authority, memory_order_relaxed);
    if (!other || authority == holder->authority)
        return;
    moor__lock_acquire(&authority->lock);
    if (atomic_load_explicit(&cell->holder, memory_order_relaxed))
        empty(cell);
    moor__lock_release(&authority->lock);
}

void moor__credit_lend(struct moor__local *local, struct moor_holder *holder, uint64_t room)
{
    struct moor_authority *authority = holder->authority;
    if (!local || atomic_load_explicit(&authority->strict, memory_order_relaxed))
        return;
    /* What is above its limits is to come back, and not to be credit. */
    if (holder->has > holder->limits.limit_bytes || moor__authority_capacity(authority) < authority->claims ||
        moor__authority_capacity(authority) - authority->claims < authority->set_aside)
        return;
    struct moor__cell *cell = &local->cells[holder->cell];
    if (atomic_load_explicit(&cell->holder, memory_order_relaxed))
        empty(cell);
    uint64_t bytes = room / MOOR__CELLS < MOOR_CREDIT_BYTES / 2 ? room / MOOR__CELLS : MOOR_CREDIT_BYTES / 2;
    holder->has += bytes;
    authority->has += bytes;
    update_claims(holder);
    uint64_t used = atomic_load_explicit(&local->used, memory_order_relaxed);
    atomic_store_explicit(&local->used, used | UINT64_C(1) << holder->cell, memory_order_relaxed);
    atomic_store_explicit(&cell->books.figure[MOOR__CREDIT], bytes, memory_order_relaxed);
    atomic_store_explicit(&cell->authority, authority, memory_order_relaxed);
    /* Release: who sees the holder sees whose authority it is. */
    atomic_store_explicit(&cell->holder, holder, memory_order_release);
}

/* ---- taking back ---- */

static void pass_barrier(void)
{
    if (moor__has_membarrier)
        (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0,
                      0); /* registered: it cannot fail */
}

/* A thread is inside for some nanoseconds, unless it is preempted there. */
static void await_outside(struct moor__local *local)
{
    for (int tries = 0; atomic_load_explicit(&local->inside, memory_order_seq_cst); tries++) {
        if (tries < 100)
            (void)sched_yield();
        else
            (void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); /* woken early is fine */
    }
}

static void take_back(struct moor__local *local, void *user)
{
    const struct moor_authority *authority = user;
    await_outside(local);
    for (uint64_t left = atomic_load_explicit(&local->used, memory_order_relaxed); left; left &= left - 1) {
        struct moor__cell *cell = &local->cells[__builtin_ctzll(left)];
        if (atomic_load_explicit(&cell->holder, memory_order_acquire) &&
            atomic_load_explicit(&cell->authority, memory_order_relaxed) == authority)
            empty(cell);
    }
}

void moor__credit_take_back(struct moor_authority *authority, uint32_t reason)
{
    if (atomic_fetch_or_explicit(&authority->strict, reason, memory_order_seq_cst))
        return; /* it was strict before: nobody has any */
    pass_barrier();
    moor__locals_visit(authority->runtime, take_back, authority);
}

void moor__credit_allow(struct moor_authority *authority, uint32_t reason)
{
    uint64_t capacity = moor__authority_capacity(authority);
    uint64_t free_bytes = authority->claims < capacity ? capacity - authority->claims : 0;
    if (free_bytes >= MOOR_CREDIT_AMPLE || free_bytes > capacity / 8)
        reason |= MOOR__STRICT_TIGHT;
    /* Release: who enters a cell from here on sees it as it was left. */
    if (atomic_load_explicit(&authority->strict, memory_order_relaxed) & reason)
        atomic_fetch_and_explicit(&authority->strict, ~reason, memory_order_release);
}

/* ---- steps ---- */

void moor__move_in_account(struct moor__local *local, struct moor_holder *holder, struct moor__step_of step)
{
    struct moor_authority *authority = holder->authority;
    if (local)
        moor__cell_clear(local, holder);
    moor__lock_acquire(&authority->lock);
    moor__account_apply(holder, &step);
    moor__credit_allow(authority, 0);
    moor__credit_lend(local, holder, 0);
    bool heed = authority->tickets > 0 && !step.is_passing;
    moor__lock_release(&authority->lock);
    if (heed)
        moor__queue_look(authority->runtime);
}
