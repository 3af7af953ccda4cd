/* SPDX-License-Identifier: MIT */
/*
 * Ranges: reserved addresses with a state per granule, kept outside the device's memory. No provider call is
 * made under the range's lock; granules that a call is at work on are BUSY meanwhile, so two calls on one
 * granule never meet.
 *
 * A range leaves in two steps: every part in it is released behind its own last uses, and when the last of
 * them has completed the addresses follow.
 */
#include "memory/range.h"

#include "memory/release.h"
#include "memory/segment.h"
#include "util/error.h"

#include <stdlib.h>

static struct moor_runtime *runtime_of(const struct moor__range *range)
{
    return moor__runtime_of(range->object.binding);
}

moor_range moor__range_handle(const struct moor__range *range)
{
    return moor__handle_of(&runtime_of(range)->ranges, &range->object.slot);
}

/* ---- granules ---- */

moor_status moor__range_granules(const struct moor__range *range, uint64_t offset_bytes,
                                 uint64_t length_bytes, uint64_t *ret_first, uint64_t *ret_count)
{
    unsigned long long offset = offset_bytes, length = length_bytes, granule = range->granule_bytes;
    if (length_bytes > UINT64_MAX - offset_bytes)
        return moor__fail(MOOR_OVERFLOW, "offset %llu and length %llu wrap", offset, length);
    if (length_bytes == 0 || offset_bytes % range->granule_bytes || length_bytes % range->granule_bytes)
        return moor__fail(MOOR_INVALID, "offset %llu and length %llu are not whole granules of %llu", offset,
                          length, granule);
    if (offset_bytes + length_bytes > range->size_bytes)
        return moor__fail(MOOR_INVALID, "offset %llu and length %llu are outside the range of %llu", offset,
                          length, (unsigned long long)range->size_bytes);
    *ret_first = offset_bytes / range->granule_bytes;
    *ret_count = length_bytes / range->granule_bytes;
    return MOOR_OK;
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

moor_status moor__range_expect_mapping(const struct moor__range *range, uint64_t first,
                                       const struct moor__segment *segment)
{
    moor__granule granule = range->granules[first];
    if (moor__granule_state(granule) == MOOR__GRANULE_MAPPED_WRITE &&
        moor__granule_segment(granule) == segment)
        return MOOR_OK;
    return moor__fail(moor__granule_state(granule) == MOOR__GRANULE_LEAVING ? MOOR_PENDING : MOOR_BUSY,
                      "the segment's writable mapping is leaving or being worked on");
}

void moor__range_set(struct moor__range *range, uint64_t first, uint64_t count,
                     enum moor__granule_state state)
{
    for (uint64_t i = first; i < first + count; i++)
        range->granules[i] = (moor__granule)state;
}

void moor__range_set_mapped(struct moor__range *range, uint64_t first, uint64_t count,
                            struct moor__segment *segment, bool writable)
{
    moor__range_set(range, first, count, MOOR__GRANULE_TAIL);
    range->granules[first] =
        (moor__granule)(uintptr_t)segment |
        (moor__granule)(writable ? MOOR__GRANULE_MAPPED_WRITE : MOOR__GRANULE_MAPPED_READ);
}

uint64_t moor__range_mapping_length(const struct moor__range *range, uint64_t first)
{
    return moor__granule_segment(range->granules[first])->size_bytes / range->granule_bytes;
}

moor_status moor__range_await_uses(struct moor__range *range, uint64_t offset_bytes, uint64_t length_bytes,
                                   uint64_t deadline_ns)
{
    struct moor__point points[MOOR_LIMIT_USES];
    moor__lock_acquire(&range->lock);
    uint32_t count = moor__uses_collect(&range->uses, offset_bytes, offset_bytes + length_bytes, points);
    moor__lock_release(&range->lock);
    return moor__points_await(points, count, deadline_ns);
}

/* ---- making ---- */

/* NULL: *ret_status says why. */
static struct moor__range *take_slot(struct moor_binding *binding, uint64_t granule_count,
                                     moor_status *ret_status)
{
    struct moor__slot *slot;
    *ret_status = moor__handles_take(&moor__runtime_of(binding)->ranges, &slot);
    if (*ret_status)
        return NULL;
    struct moor__range *range = (struct moor__range *)slot;
    range->granules = calloc(granule_count, sizeof *range->granules);
    if (!range->granules) {
        moor__handles_free(&moor__runtime_of(binding)->ranges, slot);
        *ret_status = moor__fail(MOOR_HOST_NOMEM, "no memory for the states of %llu granules",
                                 (unsigned long long)granule_count);
        return NULL;
    }
    range->object.kind = MOOR__KIND_RANGE;
    range->object.binding = binding;
    range->granule_count = granule_count;
    moor__lock_init(&range->lock, MOOR__RANK_OBJECT, "range.lock");
    moor__binding_count(binding, MOOR__COUNT_RANGE, 1);
    return range;
}

static void free_slot(struct moor__range *range)
{
    struct moor_binding *binding = range->object.binding;
    moor__uses_finish(&range->uses);
    free(range->granules);
    moor__lock_finish(&range->lock);
    moor__handles_free(&moor__runtime_of(binding)->ranges, &range->object.slot);
    moor__binding_count(binding, MOOR__COUNT_RANGE, -1);
}

static moor_status call_reserve(struct moor__range *range, const struct moor_abi_range_args *args)
{
    const struct moor__table *table = moor__table_of(range->object.binding);
    struct moor_abi_error error = MOOR__ERROR_INIT;
    struct moor_abi_range made = {.struct_size = sizeof made};
    int32_t called =
        moor__to_call(table)->virtual_.reserve(range->object.binding->device->context, args, &made, &error);
    if (called)
        return moor__fail_provider(called, &error, table->name, "reserve");
    range->handle = made.handle;
    range->address = made.address;
    range->size_bytes = args->size_bytes;
    range->granule_bytes = args->granule_bytes;
    if (made.handle == 0 || made.address % args->alignment_bytes ||
        made.address > UINT64_MAX - args->size_bytes)
        return moor__fail(MOOR_PROVIDER, "%s: reserve gave a zero handle or a misaligned address",
                          table->name);
    return MOOR_OK;
}

moor_status moor__range_make(struct moor_binding *binding, uint64_t size_bytes, uint64_t granule_bytes,
                             uint64_t alignment_bytes, struct moor__range **ret_range)
{
    struct moor_abi_range_args args = {
        .struct_size = sizeof args,
        .domain = binding->domain_index,
        .size_bytes = size_bytes,
        .alignment_bytes = alignment_bytes,
        .granule_bytes = granule_bytes,
    };
    if (size_bytes / granule_bytes > MOOR_LIMIT_GRANULES)
        return moor__fail(MOOR_LIMIT, "a range of more than %llu granules", MOOR_LIMIT_GRANULES);
    moor_status status;
    struct moor__range *range = take_slot(binding, size_bytes / granule_bytes, &status);
    if (!range)
        return status;
    status = call_reserve(range, &args);
    if (!status) {
        *ret_range = range;
        return MOOR_OK;
    }
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    if (range->handle)
        moor__range_release_all(range); /* made, but wrongly */
    else
        free_slot(range);
    moor__error_scope_end(&aside);
    return status;
}

static moor_status choose_granule(const struct moor_binding *binding,
                                  const struct moor_range_options *options, uint64_t *ret_granule,
                                  uint64_t *ret_alignment)
{
    const struct moor_abi_domain_info *domain = &binding->domain->info;
    uint64_t granule =
        options && options->granule_bytes ? options->granule_bytes : domain->granule_recommended_bytes;
    uint64_t alignment = options && options->alignment_bytes ? options->alignment_bytes : granule;
    if (granule & (granule - 1) || alignment & (alignment - 1))
        return moor__fail(MOOR_INVALID, "granule %llu or alignment %llu is no power of two",
                          (unsigned long long)granule, (unsigned long long)alignment);
    if (granule < domain->granule_min_bytes)
        return moor__fail(MOOR_INVALID, "granule %llu is below the domain's %llu",
                          (unsigned long long)granule, (unsigned long long)domain->granule_min_bytes);
    *ret_granule = granule;
    *ret_alignment = alignment < granule ? granule : alignment;
    return MOOR_OK;
}

/* As much as there are addresses for, at least least_bytes; both are whole granules. The error is the last
 * try's. */
static moor_status make_some(struct moor_binding *binding, uint64_t size_bytes, uint64_t least_bytes,
                             uint64_t granule, uint64_t alignment, struct moor__range **ret_range)
{
    moor_status status = moor__range_make(binding, size_bytes, granule, alignment, ret_range);
    if (status == MOOR_NO_VA) {
        /* Ranges that are leaving may have left. */
        (void)moor__poll(moor__runtime_of(binding)); /* the next try says whether that helped */
        status = moor__range_make(binding, size_bytes, granule, alignment, ret_range);
    }
    while (status == MOOR_NO_VA && size_bytes > least_bytes) {
        size_bytes = (size_bytes - size_bytes / 8 - 1) & ~(granule - 1);
        if (size_bytes < least_bytes)
            size_bytes = least_bytes;
        status = moor__range_make(binding, size_bytes, granule, alignment, ret_range);
    }
    return status;
}

moor_status moor_range_reserve(struct moor_binding *binding, uint64_t size_bytes,
                               const struct moor_range_options *options, moor_range *ret_range)
{
    uint64_t granule = 0, alignment = 0;
    struct moor__range *range = NULL;
    moor_status status = moor__binding_enter(binding);
    if (!status && (!ret_range || size_bytes == 0))
        status = moor__fail(MOOR_INVALID, "ret_range must not be NULL, size_bytes not 0");
    if (!status)
        status = moor__binding_needs(binding, MOOR_ABI_CAP_VIRTUAL, "VIRTUAL");
    if (!status)
        status = choose_granule(binding, options, &granule, &alignment);
    if (status)
        return moor__leave(status);
    if (size_bytes > UINT64_MAX - alignment)
        return moor__leave(moor__fail(MOOR_OVERFLOW, "%llu bytes and their alignment do not fit",
                                      (unsigned long long)size_bytes));
    uint64_t least_bytes = options && options->least_bytes ? options->least_bytes : size_bytes;
    if (least_bytes > size_bytes)
        return moor__leave(moor__fail(MOOR_INVALID, "at least %llu of %llu bytes",
                                      (unsigned long long)least_bytes, (unsigned long long)size_bytes));
    size_bytes = (size_bytes + granule - 1) & ~(granule - 1);
    least_bytes = (least_bytes + granule - 1) & ~(granule - 1);
    status = make_some(binding, size_bytes, least_bytes, granule, alignment, &range);
    if (status)
        return moor__leave(status);
    *ret_range = moor__range_handle(range);
    moor__object_publish(&range->object);
    return MOOR_OK;
}

/* ---- leaving ---- */

/* lock held. The next thing to release from granule `from` on: its first granule and length; false if there is
 * none. */
static bool next_piece(const struct moor__range *range, uint64_t from, uint64_t *ret_first,
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
        uint64_t limit = moor__uses_boundary(&range->uses, first * range->granule_bytes, range->size_bytes);
        while (end < range->granule_count && end * range->granule_bytes < limit &&
               moor__granule_state(range->granules[end]) == MOOR__GRANULE_COMMITTED)
            end++;
    }
    *ret_first = first;
    *ret_count = end - first;
    return true;
}

