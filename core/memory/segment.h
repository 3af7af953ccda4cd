/* SPDX-License-Identifier: MIT */
/* Segments from the inside. */
#ifndef MOOR_MEMORY_SEGMENT_H
#define MOOR_MEMORY_SEGMENT_H

#include "memory/object.h"
#include "memory/range.h"

/* What keeps a segment's memory: somebody who may use it; mappings on their way out alone; or mappings in
 * quarantine beside those. */
enum moor__ownership { MOOR__OWNERSHIP_LIVE, MOOR__OWNERSHIP_PENDING, MOOR__OWNERSHIP_QUARANTINED };

/*
 * A segment is owned by its handle and by each mapping, until the mapping's release has completed. Not
 * sealed: it has at most one mapping, and that one is writable. Sealed: all mappings are read-only, and their
 * number is free.
 */
struct moor__segment {
    struct moor__object object; /* bytes: what the provider took */
    uint64_t handle;            /* the provider's */
    uint64_t size_bytes;
    uint64_t granule_bytes;
    struct moor__lock lock; /* everything below */
    uint64_t owners;
    uint64_t leaving;              /* owners that are mappings on their way out */
    uint64_t stuck;                /* owners that are mappings in quarantine */
    enum moor__ownership standing; /* as what its bytes are counted, while it is owned */
    bool sealed;
    bool sealing;              /* a call is at it */
    moor_range writable_range; /* where the writable mapping is; 0: there is none */
    uint64_t writable_first;   /* granule */
};

/* Makes a slot that is not published, without memory; owned once, by the caller. */
moor_status moor__segment_take(struct moor_binding *binding, uint64_t size_bytes, uint64_t granule_bytes,
                               struct moor__segment **ret_segment);
/* The provider's memory for it, without a charge yet. The segment's object.bytes are what was taken. */
moor_status moor__segment_back(struct moor__segment *segment);
/* Gives back a slot that has no memory. */
void moor__segment_free(struct moor__segment *segment);

moor_status moor__segment_pin(struct moor_runtime *runtime, moor_segment handle,
                              struct moor__segment **ret_segment);
void moor__segment_unpin(struct moor__segment *segment);

void moor__segment_own(struct moor__segment *segment);
/* The last owner's end sends it off. */
void moor__segment_disown(struct moor__segment *segment);
/* A mapping is on its way out, or was put back. */
void moor__segment_count_leaving(struct moor__segment *segment, int change);
/* A mapping that was leaving is in quarantine; and a mapping that was in quarantine is not. */
void moor__segment_mapping_stuck(struct moor__segment *segment);
void moor__segment_mapping_unstuck(struct moor__segment *segment);
/* A mapping in this range that was leaving is no more: it owns no longer, and is not the writable one any
 * more. */
void moor__segment_unmapped(struct moor__segment *segment, const struct moor__range *range);
/* Likewise for one that did not come about. */
void moor__segment_never_mapped(struct moor__segment *segment, const struct moor__range *range);

/* lock held, or the segment is not visible yet: where its one writable mapping is. range NULL: nowhere. */
void moor__segment_set_writable(struct moor__segment *segment, const struct moor__range *range,
                                uint64_t first);

/* The provider's map and protect calls, for granules that are BUSY or exclusively ours. */
moor_status moor__segment_call_map(struct moor__segment *segment, struct moor__range *range, uint64_t first,
                                   uint32_t access);
moor_status moor__segment_call_protect(struct moor__segment *segment, struct moor__range *range,
                                       uint64_t first, uint32_t access);

#endif
