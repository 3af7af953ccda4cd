/* SPDX-License-Identifier: MIT */
/*
 * Segments: physical memory that its handle and its mappings own together. Mappings own it until their
 * release has completed, so the memory is never freed under an address that still shows it.
 *
 * While a segment is written it has one mapping. Sealing turns that mapping read-only, after the work that
 * uses it, and from then on its contents are shared freely; writable.c is the way back.
 */
#include "memory/segment.h"

#include "memory/release.h"
#include "util/error.h"

#include <time.h>

static struct moor_runtime *runtime_of(const struct moor__segment *segment)
{
    return moor__runtime_of(segment->object.binding);
}

/* ---- making and owning ---- */

moor_status moor__segment_take(struct moor_binding *binding, uint64_t size_bytes, uint64_t granule_bytes,
                               struct moor__segment **ret_segment)
{
    struct moor__slot *slot;
    moor_status status = moor__handles_take(&moor__runtime_of(binding)->segments, &slot);
    if (status)
        return status;
    struct moor__segment *segment = (struct moor__segment *)slot;
    segment->object.kind = MOOR__KIND_SEGMENT;
    segment->object.binding = binding;
    segment->size_bytes = size_bytes;
    segment->granule_bytes = granule_bytes;
    segment->owners = 1;
    moor__lock_init(&segment->lock, MOOR__RANK_OBJECT, "segment.lock");
    moor__binding_count(binding, MOOR__COUNT_SEGMENT, 1);
    *ret_segment = segment;
    return MOOR_OK;
}

void moor__segment_free(struct moor__segment *segment)
{
    struct moor_binding *binding = segment->object.binding;
    moor__lock_finish(&segment->lock);
    moor__handles_free(&runtime_of(segment)->segments, &segment->object.slot);
    moor__binding_count(binding, MOOR__COUNT_SEGMENT, -1);
}

static moor_status try_to_back(struct moor__segment *segment)
{
    struct moor_binding *binding = segment->object.binding;
    const struct moor__table *table = moor__table_of(binding);
    struct moor_abi_error error = MOOR__ERROR_INIT;
    struct moor_abi_segment_args args = {
        .struct_size = sizeof args,
        .domain = binding->domain_index,
        .size_bytes = segment->size_bytes,
        .granule_bytes = segment->granule_bytes,
    };
    struct moor_abi_segment made = {.struct_size = sizeof made};
    int32_t called = moor__to_call(table)->shared.create(binding->device->context, &args, &made, &error);
    if (called)
        return moor__fail_provider(called, &error, table->name, "create of a segment");
    segment->handle = made.handle;
    bool sane = made.actual_bytes >= args.size_bytes && made.actual_bytes <= INT64_MAX;
    segment->object.bytes = sane ? made.actual_bytes : args.size_bytes;
    segment->object.requested_bytes = args.size_bytes;
    if (made.handle == 0 || !sane)
        return moor__fail(MOOR_PROVIDER,
                          "%s: create of a segment gave a zero handle or no sane number of bytes",
                          table->name);
    return MOOR_OK;
}

moor_status moor__segment_back(struct moor__segment *segment)
{
    moor_status status = try_to_back(segment);
    for (unsigned tries = 0; moor__made_room(segment->object.binding, segment->size_bytes, status, &tries);)
        status = try_to_back(segment);
    return status;
}

static void send_off(struct moor__segment *segment)
{
    struct moor__release release = {.kind = MOOR_ABI_RELEASE_SEGMENT, .handle = segment->handle};
    uint64_t name = moor__handle_of(&runtime_of(segment)->segments, &segment->object.slot);
    /* No points: what used it did so through mappings, and those have gone behind theirs. */
    moor__release_or_quarantine(&segment->object, name, &release, NULL, 0);
}

/* Of what a segment's bytes are counted as; to be told of when the lock is not held any more. */
struct change {
    struct moor_holder *holder;
    uint64_t bytes;
    enum moor__ownership before;
    enum moor__ownership now;
};

