/* SPDX-License-Identifier: MIT */
/* An ordered set of intervals that do not overlap, as a skip list in the caller's own records. */
#ifndef MOOR_MOCK_INTERVAL_H
#define MOOR_MOCK_INTERVAL_H

#include <stddef.h>
#include <stdint.h>

#define MOCK_LEVELS 11 /* a quarter of each level is in the next one: enough for millions of records */

/* The first member of a record. */
struct mock_interval {
    uint64_t low;
    uint64_t high; /* exclusive */
    uint32_t levels;
    struct mock_interval *next[MOCK_LEVELS];
};

struct mock_intervals {
    struct mock_interval head;
    uint64_t random;
    uint64_t count;
    size_t record_bytes;
    struct mock_interval *free_records; /* linked by next[0] */
};

void mock_intervals_init(struct mock_intervals *set, size_t record_bytes);
/* Frees all records, also those in the set. */
void mock_intervals_finish(struct mock_intervals *set);

/* Returns a zeroed record to insert, new or reused. NULL: no host memory. */
void *mock_intervals_take(struct mock_intervals *set);
/* Returns a removed record to the set. */
void mock_intervals_return(struct mock_intervals *set, struct mock_interval *interval);

/* Inserts a record, with low and high set and no overlap with another one. */
void mock_intervals_insert(struct mock_intervals *set, struct mock_interval *interval);
void mock_intervals_remove(struct mock_intervals *set, struct mock_interval *interval);
/* Returns the first interval that ends behind the address, or NULL. */
struct mock_interval *mock_intervals_find(const struct mock_intervals *set, uint64_t address);

static inline struct mock_interval *mock_intervals_first(const struct mock_intervals *set)
{
    return set->head.next[0];
}

#endif
