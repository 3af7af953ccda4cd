/* SPDX-License-Identifier: MIT */
/* COMMIT: the provider puts memory behind granules of a range. */
#include "memory/step.h"

#include "loader/call.h"
#include "util/error.h"

static bool has_strange_field(const struct moor_step *step)
{
    return step->binding || step->segment || step->granule_bytes;
}

static moor_status prepare(struct moor__work *work)
{
    moor_status status = moor__step_claim(work, NULL, work->step.length_bytes);
    if (status)
        return status;
    work->payer = work->range->object.binding;
    work->part->object.requested_bytes = work->step.length_bytes;
    return MOOR_OK;
}

/* The part stands for the committed memory if that has to leave again. */
static moor_status commit(struct moor__object *object, const void *user, bool *ret_made)
{
    const struct moor__work *work = user;
    const struct moor__step *step = &work->step;
    uint64_t actual = 0;
    moor_status status = moor__call_commit(object->binding->device, work->range->handle, step->offset_bytes,
                                           step->length_bytes, &actual);
    if (status)
        return status;
    object->bytes = step->length_bytes;
    *ret_made = true;
    if (actual != step->length_bytes)
        return moor__fail(MOOR_PROVIDER, "%s: commit of %llu bytes took %llu",
                          moor__provider_name(object->binding), (unsigned long long)step->length_bytes,
                          (unsigned long long)actual);
    return MOOR_OK;
}

static moor_status make(struct moor__work *work)
{
    struct moor__object *object = &work->part->object;
    moor_status status = moor__charge_and_make(object, &work->reservation, work->step.grant, commit, work);
    if (status)
        work->part = NULL; /* gone, with the granules */
    else
        work->stage = MOOR__STAGE_MADE;
    return status;
}

static void publish(struct moor__work *work)
{
    moor__part_publish(work->part, NULL, false);
    work->part = NULL;
    moor__step_drop(work);
}

static void undo(struct moor__work *work)
{
    if (work->stage == MOOR__STAGE_MADE) {
        moor__object_expect_grant(&work->part->object, work->step.grant, work->step.length_bytes);
        moor__part_withdraw(work->part);
        work->part = NULL;
    }
    moor__step_drop(work);
}

const struct moor__step_ops moor__step_commit = {
    .has_strange_field = has_strange_field,
    .prepare = prepare,
    .make = make,
    .publish = publish,
    .undo = undo,
};
