/* SPDX-License-Identifier: MIT */
/*
 * How ranges leave, in parts. Each part is a release of its own behind the last uses of its granules.
 * Decommit and unmap make one; undoing a step of a transaction makes one; the end of a range makes one for
 * each mapping and for each run of committed granules with the same uses, and the addresses follow the last
 * part.
 */
#include "memory/range.h"

#include "memory/release.h"
#include "memory/segment.h"
#include "util/error.h"

/* ---- records ---- */

moor_status moor__part_take(struct moor__range *range, struct moor__range_part **ret_part)
{
    struct moor__object *object;
    moor_status status = moor__object_take(range->memory.object.binding, &moor__part_ops, &object);
    if (status)
        return status;
    *ret_part = moor__part_of(object);
    (*ret_part)->range = range;
    return MOOR_OK;
}

moor_status moor__part_claim(struct moor__range *range, uint64_t first, uint64_t count,
                             struct moor__range_part **ret_part)
{
    struct moor__range_part *part;
    moor_status status = moor__part_take(range, &part);
    if (status)
        return status;
    part->first = first;
    moor__lock_acquire(&range->memory.lock);
    status = moor__range_expect(range, first, count, MOOR__GRANULE_FREE);
    if (!status) {
        moor__range_set(range, first, count, MOOR__GRANULE_BUSY);
        part->count = count;
    }
    moor__lock_release(&range->memory.lock);
    if (status)
        moor__object_free(&part->object);
    else
        *ret_part = part;
    return status;
}

static void finish(struct moor__object *object)
{
    struct moor__range_part *part = moor__part_of(object);
    if (part->count == 0)
        return;
    moor__lock_acquire(&part->range->memory.lock);
    moor__range_set(part->range, part->first, part->count, MOOR__GRANULE_FREE);
    moor__lock_release(&part->range->memory.lock);
}

void moor__part_publish(struct moor__range_part *part, struct moor__segment *segment, bool is_writable)
{
    struct moor__range *range = part->range;
    moor__lock_acquire(&range->memory.lock);
    if (segment)
        moor__range_set_mapped(range, part->first, segment, is_writable);
    else
        moor__range_set(range, part->first, part->count, MOOR__GRANULE_COMMITTED);
    part->count = 0;
    moor__lock_release(&range->memory.lock);
    moor__object_free(&part->object);
}

/* ---- release ---- */

moor_status moor__part_submit(struct moor__range_part *part, bool is_unseen)
{
    assert(part->count > 0);
    struct moor__range *range = part->range;
    struct moor__point points[MOOR_LIMIT_USES];
    uint32_t count = 0;
    const struct moor_abi_release release = {
        .kind = part->segment ? MOOR_ABI_RELEASE_UNMAP : MOOR_ABI_RELEASE_DECOMMIT,
        .handle = range->memory.handle,
        .offset_bytes = part->first * range->granule_bytes,
        .length_bytes = part->count * range->granule_bytes,
    };
    if (!is_unseen)
        count = moor__memory_collect(&range->memory, release.offset_bytes,
                                     release.offset_bytes + release.length_bytes, points);
    moor__segment_count_mappings(part->segment, 1, 0);
    moor_status status = moor__release_submit(&part->object, release, points, count);
    if (status)
        moor__segment_count_mappings(part->segment, -1, 0);
    return status;
}

/* Releases LEAVING granules. A refused release puts the part into quarantine. */
static void submit_or_quarantine(struct moor__range_part *part, bool is_unseen)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside); /* for the caller the part is released */
    if (moor__part_submit(part, is_unseen)) {
        moor__segment_count_mappings(part->segment, 1, 0); /* enter_quarantine counts it as stuck */
        moor__release_refused(&part->object);
    }
    moor__error_scope_end(&aside);
}

void moor__part_withdraw(struct moor__object *object)
{
    struct moor__range_part *part = moor__part_of(object);
    moor__lock_acquire(&part->range->memory.lock);
    moor__range_set(part->range, part->first, part->count, MOOR__GRANULE_LEAVING);
    part->range->parts_out++;
    moor__lock_release(&part->range->memory.lock);
    submit_or_quarantine(part, true);
}

