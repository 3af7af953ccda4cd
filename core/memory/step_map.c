/* SPDX-License-Identifier: MIT */
/* MAP: the provider maps a segment: read-only if it is sealed, for writing if not and it has no other
 * mapping. */
#include "memory/step.h"

#include "memory/segment.h"
#include "util/error.h"

static bool has_strange_field(const struct moor_step *step)
{
    return step->binding || step->length_bytes || step->grant || step->granule_bytes;
}

/* Makes the new mapping an owner, if the segment's state allows the mapping. */
static moor_status own_mapping(struct moor__work *work)
{
    struct moor__segment *segment = work->segment;
    bool is_writable = work->step.access == MOOR_ACCESS_READ_WRITE;
    moor_status status = MOOR_OK;
    moor__lock_acquire(&segment->lock);
    if (is_writable && !segment->is_sealed && segment->owners > 1 &&
        segment->owners - 1 == segment->leaving) {
        status = moor__fail(MOOR_PENDING, "the segment's last mapping is still behind fences");
    } else if (segment->is_sealing || segment->is_sealed == is_writable ||
               (is_writable && segment->owners > 1)) {
        status = moor__fail(MOOR_BUSY, is_writable ? "the segment is sealed, or mapped already"
                                                   : "the segment is not sealed");
    } else {
        segment->owners++;
        moor__segment_set_writable(segment, is_writable ? work->range : NULL, work->first);
    }
    moor__lock_release(&segment->lock);
    return status;
}

static moor_status prepare(struct moor__work *work)
{
    moor_status status = moor__segment_pin(work->runtime, work->step.segment, &work->segment);
    if (status)
        return status;
    struct moor__segment *segment = work->segment;
    status = moor__step_claim(work, segment->object.binding, segment->size_bytes);
    if (!status && segment->granule_bytes != work->range->granule_bytes)
        status = moor__fail(MOOR_INVALID, "the segment has granules of %llu bytes, the range of %llu",
                            (unsigned long long)segment->granule_bytes,
                            (unsigned long long)work->range->granule_bytes);
    if (!status)
        status = own_mapping(work);
    if (status) {
        struct moor__error_scope aside;
        moor__error_scope_begin(&aside);
        moor__step_drop(work);
        moor__object_unpin(&segment->object);
        moor__error_scope_end(&aside);
    }
    return status;
}

static moor_status make(struct moor__work *work)
{
    moor_status status = moor__segment_map(work->segment, work->range, work->first, work->step.access);
    if (!status)
        work->stage = MOOR__STAGE_MAPPED;
    return status;
}

static void publish(struct moor__work *work)
{
    moor__part_publish(work->part, work->segment, work->step.access == MOOR_ACCESS_READ_WRITE);
    work->part = NULL;
    moor__step_drop(work);
    moor__object_unpin(&work->segment->object);
}

static void undo(struct moor__work *work)
{
    if (work->stage == MOOR__STAGE_MAPPED)
        moor__step_unmap(work);
    else
        moor__segment_end_mapping(work->segment, work->range, false);
    moor__step_drop(work);
    moor__object_unpin(&work->segment->object);
}

const struct moor__step_ops moor__step_map = {
    .has_strange_field = has_strange_field,
    .prepare = prepare,
    .make = make,
    .publish = publish,
    .undo = undo,
};