static void release_addresses(struct moor__range *range)
{
    struct moor__release release = {.kind = MOOR_ABI_RELEASE_RANGE, .handle = range->handle};
    moor__release_or_quarantine(&range->object, moor__range_handle(range), &release, NULL, 0);
}

/* Sends off the next part; false if there is none, or no record for it. */
static bool send_off_next(struct moor__range *range, uint64_t *from, moor_status *ret_status)
{
    struct moor__range_part *part;
    *ret_status = moor__range_part_take(range, &part);
    if (*ret_status)
        return false;
    moor__lock_acquire(&range->lock);
    bool found = next_piece(range, *from, &part->first, &part->count);
    if (found) {
        moor__granule granule = range->granules[part->first];
        if (moor__granule_is_mapped(granule))
            part->segment = moor__granule_segment(granule);
        else
            part->object.bytes = part->object.requested_bytes = part->count * range->granule_bytes;
        moor__range_set(range, part->first, part->count, MOOR__GRANULE_LEAVING);
        range->parts_out++;
        *from = part->first + part->count;
    }
    moor__lock_release(&range->lock);
    if (found)
        moor__range_part_release(part, false);
    else
        moor__range_part_free(part);
    return found;
}

void moor__range_release_all(struct moor__range *range)
{
    uint64_t from = 0;
    moor_status status = MOOR_OK;
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    moor__lock_acquire(&range->lock);
    range->leaving = true;
    range->parts_out++; /* ours, so that the range does not go while we are at it */
    moor__lock_release(&range->lock);
    while (send_off_next(range, &from, &status))
        ;
    if (status) {
        /* Short of memory for records: what is left waits in quarantine with the range, and so do the
         * addresses. */
        moor__lock_acquire(&range->lock);
        range->leaving = false;
        moor__lock_release(&range->lock);
        moor__object_refused(&range->object);
    }
    moor__range_part_done(range);
    moor__error_scope_end(&aside);
}

