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

static struct moor_runtime *runtime_of(const struct moor__range_part *part)
{
    return moor__runtime_of(part->object.binding);
}

moor_status moor__range_part_take(struct moor__range *range, struct moor__range_part **ret_piece)
{
    struct moor__slot *slot;
    moor_status status = moor__handles_take(&moor__runtime_of(range->object.binding)->range_parts, &slot);
    if (status)
        return status;
    struct moor__range_part *part = (struct moor__range_part *)slot;
    part->object.kind = MOOR__KIND_RANGE_PART;
    part->object.binding = range->object.binding;
    part->range = range;
    *ret_piece = part;
    return MOOR_OK;
}

void moor__range_part_free(struct moor__range_part *part)
{
    moor__handles_free(&runtime_of(part)->range_parts, &part->object.slot);
}

/* The last uses of the part, and what the provider is asked to release. */
static uint32_t describe(struct moor__range_part *part, bool quiet, struct moor__point *points,
                         struct moor__release *ret_release)
{
    struct moor__range *range = part->range;
    uint64_t offset = part->first * range->granule_bytes;
    uint64_t length = part->count * range->granule_bytes;
    *ret_release = (struct moor__release){
        .kind = part->segment ? MOOR_ABI_RELEASE_UNMAP : MOOR_ABI_RELEASE_DECOMMIT,
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

static uint64_t handle_of(struct moor__range_part *part)
{
    return moor__handle_of(&runtime_of(part)->range_parts, &part->object.slot);
}

moor_status moor__range_part_submit(struct moor__range_part *part, bool quiet)
{
    struct moor__point points[MOOR_LIMIT_USES];
    struct moor__release release;
    uint32_t count = describe(part, quiet, points, &release);
    if (part->segment)
        moor__segment_count_leaving(part->segment, 1);
    moor_status status = moor__release_submit(&part->object, handle_of(part), &release, points, count);
    if (status && part->segment)
        moor__segment_count_leaving(part->segment, -1);
    return status;
}

void moor__range_part_release(struct moor__range_part *part, bool quiet)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    if (moor__range_part_submit(part, quiet)) {
        if (part->segment)
            moor__segment_count_leaving(part->segment, 1); /* until the quarantine says otherwise */
        moor__object_refused(&part->object);
    }
    moor__error_scope_end(&aside); /* to the caller it is released */
}

void moor__range_part_stuck(struct moor__object *object)
{
    struct moor__segment *segment = ((struct moor__range_part *)object)->segment;
    if (segment)
        moor__segment_mapping_stuck(segment);
}

void moor__range_part_gone(struct moor__object *object)
{
    struct moor__range_part *part = (struct moor__range_part *)object;
    struct moor__range *range = part->range;
    moor__lock_acquire(&range->lock);
    part->gone = true;
    bool awaited = part->awaited;
    if (!awaited)
        moor__range_set(range, part->first, part->count, MOOR__GRANULE_FREE);
    moor__lock_release(&range->lock);
    if (awaited)
        return;
    struct moor__segment *segment = part->segment;
    moor__range_part_free(part);
    if (segment)
        moor__segment_unmapped(segment, range);
    moor__range_part_done(range);
}

void moor__range_part_retry(struct moor__object *object)
{
    struct moor__segment *segment = ((struct moor__range_part *)object)->segment;
    if (segment)
        moor__segment_mapping_unstuck(segment);
    moor__range_part_release((struct moor__range_part *)object, false);
}

/* ---- decommit and unmap ---- */

/* lock held. The part covers granules that may leave now, and what they were. */
static moor_status claim_granules(struct moor__range_part *part, bool mapping)
{
    struct moor__range *range = part->range;
    uint64_t offset = part->first * range->granule_bytes;
    if (moor__uses_submitting(&range->uses, offset, offset + part->count * range->granule_bytes))
        return moor__fail(MOOR_BUSY, "work on this memory is being submitted");
    if (!mapping)
        return moor__range_expect(range, part->first, part->count, MOOR__GRANULE_COMMITTED);
    moor__granule granule = range->granules[part->first];
    if (!moor__granule_is_mapped(granule))
        return moor__range_expect(range, part->first, 1, MOOR__GRANULE_MAPPED_READ);
    if (moor__range_mapping_length(range, part->first) != part->count)
        return moor__fail(MOOR_INVALID, "the mapping at granule %llu has %llu granules, not %llu",
                          (unsigned long long)part->first,
                          (unsigned long long)moor__range_mapping_length(range, part->first),
                          (unsigned long long)part->count);
    part->segment = moor__granule_segment(granule);
    return MOOR_OK;
}

/* The provider did not take it: all is as before. */
static void put_back(struct moor__range_part *part, moor__granule head)
{
    struct moor__range *range = part->range;
    moor__lock_acquire(&range->lock);
    if (part->segment)
        moor__range_set_mapped(range, part->first, part->count, part->segment,
                               moor__granule_state(head) == MOOR__GRANULE_MAPPED_WRITE);
    else
        moor__range_set(range, part->first, part->count, MOOR__GRANULE_COMMITTED);
    range->parts_out--;
    moor__lock_release(&range->lock);
}

static moor_status take_away(struct moor__range *range, uint64_t first, uint64_t count, bool mapping)
{
    struct moor__range_part *part;
    moor_status status = moor__range_part_take(range, &part);
    if (status)
        return status;
    part->first = first;
    part->count = count;
    moor__lock_acquire(&range->lock);
    status = claim_granules(part, mapping);
    moor__granule head = range->granules[first];
    if (!status) {
        moor__range_set(range, first, count, MOOR__GRANULE_LEAVING);
        range->parts_out++;
    }
    moor__lock_release(&range->lock);
    if (status) {
        moor__range_part_free(part);
        return status;
    }
    part->object.bytes = part->object.requested_bytes = mapping ? 0 : count * range->granule_bytes;
    status = moor__range_part_submit(part, false);
    if (status) {
        put_back(part, head);
        moor__range_part_free(part);
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
    status = moor__range_granules(range, offset_bytes, length_bytes, &first, &count);
    if (!status)
        status = take_away(range, first, count, mapping);
    struct moor_device *device = moor__device_hold(range->object.binding->device);
    moor__range_unpin(range);
    moor__device_reap_sometimes(device);
    moor__device_unhold(device);
    return status;
}

moor_status moor_range_decommit(struct moor_runtime *runtime, moor_range range, uint64_t offset_bytes,
                                uint64_t length_bytes)
{
    return moor__leave(take_away_bytes(runtime, range, offset_bytes, length_bytes, false));
}

moor_status moor_range_unmap(struct moor_runtime *runtime, moor_range range, uint64_t offset_bytes,
                             uint64_t length_bytes)
{
    return moor__leave(take_away_bytes(runtime, range, offset_bytes, length_bytes, true));
}
