/* SPDX-License-Identifier: MIT */
/*
 * Copy-on-write: a read-only mapping becomes writable at its own address, and no other owner sees the writes.
 *
 * The last owner gets write access in place. Otherwise the contents are copied into a new segment through a
 * window, a range that the host never sees. When the copy and all other work on the old mapping are done, the
 * new segment takes the place of the old one. Everything before that exchange can be undone without a trace.
 *
 * The mapping:                                           The copy:
 *
 *     HELD --> UNMAPPING --> UNMAPPED --> EXCHANGED          NONE --> MADE --> OPENED
 *      |  ^______/  |          |    |                          a segment      and a window shows it
 *      v  refused   v          v    v
 *     RESTORED   ABANDONED  RESTORED EMPTY
 *
 * HELD: the granules are BUSY and the old mapping is in place. UNMAPPING: the provider has accepted its
 * release. UNMAPPED: nothing is behind the BUSY granules. Ends: EXCHANGED, the new mapping is in place;
 * RESTORED, the old one is; ABANDONED, the release of the old one failed or did not end, and its part keeps
 * the granules; EMPTY, the provider could map neither segment, and the granules are FREE.
 */
#include "memory/range.h"

#include "memory/access.h"
#include "memory/charge.h"
#include "memory/release.h"
#include "memory/segment.h"
#include "util/error.h"

#include <time.h>

/* Nothing uses the old mapping when its release is submitted, so the release is due. A provider that has not
 * completed it after this time has lost it. */
#define UNMAP_PATIENCE_NS UINT64_C(10000000000)

enum mapping_state { HELD, UNMAPPING, UNMAPPED, EXCHANGED, RESTORED, ABANDONED, EMPTY };
enum copy_state { NONE, MADE, OPENED };

struct exchange {
    struct moor_binding *binding; /* the range's: pays for the copy */
    struct moor__range *range;    /* pinned */
    struct moor_stream *stream;
    moor_grant grant;
    uint64_t deadline_ns;

    enum mapping_state mapping;
    uint64_t first; /* granule */
    uint64_t count;
    struct moor__segment *old;     /* valid until EXCHANGED, ABANDONED or EMPTY */
    struct moor__range_part *part; /* the record for the old mapping's release */

    enum copy_state copy;
    struct moor__segment *new;  /* from MADE on; the exchange owns one share */
    struct moor__range *window; /* OPENED */
};

static uint64_t offset_of(const struct exchange *exchange)
{
    return exchange->first * exchange->range->granule_bytes;
}

static void enter(struct exchange *exchange, enum mapping_state from, enum mapping_state to)
{
    assert(exchange->mapping == from && from < EXCHANGED);
    exchange->mapping = to;
}

/* Shows the old mapping, which is in place, read-only as before. */
static void restore(struct exchange *exchange, enum mapping_state from)
{
    moor__range_show_mapping(exchange->range, exchange->first, exchange->old, false);
    enter(exchange, from, RESTORED);
}

/* Gives the host a handle, which is an owner. */
static moor_segment publish(struct moor__segment *segment)
{
    moor__segment_own(segment);
    return moor__object_publish(&segment->object);
}

/* ---- in place ---- */

/* Unseals the old segment if the mapping is its only owner: then no other can come to share it. */
static bool take_alone(struct exchange *exchange)
{
    struct moor__segment *old = exchange->old;
    moor__lock_acquire(&old->lock);
    bool alone = old->owners == 1;
    if (alone) {
        old->is_sealed = false;
        moor__segment_set_writable(old, exchange->range, exchange->first);
    }
    moor__lock_release(&old->lock);
    return alone;
}

static moor_status write_in_place(struct exchange *exchange, moor_segment *ret_segment)
{
    struct moor__segment *old = exchange->old;
    moor_status status = MOOR_OK;
    /* The segment's old handle is stale for ever. */
    if (ret_segment && !moor__handles_renew(&old->object.slot))
        status = moor__fail(MOOR_LIMIT, "the segment has had as many handles as it can");
    if (!status)
        status = moor__segment_protect(old, exchange->range, exchange->first, MOOR_ABI_ACCESS_READ_WRITE);
    if (status) {
        moor__lock_acquire(&old->lock);
        old->is_sealed = true;
        moor__segment_set_writable(old, NULL, 0);
        moor__lock_release(&old->lock);
        restore(exchange, HELD);
        return status;
    }
    if (ret_segment)
        *ret_segment = publish(old);
    moor__range_show_mapping(exchange->range, exchange->first, old, true);
    enter(exchange, HELD, EXCHANGED);
    return MOOR_OK;
}

