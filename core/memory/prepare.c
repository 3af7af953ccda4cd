/* SPDX-License-Identifier: MIT */
/*
 * The first phase of a transaction: a step's arguments are checked, what it names is pinned, its granules are
 * BUSY and its records made, so that nothing of that can fail later.
 */
#include "memory/work.h"

#include "memory/segment.h"
#include "util/error.h"

static moor_status claim_granules(struct moor__work *work)
{
    struct moor__range *range = work->range;
    moor__lock_acquire(&range->lock);
    moor_status status = moor__range_expect(range, work->first, work->count, MOOR__GRANULE_FREE);
    if (!status)
        moor__range_set(range, work->first, work->count, MOOR__GRANULE_BUSY);
    moor__lock_release(&range->lock);
    return status;
}

void moor__work_free_granules(struct moor__work *work)
{
    moor__lock_acquire(&work->range->lock);
    moor__range_set(work->range, work->first, work->count, MOOR__GRANULE_FREE);
    moor__lock_release(&work->range->lock);
}

/* Pins the range and takes its granules and a part record. */
static moor_status prepare_range(struct moor_runtime *runtime, struct moor__work *work, uint64_t length_bytes)
{
    moor_status status = moor__range_pin(runtime, work->step->range, &work->range);
    if (status)
        return status;
    status =
        moor__range_granules(work->range, work->step->offset_bytes, length_bytes, &work->first, &work->count);
    if (!status)
        status = moor__range_part_take(work->range, &work->part);
    if (!status)
        status = claim_granules(work);
    if (!status)
        return MOOR_OK;
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    if (work->part)
        moor__range_part_free(work->part);
    moor__range_unpin(work->range);
    work->part = NULL;
    work->range = NULL;
    moor__error_scope_end(&aside);
    return status;
}

void moor__work_drop_range(struct moor__work *work)
{
    if (!work->range)
        return;
    if (work->part)
        moor__range_part_free(work->part);
    moor__range_unpin(work->range);
}

static moor_status check_same_domain(const struct moor__work *work, const struct moor_binding *binding)
{
    if (!work->range || work->range->object.binding->domain == binding->domain)
        return MOOR_OK;
    return moor__fail(MOOR_FOREIGN, "segment and range are of different domains");
}

static moor_status prepare_create(struct moor_runtime *runtime, struct moor__work *work)
{
    const struct moor__step *step = work->step;
    moor_status status = moor__binding_enter(step->binding);
    if (!status && moor__runtime_of(step->binding) != runtime)
        status = moor__fail(MOOR_FOREIGN, "the binding is of another runtime");
    if (!status)
        status = moor__binding_needs(step->binding, MOOR_ABI_CAP_SHARED, "SHARED");
    if (!status && step->range)
        status = prepare_range(runtime, work, step->length_bytes);
    if (status)
        return status;
    const struct moor_abi_domain_info *domain = &step->binding->domain->info;
    uint64_t granule = work->range           ? work->range->granule_bytes
                       : step->granule_bytes ? step->granule_bytes
                                             : domain->granule_recommended_bytes;
    status = check_same_domain(work, step->binding);
    if (!status && (granule & (granule - 1) || granule < domain->granule_min_bytes ||
                    step->length_bytes == 0 || step->length_bytes % granule))
        status = moor__fail(MOOR_INVALID, "a segment of %llu bytes in granules of %llu",
                            (unsigned long long)step->length_bytes, (unsigned long long)granule);
    if (!status)
        status = moor__segment_take(step->binding, step->length_bytes, granule, &work->segment);
    if (status && work->range) {
        struct moor__error_scope aside;
        moor__error_scope_begin(&aside);
        moor__work_free_granules(work);
        moor__work_drop_range(work);
        moor__error_scope_end(&aside);
        return status;
    }
    return status;
}

/* The new mapping becomes an owner, if the segment's state allows it. */
static moor_status own_mapping(struct moor__work *work)
{
    struct moor__segment *segment = work->segment;
    bool writable = work->step->access == MOOR_ACCESS_READ_WRITE;
    moor_status status = MOOR_OK;
    moor__lock_acquire(&segment->lock);
    if (writable && !segment->sealed && segment->owners > 1 && segment->owners - 1 == segment->leaving) {
        status = moor__fail(MOOR_PENDING, "the segment's last mapping is still behind fences");
    } else if (segment->sealing || segment->sealed == writable || (writable && segment->owners > 1)) {
        status = moor__fail(MOOR_BUSY, writable ? "the segment is sealed, or mapped already"
                                                : "the segment is not sealed");
    } else {
        segment->owners++;
        moor__segment_set_writable(segment, writable ? work->range : NULL, work->first);
    }
    moor__lock_release(&segment->lock);
    return status;
}

static moor_status prepare_map(struct moor_runtime *runtime, struct moor__work *work)
{
    moor_status status = moor__segment_pin(runtime, work->step->segment, &work->segment);
    if (status)
        return status;
    status = prepare_range(runtime, work, work->segment->size_bytes);
    if (status) {
        struct moor__error_scope aside;
        moor__error_scope_begin(&aside);
        moor__segment_unpin(work->segment);
        moor__error_scope_end(&aside);
        return status;
    }
    status = check_same_domain(work, work->segment->object.binding);
    if (!status && work->segment->granule_bytes != work->range->granule_bytes)
        status = moor__fail(MOOR_INVALID, "the segment has granules of %llu bytes, the range of %llu",
                            (unsigned long long)work->segment->granule_bytes,
                            (unsigned long long)work->range->granule_bytes);
    if (!status)
        status = own_mapping(work);
    if (status) {
        struct moor__error_scope aside;
        moor__error_scope_begin(&aside);
        moor__work_free_granules(work);
        moor__work_drop_range(work);
        moor__segment_unpin(work->segment);
        moor__error_scope_end(&aside);
        return status;
    }
    return MOOR_OK;
}

moor_status moor__work_prepare(struct moor__work *work)
{
    struct moor_runtime *runtime = work->runtime;
    moor_status status;
    switch (work->step->kind) {
    case MOOR_STEP_COMMIT:
        status = prepare_range(runtime, work, work->step->length_bytes);
        break;
    case MOOR_STEP_CREATE:
        status = prepare_create(runtime, work);
        break;
    case MOOR_STEP_MAP:
        status = prepare_map(runtime, work);
        break;
    default:
        return moor__fail(MOOR_INVALID, "step kind %u is unknown", work->step->kind);
    }
    if (!status)
        work->stage = MOOR__STAGE_PREPARED;
    return status;
}
