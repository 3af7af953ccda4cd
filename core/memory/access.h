/* SPDX-License-Identifier: MIT */
/*
 * Memory that work is about to use: a view resolved to its owner, checked, pinned, and announced in the
 * owner's last uses, so that the memory cannot leave between the check and the submission.
 */
#ifndef MOOR_MEMORY_ACCESS_H
#define MOOR_MEMORY_ACCESS_H

#include "memory/buffer.h"
#include "memory/range.h"

enum moor__access_mode {
    MOOR__ACCESS_MARK, /* work that does not go through the core: its bounds are checked, not its granules */
    MOOR__ACCESS_READ,
    MOOR__ACCESS_WRITE
};

/* The owner of a view's memory: one of the two, pinned; neither for plain host memory. */
struct moor__owner {
    struct moor__buffer *buffer;
    struct moor__range *range;
};

/* Pins the view's owner. STALE, FOREIGN, INVALID; OVERFLOW if the view wraps. */
moor_status moor__owner_pin(const struct moor_view *view, struct moor__owner *ret_owner);
void moor__owner_unpin(const struct moor__owner *owner);
/* Returns NULL for plain host memory. */
struct moor_binding *moor__owner_binding(const struct moor__owner *owner);

struct moor__access {
    struct moor_stream *stream;
    struct moor__owner owner;
    uint64_t low; /* bytes [low, high) of the owner */
    uint64_t high;
};

/* Checks, pins and announces. INVALID: outside the owner, not backed, or read-only. BUSY, PENDING: a call
 * works on a granule, or it is leaving. FOREIGN: stream and owner are of different providers. STALE. */
moor_status moor__access_begin(struct moor_stream *stream, const struct moor_view *view,
                               enum moor__access_mode mode, struct moor__access *ret_access);
/* Marks submitted work, or takes the announcement back. Unpins the owner. */
void moor__access_end(const struct moor__access *access, bool is_submitted);

/* The same for memory that the caller keeps and knows to be in bounds. */
moor_status moor__access_announce(const struct moor__access *access, enum moor__access_mode mode);
void moor__access_settle(const struct moor__access *access, bool is_submitted);

/* ---- copy.c ---- */

/* Submits a copy between two announced places, of device memory or not, of the stream's provider. */
moor_status moor__copy_submit(struct moor_stream *stream, uint64_t destination, bool to_device,
                              uint64_t source, bool from_device, uint64_t size_bytes);

#endif
