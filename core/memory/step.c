/* SPDX-License-Identifier: MIT */
/* The steps: the part of a step in its range, which is the same for all kinds, and then each kind. */
#include "memory/step.h"

#include "loader/call.h"
#include "memory/segment.h"
#include "util/error.h"

/* ---- in the range ---- */

/* Pins the step's range and takes its granules. Returns FOREIGN if the range is of another domain than
 * `binding`, unless that is NULL. */
static moor_status claim(struct moor__work *work, const struct moor_binding *binding, uint64_t length_bytes)
{
    const struct moor_step *step = &work->step;
    moor_status status = moor__range_pin(work->runtime, step->range, &work->range);
    if (status)
        return status;
    status = moor__range_granules(work->range, step->offset_bytes, length_bytes, &work->first, &work->count);
    if (!status && binding && work->range->memory.object.binding->domain != binding->domain)
        status = moor__fail(MOOR_FOREIGN, "segment and range are of different domains");
    if (!status)
        status = moor__part_claim(work->range, work->first, work->count, &work->part);
    return status;
}

/* Frees the granules that the step still holds, and unpins its range. */
static void drop(struct moor__work *work)
{
    if (work->part)
        moor__object_free(&work->part->object);
    if (work->range)
        moor__object_unpin(&work->range->memory.object);
    work->part = NULL;
    work->range = NULL;
}

/* Releases the mapping of the segment that the provider has made for the step, and with it the granules. */
static void unmap(struct moor__work *work)
{
    assert(work->stage == MOOR__STAGE_MAPPED && work->segment && work->part);
    work->part->segment = work->segment;
    moor__part_withdraw(&work->part->object);
    work->part = NULL;
}

/* ---- COMMIT: the provider puts memory behind granules of a range ---- */

static bool commit_has_strange_field(const struct moor_step *step)
{
    return step->binding || step->segment || step->granule_bytes;
}

static moor_status commit_prepare(struct moor__work *work)
{
    moor_status status = claim(work, NULL, work->step.length_bytes);
    if (status)
        return status;
    work->payer = work->range->memory.object.binding;
    work->part->object.requested_bytes = work->step.length_bytes;
    return MOOR_OK;
}

