/* SPDX-License-Identifier: MIT */
/*
 * Accounts: each change of a line updates the holder's and the authority's sums in the same critical section.
 * Transfers in a thread account change neither `has` nor a commitment, so limits are checked against exact
 * numbers while threads make transfers. Only credit, bytes that a holder has without a use, may have to be
 * taken back before a request is refused (credit.c).
 */
#include "governor/account.h"

#include <assert.h>

uint64_t moor__account_charged(const struct moor__account *account)
{
    uint64_t sum = 0;
    for (enum moor__account_line line = MOOR__LIVE; line < MOOR__BYTES; line++)
        sum += moor__account_get(account, line);
    return sum;
}

uint64_t moor__account_live(const struct moor__account *account)
{
    return moor__account_get(account, MOOR__LIVE) + moor__account_get(account, MOOR__SHARED) +
           moor__account_get(account, MOOR__LEASED);
}

static void update_commitments(struct moor_holder *holder)
{
    struct moor__authority_sums *sums = &holder->authority->sums;
    uint64_t commitment = moor__max(holder->has, holder->limits.guarantee_bytes);
    uint64_t later = moor__max(moor__has_later(holder), holder->limits.guarantee_bytes);
    sums->commitments += commitment - holder->commitment;
    sums->commitments_later += later - holder->commitment_later;
    holder->commitment = commitment;
    holder->commitment_later = later;
}

void moor__holder_account_guarantee(struct moor_holder *holder, uint64_t bytes)
{
    assert(holder->authority->sums.guarantees >= holder->limits.guarantee_bytes);
    holder->authority->sums.guarantees += bytes - holder->limits.guarantee_bytes;
    holder->limits.guarantee_bytes = bytes;
    update_commitments(holder);
}

/* Raises the peak if the account's charged bytes and `more` exceed it. Bytes in other thread accounts are
 * missing. */
static void note_peak(uint64_t *peak, const struct moor__account *account, uint64_t more)
{
    int64_t charged = (int64_t)(moor__account_charged(account) + more);
    if (charged > (int64_t)*peak)
        *peak = (uint64_t)charged;
}

static void note_peaks(struct moor_holder *holder, uint64_t more)
{
    note_peak(&holder->peak_charged, &holder->account, more);
    note_peak(&holder->authority->sums.peak_charged, &holder->authority->sums.account, more);
}

void moor__holder_account_count(struct moor_holder *holder, enum moor__account_line line, uint64_t change)
{
    assert(line < MOOR__ACCOUNT_LINES);
    moor__account_change(&holder->account, line, change);
    moor__account_change(&holder->authority->sums.account, line, change);
}

void moor__holder_account_lend(struct moor_holder *holder, uint64_t bytes)
{
    holder->has += bytes;
    holder->authority->sums.has += bytes;
    update_commitments(holder);
}

void moor__holder_account_add(struct moor_holder *holder, enum moor__account_line line, uint64_t change)
{
    assert(line < MOOR__BYTES);
    moor__holder_account_count(holder, line, change);
    moor__holder_account_lend(holder, change);
}

/* Removes the account's credit: it is free. */
static void free_credit(struct moor_holder *holder)
{
    uint64_t credit = moor__account_get(&holder->account, MOOR__CREDIT);
    assert(credit <= holder->has && holder->has <= holder->authority->sums.has);
    note_peaks(holder, 0);
    moor__holder_account_add(holder, MOOR__CREDIT, -credit);
}

void moor__holder_account_apply(struct moor_holder *holder, const struct moor__transfer *step)
{
    assert(step->from < MOOR__BYTES && step->to < MOOR__BYTES && step->bytes <= holder->has);
    moor__account_apply(&holder->account, step);
    moor__account_apply(&holder->authority->sums.account, step);
    free_credit(holder);
}

void moor__holder_account_merge(struct moor_holder *holder, struct moor__account *lines, uint64_t highest)
{
    note_peaks(holder, highest);
    for (enum moor__account_line line = 0; line < MOOR__ACCOUNT_LINES; line++) {
        uint64_t change = moor__account_get(lines, line);
        if (!change)
            continue;
        moor__holder_account_count(holder, line, change);
        atomic_store_explicit(&lines->line[line], 0, memory_order_relaxed);
    }
    free_credit(holder);
}