/* ---- the part's operations ---- */

static void complete(struct moor__object *object)
{
    struct moor__range_part *part = moor__part_of(object);
    struct moor__range *range = part->range;
    moor__lock_acquire(&range->memory.lock);
    part->is_gone = true;
    bool is_awaited = part->is_awaited;
    moor__lock_release(&range->memory.lock);
    if (is_awaited)
        return;
    struct moor__segment *segment = part->segment;
    moor__object_free(object);
    if (segment)
        moor__segment_end_mapping(segment, range, true);
    moor__range_part_done(range);
}

static void resubmit(struct moor__object *object)
{
    struct moor__range_part *part = moor__part_of(object);
    moor__segment_count_mappings(part->segment, 0, -1);
    submit_or_quarantine(part, false);
}

static void quarantined(struct moor__object *object)
{
    moor__segment_count_mappings(moor__part_of(object)->segment, -1, 1);
}

const struct moor__object_ops moor__part_ops = {
    .kind = MOOR__KIND_RANGE_PART,
    .count = MOOR__COUNTS,
    .line = MOOR__LIVE,
    .finish = finish,
    .leave = moor__part_withdraw,
    .complete = complete,
    .resubmit = resubmit,
    .quarantined = quarantined,
};

/* ---- the whole range ---- */

/* Finds the next part to release from granule `from` on. Returns false if there is none. Requires
 * range->memory.lock. */
static bool find_next(const struct moor__range *range, uint64_t from, uint64_t *ret_first,
                      uint64_t *ret_count)
{
    uint64_t first = from;
    while (first < range->granule_count &&
           moor__granule_state(range->granules[first]) != MOOR__GRANULE_COMMITTED &&
           !moor__granule_is_mapped(range->granules[first]))
        first++;
    if (first == range->granule_count)
        return false;
    uint64_t end = first + 1;
    if (moor__granule_is_mapped(range->granules[first])) {
        end = first + moor__range_mapping_length(range, first);
    } else {
        /* Granules with the same uses leave together. */
        uint64_t limit =
            moor__uses_boundary(&range->memory.uses, first * range->granule_bytes, range->memory.size_bytes);
        while (end < range->granule_count && end * range->granule_bytes < limit &&
               moor__granule_state(range->granules[end]) == MOOR__GRANULE_COMMITTED)
            end++;
    }
    *ret_first = first;
    *ret_count = end - first;
    return true;
}

/* Makes the part hold granules that are to leave. Requires range->memory.lock. */
static void hold_leaving(struct moor__range_part *part, uint64_t first, uint64_t count)
{
    struct moor__range *range = part->range;
    moor__granule head = range->granules[first];
    if (moor__granule_is_mapped(head))
        part->segment = moor__granule_segment(head);
    else
        part->object.bytes = part->object.requested_bytes = count * range->granule_bytes;
    part->first = first;
    part->count = count;
    moor__range_set(range, first, count, MOOR__GRANULE_LEAVING);
    range->parts_out++;
}

/* Releases the next part from granule *from on. Returns false if there is none, or no memory for its
 * record. */
static bool release_next(struct moor__range *range, uint64_t *from, moor_status *ret_status)
{
    struct moor__range_part *part;
    *ret_status = moor__part_take(range, &part);
    if (*ret_status)
        return false;
    uint64_t first, count;
    moor__lock_acquire(&range->memory.lock);
    bool is_found = find_next(range, *from, &first, &count);
    if (is_found) {
        hold_leaving(part, first, count);
        *from = first + count;
    }
    moor__lock_release(&range->memory.lock);
    if (is_found)
        submit_or_quarantine(part, false);
    else
        moor__object_free(&part->object);
    return is_found;
}

