/* SPDX-License-Identifier: MIT */
/*
 * Copy-on-write: a read-only mapping becomes writable at its own address, and nobody else sees the writes.
 *
 * The last owner gets write access in place. Otherwise the contents are copied into a new segment through a
 * window (a range of its own that nobody else sees); only when the copy and all other work on the old mapping
 * are done does the new segment take its place. Everything up to that exchange can be taken back without a
 * trace.
 */
#include "memory/range.h"

#include "memory/access.h"
#include "memory/release.h"
#include "memory/segment.h"
#include "util/error.h"

#include <time.h>

/* An unmap that nothing uses any more is due at once; a provider that takes longer than this has lost it. */
#define UNMAP_PATIENCE_NS UINT64_C(10000000000)

struct exchange {
    struct moor_binding *binding; /* the range's: it pays for the copy */
    struct moor__range *range;    /* pinned; the mapping's granules are BUSY */
    uint64_t first;
    uint64_t count;
    struct moor__segment *old;
    struct moor__segment *new; /* owned once by us */
    struct moor__range *window;
    struct moor__range_part *part; /* the record for taking the old mapping away */
    struct moor_stream *stream;
    uint64_t deadline_ns;
};

static uint64_t offset_of(const struct exchange *exchange)
{
    return exchange->first * exchange->range->granule_bytes;
}

static void show(struct exchange *exchange, struct moor__segment *segment, bool writable)
{
    moor__lock_acquire(&exchange->range->lock);
    moor__range_set_mapped(exchange->range, exchange->first, exchange->count, segment, writable);
    moor__lock_release(&exchange->range->lock);
}

/* ---- in place ---- */

/* The segment's only owner is our mapping: nobody else can come to share it. */
static bool take_alone(struct exchange *exchange)
{
    struct moor__segment *old = exchange->old;
    moor__lock_acquire(&old->lock);
    bool alone = old->owners == 1;
    if (alone) {
        old->sealed = false;
        moor__segment_set_writable(old, exchange->range, exchange->first);
    }
    moor__lock_release(&old->lock);
    return alone;
}

/* The handle is the host's, and has a share. */
static moor_segment hand_out(struct moor__segment *segment)
{
    moor__segment_own(segment);
    moor__object_publish(&segment->object);
    return moor__handle_of(&moor__runtime_of(segment->object.binding)->segments, &segment->object.slot);
}

static moor_status write_in_place(struct exchange *exchange, moor_segment *ret_segment)
{
    struct moor__segment *old = exchange->old;
    moor_status status = MOOR_OK;
    /* Its old handle is gone for good. */
    if (ret_segment && !moor__handles_renew(&old->object.slot))
        status = moor__fail(MOOR_LIMIT, "the segment has had as many handles as it can");
    if (!status)
        status =
            moor__segment_call_protect(old, exchange->range, exchange->first, MOOR_ABI_ACCESS_READ_WRITE);
    if (status) {
        moor__lock_acquire(&old->lock);
        old->sealed = true;
        moor__segment_set_writable(old, NULL, 0);
        moor__lock_release(&old->lock);
    } else if (ret_segment) {
        *ret_segment = hand_out(old);
    }
    show(exchange, old, !status);
    return status;
}

/* ---- the copy ---- */

static moor_status make_segment(struct exchange *exchange, moor_grant grant)
{
    struct moor__reservation reservation;
    moor_status status = moor__segment_take(exchange->binding, exchange->old->size_bytes,
                                            exchange->range->granule_bytes, &exchange->new);
    if (status)
        return status;
    status = moor__reservation_take(exchange->binding->holder, grant, exchange->old->size_bytes, MOOR_NO_WAIT,
                                    &reservation);
    if (status)
        goto no_memory;
    status = moor__segment_back(exchange->new);
    if (status && !exchange->new->handle) {
        moor__reservation_return(&reservation);
        goto no_memory;
    }
    if (!status)
        status = moor__reservation_charge(&reservation, MOOR__SHARED, exchange->new->size_bytes,
                                          exchange->new->object.bytes);
    if (status) {
        struct moor__error_scope aside;
        moor__error_scope_begin(&aside);
        moor__object_charge_for_rollback(&exchange->new->object, &reservation, grant);
        moor__segment_disown(exchange->new);
        exchange->new = NULL;
        moor__error_scope_end(&aside);
        return status;
    }
    return MOOR_OK;
no_memory:
    moor__segment_free(exchange->new);
    exchange->new = NULL;
    return status;
}

