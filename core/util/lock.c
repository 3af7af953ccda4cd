/* SPDX-License-Identifier: MIT */
/*
 * Checks the rules of lock.h while they are kept. Only builds with MOOR_CHECK_LOCKS contain this file.
 *
 * The locks of a thread form a list from the innermost outwards. The thread that holds a lock writes its
 * `outer`. A new lock is always the innermost, in any order locks are released.
 */
#include "util/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Thread_local struct moor__lock *innermost;

#define LOCK "%s (%d.%u)"
#define ARGS(lock_) (lock_)->name, (int)(lock_)->rank, (lock_)->place

void moor__lock_describe(struct moor__lock *lock, enum moor__rank rank, uint32_t place, const char *name)
{
    lock->rank = rank;
    lock->place = place;
    lock->name = name;
    lock->outer = NULL;
}

void moor__lock_check(const struct moor__lock *lock)
{
    const struct moor__lock *held = innermost;
    if (!held || (held->rank != lock->rank ? held->rank < lock->rank : held->place < lock->place))
        return;
    (void)dprintf(STDERR_FILENO, "moorage: " LOCK " is taken under " LOCK "\n", ARGS(lock), ARGS(held));
    abort();
}

void moor__lock_taken(struct moor__lock *lock)
{
    lock->outer = innermost;
    innermost = lock;
}

void moor__lock_given_up(struct moor__lock *lock)
{
    struct moor__lock **link = &innermost;
    while (*link && *link != lock)
        link = &(*link)->outer;
    if (!*link) {
        (void)dprintf(STDERR_FILENO, "moorage: " LOCK " is given up by a thread that does not hold it\n",
                      ARGS(lock));
        abort();
    }
    *link = lock->outer;
}

void moor__lock_check_held(const struct moor__lock *lock)
{
    const struct moor__lock *held = innermost;
    while (held && held != lock)
        held = held->outer;
    if (held)
        return;
    (void)dprintf(STDERR_FILENO, "moorage: " LOCK " must be held here\n", ARGS(lock));
    abort();
}

void moor__lock_check_none(const char *action)
{
    if (!innermost)
        return;
    (void)dprintf(STDERR_FILENO, "moorage: %s under " LOCK "\n", action, ARGS(innermost));
    abort();
}
