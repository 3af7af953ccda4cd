/* SPDX-License-Identifier: MIT */
/* Ranges from the inside: what stands behind each granule, and the pieces on their way out. */
#ifndef MOOR_MEMORY_RANGE_H
#define MOOR_MEMORY_RANGE_H

#include "memory/object.h"
#include "memory/uses.h"

struct moor__segment;

/* What stands behind a granule. A mapping starts with a MAPPED cell and goes on with TAIL cells. BUSY: a call
 * is at work on it. LEAVING: in the provider's queue, or in quarantine. */
enum moor__cell_state {
    MOOR__CELL_FREE,
    MOOR__CELL_BUSY,
    MOOR__CELL_COMMITTED,
    MOOR__CELL_MAPPED_READ,
    MOOR__CELL_MAPPED_WRITE,
    MOOR__CELL_TAIL,
    MOOR__CELL_LEAVING
};

/* The state in the low three bits, the mapped segment's address in the others. */
typedef uint64_t moor__cell;

struct moor__range {
    struct moor__object object; /* bytes: 0, addresses cost nothing */
    uint64_t handle;            /* the provider's */
    uint64_t address;
    uint64_t size_bytes;
    uint64_t granule_bytes;
    uint64_t cell_count;
    struct moor__lock lock; /* everything below */
    moor__cell *cells;
    struct moor__uses uses;
    uint64_t pieces_out; /* pieces whose completion has not come */
    bool leaving;        /* given up; it goes when the last piece has gone */
};

/* A part of a range on its way out: committed granules, or one mapping. */
struct moor__piece {
    struct moor__object object; /* bytes: committed ones; 0 for a mapping */
    struct moor__range *range;
    struct moor__segment *segment; /* of a mapping, referenced; NULL: committed granules */
    uint64_t first;                /* cell */
    uint64_t count;
    bool awaited; /* range->lock: somebody waits for it, and decides about its cells and its record */
    bool gone;    /* range->lock: the completion has come */
};

static inline enum moor__cell_state moor__cell_state(moor__cell cell)
{
    return (enum moor__cell_state)(cell & 7);
}

static inline struct moor__segment *moor__cell_segment(moor__cell cell)
{
    return (struct moor__segment *)(uintptr_t)(cell & ~UINT64_C(7));
}

static inline bool moor__cell_is_mapped(moor__cell cell)
{
    return moor__cell_state(cell) == MOOR__CELL_MAPPED_READ ||
           moor__cell_state(cell) == MOOR__CELL_MAPPED_WRITE;
}

/* Its handle, whether it was ever given out or not. */
moor_range moor__range_name(const struct moor__range *range);

moor_status moor__range_pin(struct moor_runtime *runtime, moor_range handle, struct moor__range **ret_range);
void moor__range_unpin(struct moor__range *range);

/* Reserves addresses and a slot that is not published. */
moor_status moor__range_make(struct moor_binding *binding, uint64_t size_bytes, uint64_t granule_bytes,
                             uint64_t alignment_bytes, struct moor__range **ret_range);
/* Everything in it leaves, then the range itself. For a range that is retired or was never published. */
void moor__range_send_off(struct moor__range *range);

/* One piece fewer is out; the last lets the addresses of a leaving range go. */
void moor__range_piece_done(struct moor__range *range);

/* Bytes to cells: whole granules inside the range, at least one. INVALID, OVERFLOW. */
moor_status moor__range_cells(const struct moor__range *range, uint64_t offset_bytes, uint64_t length_bytes,
                              uint64_t *ret_first, uint64_t *ret_count);
/* lock held. OK if all cells are in `state`; PENDING if one is leaving, BUSY if one is at work, INVALID
 * otherwise. */
moor_status moor__range_expect(const struct moor__range *range, uint64_t first, uint64_t count,
                               enum moor__cell_state state);
/* lock held. OK if the segment is mapped there for writing. */
moor_status moor__range_expect_mapping(const struct moor__range *range, uint64_t first,
                                       const struct moor__segment *segment);
/* lock held. */
void moor__range_set(struct moor__range *range, uint64_t first, uint64_t count, enum moor__cell_state state);
/* lock held. Shows a mapping of `count` cells. */
void moor__range_set_mapped(struct moor__range *range, uint64_t first, uint64_t count,
                            struct moor__segment *segment, bool writable);
/* lock held. The number of cells of the mapping that starts at `first`. */
uint64_t moor__range_mapping_length(const struct moor__range *range, uint64_t first);

/* Waits for all work known to use the bytes: PENDING with no deadline, TIMEOUT. */
moor_status moor__range_await_uses(struct moor__range *range, uint64_t offset_bytes, uint64_t length_bytes,
                                   uint64_t deadline_ns);

/* ---- piece.c ---- */

/* A record for something in this range that may have to leave; take it before there is something to undo. */
moor_status moor__piece_take(struct moor__range *range, struct moor__piece **ret_piece);
void moor__piece_free(struct moor__piece *piece);
/* Releases the piece behind the last uses of its cells (quiet: there are none, nobody saw the memory). Its
 * cells are nobody else's. On failure nothing was queued. */
moor_status moor__piece_submit(struct moor__piece *piece, bool quiet);
/* Likewise for one whose cells are LEAVING for good: what is refused goes to quarantine. */
void moor__piece_send_off(struct moor__piece *piece, bool quiet);

#endif
