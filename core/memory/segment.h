/* SPDX-License-Identifier: MIT */
/* Segments from the inside. */
#ifndef MOOR_MEMORY_SEGMENT_H
#define MOOR_MEMORY_SEGMENT_H

#include "memory/object.h"
#include "memory/range.h"

/*
 * A segment is owned by its handle and by each mapping, a mapping until its release has completed. Not
 * sealed: at most one mapping, which is writable. Sealed: any number of mappings, all read-only.
 */
struct moor__segment {
    struct moor__object object; /* bytes: taken by the provider */
    uint64_t handle;            /* the provider's; 0: no memory yet */
    uint64_t size_bytes;
    uint64_t granule_bytes;

    struct moor__lock lock; /* everything below */
    uint64_t owners;
    uint64_t leaving; /* owners that are leaving mappings */
    uint64_t stuck;   /* owners that are mappings in quarantine */
    /* The line of the bytes. SHARED: the handle or a usable mapping owns them. PENDING: leaving mappings alone
     * do. QUARANTINED: leaving mappings and mappings in quarantine do. */
    enum moor__account_line line;
    bool is_sealed;
    bool is_sealing;           /* a thread is in moor_segment_seal */
    moor_range writable_range; /* the writable mapping's; 0: there is none */
    uint64_t writable_first;   /* granule */
};

static inline struct moor__segment *moor__segment_of(struct moor__object *object)
{
    assert(object->ops->kind == MOOR__KIND_SEGMENT);
    return (struct moor__segment *)object;
}

/* Finds a live segment and keeps it, like moor__object_pin. */
static inline moor_status moor__segment_pin(struct moor_runtime *runtime, moor_segment handle,
                                            struct moor__segment **ret_segment)
{
    struct moor__object *object;
    moor_status status = moor__object_pin(runtime, MOOR__KIND_SEGMENT, handle, &object);
    if (!status)
        *ret_segment = moor__segment_of(object);
    return status;
}

/* Takes a segment without memory and without a valid handle, owned once by the caller. */
moor_status moor__segment_take(struct moor_binding *binding, uint64_t size_bytes, uint64_t granule_bytes,
                               struct moor__segment **ret_segment);
/* Has the provider make the segment's memory: a moor__make function without args. */
moor_status moor__segment_make(struct moor__object *object, const void *unused, bool *ret_made);

/* Adds an owner, and takes one off. The last owner's end starts the segment's release. */
void moor__segment_own(struct moor__segment *segment);
void moor__segment_disown(struct moor__segment *segment);
/* Changes the numbers of leaving mappings and of mappings in quarantine. NULL is a no-op. */
void moor__segment_count_mappings(struct moor__segment *segment, int leaving, int stuck);
/* Takes off the owner that was a mapping in this range. was_leaving: its release has completed; false: a
 * failed call had announced the mapping and not made it. */
void moor__segment_end_mapping(struct moor__segment *segment, const struct moor__range *range,
                               bool was_leaving);

/* Notes where the writable mapping is; range NULL: nowhere. Requires segment->lock, or a segment without
 * handle. */
void moor__segment_set_writable(struct moor__segment *segment, const struct moor__range *range,
                                uint64_t first);

/* Have the provider map and protect. Require BUSY granules. */
moor_status moor__segment_map(const struct moor__segment *segment, const struct moor__range *range,
                              uint64_t first, uint32_t access);
moor_status moor__segment_protect(const struct moor__segment *segment, const struct moor__range *range,
                                  uint64_t first, uint32_t access);

#endif
