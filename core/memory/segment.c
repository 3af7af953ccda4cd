/* SPDX-License-Identifier: MIT */
/*
 * Segments: physical memory that its handle and its mappings own together. A mapping owns the memory until
 * its release has completed, so the memory is never freed under an address that still shows it.
 *
 * While a segment is written it has one mapping. Sealing makes that mapping read-only, after the work that
 * uses it, and from then on the contents are shared; writable.c is the way back.
 */
#include "memory/segment.h"

#include "loader/call.h"
#include "memory/release.h"
#include "util/error.h"
#include "util/trace.h"

#include <time.h>

/* ---- the segment's operations ---- */

static void finish(struct moor__object *object)
{
    moor__lock_finish(&moor__segment_of(object)->lock);
}

static void leave(struct moor__object *object)
{
    moor__segment_disown(moor__segment_of(object)); /* the handle's share */
}

static void submit(struct moor__object *object)
{
    struct moor__segment *segment = moor__segment_of(object);
    assert(segment->owners == 0);
    const struct moor_abi_release release = {.kind = MOOR_ABI_RELEASE_SEGMENT, .handle = segment->handle};
    /* No points: work used the memory through mappings, and each mapping left behind its own uses. */
    moor__release_or_quarantine(object, release, NULL, 0);
}

static const struct moor__object_ops segment_ops = {
    .kind = MOOR__KIND_SEGMENT,
    .count = MOOR__COUNT_SEGMENT,
    .line = MOOR__SHARED,
    .finish = finish,
    .leave = leave,
    .complete = moor__object_free,
    .resubmit = submit,
};

moor_status moor_segment_release(struct moor_runtime *runtime, moor_segment handle)
{
    return moor__leave(moor__release_handle(runtime, MOOR__KIND_SEGMENT, handle));
}

/* ---- making ---- */

moor_status moor__segment_take(struct moor_binding *binding, uint64_t size_bytes, uint64_t granule_bytes,
                               struct moor__segment **ret_segment)
{
    struct moor__object *object;
    moor_status status = moor__object_take(binding, &segment_ops, &object);
    if (status)
        return status;
    struct moor__segment *segment = moor__segment_of(object);
    object->requested_bytes = size_bytes;
    segment->size_bytes = size_bytes;
    segment->granule_bytes = granule_bytes;
    segment->owners = 1;
    segment->line = MOOR__SHARED;
    moor__lock_init(&segment->lock, MOOR__RANK_OBJECT, "segment.lock");
    *ret_segment = segment;
    return MOOR_OK;
}

moor_status moor__segment_make(struct moor__object *object, const void *unused, bool *ret_made)
{
    (void)unused;
    struct moor__segment *segment = moor__segment_of(object);
    const struct moor_abi_segment_args args = {
        .struct_size = sizeof args,
        .domain = object->binding->domain_index,
        .size_bytes = segment->size_bytes,
        .granule_bytes = segment->granule_bytes,
    };
    struct moor_abi_segment made = {.struct_size = sizeof made};
    moor_status status = moor__call_segment_create(object->binding->device, &args, &made);
    if (status)
        return status;
    bool is_sane = made.actual_bytes >= args.size_bytes && made.actual_bytes <= INT64_MAX;
    segment->handle = made.handle;
    object->bytes = is_sane ? made.actual_bytes : args.size_bytes;
    *ret_made = made.handle != 0;
    if (made.handle == 0 || !is_sane)
        return moor__fail(MOOR_PROVIDER,
                          "%s: create of a segment gave a zero handle or too few or too many bytes",
                          moor__provider_name(object->binding));
    return MOOR_OK;
}

/* ---- owners ---- */

/* A change of the account line, to be traced when the lock is released. */
struct change {
    struct moor_holder *holder;
    uint64_t bytes;
    enum moor__account_line before;
    enum moor__account_line now;
};

static enum moor__account_line line_of(const struct moor__segment *segment)
{
    assert(segment->leaving + segment->stuck <= segment->owners);
    if (segment->owners == 0 || segment->owners > segment->leaving + segment->stuck)
        return MOOR__SHARED;
    return segment->stuck ? MOOR__QUARANTINED : MOOR__PENDING;
}

