/* SPDX-License-Identifier: MIT */
/*
 * Entries are few (at most MOOR_LIMIT_USES), so each function scans them. An entry stays until its stream is
 * known to have passed it. New work on the same part replaces older work of the same stream. If one stream
 * has too many separate parts, their entries merge into one that covers all: a release then waits longer than
 * it must, and never less.
 */
#include "memory/uses.h"

#include "util/arith.h"
#include "util/error.h"
#include "util/limits.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint32_t capacity_of(const struct moor__uses *uses)
{
    return uses->capacity ? uses->capacity : MOOR__USES_INLINE;
}

static struct moor__use *entries(struct moor__uses *uses)
{
    assert(uses->count <= capacity_of(uses));
    return uses->capacity ? uses->spill : uses->few;
}

static const struct moor__use *entries_const(const struct moor__uses *uses)
{
    return uses->capacity ? uses->spill : uses->few;
}

static bool overlaps(const struct moor__use *use, uint64_t low, uint64_t high)
{
    return use->low < high && low < use->high;
}

static void drop(struct moor__uses *uses, uint32_t index)
{
    assert(index < uses->count);
    struct moor__use *all = entries(uses);
    moor__stream_unref(all[index].stream);
    all[index] = all[--uses->count];
}

/* Extends an entry so that it covers another one of its stream, too. */
static void cover(struct moor__use *merged, const struct moor__use *use)
{
    assert(use->stream == merged->stream && use->value != MOOR__USE_SUBMITTING);
    merged->low = moor__min(use->low, merged->low);
    merged->high = moor__max(use->high, merged->high);
    merged->value = moor__max(use->value, merged->value);
}

static void prune(struct moor__uses *uses)
{
    for (uint32_t i = uses->count; i-- > 0;) {
        const struct moor__use *use = &entries(uses)[i];
        if (use->value != MOOR__USE_SUBMITTING && moor__stream_passed(use->stream, use->value))
            drop(uses, i);
    }
}

/* Merges the entries of each stream into one. */
static void compact(struct moor__uses *uses)
{
    struct moor__use *all = entries(uses);
    for (uint32_t i = 0; i < uses->count; i++)
        for (uint32_t j = uses->count; j-- > i + 1;) {
            if (all[j].stream != all[i].stream || all[i].value == MOOR__USE_SUBMITTING ||
                all[j].value == MOOR__USE_SUBMITTING)
                continue;
            cover(&all[i], &all[j]);
            drop(uses, j);
        }
}

static moor_status grow(struct moor__uses *uses)
{
    if (uses->count == MOOR_LIMIT_USES)
        return moor__fail(MOOR_LIMIT, "too many streams are using one object");
    uint32_t capacity = uses->capacity ? uses->capacity * 2 : MOOR__USES_INLINE * 4;
    struct moor__use *spill = realloc(uses->spill, capacity * sizeof *spill);
    if (!spill)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a use");
    if (!uses->capacity)
        memcpy(spill, uses->few, sizeof uses->few);
    uses->spill = spill;
    uses->capacity = capacity;
    return MOOR_OK;
}

/* Makes room for one more entry: by dropping passed ones, by more memory, or by merging. */
static moor_status make_room(struct moor__uses *uses)
{
    prune(uses);
    if (uses->count < capacity_of(uses))
        return MOOR_OK;
    moor_status status = grow(uses);
    if (status)
        compact(uses);
    return uses->count < capacity_of(uses) ? MOOR_OK : status;
}

moor_status moor__uses_begin(struct moor__uses *uses, struct moor_stream *stream, uint64_t low, uint64_t high)
{
    assert(low < high);
    moor_status status = uses->count == capacity_of(uses) ? make_room(uses) : MOOR_OK;
    if (status)
        return status;
    moor__stream_ref(stream);
    entries(uses)[uses->count++] = (struct moor__use){stream, MOOR__USE_SUBMITTING, low, high};
    return MOOR_OK;
}

static uint32_t find_submitting(struct moor__uses *uses, const struct moor_stream *stream, uint64_t low,
                                uint64_t high)
{
    const struct moor__use *all = entries(uses);
    uint32_t i = 0;
    while (i < uses->count && (all[i].stream != stream || all[i].value != MOOR__USE_SUBMITTING ||
                               all[i].low != low || all[i].high != high))
        i++;
    assert(i < uses->count);
    return i;
}

/* Drops the entries that the newest one of their stream covers, or merges all of that stream's if they are
 * too many. */
static void settle(struct moor__uses *uses, uint32_t newest_index)
{
    const struct moor__use newest = entries(uses)[newest_index];
    struct moor__use *all = entries(uses);
    uint32_t same_stream = 0;
    for (uint32_t i = 0; i < uses->count; i++)
        same_stream += all[i].stream == newest.stream && all[i].value != MOOR__USE_SUBMITTING;
    struct moor__use merged = newest;
    moor__stream_ref(merged.stream); /* for the merged entry, before its parts are dropped */
    for (uint32_t i = uses->count; i-- > 0;) {
        const struct moor__use *use = &all[i];
        if (use->stream != newest.stream || use->value == MOOR__USE_SUBMITTING)
            continue;
        bool covered = use->low >= newest.low && use->high <= newest.high && use->value <= newest.value;
        if (!covered && same_stream <= MOOR_LIMIT_USES_PER_STREAM)
            continue;
        cover(&merged, use);
        drop(uses, i);
    }
    /* The newest entry covers itself and was dropped, so there is room. */
    all[uses->count++] = merged;
}

void moor__uses_end(struct moor__uses *uses, struct moor_stream *stream, uint64_t low, uint64_t high,
                    uint64_t value)
{
    assert(value != MOOR__USE_SUBMITTING);
    uint32_t i = find_submitting(uses, stream, low, high);
    entries(uses)[i].value = value;
    if (value)
        settle(uses, i);
    else
        drop(uses, i);
}

bool moor__uses_submitting(const struct moor__uses *uses, uint64_t low, uint64_t high)
{
    const struct moor__use *all = entries_const(uses);
    for (uint32_t i = 0; i < uses->count; i++)
        if (all[i].value == MOOR__USE_SUBMITTING && overlaps(&all[i], low, high))
            return true;
    return false;
}

uint32_t moor__uses_collect(struct moor__uses *uses, uint64_t low, uint64_t high,
                            struct moor__point *ret_points)
{
    uint32_t count = 0;
    prune(uses);
    for (uint32_t i = 0; i < uses->count; i++) {
        const struct moor__use *use = &entries(uses)[i];
        if (use->value == MOOR__USE_SUBMITTING || !overlaps(use, low, high))
            continue;
        moor__stream_ref(use->stream);
        ret_points[count++] = (struct moor__point){use->stream, use->value};
    }
    assert(count <= MOOR_LIMIT_USES);
    return count;
}

uint64_t moor__uses_boundary(const struct moor__uses *uses, uint64_t from, uint64_t limit)
{
    const struct moor__use *all = entries_const(uses);
    for (uint32_t i = 0; i < uses->count; i++) {
        if (all[i].low > from)
            limit = moor__min(all[i].low, limit);
        if (all[i].high > from)
            limit = moor__min(all[i].high, limit);
    }
    return limit;
}

void moor__uses_finish(struct moor__uses *uses)
{
    while (uses->count)
        drop(uses, 0);
    free(uses->spill);
    uses->spill = NULL;
    uses->capacity = 0;
}