static enum moor__ownership standing_of(const struct moor__segment *segment)
{
    if (segment->owners == 0 || segment->owners > segment->leaving + segment->stuck)
        return MOOR__OWNERSHIP_LIVE;
    return segment->stuck ? MOOR__OWNERSHIP_QUARANTINED : MOOR__OWNERSHIP_PENDING;
}

static struct moor__transfer step_of(const struct moor__segment *segment, enum moor__account_line from,
                                     enum moor__account_line to)
{
    /* Without an owner it is about to be released, and pending again. */
    return (struct moor__transfer){from, to, .bytes = segment->object.bytes,
                                   .is_passing = segment->owners == 0};
}

static void move(struct moor__segment *segment, enum moor__account_line from, enum moor__account_line to)
{
    struct moor_holder *holder = segment->object.binding->holder;
    moor__transfer_apply(moor__thread_cache_for(holder), holder, step_of(segment, from, to));
}

/* From live to pending. */
static void let_go(struct moor__segment *segment)
{
    struct moor_holder *holder = segment->object.binding->holder;
    const struct moor__transfer step = step_of(segment, MOOR__SHARED, MOOR__PENDING);
    if (segment->object.ticket)
        moor__transfer_apply(moor__thread_cache_for(holder), holder, step);
    else
        segment->object.ticket = moor__evict(moor__thread_cache_for(holder), holder, step, true);
}

/* lock held. Counts the bytes as what they have become with a change of owners. Returns what tell() is to
 * say. */
static struct change update_standing(struct moor__segment *segment)
{
    struct change change = {segment->object.binding->holder, segment->object.bytes, segment->standing,
                            standing_of(segment)};
    if (change.now == change.before)
        return change;
    segment->standing = change.now;
    segment->object.was_evicted = change.before != MOOR__OWNERSHIP_LIVE && segment->owners == 0;
    if (change.before == MOOR__OWNERSHIP_QUARANTINED)
        move(segment, MOOR__QUARANTINED, MOOR__PENDING);
    if (change.before == MOOR__OWNERSHIP_LIVE)
        let_go(segment);
    if (change.now == MOOR__OWNERSHIP_QUARANTINED)
        move(segment, MOOR__PENDING, MOOR__QUARANTINED);
    if (change.now == MOOR__OWNERSHIP_LIVE)
        move(segment, MOOR__PENDING, MOOR__SHARED);
    if (change.now == MOOR__OWNERSHIP_LIVE && segment->owners)
        moor__object_settled(&segment->object, MOOR__FATE_KEPT);
    return change;
}

static void tell(struct change change)
{
    const struct {
        bool is_so;
        uint32_t kind;
    } events[] = {{change.before == MOOR__OWNERSHIP_QUARANTINED, MOOR_TRACE_RETRY},
                  {change.before == MOOR__OWNERSHIP_LIVE, MOOR_TRACE_RELEASE},
                  {change.now == MOOR__OWNERSHIP_QUARANTINED, MOOR_TRACE_QUARANTINE},
                  {change.now == MOOR__OWNERSHIP_LIVE, MOOR_TRACE_RECALL}};
    struct moor_authority *authority = change.holder->authority;
    for (size_t i = 0; change.now != change.before && i < sizeof events / sizeof events[0]; i++)
        if (events[i].is_so)
            moor__trace(authority->governor->port.runtime, events[i].kind, authority, change.holder, change.bytes, 0);
}

void moor__segment_own(struct moor__segment *segment)
{
    moor__lock_acquire(&segment->lock);
    segment->owners++;
    struct change change = update_standing(segment);
    moor__lock_release(&segment->lock);
    tell(change);
}

void moor__segment_disown(struct moor__segment *segment)
{
    moor__lock_acquire(&segment->lock);
    bool last = --segment->owners == 0;
    struct change change = update_standing(segment);
    moor__lock_release(&segment->lock);
    tell(change);
    if (last)
        send_off(segment);
}

static void count_mappings(struct moor__segment *segment, int leaving, int stuck)
{
    moor__lock_acquire(&segment->lock);
    segment->leaving += (uint64_t)(int64_t)leaving;
    segment->stuck += (uint64_t)(int64_t)stuck;
    struct change change = update_standing(segment);
    moor__lock_release(&segment->lock);
    tell(change);
}

