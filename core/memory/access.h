/* SPDX-License-Identifier: MIT */
/*
 * One side of work that is about to be submitted: the view resolved to its owner, checked, pinned, and announced in the
 * owner's last uses, so that the memory cannot leave between the check and the submission.
 */
#ifndef MOOR_MEMORY_ACCESS_H
#define MOOR_MEMORY_ACCESS_H

#include "memory/buffer.h"
#include "memory/range.h"

enum moor__access_mode {
    MOOR__ACCESS_MARK,  /* the host's own work: bounds are checked, not what is behind them */
    MOOR__ACCESS_READ,
    MOOR__ACCESS_WRITE
};

struct moor__access {
    struct moor_stream *stream;
    struct moor__buffer *buffer; /* pinned; or */
    struct moor__range *range;   /* pinned; or neither: plain host memory */
    uint64_t low;                /* bytes of the owner */
    uint64_t high;
};

/* INVALID: outside its owner, not backed, read-only; BUSY, PENDING: being worked on or leaving; FOREIGN: the owner is of
 * another provider than the stream; STALE. */
moor_status moor__access_begin(struct moor_stream *stream, const struct moor_view *view, enum moor__access_mode mode,
                               struct moor__access *ret_access);
/* The work was submitted. */
void moor__access_end(struct moor__access *access);
/* It was not. */
void moor__access_cancel(struct moor__access *access);

/* The provider of a view's owner; NULL: plain host memory. STALE and the like as above. */
moor_status moor__view_provider(const struct moor_view *view, struct moor_provider **ret_provider);
/* Device memory, as against host memory of any kind. */
bool moor__access_is_device(const struct moor__access *access);

#endif
