/* SPDX-License-Identifier: MIT */
/* Arithmetic on byte counts and times. Sums and differences saturate instead of wrapping. */
#ifndef MOOR_UTIL_ARITH_H
#define MOOR_UTIL_ARITH_H

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t moor__min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t moor__max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns a + b, at most UINT64_MAX. */
static inline uint64_t moor__add_sat(uint64_t a, uint64_t b)
{
    return a < UINT64_MAX - b ? a + b : UINT64_MAX;
}

/* Returns a - b, at least 0. */
static inline uint64_t moor__sub_sat(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static inline bool moor__is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

#endif
