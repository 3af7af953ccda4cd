/* SPDX-License-Identifier: MIT */
/* The services of a test: a clock and a log for the host table, and numbers without pattern. */
#ifndef MOOR_TESTS_SERVICES_H
#define MOOR_TESTS_SERVICES_H

#include <stdint.h>
#include <time.h>

static inline uint64_t service_clock_ns(void *user)
{
    struct timespec now;
    (void)user;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static inline void service_log_nothing(void *user, uint32_t level, const char *message)
{
    (void)user;
    (void)level;
    (void)message;
}

/* Marsaglia's xorshift64; the state must not be 0. */
static inline uint64_t service_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