void moor__range_part_done(struct moor__range *range)
{
    moor__lock_acquire(&range->memory.lock);
    assert(range->parts_out > 0);
    bool last = --range->parts_out == 0 && range->is_leaving;
    moor__lock_release(&range->memory.lock);
    if (!last)
        return;
    const struct moor_abi_release addresses = {.kind = MOOR_ABI_RELEASE_RANGE,
                                               .handle = range->memory.handle};
    moor__release_or_quarantine(&range->memory.object, addresses, NULL, 0);
}

void moor__range_leave(struct moor__object *object)
{
    struct moor__range *range = moor__range_of(object);
    uint64_t from = 0;
    moor_status status = MOOR_OK;
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    moor__lock_acquire(&range->memory.lock);
    range->is_leaving = true;
    range->parts_out++; /* ours: the range stays while this function works on it */
    moor__lock_release(&range->memory.lock);
    while (release_next(range, &from, &status))
        ;
    if (status) {
        /* No host memory for records: the remaining parts and the addresses wait in quarantine with the
         * range. */
        moor__lock_acquire(&range->memory.lock);
        range->is_leaving = false;
        moor__lock_release(&range->memory.lock);
        moor__release_refused(&range->memory.object);
    }
    moor__range_part_done(range);
    moor__error_scope_end(&aside);
}

/* ---- decommit and unmap ---- */

/* Checks that the granules may leave now. Requires range->memory.lock. */
static moor_status check_leaving(const struct moor__range *range, uint64_t first, uint64_t count,
                                 bool is_mapping)
{
    moor_status status = moor__range_expect_unused(range, first, count);
    if (status)
        return status;
    if (!is_mapping)
        return moor__range_expect(range, first, count, MOOR__GRANULE_COMMITTED);
    if (!moor__granule_is_mapped(range->granules[first]))
        return moor__range_expect(range, first, 1, MOOR__GRANULE_MAPPED_READ);
    uint64_t length = moor__range_mapping_length(range, first);
    if (length != count)
        return moor__fail(MOOR_INVALID, "the mapping at granule %llu has %llu granules, not %llu",
                          (unsigned long long)first, (unsigned long long)length, (unsigned long long)count);
    return MOOR_OK;
}

static moor_status release_part(struct moor__range *range, uint64_t first, uint64_t count, bool is_mapping)
{
    struct moor__range_part *part;
    moor_status status = moor__part_take(range, &part);
    if (status)
        return status;
    moor__lock_acquire(&range->memory.lock);
    status = check_leaving(range, first, count, is_mapping);
    moor__granule head = range->granules[first];
    if (!status)
        hold_leaving(part, first, count);
    moor__lock_release(&range->memory.lock);
    if (status) {
        moor__object_free(&part->object);
        return status;
    }
    status = moor__part_submit(part, false);
    if (status) { /* refused: the granules become what they were */
        moor__part_publish(part, part->segment, moor__granule_state(head) == MOOR__GRANULE_MAPPED_WRITE);
        moor__range_part_done(range);
    }
    return status;
}

static moor_status release_bytes(struct moor_runtime *runtime, moor_range handle, uint64_t offset_bytes,
                                 uint64_t length_bytes, bool is_mapping)
{
    struct moor__range *range;
    moor_status status = moor__range_pin(runtime, handle, &range);
    if (status)
        return status;
    uint64_t first, count;
    status = moor__range_granules(range, offset_bytes, length_bytes, &first, &count);
    if (!status)
        status = release_part(range, first, count, is_mapping);
    moor__release_unpin(&range->memory.object);
    return status;
}

moor_status moor_range_decommit(struct moor_runtime *runtime, moor_range range, uint64_t offset_bytes,
                                uint64_t length_bytes)
{
    return moor__leave(release_bytes(runtime, range, offset_bytes, length_bytes, false));
}

moor_status moor_range_unmap(struct moor_runtime *runtime, moor_range range, uint64_t offset_bytes,
                             uint64_t length_bytes)
{
    return moor__leave(release_bytes(runtime, range, offset_bytes, length_bytes, true));
}