void moor__range_part_done(struct moor__range *range)
{
    moor__lock_acquire(&range->lock);
    bool last = --range->parts_out == 0 && range->leaving;
    moor__lock_release(&range->lock);
    if (last)
        release_addresses(range);
}

void moor__range_gone(struct moor__object *object)
{
    free_slot((struct moor__range *)object);
}

void moor__range_retry(struct moor__object *object)
{
    moor__range_release_all((struct moor__range *)object);
}

moor_status moor__range_pin(struct moor_runtime *runtime, moor_range handle, struct moor__range **ret_range)
{
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__handles_pin(&runtime->ranges, handle, &slot);
    if (!status)
        *ret_range = (struct moor__range *)slot;
    return status;
}

void moor__range_unpin(struct moor__range *range)
{
    if (moor__handles_unpin(&range->object.slot))
        moor__range_release_all(range);
}

moor_status moor_range_release(struct moor_runtime *runtime, moor_range handle)
{
    if (handle == 0)
        return moor__leave(moor__enter(runtime));
    struct moor__range *range = NULL;
    moor_status status = moor__range_pin(runtime, handle, &range);
    if (status)
        return moor__leave(status);
    struct moor_device *device = moor__device_hold(range->object.binding->device);
    status = moor__object_retire(&range->object);
    moor__range_unpin(range);
    moor__device_reap_sometimes(device);
    moor__device_unhold(device);
    return moor__leave(status);
}

