/* SPDX-License-Identifier: MIT */
/* The invariants of accounts (account.h), asserted over a whole authority. Only builds that check locks compile
 * this file: the walk costs more than the calls that it checks. */
#include "governor/account.h"

#include "util/arith.h"

#include <assert.h>

static void check_holder(const struct moor_holder *holder, bool is_strict)
{
    uint64_t guarantee = holder->limits.guarantee_bytes, sum = 0;
    for (int i = 0; i < MOOR__BYTES; i++) {
        uint64_t bytes = moor__account_get(&holder->account, (enum moor__account_line)i);
        assert(!is_strict || (int64_t)bytes >= 0);
        sum += bytes;
    }
    assert(!is_strict || holder->has == sum); /* else thread accounts hold the difference */
    assert(moor__account_get(&holder->account, MOOR__CREDIT) == 0);
    assert(holder->commitment == moor__max(holder->has, guarantee));
    assert(holder->commitment_later ==
           moor__max(holder->has - moor__account_get(&holder->account, MOOR__PENDING), guarantee));
    assert(guarantee <= holder->limits.limit_bytes);
}

void moor__accounts_check(const struct moor_authority *authority)
{
    enum { CHECKED_HOLDERS = 256 }; /* more holders would make a run quadratic */
    if (authority->holder_count > CHECKED_HOLDERS)
        return;
    moor__assert_held(&authority->lock);
    bool is_strict = atomic_load_explicit(&authority->strict, memory_order_relaxed) != 0;
    struct moor__authority_sums sums = {0};
    const struct moor_holder *holder;
    TAILQ_FOREACH (holder, &authority->holders, entry) {
        check_holder(holder, is_strict);
        sums.has += holder->has;
        sums.guarantees += holder->limits.guarantee_bytes;
        sums.commitments += holder->commitment;
        sums.commitments_later += holder->commitment_later;
        for (int i = 0; i < MOOR__ACCOUNT_LINES; i++)
            moor__account_change(&sums.account, (enum moor__account_line)i,
                                 moor__account_get(&holder->account, (enum moor__account_line)i));
    }
    assert(sums.has == authority->sums.has && sums.guarantees == authority->sums.guarantees);
    assert(sums.commitments == authority->sums.commitments);
    assert(sums.commitments_later == authority->sums.commitments_later);
    for (int i = 0; i < MOOR__ACCOUNT_LINES; i++)
        assert(moor__account_get(&sums.account, (enum moor__account_line)i) ==
               moor__account_get(&authority->sums.account, (enum moor__account_line)i));
}
