/* SPDX-License-Identifier: MIT */
/*
 * The core's locks: mutexes with a place in one order. A thread takes them from the outermost inwards. A call
 * that may block or that runs foreign code (a provider's function, a fence wait, a host's callback) runs with
 * no lock held (promise I9).
 *
 * In a build with MOOR_CHECK_LOCKS each thread knows the locks that it holds. Breaking a rule ends the
 * process with a line that names the locks (lock.c), whether or not the threads would have deadlocked. In any
 * other build a lock is its mutex and no check exists.
 */
#ifndef MOOR_UTIL_LOCK_H
#define MOOR_UTIL_LOCK_H

#include "util/deadline.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* The ranks, outermost first; core/README.md lists the data that each guards. A thread holds at most one lock
 * of a rank, except that several authorities are locked in the order of their places. */
enum moor__rank {
    MOOR__RANK_MODULES, /* module.c; constructors run under it and may take any other */
    MOOR__RANK_RUNTIME,
    MOOR__RANK_DEVICE,
    MOOR__RANK_OBJECT, /* a range's, a buffer's or a segment's */
    MOOR__RANK_STREAMS,
    MOOR__RANK_QUEUE,
    MOOR__RANK_AUTHORITY,
    MOOR__RANK_THREAD_CACHES, /* thread_cache.c */
    MOOR__RANK_HANDLES
};

struct moor__lock {
    pthread_mutex_t mutex;
#ifdef MOOR_CHECK_LOCKS
    enum moor__rank rank;
    uint32_t place; /* among locks of its rank */
    const char *name;
    struct moor__lock *outer; /* while held: the lock that the thread took before */
#endif
};

/* Initialises a lock with static storage. */
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

/* ---- lock.c, in builds that check locks; each function ends the process if a rule is broken ---- */

void moor__lock_describe(struct moor__lock *lock, enum moor__rank rank, uint32_t place, const char *name);
/* Check that this thread may take the lock, and record that it has taken or released it. */
void moor__lock_check(const struct moor__lock *lock);
void moor__lock_taken(struct moor__lock *lock);
void moor__lock_given_up(struct moor__lock *lock);
/* Checks that this thread holds the lock. */
void moor__lock_check_held(const struct moor__lock *lock);
/* Checks that this thread holds no lock. */
void moor__lock_check_none(const char *action);

/* ---- locks ---- */

static inline void moor__lock_init_at(struct moor__lock *lock, enum moor__rank rank, uint32_t place,
                                      const char *name)
{
    (void)pthread_mutex_init(&lock->mutex, NULL); /* a default mutex cannot fail, here and below */
    if (MOOR__CHECKS_LOCKS)
        moor__lock_describe(lock, rank, place, name);
}

/* Initialises a lock. name: [borrowed] the lock's name in core/README.md. */
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

/* Checks that this thread holds no lock, before a call that may block or runs foreign code. action: names the
 * call. */
static inline void moor__assert_unlocked(const char *action)
{
    if (MOOR__CHECKS_LOCKS)
        moor__lock_check_none(action);
}

/* Ends the process if this thread does not hold the lock, where locks are checked. */
static inline void moor__assert_held(const struct moor__lock *lock)
{
    if (MOOR__CHECKS_LOCKS)
        moor__lock_check_held(lock);
}

/* Makes a condition for waits with deadlines of moor_clock_ns(). pthread_cond_destroy ends it. */
static inline void moor__condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    /* None of these calls can fail: the attribute takes no memory, and every system has CLOCK_MONOTONIC. */
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(condition, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
}

/* Waits for the condition (CLOCK_MONOTONIC) until until_ns; UINT64_MAX waits without end. Requires the lock
 * and no other; releases it while waiting. Returns false if the time has passed. May return early. */
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
