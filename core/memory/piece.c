/* SPDX-License-Identifier: MIT */
/*
 * Pieces: parts of a range on their way out, each a release of its own behind the last uses of just that
 * part. Decommit and unmap make one; so does undoing a step of a transaction, and the end of a range makes as
 * many as it needs.
 */
#include "memory/range.h"

#include "memory/release.h"
#include "memory/segment.h"
#include "util/error.h"

static struct moor_runtime *runtime_of(const struct moor__piece *piece)
{
    return moor__runtime_of(piece->object.binding);
}

moor_status moor__piece_take(struct moor__range *range, struct moor__piece **ret_piece)
{
    struct moor__slot *slot;
    moor_status status = moor__handles_take(&moor__runtime_of(range->object.binding)->pieces, &slot);
    if (status)
        return status;
    struct moor__piece *piece = (struct moor__piece *)slot;
    piece->object.kind = MOOR__KIND_PIECE;
    piece->object.binding = range->object.binding;
    piece->range = range;
    *ret_piece = piece;
    return MOOR_OK;
}

void moor__piece_free(struct moor__piece *piece)
{
    moor__handles_free(&runtime_of(piece)->pieces, &piece->object.slot);
}

/* The last uses of the piece, and what the provider is asked to release. */
static uint32_t describe(struct moor__piece *piece, bool quiet, struct moor__point *points,
                         struct moor__release *ret_release)
{
    struct moor__range *range = piece->range;
    uint64_t offset = piece->first * range->granule_bytes;
    uint64_t length = piece->count * range->granule_bytes;
    *ret_release = (struct moor__release){
        .kind = piece->segment ? MOOR_ABI_RELEASE_UNMAP : MOOR_ABI_RELEASE_DECOMMIT,
        .handle = range->handle,
        .offset_bytes = offset,
        .length_bytes = length,
    };
    if (quiet)
        return 0;
    moor__lock_acquire(&range->lock);
    uint32_t count = moor__uses_collect(&range->uses, offset, offset + length, points);
    moor__lock_release(&range->lock);
    return count;
}

static uint64_t name_of(struct moor__piece *piece)
{
    return moor__handles_name(&runtime_of(piece)->pieces, &piece->object.slot);
}

moor_status moor__piece_submit(struct moor__piece *piece, bool quiet)
{
    struct moor__point points[MOOR_LIMIT_USES];
    struct moor__release release;
    uint32_t count = describe(piece, quiet, points, &release);
    if (piece->segment)
        moor__segment_count_leaving(piece->segment, 1);
    moor_status status = moor__release_submit(&piece->object, name_of(piece), &release, points, count);
    if (status && piece->segment)
        moor__segment_count_leaving(piece->segment, -1);
    return status;
}

void moor__piece_send_off(struct moor__piece *piece, bool quiet)
{
    struct moor_error before = *moor_last_error();
    if (moor__piece_submit(piece, quiet) == MOOR_OK)
        return;
    if (piece->segment)
        moor__segment_count_leaving(piece->segment, 1); /* until the quarantine says otherwise */
    moor__object_refused(&piece->object);
    moor__error_restore(&before); /* to the caller it is released */
}

void moor__piece_stuck(struct moor__object *object)
{
    struct moor__segment *segment = ((struct moor__piece *)object)->segment;
    if (segment)
        moor__segment_mapping_stuck(segment);
}

void moor__piece_gone(struct moor__object *object)
{
    struct moor__piece *piece = (struct moor__piece *)object;
    struct moor__range *range = piece->range;
    moor__lock_acquire(&range->lock);
    piece->gone = true;
    bool awaited = piece->awaited;
    if (!awaited)
        moor__range_set(range, piece->first, piece->count, MOOR__CELL_FREE);
    moor__lock_release(&range->lock);
    if (awaited)
        return;
    struct moor__segment *segment = piece->segment;
    moor__piece_free(piece);
    if (segment)
        moor__segment_unmapped(segment, range);
    moor__range_piece_done(range);
}

