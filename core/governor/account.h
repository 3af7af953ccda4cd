/* SPDX-License-Identifier: MIT */
/*
 * Accounts and their sums. Invariants, for each holder, under its authority's lock:
 *
 *     has              = sum of its byte lines, in its account and in all thread accounts
 *     commitment       = max(has, guarantee)
 *     commitment_later = max(has - pending, guarantee)
 *
 * and the authority's sums are the sums over its holders.
 */
#ifndef MOOR_GOVERNOR_ACCOUNT_H
#define MOOR_GOVERNOR_ACCOUNT_H

#include "governor/objects.h"

/* A transfer: bytes from one line to another, and the counts that change with it. Differences may be
 * negative. */
struct moor__transfer {
    enum moor__account_line from;
    enum moor__account_line to;
    uint64_t bytes;
    uint64_t requested;
    uint64_t counts;
    bool is_passing; /* another transfer follows at once: the queue is not scanned in between */
};

static inline uint64_t moor__account_get(const struct moor__account *account, enum moor__account_line line)
{
    return atomic_load_explicit(&account->line[line], memory_order_relaxed);
}

/* Adds to a line. One thread writes at a time, so this needs no read-modify-write. */
static inline void moor__account_change(struct moor__account *account, enum moor__account_line line,
                                        uint64_t change)
{
    atomic_store_explicit(&account->line[line], moor__account_get(account, line) + change,
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

/* Returns the sum of the charged lines. */
uint64_t moor__account_charged(const struct moor__account *account);
/* Returns the bytes of the live lines: charged, and neither pending nor quarantined. */
uint64_t moor__account_live(const struct moor__account *account);

/* ---- each requires authority->lock ---- */

/* Returns the bytes that the holder has without pending ones. */
static inline uint64_t moor__has_later(const struct moor_holder *holder)
{
    return holder->has - moor__account_get(&holder->account, MOOR__PENDING);
}

/* Returns the bytes that the holder may still have below its limit. */
static inline uint64_t moor__own_room(const struct moor_holder *holder)
{
    return moor__sub_sat(holder->limits.limit_bytes, holder->has);
}

/* Changes a byte line, and with it the bytes that the holder has. The change may be negative. */
void moor__holder_account_add(struct moor_holder *holder, enum moor__account_line line, uint64_t change);
/* Adds bytes that stay outside the account: credit of a thread. */
void moor__holder_account_lend(struct moor_holder *holder, uint64_t bytes);
/* Changes a line that is not part of `has`. */
void moor__holder_account_count(struct moor_holder *holder, enum moor__account_line line, uint64_t change);
/* Makes a transfer in the account. Credit that it leaves there is free. */
void moor__holder_account_apply(struct moor_holder *holder, const struct moor__transfer *step);
/* Moves the lines of a thread account into the holder's account. highest: the most that was charged there at
 * a time. */
void moor__holder_account_merge(struct moor_holder *holder, struct moor__account *lines, uint64_t highest);
/* Changes the guarantee and the sums that depend on it. */
void moor__holder_account_guarantee(struct moor_holder *holder, uint64_t bytes);
/* check.c, in builds that check locks: asserts the invariants above by a walk over all holders. */
void moor__accounts_check(const struct moor_authority *authority);

#endif