/* The part stands for the committed memory if that has to leave again. */
static moor_status commit(struct moor__object *object, const void *user, bool *ret_made)
{
    const struct moor__work *work = user;
    const struct moor_step *step = &work->step;
    uint64_t actual = 0;
    moor_status status = moor__call_commit(object->binding->device, work->range->memory.handle,
                                           step->offset_bytes, step->length_bytes, &actual);
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

static moor_status commit_make(struct moor__work *work)
{
    struct moor__object *object = &work->part->object;
    moor_status status = moor__charge_and_make(object, &work->reservation, work->step.grant, commit, work);
    if (status)
        work->part = NULL; /* gone, with the granules */
    else
        work->stage = MOOR__STAGE_MADE;
    return status;
}

static void commit_publish(struct moor__work *work)
{
    moor__part_publish(work->part, NULL, false);
    work->part = NULL;
    drop(work);
}

static void commit_undo(struct moor__work *work)
{
    if (work->stage == MOOR__STAGE_MADE) {
        moor__object_expect_grant(&work->part->object, work->step.grant, work->step.length_bytes);
        moor__part_withdraw(&work->part->object);
        work->part = NULL;
    }
    drop(work);
}

/* ---- CREATE: the provider makes a segment, and maps it for writing if the step names a range ---- */

static bool create_has_strange_field(const struct moor_step *step)
{
    return step->range ? step->granule_bytes != 0 : step->offset_bytes != 0;
}

/* Checks the size and takes the segment's slot. */
static moor_status take_segment(struct moor__work *work)
{
    const struct moor_step *step = &work->step;
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

static moor_status create_prepare(struct moor__work *work)
{
    const struct moor_step *step = &work->step;
    moor_status status = moor__binding_enter(step->binding);
    if (!status && moor__runtime_of(step->binding) != work->runtime)
        status = moor__fail(MOOR_FOREIGN, "the binding is of another runtime");
    if (!status)
        status = moor__binding_needs(step->binding, MOOR_ABI_CAP_SHARED, "SHARED");
    if (!status && step->range)
        status = claim(work, step->binding, step->length_bytes);
    if (status)
        return status;
    work->payer = step->binding;
    return take_segment(work);
}

static moor_status create_make(struct moor__work *work)
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
    status = moor__segment_map(work->segment, work->range, work->first, work->access);
    if (!status)
        work->stage = MOOR__STAGE_MAPPED;
    return status;
}

static void create_publish(struct moor__work *work)
{
    struct moor__segment *segment = work->segment;
    if (work->range) {
        segment->owners++; /* the mapping */
        moor__segment_set_writable(segment, work->range, work->first);
    }
    work->step.segment = moor__object_publish(&segment->object);
    if (work->part)
        moor__part_publish(work->part, segment, true);
    work->part = NULL;
    drop(work);
}

static void create_undo(struct moor__work *work)
{
    struct moor__segment *segment = work->segment;
    if (work->stage >= MOOR__STAGE_MADE)
        moor__object_expect_grant(&segment->object, work->step.grant, work->step.length_bytes);
    if (work->stage == MOOR__STAGE_MAPPED) {
        moor__segment_own(segment); /* the mapping's share, until it is gone */
        unmap(work);
    }
    drop(work);
    if (work->stage >= MOOR__STAGE_MADE)
        moor__segment_disown(segment);
    else if (segment)
        moor__object_free(&segment->object);
}

/* ---- MAP: a sealed segment read-only; one that is not, for writing if it has no other mapping ---- */

static bool map_has_strange_field(const struct moor_step *step)
{
    return step->binding || step->length_bytes || step->grant || step->granule_bytes;
}

/* Makes the new mapping an owner, if the segment's state allows the mapping. */
static moor_status own_mapping(struct moor__work *work)
{
    struct moor__segment *segment = work->segment;
    bool is_writable = work->access == MOOR_ACCESS_READ_WRITE;
    moor_status status = MOOR_OK;
    moor__lock_acquire(&segment->lock);
    bool is_mapped = segment->owners > 1;
    if (is_writable && !segment->is_sealed && is_mapped && segment->owners - 1 == segment->leaving) {
        status = moor__fail(MOOR_PENDING, "the segment's last mapping is still behind fences");
    } else if (segment->is_sealing || segment->is_sealed == is_writable || (is_writable && is_mapped)) {
        status = moor__fail(MOOR_BUSY, is_writable ? "the segment is sealed, or mapped already"
                                                   : "the segment is not sealed");
    } else {
        segment->owners++;
        moor__segment_set_writable(segment, is_writable ? work->range : NULL, work->first);
    }
    moor__lock_release(&segment->lock);
    return status;
}

static moor_status map_prepare(struct moor__work *work)
{
    moor_status status = moor__segment_pin(work->runtime, work->step.segment, &work->segment);
    if (status)
        return status;
    struct moor__segment *segment = work->segment;
    status = claim(work, segment->object.binding, segment->size_bytes);
    if (!status && segment->granule_bytes != work->range->granule_bytes)
        status = moor__fail(MOOR_INVALID, "the segment has granules of %llu bytes, the range of %llu",
                            (unsigned long long)segment->granule_bytes,
                            (unsigned long long)work->range->granule_bytes);
    if (!status)
        status = own_mapping(work);
    return status;
}

static moor_status map_make(struct moor__work *work)
{
    moor_status status = moor__segment_map(work->segment, work->range, work->first, work->access);
    if (!status)
        work->stage = MOOR__STAGE_MAPPED;
    return status;
}

static void map_publish(struct moor__work *work)
{
    moor__part_publish(work->part, work->segment, work->access == MOOR_ACCESS_READ_WRITE);
    work->part = NULL;
    drop(work);
    moor__object_unpin(&work->segment->object);
}

static void map_undo(struct moor__work *work)
{
    if (work->stage == MOOR__STAGE_MAPPED)
        unmap(work);
    else if (work->stage == MOOR__STAGE_PREPARED)
        moor__segment_end_mapping(work->segment, work->range, false);
    drop(work);
    if (work->segment)
        moor__object_unpin(&work->segment->object);
}

static const struct moor__step_ops ops_of[] = {
    [MOOR_STEP_COMMIT] = {MOOR_ACCESS_READ_WRITE, commit_has_strange_field, commit_prepare, commit_make,
                          commit_publish, commit_undo},
    [MOOR_STEP_CREATE] = {MOOR_ACCESS_READ_WRITE, create_has_strange_field, create_prepare, create_make,
                          create_publish, create_undo},
    [MOOR_STEP_MAP] = {MOOR_ACCESS_READ, map_has_strange_field, map_prepare, map_make, map_publish, map_undo},
};

const struct moor__step_ops *moor__step_ops(uint32_t kind)
{
    return kind > 0 && kind < sizeof ops_of / sizeof ops_of[0] ? &ops_of[kind] : NULL;
}
