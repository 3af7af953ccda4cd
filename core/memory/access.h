/* SPDX-License-Identifier: MIT */
/*
 * One side of work that is about to be submitted: the view resolved to its owner, checked, pinned, and
 * announced in the owner's last uses, so that the memory cannot leave between the check and the submission.
 */
#ifndef MOOR_MEMORY_ACCESS_H
#define MOOR_MEMORY_ACCESS_H

#include "memory/buffer.h"
#include "memory/range.h"

enum moor__access_mode {
    MOOR__ACCESS_MARK, /* the host's own work: bounds are checked, not what is behind them */
    MOOR__ACCESS_READ,
    MOOR__ACCESS_WRITE
};

/* What a view is a view of: one of the two, pinned, or neither for plain host memory. */
struct moor__owner {
    struct moor__buffer *buffer;
    struct moor__range *range;
};

/* STALE, FOREIGN, INVALID; OVERFLOW if the view wraps. */
moor_status moor__owner_pin(const struct moor_view *view, struct moor__owner *ret_owner);
void moor__owner_unpin(const struct moor__owner *owner);
/* NULL for plain host memory. */
struct moor_binding *moor__owner_binding(const struct moor__owner *owner);

struct moor__access {
    struct moor_stream *stream;
    struct moor__owner owner;
    uint64_t low; /* bytes of the owner */
    uint64_t high;
};

/* INVALID: outside its owner, not backed, read-only; BUSY, PENDING: being worked on or leaving; FOREIGN: the
 * owner is of another provider than the stream; STALE. */
moor_status moor__access_begin(struct moor_stream *stream, const struct moor_view *view,
                               enum moor__access_mode mode, struct moor__access *ret_access);
/* The work was submitted. */
void moor__access_end(struct moor__access *access);
/* It was not. */
void moor__access_cancel(struct moor__access *access);

#endif
