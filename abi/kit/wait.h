/* SPDX-License-Identifier: MIT */
/* Waits on condition variables: deadlines are on the host's clock, sleep is on CLOCK_MONOTONIC. */
#ifndef MOORAGE_KIT_WAIT_H
#define MOORAGE_KIT_WAIT_H

#include <moorage/abi/provider.h>
#include <pthread.h>
#include <time.h>

/* Initialises a condition variable that no change of the wall clock disturbs. */
static inline int32_t kit_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return MOOR_HOST_NOMEM;
    int failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (failed == 0)
        failed = pthread_cond_init(cond, &attributes);
    (void)pthread_condattr_destroy(&attributes); /* fails only for uninitialised attributes */
    return failed == 0 ? MOOR_OK : MOOR_HOST_NOMEM;
}

/* Returns the nanoseconds until a deadline on the host's clock: 0: it has passed; UINT64_MAX: no deadline. */
static inline uint64_t kit_time_left(const struct moor_abi_host *host, uint64_t deadline_ns)
{
    if (deadline_ns == 0 || deadline_ns == UINT64_MAX)
        return deadline_ns;
    uint64_t now_ns = host->clock_ns(host->user);
    return now_ns < deadline_ns ? deadline_ns - now_ns : 0;
}

/* Sleeps until the condition is signalled, or longest_ns have passed; UINT64_MAX: without limit. May return
 * early, as condition variables do: the caller checks its condition again. */
static inline void kit_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t longest_ns)
{
    const uint64_t second_ns = 1000000000;
    if (longest_ns == UINT64_MAX) {
        (void)pthread_cond_wait(cond, lock); /* never fails with a lock that is held */
        return;
    }
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until); /* the clock exists on every system this is built for */
    uint64_t fraction_ns = (uint64_t)until.tv_nsec + longest_ns % second_ns;
    until.tv_sec += (time_t)(longest_ns / second_ns + fraction_ns / second_ns);
    until.tv_nsec = (long)(fraction_ns % second_ns);
    (void)pthread_cond_timedwait(cond, lock, &until); /* ETIMEDOUT or not: the caller checks again */
}

#endif
