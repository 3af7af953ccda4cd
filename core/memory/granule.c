/* SPDX-License-Identifier: MIT */
/*
 * The states of a range's granules. They live in host memory, outside the device. No provider call is made
 * under the range's lock: a call sets its granules BUSY first, and two calls never work on one granule.
 */
#include "memory/range.h"

#include "memory/segment.h"
#include "util/error.h"

moor_status moor__range_granules(const struct moor__range *range, uint64_t offset_bytes,
                                 uint64_t length_bytes, uint64_t *ret_first, uint64_t *ret_count)
{
    unsigned long long offset = offset_bytes, length = length_bytes;
    if (length_bytes > UINT64_MAX - offset_bytes)
        return moor__fail(MOOR_OVERFLOW, "offset %llu and length %llu wrap", offset, length);
    if (length_bytes == 0 || offset_bytes % range->granule_bytes || length_bytes % range->granule_bytes)
        return moor__fail(MOOR_INVALID, "offset %llu and length %llu are not whole granules of %llu", offset,
                          length, (unsigned long long)range->granule_bytes);
    if (offset_bytes + length_bytes > range->memory.size_bytes)
        return moor__fail(MOOR_INVALID, "offset %llu and length %llu are outside the range of %llu", offset,
                          length, (unsigned long long)range->memory.size_bytes);
    *ret_first = offset_bytes / range->granule_bytes;
    *ret_count = length_bytes / range->granule_bytes;
    return MOOR_OK;
}

/* Granules count from `first` on lie inside the range. */
static void assert_inside(const struct moor__range *range, uint64_t first, uint64_t count)
{
    assert(count > 0 && first < range->granule_count && count <= range->granule_count - first);
}

moor_status moor__range_expect(const struct moor__range *range, uint64_t first, uint64_t count,
                               enum moor__granule_state state)
{
    static const char *const names[] = {"free",
                                        "being worked on",
                                        "committed",
                                        "mapped read-only",
                                        "mapped for writing",
                                        "inside a mapping",
                                        "leaving"};
    assert_inside(range, first, count);
    for (uint64_t i = first; i < first + count; i++) {
        enum moor__granule_state found = moor__granule_state(range->granules[i]);
        if (found == state)
            continue;
        moor_status status = found == MOOR__GRANULE_LEAVING ? MOOR_PENDING
                             : found == MOOR__GRANULE_BUSY  ? MOOR_BUSY
                                                            : MOOR_INVALID;
        return moor__fail(status, "granule %llu is %s, not %s", (unsigned long long)i, names[found],
                          names[state]);
    }
    return MOOR_OK;
}

moor_status moor__range_expect_unused(const struct moor__range *range, uint64_t first, uint64_t count)
{
    assert_inside(range, first, count);
    uint64_t offset = first * range->granule_bytes;
    if (moor__uses_submitting(&range->memory.uses, offset, offset + count * range->granule_bytes))
        return moor__fail(MOOR_BUSY, "work on this memory is being submitted");
    return MOOR_OK;
}

void moor__range_set(struct moor__range *range, uint64_t first, uint64_t count,
                     enum moor__granule_state state)
{
    assert_inside(range, first, count);
    assert(state != MOOR__GRANULE_MAPPED_READ && state != MOOR__GRANULE_MAPPED_WRITE);
    for (uint64_t i = first; i < first + count; i++)
        range->granules[i] = (moor__granule)state;
}

void moor__range_set_mapped(struct moor__range *range, uint64_t first, struct moor__segment *segment,
                            bool is_writable)
{
    assert(((uintptr_t)segment & 7) == 0);
    moor__range_set(range, first, segment->size_bytes / range->granule_bytes, MOOR__GRANULE_TAIL);
    moor__granule state = is_writable ? MOOR__GRANULE_MAPPED_WRITE : MOOR__GRANULE_MAPPED_READ;
    range->granules[first] = (moor__granule)(uintptr_t)segment | state;
}

void moor__range_show_mapping(struct moor__range *range, uint64_t first, struct moor__segment *segment,
                              bool is_writable)
{
    moor__lock_acquire(&range->memory.lock);
    moor__range_set_mapped(range, first, segment, is_writable);
    moor__lock_release(&range->memory.lock);
}

uint64_t moor__range_mapping_length(const struct moor__range *range, uint64_t first)
{
    return moor__granule_segment(range->granules[first])->size_bytes / range->granule_bytes;
}