static void transfer(struct moor__segment *segment, enum moor__account_line from, enum moor__account_line to)
{
    struct moor_holder *holder = segment->object.binding->holder;
    /* A segment without owner is about to be released, and its bytes pending again. */
    const struct moor__transfer step = {from, to, .bytes = segment->object.bytes,
                                        .is_passing = segment->owners == 0};
    if (from == MOOR__SHARED && !segment->object.ticket)
        segment->object.ticket = moor__evict(holder, step);
    else
        moor__transfer_apply(moor__thread_cache_for(holder), holder, step);
}

/* Moves the bytes to the line of the segment's present owners. Requires segment->lock. */
static struct change update_line(struct moor__segment *segment)
{
    struct change change = {segment->object.binding->holder, segment->object.bytes, segment->line,
                            line_of(segment)};
    if (change.now == change.before)
        return change;
    segment->line = change.now;
    segment->object.is_pending_by_mappings = change.before != MOOR__SHARED && segment->owners == 0;
    /* All changes go by way of pending. */
    if (change.before != MOOR__PENDING)
        transfer(segment, change.before, MOOR__PENDING);
    if (change.now != MOOR__PENDING)
        transfer(segment, MOOR__PENDING, change.now);
    if (change.now == MOOR__SHARED && segment->owners)
        moor__object_settle(&segment->object, MOOR__FATE_KEPT);
    return change;
}

static void trace(struct change change)
{
    struct moor_authority *authority = change.holder->authority;
    uint32_t out = change.before == MOOR__SHARED ? MOOR_TRACE_RELEASE : MOOR_TRACE_RETRY;
    uint32_t in = change.now == MOOR__SHARED ? MOOR_TRACE_RECALL : MOOR_TRACE_QUARANTINE;
    if (change.now == change.before)
        return;
    if (change.before != MOOR__PENDING)
        moor__trace(authority->runtime, out, authority, change.holder, change.bytes, 0);
    if (change.now != MOOR__PENDING)
        moor__trace(authority->runtime, in, authority, change.holder, change.bytes, 0);
}

/* Ends a change of owners: moves the bytes, and starts the release if no owner is left. Releases
 * segment->lock. */
static void end_change(struct moor__segment *segment)
{
    bool is_last = segment->owners == 0;
    struct change change = update_line(segment);
    moor__lock_release(&segment->lock);
    trace(change);
    if (is_last)
        submit(&segment->object);
}

void moor__segment_own(struct moor__segment *segment)
{
    moor__lock_acquire(&segment->lock);
    segment->owners++;
    end_change(segment);
}

void moor__segment_disown(struct moor__segment *segment)
{
    moor__lock_acquire(&segment->lock);
    assert(segment->owners > 0);
    segment->owners--;
    end_change(segment);
}

void moor__segment_count_mappings(struct moor__segment *segment, int leaving, int stuck)
{
    if (!segment)
        return;
    moor__lock_acquire(&segment->lock);
    assert(segment->owners > 0); /* the mapping */
    segment->leaving += (uint64_t)(int64_t)leaving;
    segment->stuck += (uint64_t)(int64_t)stuck;
    end_change(segment);
}

void moor__segment_set_writable(struct moor__segment *segment, const struct moor__range *range,
                                uint64_t first)
{
    segment->writable_range = range ? moor__object_handle(&range->memory.object) : 0;
    segment->writable_first = first;
}

void moor__segment_end_mapping(struct moor__segment *segment, const struct moor__range *range,
                               bool was_leaving)
{
    moor__lock_acquire(&segment->lock);
    assert(segment->owners > 0 && segment->leaving >= was_leaving);
    if (segment->writable_range == moor__object_handle(&range->memory.object))
        moor__segment_set_writable(segment, NULL, 0);
    segment->leaving -= was_leaving;
    segment->owners--;
    end_change(segment);
}

/* ---- provider calls ---- */