/* ---- the copy ---- */

/* NONE -> MADE. */
static moor_status make_segment(struct exchange *exchange)
{
    assert(exchange->copy == NONE);
    struct moor__segment *new;
    struct moor__reservation reservation;
    struct moor_binding *binding = exchange->binding;
    moor_grant grant = exchange->grant;
    uint64_t bytes = exchange->old->size_bytes;
    moor_status status = moor__segment_take(binding, bytes, exchange->range->granule_bytes, &new);
    if (status)
        return status;
    status = moor__reservation_take(binding->holder, grant, bytes, MOOR_NO_WAIT, &reservation);
    if (status)
        moor__object_free(&new->object);
    else
        status = moor__charge_and_make(&new->object, &reservation, grant, moor__segment_make, NULL);
    if (status)
        return status;
    exchange->new = new;
    exchange->copy = MADE;
    return MOOR_OK;
}

/* MADE -> OPENED. */
static moor_status open_window(struct exchange *exchange)
{
    assert(exchange->copy == MADE);
    uint64_t granule = exchange->range->granule_bytes;
    struct moor__range *window;
    moor_status status =
        moor__range_make(exchange->binding, exchange->new->size_bytes, granule, granule, &window);
    if (status)
        return status;
    status = moor__segment_map(exchange->new, window, 0, MOOR_ABI_ACCESS_READ_WRITE);
    if (status) {
        moor__range_leave(&window->memory.object);
        return status;
    }
    moor__segment_own(exchange->new);
    moor__range_show_mapping(window, 0, exchange->new, true);
    exchange->window = window;
    exchange->copy = OPENED;
    return MOOR_OK;
}

static moor_status copy_contents(struct exchange *exchange)
{
    assert(exchange->copy == OPENED && exchange->mapping == HELD);
    struct moor_stream *stream = exchange->stream;
    uint64_t low = offset_of(exchange), size = exchange->new->size_bytes;
    /* MARK: the granules are BUSY, and the exchange knows the memory behind them. */
    const struct moor__access source = {stream, &exchange->range->memory, low, low + size};
    const struct moor__access target = {stream, &exchange->window->memory, 0, size};
    moor_status status = moor__access_announce(&source, MOOR__ACCESS_MARK);
    if (status)
        return status;
    status = moor__access_announce(&target, MOOR__ACCESS_MARK);
    if (status) {
        moor__access_settle(&source, false);
        return status;
    }
    bool is_device = moor__binding_is_device(exchange->binding);
    status = moor__copy_submit(stream, exchange->window->memory.address, is_device,
                               exchange->range->memory.address + low, is_device, size);
    moor__access_settle(&source, !status);
    moor__access_settle(&target, !status);
    return status;
}

/* Waits until no work is known to use the mapping. The host may mark further work while the exchange goes on;
 * the unmap is queued behind all uses that are known then. */
static moor_status await_quiet(struct exchange *exchange)
{
    struct moor__memory *memory = &exchange->range->memory;
    uint64_t low = offset_of(exchange), high = low + exchange->old->size_bytes;
    struct moor__point points[MOOR_LIMIT_USES];
    for (;;) {
        uint32_t count = moor__memory_collect(memory, low, high, points);
        if (count == 0)
            return MOOR_OK;
        moor_status status = moor__points_await(points, count, exchange->deadline_ns);
        if (status)
            return status;
    }
}

/* ---- the exchange ---- */

/* Returns the new state of the mapping: UNMAPPED, ABANDONED, or UNMAPPING if the wait goes on. Requires
 * range->memory.lock. */
static enum mapping_state check_part(struct exchange *exchange, bool is_late)
{
    struct moor__range_part *part = exchange->part;
    if (part->is_gone) {
        part->count = 0; /* the exchange holds the granules */
        return UNMAPPED;
    }
    if (!is_late && moor__object_state(&part->object) != MOOR__STATE_QUARANTINED)
        return UNMAPPING;
    moor__range_set(exchange->range, part->first, part->count, MOOR__GRANULE_LEAVING);
    part->is_awaited = false;
    return ABANDONED;
}

