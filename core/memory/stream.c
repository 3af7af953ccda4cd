/* SPDX-License-Identifier: MIT */
/*
 * Streams: their timelines, and their end.
 *
 * A host destroys a stream without waiting, while releases behind it are still queued in the provider. The
 * provider's stream may be destroyed only when its work is done and no queued release names it. Releases hold
 * no references to the streams they name. Each release is counted in the provider's epoch of its submission,
 * and so are waits. A stream that drains in epoch e is destroyed in epoch e + 2 or later. The epoch advances
 * from e to e + 1 only when all releases of e - 1 have completed: then no release is left that could name the
 * stream.
 *
 * References (uses of buffers and ranges, collected points, the host) keep the struct only.
 */
#include "memory/stream.h"

#include "loader/call.h"
#include "util/arith.h"
#include "util/error.h"
#include "util/limits.h"
#include "util/trace.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>

#define CHECK_MAX 64u /* closed streams checked in one pass */

void moor__stream_ref(struct moor_stream *stream)
{
    uint32_t before = atomic_fetch_add_explicit(&stream->references, 1, memory_order_relaxed);
    assert(before > 0);
}

void moor__stream_unref(struct moor_stream *stream)
{
    uint32_t before = atomic_fetch_sub_explicit(&stream->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1)
        free(stream);
}

void moor__points_unref(const struct moor__point *points, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        moor__stream_unref(points[i].stream);
}

moor_status moor__stream_enter(const struct moor_stream *stream)
{
    if (!stream)
        return moor__fail(MOOR_INVALID, "the stream is NULL");
    return moor__enter(stream->device->provider->runtime);
}

/* ---- timelines ---- */

bool moor__stream_passed(const struct moor_stream *stream, uint64_t value)
{
    return atomic_load_explicit(&stream->reached, memory_order_acquire) >= value;
}

/* Raises a known value. Values only grow; threads may learn of them in any order. */
static void raise(_Atomic uint64_t *known, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(known, memory_order_relaxed);
    while (seen < value && !atomic_compare_exchange_weak_explicit(known, &seen, value, memory_order_release,
                                                                  memory_order_relaxed))
        ;
}

/* Raises the lower bound of the watermark to a value that the provider has reached. */
static void note_reached(struct moor_stream *stream, uint64_t reached, uint64_t value)
{
    raise(&stream->reached, reached);
    if (reached >= value)
        moor__trace(stream->device->provider->runtime, MOOR_TRACE_FENCE, NULL, NULL, 0, value);
}

/* Notes a lost stream, which is not waited for when it is destroyed. Returns the status. */
static moor_status note_failure(struct moor_stream *stream, moor_status status)
{
    if (status == MOOR_DEVICE_LOST)
        atomic_store_explicit(&stream->lost, true, memory_order_release);
    return status;
}

uint64_t moor__stream_mark(struct moor_stream *stream)
{
    /* A record that comes after the work in the provider's order may be counted too: then the mark is later
     * than it need be. A record that comes before the work was counted before its own provider call, which is
     * before the work's. */
    uint64_t mark = atomic_load_explicit(&stream->started, memory_order_seq_cst) + 1;
    raise(&stream->marked, mark);
    return mark;
}

static moor_status record(struct moor_stream *stream, uint64_t *ret_value)
{
    uint64_t value = 0, before = atomic_load_explicit(&stream->recorded, memory_order_relaxed);
    atomic_fetch_add_explicit(&stream->started, 1, memory_order_seq_cst);
    moor_status status = moor__call_record(stream->device, stream->stream, &value);
    if (status) {
        atomic_fetch_sub_explicit(&stream->started, 1, memory_order_seq_cst);
        return note_failure(stream, status);
    }
    if (value <= before)
        return moor__fail(MOOR_PROVIDER, "%s: record does not count up",
                          stream->device->provider->table.name);
    raise(&stream->recorded, value);
    *ret_value = value;
    return MOOR_OK;
}

moor_status moor__stream_cover(struct moor_stream *stream, uint64_t value)
{
    moor_status status = MOOR_OK;
    /* Counted before `recorded` is read: the thread that destroys the stream covers all marks first, and then
     * waits for 0. */
    atomic_fetch_add_explicit(&stream->covering, 1, memory_order_seq_cst);
    uint64_t recorded = atomic_load_explicit(&stream->recorded, memory_order_seq_cst);
    /* Mostly one record: a mark is one beyond the records that were under way when it was made. */
    while (recorded < value && !status)
        status = record(stream, &recorded);
    atomic_fetch_sub_explicit(&stream->covering, 1, memory_order_release);
    return status;
}