static moor_status open_window(struct exchange *exchange)
{
    uint64_t granule = exchange->range->granule_bytes;
    moor_status status =
        moor__range_make(exchange->binding, exchange->new->size_bytes, granule, granule, &exchange->window);
    if (status)
        return status;
    status = moor__segment_call_map(exchange->new, exchange->window, 0, MOOR_ABI_ACCESS_READ_WRITE);
    if (status)
        return status;
    moor__segment_own(exchange->new);
    moor__lock_acquire(&exchange->window->lock);
    moor__range_set_mapped(exchange->window, 0, exchange->count, exchange->new, true);
    moor__lock_release(&exchange->window->lock);
    return MOOR_OK;
}

/* Work by the core itself on a part of a range: announced before, marked after. */
static moor_status announce(struct moor__range *range, struct moor_stream *stream, uint64_t low,
                            uint64_t high)
{
    moor__lock_acquire(&range->lock);
    moor_status status = moor__uses_begin(&range->uses, stream, low, high);
    moor__lock_release(&range->lock);
    return status;
}

static void settle(struct moor__range *range, struct moor_stream *stream, uint64_t low, uint64_t high,
                   bool submitted)
{
    moor__lock_acquire(&range->lock);
    if (submitted)
        moor__uses_end(&range->uses, stream, low, high, moor__stream_mark(stream));
    else
        moor__uses_cancel(&range->uses, stream, low, high);
    moor__lock_release(&range->lock);
}

static moor_status copy_contents(struct exchange *exchange)
{
    struct moor_stream *stream = exchange->stream;
    const struct moor__table *table = moor__table_of(exchange->binding);
    uint64_t low = offset_of(exchange), size = exchange->new->size_bytes;
    moor_status status = announce(exchange->range, stream, low, low + size);
    if (status)
        return status;
    status = announce(exchange->window, stream, 0, size);
    if (status) {
        settle(exchange->range, stream, low, low + size, false);
        return status;
    }
    struct moor_abi_error error = MOOR__ERROR_INIT;
    struct moor_abi_copy_args args = {
        .struct_size = sizeof args,
        .direction = moor__binding_is_device(exchange->binding) ? MOOR_ABI_COPY_D2D : MOOR_ABI_COPY_H2H,
        .destination = exchange->window->address,
        .source = exchange->range->address + low,
        .size_bytes = size,
    };
    int32_t called = moor__to_call(table)->copy.copy(stream->stream, &args, &error);
    settle(exchange->range, stream, low, low + size, called == MOOR_OK);
    settle(exchange->window, stream, 0, size, called == MOOR_OK);
    return called ? moor__fail_provider(called, &error, table->name, "copy") : MOOR_OK;
}

/* ---- the exchange ---- */

/* lock held. Gives up waiting: the granules leave when the part does, or stay in quarantine. */
static void abandon(struct exchange *exchange)
{
    moor__range_set(exchange->range, exchange->first, exchange->count, MOOR__GRANULE_LEAVING);
    exchange->part->awaited = false;
    exchange->part = NULL;
    exchange->old = NULL;
}

