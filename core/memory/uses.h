/* SPDX-License-Identifier: MIT */
/*
 * Last uses of one buffer or range: which streams work on which part of it, and up to where on their
 * timelines. One entry per (stream, part); there is no event per use. Guarded by the owner's lock.
 */
#ifndef MOOR_MEMORY_USES_H
#define MOOR_MEMORY_USES_H

#include "memory/stream.h"

/* Work on [low, high) of the owner's bytes. While it is being submitted its value is not known yet. */
struct moor__use {
    struct moor_stream *stream; /* referenced */
    uint64_t value;             /* MOOR__USE_SUBMITTING: not yet known */
    uint64_t low;
    uint64_t high;
};

#define MOOR__USE_SUBMITTING UINT64_MAX
#define MOOR__USES_INLINE 2

struct moor__uses {
    uint32_t count;
    uint32_t capacity; /* of spill; 0: entries are in `few` */
    struct moor__use few[MOOR__USES_INLINE];
    struct moor__use *spill;
};

/* Announces work that is about to be submitted, so that the memory cannot leave under it. LIMIT, HOST_NOMEM.
 */
moor_status moor__uses_begin(struct moor__uses *uses, struct moor_stream *stream, uint64_t low,
                             uint64_t high);
/* It was submitted: `value` will tell when it is done. */
void moor__uses_end(struct moor__uses *uses, struct moor_stream *stream, uint64_t low, uint64_t high,
                    uint64_t value);
/* It was not. */
void moor__uses_cancel(struct moor__uses *uses, struct moor_stream *stream, uint64_t low, uint64_t high);

/* Work on [low, high) is being submitted this moment. */
bool moor__uses_submitting(const struct moor__uses *uses, uint64_t low, uint64_t high);

/* The points that work on [low, high) ends at, their streams referenced; at most MOOR_LIMIT_USES. */
uint32_t moor__uses_collect(struct moor__uses *uses, uint64_t low, uint64_t high,
                            struct moor__point *ret_points);

/* The first boundary of an entry beyond `from`, or `limit`: between boundaries all bytes have the same uses.
 */
uint64_t moor__uses_boundary(const struct moor__uses *uses, uint64_t from, uint64_t limit);

void moor__uses_finish(struct moor__uses *uses);

#endif