moor_status moor__stream_check(struct moor_stream *stream, uint64_t value)
{
    if (moor__stream_passed(stream, value))
        return MOOR_OK;
    uint64_t reached = 0;
    moor_status status = moor__call_watermark(stream->device, stream->stream, &reached);
    if (status)
        return note_failure(stream, status);
    note_reached(stream, reached, value);
    return reached < value ? MOOR_PENDING : MOOR_OK;
}

/* Waits for a recorded value. PENDING with MOOR_NO_WAIT, TIMEOUT. Requires no lock. */
static moor_status await(struct moor_stream *stream, uint64_t value, uint64_t deadline_ns)
{
    moor__assert_unlocked("a wait for a fence");
    moor_status status;
    if (deadline_ns == MOOR_NO_WAIT || moor__stream_passed(stream, value)) {
        status = moor__stream_check(stream, value);
        if (status == MOOR_PENDING)
            (void)moor__fail(status, "fence %llu is not reached", (unsigned long long)value);
        return status;
    }
    status = moor__call_wait(stream->device, stream->stream, value, deadline_ns);
    if (status == MOOR_TIMEOUT)
        return moor__fail(status, "fence %llu was not reached by the deadline", (unsigned long long)value);
    if (status)
        return note_failure(stream, status);
    note_reached(stream, value, value);
    return MOOR_OK;
}

/* ---- epochs ---- */

/* Requires streams.lock. */
static uint32_t epoch_enter(struct moor_provider *provider)
{
    uint32_t parity = provider->streams.epoch & 1;
    provider->streams.in_flight[parity]++;
    return parity;
}

void moor__epoch_leave(struct moor_provider *provider, uint32_t parity)
{
    if (parity == MOOR__NO_EPOCH)
        return;
    assert(parity < 2);
    moor__lock_acquire(&provider->streams.lock);
    assert(provider->streams.in_flight[parity] > 0);
    provider->streams.in_flight[parity]--;
    moor__lock_release(&provider->streams.lock);
}

uint32_t moor__points_hold(struct moor_provider *provider, const struct moor__point *points, uint32_t count,
                           bool *ret_named)
{
    if (count == 0)
        return MOOR__NO_EPOCH;
    moor__lock_acquire(&provider->streams.lock);
    uint32_t parity = epoch_enter(provider);
    for (uint32_t i = 0; i < count; i++)
        ret_named[i] = points[i].stream->state <= MOOR__STREAM_CLOSED;
    moor__lock_release(&provider->streams.lock);
    return parity;
}

moor_status moor__points_await(const struct moor__point *points, uint32_t count, uint64_t deadline_ns)
{
    moor__assert_unlocked("a wait for fences");
    if (count == 0)
        return MOOR_OK;
    struct moor_provider *provider = points[0].stream->device->provider;
    bool named[MOOR_LIMIT_USES];
    assert(count <= MOOR_LIMIT_USES);
    uint32_t parity = moor__points_hold(provider, points, count, named);
    moor_status status = MOOR_OK;
    for (uint32_t i = 0; i < count && !status; i++) {
        struct moor_stream *stream = points[i].stream;
        if (named[i])
            status = moor__stream_cover(stream, points[i].value);
        if (named[i] && !status)
            status = await(stream, points[i].value, deadline_ns);
        if (!named[i] && !moor__stream_passed(stream, points[i].value))
            status = moor__fail(MOOR_DEVICE_LOST, "the stream that used this memory is lost");
    }
    moor__epoch_leave(provider, parity);
    moor__points_unref(points, count);
    return status;
}

/* ---- the end of streams ---- */

/* Returns true if the stream's work is done, or never will be. Requires streams.lock. */
static bool is_finished(const struct moor_stream *stream)
{
    return atomic_load_explicit(&stream->lost, memory_order_acquire) ||
           moor__stream_passed(stream, atomic_load_explicit(&stream->recorded, memory_order_acquire));
}

/* Reads the watermarks of the first closed streams, which go to the end of the list. The epoch keeps the
 * provider's streams meanwhile. */
static void check_closed(struct moor_provider *provider)
{
    struct moor_stream *checked[CHECK_MAX];
    uint32_t count = 0;
    moor__lock_acquire(&provider->streams.lock);
    uint32_t parity = epoch_enter(provider);
    for (uint64_t left = moor__min(moor__streams_ending(provider), CHECK_MAX); left > 0; left--) {
        struct moor_stream *stream = TAILQ_FIRST(&provider->streams.ending);
        TAILQ_REMOVE(&provider->streams.ending, stream, entry);
        TAILQ_INSERT_TAIL(&provider->streams.ending, stream, entry);
        if (stream->state != MOOR__STREAM_CLOSED)
            continue;
        moor__stream_ref(stream);
        checked[count++] = stream;
    }
    moor__lock_release(&provider->streams.lock);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t last = atomic_load_explicit(&checked[i]->recorded, memory_order_acquire);
        (void)moor__stream_check(checked[i], last); /* the stream keeps the result */
        moor__stream_unref(checked[i]);
    }
    moor__epoch_leave(provider, parity);
}

