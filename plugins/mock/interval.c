/* SPDX-License-Identifier: MIT */
/* The levels of records come from a generator in the set, so that equal histories make equal lists. */
#include "interval.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

void mock_intervals_init(struct mock_intervals *set, size_t record_bytes)
{
    *set = (struct mock_intervals){.random = 1, .record_bytes = record_bytes};
}

static void free_list(struct mock_interval *first)
{
    while (first) {
        struct mock_interval *next = first->next[0];
        free(first);
        first = next;
    }
}

void mock_intervals_finish(struct mock_intervals *set)
{
    free_list(set->head.next[0]);
    free_list(set->free_records);
}

void *mock_intervals_take(struct mock_intervals *set)
{
    struct mock_interval *interval = set->free_records;
    if (!interval)
        return calloc(1, set->record_bytes);
    set->free_records = interval->next[0];
    memset(interval, 0, set->record_bytes);
    return interval;
}

void mock_intervals_return(struct mock_intervals *set, struct mock_interval *interval)
{
    interval->next[0] = set->free_records;
    set->free_records = interval;
}

static uint32_t draw_levels(struct mock_intervals *set)
{
    set->random = set->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint32_t levels = 1;
    for (uint64_t bits = set->random >> 32; levels < MOCK_LEVELS && (bits & 3) == 0; bits >>= 2)
        levels++;
    return levels;
}

/* Finds the last interval on each level that starts before the address. */
static void find_before(struct mock_intervals *set, uint64_t low, struct mock_interval **before)
{
    struct mock_interval *at = &set->head;
    for (int level = MOCK_LEVELS - 1; level >= 0; level--) {
        while (at->next[level] && at->next[level]->low < low)
            at = at->next[level];
        before[level] = at;
    }
}

void mock_intervals_insert(struct mock_intervals *set, struct mock_interval *interval)
{
    struct mock_interval *before[MOCK_LEVELS];
    assert(interval->low < interval->high);
    find_before(set, interval->low, before);
    assert(!before[0]->next[0] || before[0]->next[0]->low >= interval->high); /* no overlap behind */
    interval->levels = draw_levels(set);
    for (uint32_t level = 0; level < interval->levels; level++) {
        interval->next[level] = before[level]->next[level];
        before[level]->next[level] = interval;
    }
    set->count++;
}

void mock_intervals_remove(struct mock_intervals *set, struct mock_interval *interval)
{
    struct mock_interval *before[MOCK_LEVELS];
    find_before(set, interval->low, before);
    for (uint32_t level = 0; level < interval->levels; level++) {
        assert(before[level]->next[level] == interval);
        before[level]->next[level] = interval->next[level];
    }
    assert(set->count > 0);
    set->count--;
}

struct mock_interval *mock_intervals_find(const struct mock_intervals *set, uint64_t address)
{
    const struct mock_interval *at = &set->head;
    for (int level = MOCK_LEVELS - 1; level >= 0; level--) {
        while (at->next[level] && at->next[level]->high <= address)
            at = at->next[level];
    }
    return at->next[0];
}
