/* SPDX-License-Identifier: MIT */
/*
 * Last uses of one buffer or range: the streams that work on each part of it, and the values on their
 * timelines that cover the work. One entry per stream and part; a use makes no event. Requires the owner's
 * lock throughout.
 */
#ifndef MOOR_MEMORY_USES_H
#define MOOR_MEMORY_USES_H

#include "memory/stream.h"

/* Work on [low, high) of the owner's bytes. */
struct moor__use {
    struct moor_stream *stream; /* referenced */
    uint64_t value;             /* MOOR__USE_SUBMITTING: not known yet */
    uint64_t low;
    uint64_t high;
};

#define MOOR__USE_SUBMITTING UINT64_MAX
#define MOOR__USES_INLINE 2

struct moor__uses {
    uint32_t count;
    uint32_t capacity; /* entries that fit into spill; 0: they are in `few` */
    struct moor__use few[MOOR__USES_INLINE];
    struct moor__use *spill;
};

/* Announces work that is about to be submitted. LIMIT, HOST_NOMEM. */
moor_status moor__uses_begin(struct moor__uses *uses, struct moor_stream *stream, uint64_t low,
                             uint64_t high);
/* Gives announced work the value that covers it; 0: takes the announcement back. */
void moor__uses_end(struct moor__uses *uses, struct moor_stream *stream, uint64_t low, uint64_t high,
                    uint64_t value);

/* Returns true if work on [low, high) is being submitted. */
bool moor__uses_submitting(const struct moor__uses *uses, uint64_t low, uint64_t high);
/* Collects the points that cover all submitted work on [low, high), referenced; at most MOOR_LIMIT_USES. */
uint32_t moor__uses_collect(struct moor__uses *uses, uint64_t low, uint64_t high,
                            struct moor__point *ret_points);
/* Returns the first boundary of an entry beyond `from`, at most `limit`. All bytes between boundaries have
 * the same uses. */
uint64_t moor__uses_boundary(const struct moor__uses *uses, uint64_t from, uint64_t limit);

void moor__uses_finish(struct moor__uses *uses);

#endif
