/* SPDX-License-Identifier: MIT */
/* Ranges from the inside: what stands behind each granule, and the parts on their way out. */
#ifndef MOOR_MEMORY_RANGE_H
#define MOOR_MEMORY_RANGE_H

#include "memory/object.h"
#include "memory/uses.h"

struct moor__segment;

/* What stands behind a granule. A mapping starts with a MAPPED granule and goes on with TAIL granules. BUSY: a call
 * is at work on it. LEAVING: in the provider's queue, or in quarantine. */
enum moor__granule_state {
    MOOR__GRANULE_FREE,
    MOOR__GRANULE_BUSY,
    MOOR__GRANULE_COMMITTED,
    MOOR__GRANULE_MAPPED_READ,
    MOOR__GRANULE_MAPPED_WRITE,
    MOOR__GRANULE_TAIL,
    MOOR__GRANULE_LEAVING
};

/* The state in the low three bits, the mapped segment's address in the others. */
typedef uint64_t moor__granule;

struct moor__range {
    struct moor__object object; /* bytes: 0, addresses cost nothing */
    uint64_t handle;            /* the provider's */
    uint64_t address;
    uint64_t size_bytes;
    uint64_t granule_bytes;
    uint64_t granule_count;
    struct moor__lock lock; /* everything below */
    moor__granule *granules;
    struct moor__uses uses;
    uint64_t parts_out; /* parts whose completion has not come */
    bool leaving;       /* given up; it goes when the last part has gone */
};

/* A part of a range on its way out: committed granules, or one mapping. */
struct moor__range_part {
    struct moor__object object; /* bytes: committed ones; 0 for a mapping */
    struct moor__range *range;
    struct moor__segment *segment; /* of a mapping, referenced; NULL: committed granules */
    uint64_t first;                /* granule */
    uint64_t count;
    bool awaited; /* range->lock: somebody waits for it, and decides about its granules and its record */
    bool gone;    /* range->lock: the completion has come */
};

static inline enum moor__granule_state moor__granule_state(moor__granule granule)
{
    return (enum moor__granule_state)(granule & 7);
}

static inline struct moor__segment *moor__granule_segment(moor__granule granule)
{
    return (struct moor__segment *)(uintptr_t)(granule & ~UINT64_C(7));
}

static inline bool moor__granule_is_mapped(moor__granule granule)
{
    return moor__granule_state(granule) == MOOR__GRANULE_MAPPED_READ ||
           moor__granule_state(granule) == MOOR__GRANULE_MAPPED_WRITE;
}

/* Its handle, whether it was ever given out or not. */
moor_range moor__range_handle(const struct moor__range *range);

moor_status moor__range_pin(struct moor_runtime *runtime, moor_range handle, struct moor__range **ret_range);
void moor__range_unpin(struct moor__range *range);

/* Reserves addresses and a slot that is not published. */
moor_status moor__range_make(struct moor_binding *binding, uint64_t size_bytes, uint64_t granule_bytes,
                             uint64_t alignment_bytes, struct moor__range **ret_range);
/* Everything in it leaves, then the range itself. For a range that is retired or was never published. */
void moor__range_release_all(struct moor__range *range);

/* One part fewer is out; the last lets the addresses of a leaving range go. */
void moor__range_part_done(struct moor__range *range);

/* Bytes to granules: whole granules inside the range, at least one. INVALID, OVERFLOW. */
moor_status moor__range_granules(const struct moor__range *range, uint64_t offset_bytes,
                                 uint64_t length_bytes, uint64_t *ret_first, uint64_t *ret_count);
/* lock held. OK if all granules are in `state`; PENDING if one is leaving, BUSY if one is at work, INVALID
 * otherwise. */
moor_status moor__range_expect(const struct moor__range *range, uint64_t first, uint64_t count,
                               enum moor__granule_state state);
/* lock held. OK if the segment is mapped there for writing. */
moor_status moor__range_expect_mapping(const struct moor__range *range, uint64_t first,
                                       const struct moor__segment *segment);
/* lock held. */
void moor__range_set(struct moor__range *range, uint64_t first, uint64_t count,
                     enum moor__granule_state state);
/* lock held. Shows a mapping of `count` granules. */
void moor__range_set_mapped(struct moor__range *range, uint64_t first, uint64_t count,
                            struct moor__segment *segment, bool writable);
/* lock held. The number of granules of the mapping that starts at `first`. */
uint64_t moor__range_mapping_length(const struct moor__range *range, uint64_t first);

/* Waits for all work known to use the bytes: PENDING with no deadline, TIMEOUT. */
moor_status moor__range_await_uses(struct moor__range *range, uint64_t offset_bytes, uint64_t length_bytes,
                                   uint64_t deadline_ns);

/* ---- part.c ---- */

/* A record for something in this range that may have to leave; take it before there is something to undo. */
moor_status moor__range_part_take(struct moor__range *range, struct moor__range_part **ret_piece);
void moor__range_part_free(struct moor__range_part *part);
/* Releases the part behind the last uses of its granules (quiet: there are none, nobody saw the memory). Its
 * granules are nobody else's. On failure nothing was queued. */
moor_status moor__range_part_submit(struct moor__range_part *part, bool quiet);
/* Likewise for one whose granules are LEAVING for good: what is refused goes to quarantine. */
void moor__range_part_release(struct moor__range_part *part, bool quiet);

#endif
