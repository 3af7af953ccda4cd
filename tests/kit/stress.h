/* SPDX-License-Identifier: MIT */
/* The frame of the kit's stress programs: plain programs, because ThreadSanitizer does not run under
 * Criterion. */
#ifndef MOORAGE_TESTS_KIT_STRESS_H
#define MOORAGE_TESTS_KIT_STRESS_H

#include "services.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static inline void require(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    abort();
}

#define STRESS_THREADS_MAX 8

/* Runs `work` on that many threads, each with a seed of its own, from start to end. */
static inline void run_threads(size_t count, void *(*work)(void *seed))
{
    static uint64_t seeds[STRESS_THREADS_MAX];
    pthread_t threads[STRESS_THREADS_MAX];
    for (size_t i = 0; i < count; i++) {
        seeds[i] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        require(pthread_create(&threads[i], NULL, work, &seeds[i]) == 0, "no thread");
    }
    for (size_t i = 0; i < count; i++)
        require(pthread_join(threads[i], NULL) == 0, "join");
}

#endif