/* ---- looking ---- */

moor_status moor_range_get_view(struct moor_runtime *runtime, moor_range handle, struct moor_view *ret_view)
{
    if (!ret_view)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_view is NULL"));
    struct moor__range *range = NULL;
    moor_status status = moor__range_pin(runtime, handle, &range);
    if (status)
        return moor__leave(status);
    *ret_view = (struct moor_view){range->address, range->size_bytes, handle, runtime};
    moor__range_unpin(range);
    return MOOR_OK;
}

moor_status moor_range_get_granule(struct moor_runtime *runtime, moor_range handle, uint64_t *ret_bytes)
{
    if (!ret_bytes)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_bytes is NULL"));
    struct moor__range *range = NULL;
    moor_status status = moor__range_pin(runtime, handle, &range);
    if (status)
        return moor__leave(status);
    *ret_bytes = range->granule_bytes;
    moor__range_unpin(range);
    return MOOR_OK;
}

moor_status moor_range_get_committed(struct moor_runtime *runtime, moor_range handle, uint64_t offset_bytes,
                                     uint64_t length_bytes, uint64_t *ret_bytes)
{
    if (!ret_bytes)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_bytes is NULL"));
    struct moor__range *range = NULL;
    moor_status status = moor__range_pin(runtime, handle, &range);
    if (status)
        return moor__leave(status);
    uint64_t first, count, backed = 0;
    status = moor__range_granules(range, offset_bytes, length_bytes, &first, &count);
    if (!status) {
        moor__lock_acquire(&range->lock);
        for (uint64_t i = first; i < first + count; i++) {
            enum moor__granule_state state = moor__granule_state(range->granules[i]);
            backed += state == MOOR__GRANULE_COMMITTED || state == MOOR__GRANULE_TAIL ||
                      moor__granule_is_mapped(range->granules[i]);
        }
        moor__lock_release(&range->lock);
        *ret_bytes = backed * range->granule_bytes;
    }
    moor__range_unpin(range);
    return moor__leave(status);
}
