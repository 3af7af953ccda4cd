/* SPDX-License-Identifier: MIT */
/* CREATE: the provider makes a segment, and maps it for writing if the step names a range. */
#include "memory/step.h"

#include "memory/segment.h"
#include "util/error.h"

static bool has_strange_field(const struct moor_step *step)
{
    return step->range ? step->granule_bytes != 0 : step->offset_bytes != 0;
}

/* Checks the size and takes the segment's slot. */
static moor_status take_segment(struct moor__work *work)
{
    const struct moor__step *step = &work->step;
    const struct moor_abi_domain_info *domain = &step->binding->domain->info;
    uint64_t granule = step->granule_bytes ? step->granule_bytes : domain->granule_recommended_bytes;
    if (work->range)
        granule = work->range->granule_bytes;
    if (granule & (granule - 1) || granule < domain->granule_min_bytes || step->length_bytes == 0 ||
        step->length_bytes % granule)
        return moor__fail(MOOR_INVALID, "a segment of %llu bytes in granules of %llu",
                          (unsigned long long)step->length_bytes, (unsigned long long)granule);
    return moor__segment_take(step->binding, step->length_bytes, granule, &work->segment);
}

static moor_status prepare(struct moor__work *work)
{
    const struct moor__step *step = &work->step;
    moor_status status = moor__binding_enter(step->binding);
    if (!status && moor__runtime_of(step->binding) != work->runtime)
        status = moor__fail(MOOR_FOREIGN, "the binding is of another runtime");
    if (!status)
        status = moor__binding_needs(step->binding, MOOR_ABI_CAP_SHARED, "SHARED");
    if (!status && step->range)
        status = moor__step_claim(work, step->binding, step->length_bytes);
    if (status)
        return status;
    work->payer = step->binding;
    status = take_segment(work);
    if (status) {
        struct moor__error_scope aside;
        moor__error_scope_begin(&aside);
        moor__step_drop(work);
        moor__error_scope_end(&aside);
    }
    return status;
}

static moor_status make(struct moor__work *work)
{
    moor_status status = moor__charge_and_make(&work->segment->object, &work->reservation, work->step.grant,
                                               moor__segment_make, NULL);
    if (status) {
        work->segment = NULL; /* gone */
        return status;
    }
    work->stage = MOOR__STAGE_MADE;
    if (!work->range)
        return MOOR_OK;
    status = moor__segment_map(work->segment, work->range, work->first, work->step.access);
    if (!status)
        work->stage = MOOR__STAGE_MAPPED;
    return status;
}

static void publish(struct moor__work *work)
{
    struct moor__segment *segment = work->segment;
    if (work->range) {
        segment->owners++; /* the mapping */
        moor__segment_set_writable(segment, work->range, work->first);
    }
    work->created = moor__object_publish(&segment->object);
    if (work->part)
        moor__part_publish(work->part, segment, true);
    work->part = NULL;
    moor__step_drop(work);
}

static void undo(struct moor__work *work)
{
    struct moor__segment *segment = work->segment;
    if (work->stage >= MOOR__STAGE_MADE)
        moor__object_expect_grant(&segment->object, work->step.grant, work->step.length_bytes);
    if (work->stage == MOOR__STAGE_MAPPED) {
        moor__segment_own(segment); /* the mapping's share, until it is gone */
        moor__step_unmap(work);
    }
    moor__step_drop(work);
    if (work->stage >= MOOR__STAGE_MADE)
        moor__segment_disown(segment);
    else if (segment)
        moor__object_free(&segment->object);
}

const struct moor__step_ops moor__step_create = {
    .has_strange_field = has_strange_field,
    .prepare = prepare,
    .make = make,
    .publish = publish,
    .undo = undo,
};