/* Waits until the old mapping has gone. */
static moor_status await_piece(struct exchange *exchange)
{
    static const uint64_t slice_ns = 10000000;
    struct moor__range_part *part = exchange->part;
    struct moor__range *range = exchange->range;
    uint64_t give_up = moor_clock_ns() + UNMAP_PATIENCE_NS;
    for (uint64_t now = moor_clock_ns();; now = moor_clock_ns()) {
        moor__lock_acquire(&range->lock);
        bool gone = part->gone;
        bool refused = !gone && atomic_load_explicit(&part->object.state, memory_order_acquire) ==
                                    MOOR__STATE_QUARANTINED;
        bool lost = !gone && now > give_up;
        if (refused || lost)
            abandon(exchange);
        moor__lock_release(&range->lock);
        if (gone)
            return MOOR_OK;
        if (refused || lost)
            return moor__fail(MOOR_PROVIDER, "%s: an unmap that is due %s",
                              moor__table_of(exchange->binding)->name,
                              refused ? "failed" : "did not complete");
        moor__device_reap(exchange->binding->device, now + slice_ns);
        /* Where nothing is queued the provider does not wait: the completion is lost, or in another thread's
         * hands. */
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

/* Until no work is known to use the mapping. What a host tells later, while the exchange goes on, still holds
 * up the unmap, which is behind all uses that are known then. */
static moor_status await_quiet(struct exchange *exchange)
{
    struct moor__range *range = exchange->range;
    uint64_t low = offset_of(exchange), high = low + exchange->old->size_bytes;
    struct moor__point points[MOOR_LIMIT_USES];
    moor_status status = MOOR_OK;
    for (uint32_t count = 1; count > 0 && !status;) {
        status = moor__range_await_uses(range, low, high - low, exchange->deadline_ns);
        moor__lock_acquire(&range->lock);
        count = moor__uses_collect(&range->uses, low, high, points);
        moor__lock_release(&range->lock);
        moor__points_unref(points, count);
    }
    return status;
}

static moor_status take_old_away(struct exchange *exchange)
{
    struct moor__range_part *part = exchange->part;
    struct moor__range *range = exchange->range;
    part->first = exchange->first;
    part->count = exchange->count;
    part->segment = exchange->old;
    part->awaited = true;
    moor__lock_acquire(&range->lock);
    range->parts_out++;
    moor__lock_release(&range->lock);
    moor_status status = moor__range_part_submit(part, false);
    bool accepted = !status;
    if (accepted)
        status = await_piece(exchange);
    if (!accepted || !status)
        moor__range_part_done(range);
    return status;
}

static moor_status put_new_in_place(struct exchange *exchange, moor_segment *ret_segment)
{
    struct moor__range *range = exchange->range;
    moor_status status =
        moor__segment_call_map(exchange->new, range, exchange->first, MOOR_ABI_ACCESS_READ_WRITE);
    if (!status) {
        struct moor__segment *new = exchange->new;
        moor__lock_acquire(&new->lock);
        moor__segment_set_writable(new, range, exchange->first);
        moor__lock_release(&new->lock);
        if (ret_segment)
            *ret_segment = hand_out(new);
        show(exchange, new, true);
        exchange->new = NULL; /* our share is the mapping's now */
        moor__segment_unmapped(exchange->old, range);
        return MOOR_OK;
    }
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    bool restored =
        moor__segment_call_map(exchange->old, range, exchange->first, MOOR_ABI_ACCESS_READ) == MOOR_OK;
    moor__error_scope_end(&aside);
    if (restored) {
        moor__segment_count_leaving(exchange->old, -1);
        show(exchange, exchange->old, false);
        return status;
    }
    moor__lock_acquire(&range->lock);
    moor__range_set(range, exchange->first, exchange->count, MOOR__GRANULE_FREE);
    moor__lock_release(&range->lock);
    moor__segment_unmapped(exchange->old, range);
    return moor__fail_prefix("the old mapping could not be put back; its granules are not backed now: ");
}

/* Up to the exchange; the granules are BUSY and the old mapping is in place. */
static moor_status prepare_copy(struct exchange *exchange, moor_grant grant)
{
    moor_status status = moor__range_part_take(exchange->range, &exchange->part);
    if (!status)
        status = make_segment(exchange, grant);
    if (!status)
        status = open_window(exchange);
    if (!status)
        status = copy_contents(exchange);
    return status ? status : await_quiet(exchange);
}

static moor_status write_a_copy(struct exchange *exchange, moor_grant grant, moor_segment *ret_segment)
{
    moor_status status = moor__binding_needs(exchange->binding, MOOR_ABI_CAP_COPY, "COPY");
    if (!status && !(exchange->stream->device->info.capabilities & MOOR_ABI_CAP_COPY))
        status = moor__fail(MOOR_UNSUPPORTED, "the stream's device has no COPY");
    if (!status)
        status = prepare_copy(exchange, grant);
    if (!status)
        status = take_old_away(exchange);
    if (!status)
        status = put_new_in_place(exchange, ret_segment);
    else if (exchange->old)
        show(exchange, exchange->old, false);
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    struct moor_device *device = exchange->binding->device;
    if (exchange->new) {
        exchange->new->object.grant = moor__grant_expect(moor__runtime_of(exchange->binding), grant);
        exchange->new->object.grant_bytes = exchange->new->size_bytes;
    }
    if (exchange->window)
        moor__range_release_all(exchange->window); /* behind the copy */
    if (exchange->new)
        moor__segment_disown(exchange->new);
    if (exchange->part)
        moor__range_part_free(exchange->part);
    moor__device_reap(device, MOOR_NO_WAIT);
    moor__error_scope_end(&aside);
    return status;
}

/* ---- public ---- */

/* Makes the mapping's granules ours. *ret_done: it is writable already. */
static moor_status begin(struct exchange *exchange, uint64_t offset_bytes, bool *ret_done)
{
    struct moor__range *range = exchange->range;
    uint64_t count;
    moor_status status =
        moor__range_granules(range, offset_bytes, range->granule_bytes, &exchange->first, &count);
    if (status)
        return status;
    moor__lock_acquire(&range->lock);
    moor__granule granule = range->granules[exchange->first];
    *ret_done = moor__granule_state(granule) == MOOR__GRANULE_MAPPED_WRITE;
    if (!*ret_done)
        status = moor__range_expect(range, exchange->first, 1, MOOR__GRANULE_MAPPED_READ);
    if (!*ret_done && !status) {
        exchange->old = moor__granule_segment(granule);
        exchange->count = moor__range_mapping_length(range, exchange->first);
        if (moor__uses_submitting(&range->uses, offset_bytes, offset_bytes + exchange->old->size_bytes))
            status = moor__fail(MOOR_BUSY, "work on this memory is being submitted");
        else
            moor__range_set(range, exchange->first, exchange->count, MOOR__GRANULE_BUSY);
    }
    moor__lock_release(&range->lock);
    return status;
}

moor_status moor_range_make_writable(struct moor_runtime *runtime, moor_range handle, uint64_t offset_bytes,
                                     struct moor_stream *stream, moor_grant grant, uint64_t deadline_ns,
                                     moor_segment *ret_segment)
{
    moor_status status = moor__stream_enter(stream);
    struct exchange exchange = {.stream = stream, .deadline_ns = deadline_ns};
    if (!status)
        status = moor__range_pin(runtime, handle, &exchange.range);
    if (status)
        return moor__leave(status);
    struct moor__range *range = exchange.range;
    exchange.binding = range->object.binding;
    bool done = false;
    if (stream->device->provider != exchange.binding->device->provider)
        status = moor__fail(MOOR_FOREIGN, "the stream is of another provider than the range");
    if (!status)
        status = begin(&exchange, offset_bytes, &done);
    if (!status && done && ret_segment)
        *ret_segment = 0;
    if (!status && !done) {
        status = moor__range_await_uses(range, offset_of(&exchange), exchange.old->size_bytes, deadline_ns);
        if (status)
            show(&exchange, exchange.old, false);
    }
    /* A mapping elsewhere that has just gone is no owner any more. */
    if (!status && !done)
        moor__device_reap(exchange.binding->device, MOOR_NO_WAIT);
    if (!status && !done)
        status = take_alone(&exchange) ? write_in_place(&exchange, ret_segment)
                                       : write_a_copy(&exchange, grant, ret_segment);
    moor__range_unpin(range);
    return moor__leave(status);
}