static struct moor_abi_map_args map_args(const struct moor__segment *segment, const struct moor__range *range,
                                         uint64_t first, uint32_t access)
{
    return (struct moor_abi_map_args){
        .struct_size = sizeof(struct moor_abi_map_args),
        .access = access,
        .range = range->memory.handle,
        .offset_bytes = first * range->granule_bytes,
        .segment = segment->handle,
    };
}

moor_status moor__segment_map(const struct moor__segment *segment, const struct moor__range *range,
                              uint64_t first, uint32_t access)
{
    const struct moor_abi_map_args args = map_args(segment, range, first, access);
    return moor__call_map(range->memory.object.binding->device, &args);
}

moor_status moor__segment_protect(const struct moor__segment *segment, const struct moor__range *range,
                                  uint64_t first, uint32_t access)
{
    const struct moor_abi_map_args args = map_args(segment, range, first, access);
    return moor__call_protect(range->memory.object.binding->device, &args);
}

/* ---- sealing ---- */

/* Starts to seal, alone, and returns the place of the writable mapping; *ret_range 0: none. */
static moor_status begin_seal(struct moor__segment *segment, bool *ret_done, moor_range *ret_range,
                              uint64_t *ret_first)
{
    moor_status status = MOOR_OK;
    moor__lock_acquire(&segment->lock);
    *ret_done = segment->is_sealed;
    *ret_range = segment->writable_range;
    *ret_first = segment->writable_first;
    if (segment->is_sealing)
        status = moor__fail(MOOR_BUSY, "the segment is being sealed");
    else
        segment->is_sealing = !segment->is_sealed;
    moor__lock_release(&segment->lock);
    return status;
}

static void end_seal(struct moor__segment *segment, bool sealed)
{
    moor__lock_acquire(&segment->lock);
    segment->is_sealing = false;
    segment->is_sealed = sealed;
    if (sealed)
        moor__segment_set_writable(segment, NULL, 0);
    moor__lock_release(&segment->lock);
}

/* Returns OK if the segment is mapped there for writing; else PENDING or BUSY. Requires range->memory.lock. */
static moor_status expect_mapping(const struct moor__range *range, uint64_t first,
                                  const struct moor__segment *segment)
{
    moor__granule granule = range->granules[first];
    enum moor__granule_state state = moor__granule_state(granule);
    if (state == MOOR__GRANULE_MAPPED_WRITE && moor__granule_segment(granule) == segment)
        return MOOR_OK;
    return moor__fail(state == MOOR__GRANULE_LEAVING ? MOOR_PENDING : MOOR_BUSY,
                      "the segment's writable mapping is leaving or being worked on");
}

/* Makes the writable mapping read-only. Its granules are BUSY, so the core starts no more work on it, while
 * the function waits for the work that has been started. *ret_leaving: the mapping is being released. */
static moor_status make_read_only(struct moor__segment *segment, struct moor__range *range, uint64_t first,
                                  uint64_t deadline_ns, bool *ret_leaving)
{
    uint64_t count = segment->size_bytes / range->granule_bytes;
    uint64_t low = first * range->granule_bytes;
    moor__lock_acquire(&range->memory.lock);
    moor_status status = expect_mapping(range, first, segment);
    *ret_leaving = status == MOOR_PENDING;
    if (!status)
        status = moor__range_expect_unused(range, first, count);
    if (!status)
        moor__range_set(range, first, count, MOOR__GRANULE_BUSY);
    moor__lock_release(&range->memory.lock);
    if (status)
        return status;
    status = moor__memory_await(&range->memory, low, low + segment->size_bytes, deadline_ns);
    if (!status)
        status = moor__segment_protect(segment, range, first, MOOR_ABI_ACCESS_READ);
    moor__range_show_mapping(range, first, segment, status != MOOR_OK);
    return status;
}

/* *ret_leaving: the writable mapping is being released, and a reap may end it. */
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
            moor__object_unpin(&range->memory.object);
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
    moor__object_unpin(&segment->object);
    return moor__leave(status);
}
