/* SPDX-License-Identifier: MIT */
/* An ordered set of intervals that do not overlap, which lie in the records of whoever keeps it: a skip
 * list. */
#ifndef MOOR_MOCK_INTERVAL_H
#define MOOR_MOCK_INTERVAL_H

#include <stddef.h>
#include <stdint.h>

#define MOCK_LEVELS 11 /* a quarter of each level goes on to the next: good for millions */

/* The first member of a record. */
struct mock_interval {
    uint64_t low;
    uint64_t high; /* not within */
    uint32_t levels;
    struct mock_interval *next[MOCK_LEVELS];
};

struct mock_intervals {
    struct mock_interval head;
    uint64_t random;
    uint64_t count;
    size_t record_bytes;
    struct mock_interval *free_records; /* by next[0] */
};

void mock_intervals_init(struct mock_intervals *set, size_t record_bytes);
/* Frees all records, also those in the set. */
void mock_intervals_finish(struct mock_intervals *set);

/* A zeroed record to be inserted, used before or new. NULL: no memory. */
void *mock_intervals_take(struct mock_intervals *set);
/* Back, after it was removed. */
void mock_intervals_return(struct mock_intervals *set, struct mock_interval *interval);

/* low and high are set, and overlap with no other. */
void mock_intervals_insert(struct mock_intervals *set, struct mock_interval *interval);
void mock_intervals_remove(struct mock_intervals *set, struct mock_interval *interval);
/* The first one that ends behind the address; NULL: none. */
struct mock_interval *mock_intervals_find(const struct mock_intervals *set, uint64_t address);

static inline struct mock_interval *mock_intervals_first(const struct mock_intervals *set)
{
    return set->head.next[0];
}

#endif
