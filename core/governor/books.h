/* SPDX-License-Identifier: MIT */
/*
 * How figures are moved: in a cell of the thread's own, or in the account under the authority's lock.
 *
 * A thread enters a cell by saying so (`inside`) and then looking whether its authority is strict; who
 * wants the cells' contents makes it strict, has every thread pass a barrier, and then looks whether one is
 * inside. Each sees the other or waits for it: Dekker's protocol, with the expensive half on the side that is
 * rare (membarrier(2), MEMBARRIER_CMD_PRIVATE_EXPEDITED; liburcu and folly do the same). Where the system has
 * no membarrier, the thread's store is an exchange.
 */
#ifndef MOOR_GOVERNOR_BOOKS_H
#define MOOR_GOVERNOR_BOOKS_H

#include "governor/local.h"
#include "util/limits.h"

/* One step: bytes from one figure to another, and what else changes with it; differences may be negative. */
struct moor__step_of {
    enum moor__figure from;
    enum moor__figure to;
    uint64_t bytes;
    uint64_t requested;
    uint64_t counts;
    bool is_passing; /* another follows at once: who waits is not to look in between */
};

static inline uint64_t moor__figure(const struct moor__books *books, enum moor__figure which)
{
    return atomic_load_explicit(&books->figure[which], memory_order_relaxed);
}

/* One writer at a time, so no read-modify-write is needed. */
static inline void moor__figure_add(struct moor__books *books, enum moor__figure which, uint64_t change)
{
    atomic_store_explicit(&books->figure[which], moor__figure(books, which) + change, memory_order_relaxed);
}

__attribute__((always_inline)) static inline void moor__books_apply(struct moor__books *books,
                                                                    const struct moor__step_of *step)
{
    moor__figure_add(books, step->from, -step->bytes);
    moor__figure_add(books, step->to, step->bytes);
    if (step->requested)
        moor__figure_add(books, MOOR__REQUESTED, step->requested);
    if (step->counts)
        moor__figure_add(books, MOOR__ALIVE, step->counts);
}

static inline bool moor__is_charged(enum moor__figure figure)
{
    return figure >= MOOR__LIVE && figure < MOOR__BYTES;
}

__attribute__((always_inline)) static inline void moor__cell_apply(struct moor__cell *cell,
                                                                   const struct moor__step_of *step)
{
    moor__books_apply(&cell->books, step);
    if (moor__is_charged(step->from) == moor__is_charged(step->to))
        return;
    bool more = moor__is_charged(step->to);
    uint64_t charged = atomic_load_explicit(&cell->charged, memory_order_relaxed);
    charged += more ? step->bytes : -step->bytes;
    atomic_store_explicit(&cell->charged, charged, memory_order_relaxed);
    if (more && (int64_t)charged > (int64_t)atomic_load_explicit(&cell->highest, memory_order_relaxed))
        atomic_store_explicit(&cell->highest, charged, memory_order_relaxed);
}

extern bool moor__has_membarrier; /* books.c; set before the first cell is */

/* The thread's cell for the holder, entered; NULL: there is none, or credit is not to be used now. */
static inline struct moor__cell *moor__cell_enter(struct moor__local *local, struct moor_holder *holder)
{
    struct moor__cell *cell = &local->cells[holder->cell];
    if (moor__has_membarrier) {
        atomic_store_explicit(&local->inside, 1, memory_order_relaxed);
        atomic_signal_fence(
            memory_order_seq_cst); /* the compiler keeps the order; membarrier, the processor */
    } else {
        atomic_exchange_explicit(&local->inside, 1, memory_order_seq_cst);
    }
    /* After the store above, hence sequentially consistent. And who took the credit and is through has left
     * the cell as it is to be seen now. */
    if (atomic_load_explicit(&holder->authority->strict, memory_order_seq_cst) == 0 &&
        atomic_load_explicit(&cell->holder, memory_order_relaxed) == holder)
        return cell;
    atomic_store_explicit(&local->inside, 0, memory_order_release);
    return NULL;
}

static inline void moor__cell_leave(struct moor__local *local)
{
    atomic_store_explicit(&local->inside, 0, memory_order_release); /* pairs with who waits for it */
}

/* Carries out the step in the thread's cell; false: it has to be done in the account. Inlined, so that what
 * does not change costs nothing. */
__attribute__((always_inline)) static inline bool
moor__move_in_cell(struct moor__local *local, struct moor_holder *holder, const struct moor__step_of *step)
{
    if (!local || step->bytes > MOOR_CREDIT_STEP_BYTES)
        return false;
    struct moor__cell *cell = moor__cell_enter(local, holder);
    if (!cell)
        return false;
    /* Bounded both ways: what a cell gives out it has, and neither a figure nor what is charged grows by more
     * than this in it. */
    bool charges = moor__is_charged(step->to) && !moor__is_charged(step->from);
    uint64_t grows = charges ? atomic_load_explicit(&cell->charged, memory_order_relaxed)
                             : moor__figure(&cell->books, step->to);
    bool can = step->from == MOOR__CREDIT ? moor__figure(&cell->books, MOOR__CREDIT) >= step->bytes
                                          : (int64_t)(grows + step->bytes) <= (int64_t)MOOR_CREDIT_BYTES;
    if (__builtin_expect(can, 1))
        moor__cell_apply(cell, step);
    moor__cell_leave(local);
    return can;
}

/* In the account; the step is not from credit. local: may be NULL. */
void moor__move_in_account(struct moor__local *local, struct moor_holder *holder, struct moor__step_of step);

__attribute__((always_inline)) static inline void
moor__move(struct moor__local *local, struct moor_holder *holder, struct moor__step_of step)
{
    if (!moor__move_in_cell(local, holder, &step))
        moor__move_in_account(local, holder, step);
}

static inline struct moor__local *moor__local_for(const struct moor_holder *holder)
{
    return moor__local_of(holder->authority->runtime);
}

/* ---- authority->lock held ---- */

/* What its limit leaves it. */
uint64_t moor__own_room(const struct moor_holder *holder);
/* Of all charged kinds. */
uint64_t moor__books_charged(const struct moor__books *books);
/* Threads keep no credit of the authority from here on, and what they had is in the accounts. */
void moor__credit_take_back(struct moor_authority *authority, uint32_t reason);
/* The reason is gone; and shortage of room is none any more, if there is plenty again. */
void moor__credit_allow(struct moor_authority *authority, uint32_t reason);
/* Gives some to the thread's cell, where that is sensible. room: that there is for the holder now. */
void moor__credit_lend(struct moor__local *local, struct moor_holder *holder, uint64_t room);

/* The holder has so much more (or, negative, less) of a kind of bytes than before. */
void moor__account_add(struct moor_holder *holder, enum moor__figure which, uint64_t change);
/* Changes a figure that is no part of what it has. */
void moor__account_count(struct moor_holder *holder, enum moor__figure which, uint64_t change);
/* A step in the account. What is credit then is free. */
void moor__account_apply(struct moor_holder *holder, const struct moor__step_of *step);

/* Changes the guarantee, and all that follows from it. */
void moor__account_guarantee(struct moor_holder *holder, uint64_t bytes);

/* ---- no lock held ---- */

/* Once, before the first cell is used: whether the system has membarrier. */
void moor__credit_init(void);
/* Empties the thread's cell for this holder if it is one of another authority's, before any authority's lock
 * is taken. */
void moor__cell_clear(struct moor__local *local, const struct moor_holder *holder);

#endif
