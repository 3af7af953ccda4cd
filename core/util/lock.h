/* SPDX-License-Identifier: MIT */
/*
 * The core's locks: mutexes that have a place in one order. A thread takes them from the outside in. What may
 * block or is not ours (a provider's call, a wait for a fence, a function of the host's) runs with none held
 * (promise I9).
 *
 * In a build with MOOR_CHECK_LOCKS each thread knows what it holds, and whoever breaks one of these rules
 * ends the process with a line that says so (lock.c), whether or not another thread was there to wait for.
 * In any other build a lock is its mutex, and nothing of this is there.
 */
#ifndef MOOR_UTIL_LOCK_H
#define MOOR_UTIL_LOCK_H

#include "util/deadline.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Outermost first; what each guards is in core/README.md. No two locks of one rank are held together, but for
 * authorities, which have places among themselves. */
enum moor__rank {
    MOOR__RANK_MODULES, /* of module.c; constructors run under it, and may take any other */
    MOOR__RANK_RUNTIME,
    MOOR__RANK_DEVICE,
    MOOR__RANK_OBJECT, /* of a range, a buffer or a segment */
    MOOR__RANK_STREAMS,
    MOOR__RANK_QUEUE,
    MOOR__RANK_AUTHORITY,
    MOOR__RANK_THREAD_CACHES, /* of local.c */
    MOOR__RANK_HANDLES
};

struct moor__lock {
    pthread_mutex_t mutex;
#ifdef MOOR_CHECK_LOCKS
    enum moor__rank rank;
    uint32_t place; /* in its rank */
    const char *name;
    struct moor__lock *outer; /* while it is held: what its thread has taken before */
#endif
};

/* MOOR__LOCK: for one that needs no init. */
#ifdef MOOR_CHECK_LOCKS
#define MOOR__CHECKS_LOCKS true
#define MOOR__LOCK(rank_, name_)                                                                             \
    {                                                                                                        \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (rank_), .name = (name_)                                 \
    }
#else
#define MOOR__CHECKS_LOCKS false
#define MOOR__LOCK(rank_, name_)                                                                             \
    {                                                                                                        \
        .mutex = PTHREAD_MUTEX_INITIALIZER                                                                   \
    }
#endif

/* ---- lock.c, which is there where locks are checked; each ends the process if it is not so ---- */

void moor__lock_describe(struct moor__lock *lock, enum moor__rank rank, uint32_t place, const char *name);
/* This thread may take the lock now; it has taken it; it has it, and gives it up. */
void moor__lock_check(const struct moor__lock *lock);
void moor__lock_taken(struct moor__lock *lock);
void moor__lock_given_up(struct moor__lock *lock);
/* This thread holds the lock. */
void moor__lock_check_held(const struct moor__lock *lock);
/* This thread holds none. */
void moor__lock_check_none(const char *what);

/* ---- locks ---- */

static inline void moor__lock_init_at(struct moor__lock *lock, enum moor__rank rank, uint32_t place,
                                      const char *name)
{
    (void)pthread_mutex_init(&lock->mutex, NULL); /* an ordinary one: it cannot fail, here and below */
    if (MOOR__CHECKS_LOCKS)
        moor__lock_describe(lock, rank, place, name);
}

/* name: as core/README.md has it; stays. */
static inline void moor__lock_init(struct moor__lock *lock, enum moor__rank rank, const char *name)
{
    moor__lock_init_at(lock, rank, 0, name);
}

static inline void moor__lock_finish(struct moor__lock *lock)
{
    (void)pthread_mutex_destroy(&lock->mutex);
}

static inline void moor__lock_acquire(struct moor__lock *lock)
{
    if (MOOR__CHECKS_LOCKS)
        moor__lock_check(lock);
    (void)pthread_mutex_lock(&lock->mutex);
    if (MOOR__CHECKS_LOCKS)
        moor__lock_taken(lock);
}

static inline void moor__lock_release(struct moor__lock *lock)
{
    if (MOOR__CHECKS_LOCKS)
        moor__lock_given_up(lock);
    (void)pthread_mutex_unlock(&lock->mutex);
}

/* Goes before what may block or is not ours: this thread holds no lock. what: for the message. */
static inline void moor__assert_unlocked(const char *what)
{
    if (MOOR__CHECKS_LOCKS)
        moor__lock_check_none(what);
}

/* Ends the process if this thread does not hold the lock, where locks are checked. */
static inline void moor__assert_held(const struct moor__lock *lock)
{
    if (MOOR__CHECKS_LOCKS)
        moor__lock_check_held(lock);
}

/* Makes a condition whose waits end by moor_clock_ns(). pthread_cond_destroy ends it. */
static inline void moor__condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    /* None of these calls can fail: the attribute takes no memory, and every system has CLOCK_MONOTONIC. */
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(condition, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
}

/* Waits for the condition (CLOCK_MONOTONIC), at most until then; UINT64_MAX: without end. The lock is held,
 * and no other; it is given up meanwhile. False: the time is over. It may wake early. */
static inline bool moor__lock_wait_until(struct moor__lock *lock, pthread_cond_t *condition,
                                         uint64_t until_ns)
{
    const struct timespec until = moor__deadline_timespec(until_ns);
    if (MOOR__CHECKS_LOCKS)
        moor__lock_given_up(lock);
    moor__assert_unlocked("a wait for a condition");
    int error = until_ns == UINT64_MAX ? pthread_cond_wait(condition, &lock->mutex)
                                       : pthread_cond_timedwait(condition, &lock->mutex, &until);
    if (MOOR__CHECKS_LOCKS)
        moor__lock_taken(lock);
    return error == 0;
}

static inline void moor__lock_wait(struct moor__lock *lock, pthread_cond_t *condition)
{
    (void)moor__lock_wait_until(lock, condition, UINT64_MAX);
}

#endif