void moor__segment_count_leaving(struct moor__segment *segment, int change)
{
    count_mappings(segment, change, 0);
}

void moor__segment_mapping_stuck(struct moor__segment *segment)
{
    count_mappings(segment, -1, 1);
}

void moor__segment_mapping_unstuck(struct moor__segment *segment)
{
    count_mappings(segment, 0, -1);
}

void moor__segment_set_writable(struct moor__segment *segment, const struct moor__range *range,
                                uint64_t first)
{
    segment->writable_range = range ? moor__range_handle(range) : 0;
    segment->writable_first = first;
}

static void drop_mapping(struct moor__segment *segment, const struct moor__range *range, uint64_t leaving)
{
    moor__lock_acquire(&segment->lock);
    if (segment->writable_range == moor__range_handle(range))
        moor__segment_set_writable(segment, NULL, 0);
    segment->leaving -= leaving;
    bool last = --segment->owners == 0;
    struct change change = update_standing(segment);
    moor__lock_release(&segment->lock);
    tell(change);
    if (last)
        send_off(segment);
}

void moor__segment_unmapped(struct moor__segment *segment, const struct moor__range *range)
{
    drop_mapping(segment, range, 1);
}

void moor__segment_never_mapped(struct moor__segment *segment, const struct moor__range *range)
{
    drop_mapping(segment, range, 0);
}

void moor__segment_gone(struct moor__object *object)
{
    moor__segment_free((struct moor__segment *)object);
}

void moor__segment_retry(struct moor__object *object)
{
    send_off((struct moor__segment *)object);
}

moor_status moor__segment_pin(struct moor_runtime *runtime, moor_segment handle,
                              struct moor__segment **ret_segment)
{
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__handles_pin(&runtime->segments, handle, &slot);
    if (!status)
        *ret_segment = (struct moor__segment *)slot;
    return status;
}

void moor__segment_unpin(struct moor__segment *segment)
{
    if (moor__handles_unpin(&segment->object.slot))
        moor__segment_disown(segment); /* the handle's share */
}

moor_status moor_segment_release(struct moor_runtime *runtime, moor_segment handle)
{
    if (handle == 0)
        return moor__leave(moor__enter(runtime));
    struct moor__segment *segment = NULL;
    moor_status status = moor__segment_pin(runtime, handle, &segment);
    if (status)
        return moor__leave(status);
    struct moor_device *device = moor__device_hold(segment->object.binding->device);
    status = moor__object_retire(&segment->object);
    moor__segment_unpin(segment);
    moor__device_reap_sometimes(device);
    moor__device_unhold(device);
    return moor__leave(status);
}

/* ---- provider calls ---- */

static struct moor_abi_map_args map_args(const struct moor__segment *segment, const struct moor__range *range,
                                         uint64_t first, uint32_t access)
{
    return (struct moor_abi_map_args){
        .struct_size = sizeof(struct moor_abi_map_args),
        .access = access,
        .range = range->handle,
        .offset_bytes = first * range->granule_bytes,
        .segment = segment->handle,
    };
}

moor_status moor__segment_call_map(struct moor__segment *segment, struct moor__range *range, uint64_t first,
                                   uint32_t access)
{
    const struct moor__table *table = moor__table_of(range->object.binding);
    struct moor_abi_error error = MOOR__ERROR_INIT;
    struct moor_abi_map_args args = map_args(segment, range, first, access);
    int32_t called = moor__to_call(table)->shared.map(range->object.binding->device->context, &args, &error);
    return called ? moor__fail_provider(called, &error, table->name, "map") : MOOR_OK;
}

moor_status moor__segment_call_protect(struct moor__segment *segment, struct moor__range *range,
                                       uint64_t first, uint32_t access)
{
    const struct moor__table *table = moor__table_of(range->object.binding);
    struct moor_abi_error error = MOOR__ERROR_INIT;
    struct moor_abi_map_args args = map_args(segment, range, first, access);
    int32_t called =
        moor__to_call(table)->shared.protect(range->object.binding->device->context, &args, &error);
    return called ? moor__fail_provider(called, &error, table->name, "protect") : MOOR_OK;
}