/* UNMAPPING -> UNMAPPED or ABANDONED. */
static moor_status await_part(struct exchange *exchange)
{
    static const uint64_t slice_ns = 10000000;
    uint64_t late_ns = moor_clock_ns() + UNMAP_PATIENCE_NS;
    for (;;) {
        uint64_t now_ns = moor_clock_ns();
        moor__lock_acquire(&exchange->range->memory.lock);
        enum mapping_state state = check_part(exchange, now_ns > late_ns);
        moor__lock_release(&exchange->range->memory.lock);
        if (state != UNMAPPING) {
            enter(exchange, UNMAPPING, state);
            if (state == UNMAPPED)
                return MOOR_OK;
            return moor__fail(MOOR_PROVIDER, "%s: an unmap that is due %s",
                              moor__provider_name(exchange->binding),
                              now_ns > late_ns ? "did not complete" : "failed");
        }
        moor__device_reap(exchange->binding->device, now_ns + slice_ns);
        /* A provider with an empty queue does not wait: the completion is lost, or another thread has reaped
         * it. */
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

/* HELD -> UNMAPPED or ABANDONED. HELD again if the provider refuses. */
static moor_status unmap_old(struct exchange *exchange)
{
    struct moor__range_part *part = exchange->part;
    struct moor__range *range = exchange->range;
    part->first = exchange->first;
    part->count = exchange->count;
    part->segment = exchange->old;
    part->is_awaited = true;
    moor__lock_acquire(&range->memory.lock);
    range->parts_out++;
    moor__lock_release(&range->memory.lock);
    enter(exchange, HELD, UNMAPPING);
    moor_status status = moor__part_submit(part, false);
    if (status) {
        part->count = 0;
        enter(exchange, UNMAPPING, HELD);
    } else {
        status = await_part(exchange);
    }
    if (exchange->mapping != ABANDONED)
        moor__range_part_done(range);
    return status;
}

/* UNMAPPED -> RESTORED or EMPTY, after the provider could not map the new segment. */
static moor_status map_old_again(struct exchange *exchange, moor_status status)
{
    struct moor__range *range = exchange->range;
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    bool is_mapped = !moor__segment_map(exchange->old, range, exchange->first, MOOR_ABI_ACCESS_READ);
    moor__error_scope_end(&aside);
    if (is_mapped) {
        moor__segment_count_mappings(exchange->old, -1, 0);
        restore(exchange, UNMAPPED);
        return status;
    }
    moor__lock_acquire(&range->memory.lock);
    moor__range_set(range, exchange->first, exchange->count, MOOR__GRANULE_FREE);
    moor__lock_release(&range->memory.lock);
    moor__segment_end_mapping(exchange->old, range, true);
    enter(exchange, UNMAPPED, EMPTY);
    return moor__fail_prefix("the old mapping could not be put back; its granules are not backed now: ");
}

/* UNMAPPED -> EXCHANGED, or as map_old_again. */
static moor_status map_new(struct exchange *exchange, moor_segment *ret_segment)
{
    struct moor__range *range = exchange->range;
    struct moor__segment *new = exchange->new;
    moor_status status = moor__segment_map(new, range, exchange->first, MOOR_ABI_ACCESS_READ_WRITE);
    if (status)
        return map_old_again(exchange, status);
    moor__lock_acquire(&new->lock);
    moor__segment_set_writable(new, range, exchange->first);
    moor__lock_release(&new->lock);
    if (ret_segment)
        *ret_segment = publish(new);
    moor__range_show_mapping(range, exchange->first, new, true);
    moor__segment_end_mapping(exchange->old, range, true);
    enter(exchange, UNMAPPED, EXCHANGED);
    return MOOR_OK;
}

/* Releases the window, behind the copy, and the new segment unless its mapping has taken over the exchange's
 * share. */
static void clean_up(struct exchange *exchange)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    if (exchange->mapping == HELD)
        restore(exchange, HELD);
    bool is_unused = exchange->copy >= MADE && exchange->mapping != EXCHANGED;
    if (is_unused)
        moor__object_expect_grant(&exchange->new->object, exchange->grant, exchange->new->size_bytes);
    if (exchange->copy == OPENED)
        moor__range_leave(&exchange->window->memory.object);
    if (is_unused)
        moor__segment_disown(exchange->new);
    if (exchange->mapping != ABANDONED)
        moor__object_free(&exchange->part->object);
    moor__device_reap(exchange->binding->device, MOOR_NO_WAIT);
    moor__error_scope_end(&aside);
}

static moor_status write_a_copy(struct exchange *exchange, moor_segment *ret_segment)
{
    moor_status status = moor__copy_check(exchange->stream, &exchange->range->memory);
    if (!status)
        status = moor__part_take(exchange->range, &exchange->part);
    if (status) {
        restore(exchange, HELD);
        return status;
    }
    status = make_segment(exchange);
    if (!status)
        status = open_window(exchange);
    if (!status)
        status = copy_contents(exchange);
    if (!status)
        status = await_quiet(exchange);
    if (!status)
        status = unmap_old(exchange);
    if (!status)
        status = map_new(exchange, ret_segment);
    clean_up(exchange);
    return status;
}

/* ---- public ---- */

/* Makes the mapping HELD. *ret_done: it is writable already, and nothing is held. */
static moor_status begin(struct exchange *exchange, uint64_t offset_bytes, bool *ret_done)
{
    struct moor__range *range = exchange->range;
    uint64_t count;
    moor_status status =
        moor__range_granules(range, offset_bytes, range->granule_bytes, &exchange->first, &count);
    if (status)
        return status;
    moor__lock_acquire(&range->memory.lock);
    moor__granule granule = range->granules[exchange->first];
    *ret_done = moor__granule_state(granule) == MOOR__GRANULE_MAPPED_WRITE;
    if (!*ret_done)
        status = moor__range_expect(range, exchange->first, 1, MOOR__GRANULE_MAPPED_READ);
    if (!*ret_done && !status) {
        exchange->old = moor__granule_segment(granule);
        exchange->count = moor__range_mapping_length(range, exchange->first);
        status = moor__range_expect_unused(range, exchange->first, exchange->count);
    }
    if (!*ret_done && !status)
        moor__range_set(range, exchange->first, exchange->count, MOOR__GRANULE_BUSY);
    moor__lock_release(&range->memory.lock);
    return status;
}

/* Makes a HELD mapping writable, or restores it. */
static moor_status write_mapping(struct exchange *exchange, moor_segment *ret_segment)
{
    uint64_t low = offset_of(exchange), high = low + exchange->old->size_bytes;
    moor_status status = moor__memory_await(&exchange->range->memory, low, high, exchange->deadline_ns);
    if (status) {
        restore(exchange, HELD);
        return status;
    }
    /* A reap ends the mappings elsewhere that have been released: they own the segment no longer. */
    moor__device_reap(exchange->binding->device, MOOR_NO_WAIT);
    return take_alone(exchange) ? write_in_place(exchange, ret_segment) : write_a_copy(exchange, ret_segment);
}

moor_status moor_range_make_writable(struct moor_runtime *runtime, moor_range handle, uint64_t offset_bytes,
                                     struct moor_stream *stream, moor_grant grant, uint64_t deadline_ns,
                                     moor_segment *ret_segment)
{
    struct exchange exchange = {.stream = stream, .grant = grant, .deadline_ns = deadline_ns};
    moor_status status = moor__stream_enter(stream);
    if (!status)
        status = moor__range_pin(runtime, handle, &exchange.range);
    if (status)
        return moor__leave(status);
    exchange.binding = exchange.range->memory.object.binding;
    bool is_done = false;
    if (stream->device->provider != exchange.binding->device->provider)
        status = moor__fail(MOOR_FOREIGN, "the stream is of another provider than the range");
    if (!status)
        status = begin(&exchange, offset_bytes, &is_done);
    if (!status && !is_done)
        status = write_mapping(&exchange, ret_segment);
    else if (!status && ret_segment)
        *ret_segment = 0;
    moor__object_unpin(&exchange.range->memory.object);
    return moor__leave(status);
}
