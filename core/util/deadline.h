/* SPDX-License-Identifier: MIT */
/* Deadlines are absolute nanoseconds of moor_clock_ns(). UINT64_MAX means no deadline. */
#ifndef MOOR_UTIL_DEADLINE_H
#define MOOR_UTIL_DEADLINE_H

#include "util/arith.h"

#include <moorage/runtime.h>
#include <time.h>

static inline uint64_t moor__deadline_after(uint64_t timeout_ns)
{
    return moor__add_sat(moor_clock_ns(), timeout_ns);
}

/* Converts a deadline for waits on CLOCK_MONOTONIC. */
static inline struct timespec moor__deadline_timespec(uint64_t deadline_ns)
{
    return (struct timespec){.tv_sec = (time_t)(deadline_ns / 1000000000u),
                             .tv_nsec = (long)(deadline_ns % 1000000000u)};
}

#endif