/* ---- sealing ---- */

/* Claims the right to seal, and tells where the writable mapping is. */
static moor_status begin_seal(struct moor__segment *segment, bool *ret_done, moor_range *ret_range,
                              uint64_t *ret_first)
{
    moor_status status = MOOR_OK;
    moor__lock_acquire(&segment->lock);
    *ret_done = segment->sealed;
    *ret_range = segment->writable_range;
    *ret_first = segment->writable_first;
    if (segment->sealing)
        status = moor__fail(MOOR_BUSY, "the segment is being sealed");
    else
        segment->sealing = !segment->sealed;
    moor__lock_release(&segment->lock);
    return status;
}

static void end_seal(struct moor__segment *segment, bool sealed)
{
    moor__lock_acquire(&segment->lock);
    segment->sealing = false;
    segment->sealed = sealed;
    if (sealed)
        moor__segment_set_writable(segment, NULL, 0);
    moor__lock_release(&segment->lock);
}

/* Nobody can start to write through the core while the granules say read-only; then what was started is waited
 * for. */
static moor_status make_read_only(struct moor__segment *segment, struct moor__range *range, uint64_t first,
                                  uint64_t deadline_ns, bool *ret_leaving)
{
    uint64_t count = segment->size_bytes / range->granule_bytes;
    uint64_t offset = first * range->granule_bytes;
    moor__lock_acquire(&range->lock);
    moor_status status = moor__range_expect_mapping(range, first, segment);
    *ret_leaving = status == MOOR_PENDING;
    if (!status && moor__uses_submitting(&range->uses, offset, offset + segment->size_bytes))
        status = moor__fail(MOOR_BUSY, "work on this memory is being submitted");
    if (!status)
        moor__range_set(range, first, count, MOOR__GRANULE_BUSY);
    moor__lock_release(&range->lock);
    if (status)
        return status;
    status = moor__range_await_uses(range, offset, segment->size_bytes, deadline_ns);
    if (!status)
        status = moor__segment_call_protect(segment, range, first, MOOR_ABI_ACCESS_READ);
    moor__lock_acquire(&range->lock);
    moor__range_set_mapped(range, first, count, segment, status != MOOR_OK);
    moor__lock_release(&range->lock);
    return status;
}

/* *ret_leaving: the writable mapping is on its way out; a reap may help. */
static moor_status try_to_seal(struct moor_runtime *runtime, struct moor__segment *segment,
                               uint64_t deadline_ns, bool *ret_leaving)
{
    bool done = false;
    moor_range handle = 0;
    uint64_t first = 0;
    *ret_leaving = false;
    moor_status status = begin_seal(segment, &done, &handle, &first);
    if (status || done)
        return status;
    if (handle) {
        struct moor__range *range;
        status = moor__range_pin(runtime, handle, &range);
        *ret_leaving = status != MOOR_OK;
        if (!status) {
            status = make_read_only(segment, range, first, deadline_ns, ret_leaving);
            moor__range_unpin(range);
        }
    }
    end_seal(segment, !status);
    return status;
}

moor_status moor_segment_seal(struct moor_runtime *runtime, moor_segment handle, uint64_t deadline_ns)
{
    static const uint64_t slice_ns = 1000000;
    struct moor__segment *segment;
    moor_status status = moor__segment_pin(runtime, handle, &segment);
    if (status)
        return moor__leave(status);
    struct moor_device *device = segment->object.binding->device;
    bool leaving;
    status = try_to_seal(runtime, segment, deadline_ns, &leaving);
    for (bool last = false; leaving && !last;) {
        uint64_t now = moor_clock_ns();
        last = now >= deadline_ns;
        moor__device_reap(device, last ? MOOR_NO_WAIT : now + slice_ns);
        status = try_to_seal(runtime, segment, deadline_ns, &leaving);
        if (leaving && !last)
            (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); /* the mapping is behind fences */
    }
    if (leaving)
        status = moor__fail(deadline_ns ? MOOR_TIMEOUT : MOOR_PENDING,
                            "the writable mapping is still behind fences");
    moor__segment_unpin(segment);
    return moor__leave(status);
}