/* Moves finished streams to DRAINED, and advances the epoch if it may. Requires streams.lock. */
static void drain_finished(struct moor_provider *provider)
{
    struct moor_stream *stream;
    TAILQ_FOREACH (stream, &provider->streams.ending, entry)
        if (stream->state == MOOR__STREAM_CLOSED && is_finished(stream)) {
            stream->state = MOOR__STREAM_DRAINED;
            stream->drained_epoch = provider->streams.epoch;
        }
    /* More than two steps are of no use: a stream waits for two. */
    for (int step = 0; step < 2 && provider->streams.in_flight[(provider->streams.epoch + 1) & 1] == 0;
         step++)
        provider->streams.epoch++;
}

/* Moves the streams that no release can name any more to a list of their own. Requires streams.lock. */
static void take_destroyable(struct moor_provider *provider, struct moor__streams *ret_gone)
{
    struct moor_stream *stream, *next;
    for (stream = TAILQ_FIRST(&provider->streams.ending); stream; stream = next) {
        next = TAILQ_NEXT(stream, entry);
        if (stream->state != MOOR__STREAM_DRAINED || provider->streams.epoch < stream->drained_epoch + 2)
            continue;
        TAILQ_REMOVE(&provider->streams.ending, stream, entry);
        TAILQ_INSERT_TAIL(ret_gone, stream, entry);
        assert(moor__streams_ending(provider) > 0 && provider->streams.count > 0);
        atomic_fetch_sub_explicit(&provider->streams.ending_count, 1, memory_order_relaxed);
        provider->streams.count--;
        stream->state = MOOR__STREAM_GONE;
    }
}

static void destroy(struct moor_stream *stream)
{
    if (moor__call_stream_destroy(stream->device, stream->stream))
        moor__log(stream->device->provider->runtime, MOOR_ABI_LOG_ERROR, "%s", moor__pending_error()->text);
    moor__count(stream->device, MOOR__COUNT_STREAM, -1);
    moor__stream_unref(stream);
}

void moor__streams_retire(struct moor_provider *provider, bool check_all)
{
    uint64_t ending = moor__streams_ending(provider);
    if (ending == 0)
        return;
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    struct moor__streams gone = TAILQ_HEAD_INITIALIZER(gone);
    uint64_t rounds = check_all ? ending / CHECK_MAX + 1 : 1;
    while (rounds-- > 0)
        check_closed(provider);
    moor__lock_acquire(&provider->streams.lock);
    drain_finished(provider);
    take_destroyable(provider, &gone);
    moor__lock_release(&provider->streams.lock);
    while (!TAILQ_EMPTY(&gone)) {
        struct moor_stream *stream = TAILQ_FIRST(&gone);
        TAILQ_REMOVE(&gone, stream, entry);
        destroy(stream);
    }
    moor__error_scope_end(&aside);
}

/* Closes the stream. Nothing is submitted to it from here on. */
static void close_stream(struct moor_stream *stream)
{
    struct moor_provider *provider = stream->device->provider;
    struct moor_device *device = moor__device_hold(stream->device);
    moor__lock_acquire(&provider->streams.lock);
    assert(stream->state == MOOR__STREAM_OPEN);
    stream->state = MOOR__STREAM_CLOSED;
    TAILQ_INSERT_TAIL(&provider->streams.ending, stream, entry);
    atomic_fetch_add_explicit(&provider->streams.ending_count, 1, memory_order_relaxed);
    moor__lock_release(&provider->streams.lock);
    moor__streams_retire(provider, false);
    moor__device_unhold(device);
}

void moor__stream_abandon(struct moor_stream *stream)
{
    atomic_store_explicit(&stream->lost, true, memory_order_release);
    close_stream(stream);
}

/* ---- public ---- */

/* Counts one more stream, after a check of the ending ones if there are too many. */
static moor_status count_stream(struct moor_provider *provider)
{
    for (bool is_checked = false;; is_checked = true) {
        moor__lock_acquire(&provider->streams.lock);
        bool has_room = provider->streams.count < MOOR_LIMIT_STREAMS;
        provider->streams.count += has_room;
        moor__lock_release(&provider->streams.lock);
        if (has_room)
            return MOOR_OK;
        if (is_checked)
            return moor__fail(MOOR_LIMIT, "%d streams are alive or ending", MOOR_LIMIT_STREAMS);
        moor__streams_retire(provider, true);
    }
}