void moor__piece_retry(struct moor__object *object)
{
    struct moor__segment *segment = ((struct moor__piece *)object)->segment;
    if (segment)
        moor__segment_mapping_unstuck(segment);
    moor__piece_send_off((struct moor__piece *)object, false);
}

/* ---- decommit and unmap ---- */

/* lock held. The piece covers cells that may leave now, and what they were. */
static moor_status claim_cells(struct moor__piece *piece, bool mapping)
{
    struct moor__range *range = piece->range;
    uint64_t offset = piece->first * range->granule_bytes;
    if (moor__uses_submitting(&range->uses, offset, offset + piece->count * range->granule_bytes))
        return moor__fail(MOOR_BUSY, "work on this memory is being submitted");
    if (!mapping)
        return moor__range_expect(range, piece->first, piece->count, MOOR__CELL_COMMITTED);
    moor__cell cell = range->cells[piece->first];
    if (!moor__cell_is_mapped(cell))
        return moor__range_expect(range, piece->first, 1, MOOR__CELL_MAPPED_READ);
    if (moor__range_mapping_length(range, piece->first) != piece->count)
        return moor__fail(MOOR_INVALID, "the mapping at granule %llu has %llu granules, not %llu",
                          (unsigned long long)piece->first,
                          (unsigned long long)moor__range_mapping_length(range, piece->first),
                          (unsigned long long)piece->count);
    piece->segment = moor__cell_segment(cell);
    return MOOR_OK;
}

/* The provider did not take it: all is as before. */
static void put_back(struct moor__piece *piece, moor__cell head)
{
    struct moor__range *range = piece->range;
    moor__lock_acquire(&range->lock);
    if (piece->segment)
        moor__range_set_mapped(range, piece->first, piece->count, piece->segment,
                               moor__cell_state(head) == MOOR__CELL_MAPPED_WRITE);
    else
        moor__range_set(range, piece->first, piece->count, MOOR__CELL_COMMITTED);
    range->pieces_out--;
    moor__lock_release(&range->lock);
}

static moor_status take_away(struct moor__range *range, uint64_t first, uint64_t count, bool mapping)
{
    struct moor__piece *piece;
    moor_status status = moor__piece_take(range, &piece);
    if (status)
        return status;
    piece->first = first;
    piece->count = count;
    moor__lock_acquire(&range->lock);
    status = claim_cells(piece, mapping);
    moor__cell head = range->cells[first];
    if (!status) {
        moor__range_set(range, first, count, MOOR__CELL_LEAVING);
        range->pieces_out++;
    }
    moor__lock_release(&range->lock);
    if (status) {
        moor__piece_free(piece);
        return status;
    }
    piece->object.bytes = piece->object.requested_bytes = mapping ? 0 : count * range->granule_bytes;
    status = moor__piece_submit(piece, false);
    if (status) {
        put_back(piece, head);
        moor__piece_free(piece);
    }
    return status;
}

static moor_status take_away_bytes(struct moor_runtime *runtime, moor_range handle, uint64_t offset_bytes,
                                   uint64_t length_bytes, bool mapping)
{
    struct moor__range *range;
    moor_status status = moor__range_pin(runtime, handle, &range);
    if (status)
        return status;
    uint64_t first, count;
    status = moor__range_cells(range, offset_bytes, length_bytes, &first, &count);
    if (!status)
        status = take_away(range, first, count, mapping);
    struct moor_device *device = moor__device_hold(range->object.binding->device);
    moor__range_unpin(range);
    moor__device_reap_sometimes(device);
    moor__device_let_go(device);
    return status;
}

moor_status moor_range_decommit(struct moor_runtime *runtime, moor_range range, uint64_t offset_bytes,
                                uint64_t length_bytes)
{
    return take_away_bytes(runtime, range, offset_bytes, length_bytes, false);
}

moor_status moor_range_unmap(struct moor_runtime *runtime, moor_range range, uint64_t offset_bytes,
                             uint64_t length_bytes)
{
    return take_away_bytes(runtime, range, offset_bytes, length_bytes, true);
}
