/* SPDX-License-Identifier: MIT */
/* The part of a step in its range, which is the same for all kinds. */
#include "memory/step.h"

#include "util/error.h"

moor_status moor__step_claim(struct moor__work *work, const struct moor_binding *binding,
                             uint64_t length_bytes)
{
    const struct moor__step *step = &work->step;
    moor_status status = moor__range_pin(work->runtime, step->range, &work->range);
    if (status)
        return status;
    status = moor__range_granules(work->range, step->offset_bytes, length_bytes, &work->first, &work->count);
    if (!status && binding && work->range->object.binding->domain != binding->domain)
        status = moor__fail(MOOR_FOREIGN, "segment and range are of different domains");
    if (!status)
        status = moor__part_claim(work->range, work->first, work->count, &work->part);
    if (status) {
        struct moor__error_scope aside;
        moor__error_scope_begin(&aside);
        moor__step_drop(work);
        moor__error_scope_end(&aside);
    }
    return status;
}

void moor__step_drop(struct moor__work *work)
{
    if (work->part)
        moor__object_free(&work->part->object);
    if (work->range)
        moor__object_unpin(&work->range->object);
    work->part = NULL;
    work->range = NULL;
}

void moor__step_unmap(struct moor__work *work)
{
    assert(work->stage == MOOR__STAGE_MAPPED && work->segment && work->part);
    work->part->segment = work->segment;
    moor__part_withdraw(work->part);
    work->part = NULL;
}