static moor_status make_stream(struct moor_device *device, const struct moor_stream_options *options,
                               struct moor_stream **ret_stream)
{
    struct moor_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a stream");
    struct moor_abi_stream_args args = {.struct_size = sizeof args};
    if (options && options->native) {
        args.flags = MOOR_ABI_STREAM_IMPORT;
        args.native = options->native;
    }
    moor_status status = moor__call_stream_create(device, &args, &stream->stream);
    if (!status && !stream->stream)
        status = moor__fail(MOOR_PROVIDER, "%s: create of a stream succeeded with NULL",
                            device->provider->table.name);
    if (status) {
        free(stream);
        return status;
    }
    stream->device = device;
    atomic_init(&stream->references, 1);
    *ret_stream = stream;
    return MOOR_OK;
}

moor_status moor_stream_create(struct moor_device *device, const struct moor_stream_options *options,
                               struct moor_stream **ret_stream)
{
    if (!device || !ret_stream)
        return moor__leave(moor__fail(MOOR_INVALID, "device and ret_stream must not be NULL"));
    struct moor_provider *provider = device->provider;
    moor_status status = moor__enter(provider->runtime);
    if (!status)
        status = moor__device_open(device);
    if (!status)
        status = count_stream(provider);
    if (status)
        return moor__leave(status);
    status = make_stream(device, options, ret_stream);
    if (status) {
        moor__lock_acquire(&provider->streams.lock);
        provider->streams.count--;
        moor__lock_release(&provider->streams.lock);
    } else {
        moor__count(device, MOOR__COUNT_STREAM, 1);
    }
    return moor__leave(status);
}

moor_status moor_stream_destroy(struct moor_stream *stream)
{
    if (!stream)
        return MOOR_OK;
    moor_status status = moor__stream_enter(stream);
    if (status)
        return moor__leave(status);
    uint64_t value;
    /* The last records, beyond every mark: nothing touches a native stream after them. */
    status = record(stream, &value);
    if (!status)
        status = moor__stream_cover(stream, atomic_load_explicit(&stream->marked, memory_order_acquire));
    if (status && status != MOOR_DEVICE_LOST)
        return moor__leave(status);
    /* Wait for the threads that began to cover before: their records are due now. */
    while (atomic_load_explicit(&stream->covering, memory_order_seq_cst))
        (void)sched_yield();
    close_stream(stream);
    return MOOR_OK;
}

moor_status moor_stream_get_native(struct moor_stream *stream, uint64_t *ret_native)
{
    moor_status status = moor__stream_enter(stream);
    if (!status && !ret_native)
        status = moor__fail(MOOR_INVALID, "ret_native is NULL");
    if (status)
        return moor__leave(status);
    uint64_t native = 0;
    status = note_failure(stream, moor__call_stream_native(stream->device, stream->stream, &native));
    if (!status)
        *ret_native = native;
    return moor__leave(status);
}

moor_status moor_stream_record(struct moor_stream *stream, struct moor_fence *ret_fence)
{
    moor_status status = moor__stream_enter(stream);
    if (!status && !ret_fence)
        status = moor__fail(MOOR_INVALID, "ret_fence is NULL");
    uint64_t value;
    if (!status)
        status = record(stream, &value);
    if (!status)
        *ret_fence = (struct moor_fence){.stream = stream, .value = value};
    return moor__leave(status);
}

static moor_status check_fence(const struct moor_fence *fence)
{
    if (!fence)
        return moor__fail(MOOR_INVALID, "the fence is NULL");
    moor_status status = moor__stream_enter(fence->stream);
    if (!status && fence->value > atomic_load_explicit(&fence->stream->recorded, memory_order_acquire))
        status = moor__fail(MOOR_INVALID, "fence %llu was never recorded", (unsigned long long)fence->value);
    return status;
}

moor_status moor_fence_wait(const struct moor_fence *fence, uint64_t deadline_ns)
{
    moor_status status = check_fence(fence);
    return moor__leave(status ? status : await(fence->stream, fence->value, deadline_ns));
}

moor_status moor_stream_wait(struct moor_stream *stream, const struct moor_fence *fence)
{
    moor_status status = moor__stream_enter(stream);
    if (!status)
        status = check_fence(fence);
    if (!status && fence->stream->device->provider != stream->device->provider)
        status = moor__fail(MOOR_FOREIGN, "the fence is of another provider");
    if (!status && fence->stream != stream) /* work of one stream runs in order */
        status = moor__call_wait_stream(stream->device, stream->stream, fence->stream->stream, fence->value);
    return moor__leave(status);
}
