/* SPDX-License-Identifier: MIT */
/* Ranges from the inside: the state of each granule, the range itself, and the parts in which it leaves. */
#ifndef MOOR_MEMORY_RANGE_H
#define MOOR_MEMORY_RANGE_H

#include "memory/access.h"

struct moor__segment;

/*
 *     FREE -> BUSY -> COMMITTED -> LEAVING -> FREE
 *               \---> MAPPED_READ or MAPPED_WRITE, then TAILs -> LEAVING -> FREE
 *
 * A mapping is one MAPPED granule and a TAIL for each further one. BUSY: a call works on the granule.
 * LEAVING: its release is in the provider's queue or in quarantine.
 */
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
    struct moor__memory memory; /* object.bytes: 0, addresses are not charged */
    uint64_t granule_bytes;
    uint64_t granule_count;

    /* memory.lock */
    moor__granule *granules;
    uint64_t parts_out; /* parts that are being released */
    bool is_leaving;    /* released by the host; the addresses go after the last part */
};

/* A part of a range that is to leave on its own: committed granules or one mapping. It holds its granules,
 * BUSY or LEAVING, and frees them at its end. */
struct moor__range_part {
    struct moor__object object; /* bytes: committed ones; 0 for a mapping */
    struct moor__range *range;
    struct moor__segment *segment; /* the mapped one, referenced; NULL: committed granules */
    uint64_t first;                /* granule */
    uint64_t count;                /* 0: holds none */
    bool is_awaited; /* range->memory.lock: a thread waits for the completion, and ends the part */
    bool is_gone;    /* range->memory.lock: the completion has come */
};

static inline struct moor__range *moor__range_of(struct moor__object *object)
{
    assert(object->ops->kind == MOOR__KIND_RANGE);
    return (struct moor__range *)object;
}

static inline struct moor__range_part *moor__part_of(struct moor__object *object)
{
    assert(object->ops->kind == MOOR__KIND_RANGE_PART);
    return (struct moor__range_part *)object;
}

/* Finds a live range and keeps it, like moor__object_pin. */
static inline moor_status moor__range_pin(struct moor_runtime *runtime, moor_range handle,
                                          struct moor__range **ret_range)
{
    struct moor__object *object;
    moor_status status = moor__object_pin(runtime, MOOR__KIND_RANGE, handle, &object);
    if (!status)
        *ret_range = moor__range_of(object);
    return status;
}

/* ---- granule.c; each requires range->memory.lock unless it says otherwise ---- */

static inline enum moor__granule_state moor__granule_state(moor__granule granule)
{
    return (enum moor__granule_state)(granule & 7);
}

static inline bool moor__granule_is_mapped(moor__granule granule)
{
    return moor__granule_state(granule) == MOOR__GRANULE_MAPPED_READ ||
           moor__granule_state(granule) == MOOR__GRANULE_MAPPED_WRITE;
}

static inline struct moor__segment *moor__granule_segment(moor__granule granule)
{
    assert(moor__granule_is_mapped(granule));
    return (struct moor__segment *)(uintptr_t)(granule & ~UINT64_C(7));
}

/* Converts bytes to granules: whole ones inside the range, at least one. INVALID, OVERFLOW. Requires no
 * lock. */
moor_status moor__range_granules(const struct moor__range *range, uint64_t offset_bytes,
                                 uint64_t length_bytes, uint64_t *ret_first, uint64_t *ret_count);
/* Returns OK if all granules are in `state`; else PENDING for a LEAVING one, BUSY for a BUSY one, INVALID. */
moor_status moor__range_expect(const struct moor__range *range, uint64_t first, uint64_t count,
                               enum moor__granule_state state);
/* Returns BUSY if work on the granules is being submitted. */
moor_status moor__range_expect_unused(const struct moor__range *range, uint64_t first, uint64_t count);
void moor__range_set(struct moor__range *range, uint64_t first, uint64_t count,
                     enum moor__granule_state state);
/* Sets the granules from `first` on to one mapping of the segment. The second function takes range->memory.lock. */
void moor__range_set_mapped(struct moor__range *range, uint64_t first, struct moor__segment *segment,
                            bool is_writable);
void moor__range_show_mapping(struct moor__range *range, uint64_t first, struct moor__segment *segment,
                              bool is_writable);
/* Returns the number of granules of the mapping that starts at `first`. */
uint64_t moor__range_mapping_length(const struct moor__range *range, uint64_t first);

/* ---- range.c ---- */

/* Reserves addresses. The new range has no valid handle yet. */
moor_status moor__range_make(struct moor_binding *binding, uint64_t size_bytes, uint64_t granule_bytes,
                             uint64_t alignment_bytes, struct moor__range **ret_range);

/* ---- part.c ---- */

/* Takes a record for a part that may have to leave. Take it before there is memory to undo: a release needs
 * none. */
moor_status moor__part_take(struct moor__range *range, struct moor__range_part **ret_part);
/* Takes a record that holds `count` granules, which were FREE and are BUSY now. PENDING, BUSY, INVALID. */
moor_status moor__part_claim(struct moor__range *range, uint64_t first, uint64_t count,
                             struct moor__range_part **ret_part);
/* Ends a record: its granules are memory now, committed or a mapping of the segment. */
void moor__part_publish(struct moor__range_part *part, struct moor__segment *segment, bool is_writable);
/* Submits the part's release behind the last uses of its granules; is_unseen: the host has never seen the
 * memory, so there are none. On failure nothing is queued. */
moor_status moor__part_submit(struct moor__range_part *part, bool is_unseen);
/* Releases a part's memory in BUSY granules that the host has never seen. */
void moor__part_withdraw(struct moor__object *object);
/* Takes one part off the range's parts_out. The last part of a leaving range releases the addresses. */
void moor__range_part_done(struct moor__range *range);
/* Releases every part of a range that no handle names, and then its addresses. */
void moor__range_leave(struct moor__object *object);

extern const struct moor__object_ops moor__part_ops;

#endif
