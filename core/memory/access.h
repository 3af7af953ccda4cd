/* SPDX-License-Identifier: MIT */
/*
 * Memory that work uses: the common part of buffers and ranges, and the accesses of work to it. An access is a
 * view resolved to its memory, checked, pinned, and announced in the memory's last uses, so that the memory
 * cannot leave between the check and the submission.
 */
#ifndef MOOR_MEMORY_ACCESS_H
#define MOOR_MEMORY_ACCESS_H

#include "memory/object.h"
#include "memory/uses.h"

struct moor__memory {
    struct moor__object object;
    uint64_t handle; /* the provider's; 0: the provider has made nothing yet */
    uint64_t address;
    uint64_t size_bytes;
    struct moor__lock lock; /* guards uses; a range's, its granules too */
    struct moor__uses uses;
};

static inline struct moor__memory *moor__memory_of(struct moor__object *object)
{
    assert(object->ops->kind == MOOR__KIND_BUFFER || object->ops->kind == MOOR__KIND_RANGE);
    return (struct moor__memory *)object;
}

/* Returns the binding, or NULL for plain host memory, which is NULL. */
static inline struct moor_binding *moor__memory_binding(const struct moor__memory *memory)
{
    return memory ? memory->object.binding : NULL;
}

/* Checks the view and pins its memory; *ret_memory NULL: plain host memory. STALE, FOREIGN, INVALID; OVERFLOW
 * if the view wraps. */
moor_status moor__memory_pin(const struct moor_view *view, struct moor__memory **ret_memory);
/* Drops the pin. NULL is a no-op. */
void moor__memory_unpin(struct moor__memory *memory);
/* Collects the points of the last uses of [low, high), as moor__uses_collect. */
uint32_t moor__memory_collect(struct moor__memory *memory, uint64_t low, uint64_t high,
                              struct moor__point *ret_points);
/* Waits for all known work on [low, high). PENDING with MOOR_NO_WAIT, TIMEOUT. Requires no lock. */
moor_status moor__memory_await(struct moor__memory *memory, uint64_t low, uint64_t high,
                               uint64_t deadline_ns);

enum moor__access_mode {
    MOOR__ACCESS_MARK, /* work that does not go through the core: its bounds are checked, not its granules */
    MOOR__ACCESS_READ,
    MOOR__ACCESS_WRITE
};

struct moor__access {
    struct moor_stream *stream;
    struct moor__memory *memory; /* pinned; NULL: plain host memory */
    uint64_t low;                /* bytes [low, high) of the memory */
    uint64_t high;
};

/* Checks, pins and announces. INVALID: outside the memory, not backed, or read-only. BUSY, PENDING: a call
 * works on a granule, or it is leaving. FOREIGN: stream and memory are of different providers. STALE. */
moor_status moor__access_begin(struct moor_stream *stream, const struct moor_view *view,
                               enum moor__access_mode mode, struct moor__access *ret_access);
/* Marks submitted work, or takes the announcement back. Unpins the memory. */
void moor__access_end(const struct moor__access *access, bool is_submitted);

/* The same for memory that the caller keeps and knows to be in bounds. */
moor_status moor__access_announce(const struct moor__access *access, enum moor__access_mode mode);
void moor__access_settle(const struct moor__access *access, bool is_submitted);

/* ---- copy.c ---- */

/* Returns UNSUPPORTED unless the stream's device and the memory's domain can copy. */
moor_status moor__copy_check(const struct moor_stream *stream, const struct moor__memory *memory);
/* Submits a copy between two announced places, of device memory or not, of the stream's provider. */
moor_status moor__copy_submit(struct moor_stream *stream, uint64_t destination, bool to_device,
                              uint64_t source, bool from_device, uint64_t size_bytes);

#endif
