/* SPDX-License-Identifier: MIT */
/*
 * RELEASE: checks, the mark on leaving memory, and the frees; the kit's queue keeps the order of fence
 * points.
 *
 * A release is checked when it is queued, and its memory is marked as leaving. A record of the release passes
 * through the kit's queue as the cookie: the host learns that the points are reached when it gets the
 * completion, and not before.
 */
#include "sim.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct mock_leaving *leaving_of(const struct moor_abi_release *release)
{
    return (struct mock_leaving *)(uintptr_t)release->cookie;
}

/* ---- points; the functions require mock->lock ---- */

static int32_t read_points(struct moor_abi_context *context, const struct moor_abi_release *release,
                           struct mock_leaving *leaving, struct moor_abi_error *error)
{
    for (uint32_t i = 0; i < release->point_count; i++) {
        struct moor_abi_fence_point point = moor_kit_release_point(release, i);
        if (point.stream->kit.context->mock != context->mock)
            return moor_kit_fail(error, MOOR_FOREIGN, 0,
                                 "release: fence point %" PRIu32 " names a stream of another instance", i);
        struct mock_point *known = &leaving->points[leaving->point_count];
        int32_t status = mock_stream_point(point.stream, point.value, known, error);
        if (status)
            return status;
        known->clock = mock_clock_ref(known->clock);
        known->stream = point.stream;
        point.stream->named++;
        leaving->point_count++;
    }
    return MOOR_OK;
}

static void destroy_leaving(struct mock_leaving *leaving)
{
    for (uint32_t i = 0; i < leaving->point_count; i++) {
        mock_clock_unref(leaving->points[i].clock);
        assert(leaving->points[i].stream->named > 0);
        leaving->points[i].stream->named--;
    }
    free(leaving);
}

/* ---- leaving memory; the functions require mock->lock ---- */

static int32_t fail_size(struct moor_abi_context *context, const struct mock_bytes *bytes,
                         struct moor_abi_error *error, const char *what)
{
    if (context->mock->settings.strict)
        mock_violate(context->mock, MOOR_MOCK_WRONG_SIZE, bytes, "a release of bytes that are not %s", what);
    return moor_kit_fail(error, MOOR_INVALID, 0, "[0x%" PRIx64 ", +%" PRIu64 ") is not %s", bytes->address,
                         bytes->size_bytes, what);
}

static bool is_committed(struct moor_mock *mock, uint64_t low, uint64_t high)
{
    const struct mock_span *span = mock_span_find(mock, low);
    while (low < high && span && span->at.low <= low && !span->segment && !span->leaving) {
        low = span->at.high;
        span = mock_span_next(span);
    }
    return low >= high;
}

static bool is_one_map(struct moor_mock *mock, uint64_t low, uint64_t high)
{
    const struct mock_span *span = mock_span_find(mock, low);
    return span && span->at.low == low && span->at.high == high && span->segment && !span->leaving;
}

static void mark(struct moor_mock *mock, uint64_t low, uint64_t high, bool leaving)
{
    for (struct mock_span *span = mock_span_find(mock, low); span && span->at.low < high;
         span = mock_span_next(span))
        span->leaving = leaving;
}

static int32_t mark_part(struct moor_abi_context *context, const struct moor_abi_release *release,
                         const struct mock_object *range, struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    uint64_t low = range->address + release->offset_bytes;
    uint64_t high = low + release->length_bytes;
    const struct mock_bytes bytes = {context->kit.device, low, low, release->length_bytes};
    int32_t status = moor_kit_check_span(release->offset_bytes, release->length_bytes, range->bytes,
                                         range->granule_bytes, error);
    if (status) {
        (void)fail_size(context, &bytes, NULL, "whole granules of the range");
        return status;
    }
    if (release->kind == MOOR_ABI_RELEASE_UNMAP && !is_one_map(mock, low, high))
        return fail_size(context, &bytes, error, "exactly one mapping");
    if (release->kind == MOOR_ABI_RELEASE_DECOMMIT && !is_committed(mock, low, high))
        return fail_size(context, &bytes, error, "committed throughout");
    status = mock_span_cut(mock, low, error);
    if (!status)
        status = mock_span_cut(mock, high, error);
    if (!status)
        mark(mock, low, high, true);
    return status;
}

static int32_t check_whole(const struct moor_abi_release *release, const struct mock_object *object,
                           struct moor_abi_error *error)
{
    if (release->kind == MOOR_ABI_RELEASE_RANGE && object->used_bytes > 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "range: %" PRIu64 " bytes are committed or mapped",
                             object->used_bytes);
    if (release->kind == MOOR_ABI_RELEASE_SEGMENT && object->map_count > 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "segment: %" PRIu32 " mappings are left",
                             object->map_count);
    return MOOR_OK;
}

static void mark_whole(struct moor_mock *mock, const struct moor_abi_release *release,
                       const struct mock_object *object, bool leaving)
{
    if (release->kind == MOOR_ABI_RELEASE_ALLOCATION)
        mark(mock, object->address, object->address + object->bytes, leaving);
}

/* ---- handles ---- */

static uint32_t kind_of(const struct moor_abi_release *release)
{
    if (release->kind == MOOR_ABI_RELEASE_ALLOCATION)
        return MOOR_KIT_ALLOCATION;
    return release->kind == MOOR_ABI_RELEASE_SEGMENT ? MOOR_KIT_SEGMENT : MOOR_KIT_RANGE;
}

static int32_t claim(struct moor_abi_context *context, const struct moor_abi_release *release,
                     struct mock_object **ret_object, struct moor_abi_error *error)
{
    void *object = NULL;
    int32_t status =
        moor_kit_release_is_part(release->kind)
            ? moor_kit_handles_get(context->kit.handles, release->handle, MOOR_KIT_RANGE, &object, error)
            : moor_kit_handles_claim(context->kit.handles, release->handle, kind_of(release), &object, error);
    if (!status)
        *ret_object = object;
    return status;
}

static void unclaim(struct moor_abi_context *context, const struct moor_abi_release *release)
{
    if (moor_kit_release_is_part(release->kind))
        moor_kit_handles_put(context->kit.handles, release->handle);
    else
        moor_kit_handles_unclaim(context->kit.handles, release->handle);
}

/* ---- release ---- */

/* Checks a release and marks its memory as leaving. Requires mock->lock. */
static int32_t begin(struct moor_abi_context *context, const struct moor_abi_release *release,
                     struct mock_leaving *leaving, struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    struct mock_object *object = leaving->object;
    int32_t status = read_points(context, release, leaving, error);
    if (!status)
        status = moor_kit_release_is_part(release->kind) ? mark_part(context, release, object, error)
                                                         : check_whole(release, object, error);
    if (status)
        return status;
    mark_whole(mock, release, object, true);
    uint64_t low = object->address + release->offset_bytes;
    uint64_t bytes = moor_kit_release_is_part(release->kind) ? release->length_bytes : object->bytes;
    mock_event(mock, MOCK_EVENT_RELEASED, 0, low, low, bytes);
    if (kind_of(release) != MOOR_KIT_SEGMENT) /* a segment without mappings has no address for work */
        mock_shadow_release(mock, context->kit.device, low, low + bytes, leaving->points,
                            leaving->point_count);
    mock->counts.releases++;
    leaving->number = ++mock->counts.release_numbers;
    return MOOR_OK;
}

/* Undoes begin. Requires mock->lock. */
static void undo(struct moor_abi_context *context, const struct moor_abi_release *release,
                 const struct mock_object *object)
{
    uint64_t low = object->address + release->offset_bytes;
    if (moor_kit_release_is_part(release->kind))
        mark(context->mock, low, low + release->length_bytes, false);
    else
        mark_whole(context->mock, release, object, false);
    assert(context->mock->counts.releases > 0);
    context->mock->counts.releases--;
}

/* Undoes a release that completes as failed; its record stays until the completion. */
static void give_up(void *user, const struct moor_abi_release *release)
{
    struct moor_abi_context *context = user;
    mock_lock(context->mock);
    undo(context, release, leaving_of(release)->object);
    mock_unlock(context->mock);
    unclaim(context, release);
}

static int32_t submit(struct moor_abi_context *context, const struct moor_abi_release *args,
                      struct mock_leaving *leaving, struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    mock_lock(mock);
    int32_t status = begin(context, args, leaving, error);
    mock_unlock(mock);
    if (status)
        return status;
    struct moor_abi_release queued = {MOOR_ABI_RELEASE_SIZE, args->kind,         args->handle,
                                      args->offset_bytes,    args->length_bytes, (uintptr_t)leaving,
                                      args->points,          args->point_count,  args->point_stride};
    status = moor_kit_queue_submit(context->kit.queue, &queued, error);
    if (status) {
        mock_lock(mock);
        undo(context, args, leaving->object);
        mock_unlock(mock);
    }
    return status;
}

static int32_t release(struct moor_abi_context *context, const struct moor_abi_release *args,
                       struct moor_abi_error *error)
{
    int32_t status = mock_call_begin(context->mock, MOCK_RELEASE, error);
    if (!status)
        status = moor_kit_check_release(args, error);
    if (!status && args->kind == MOOR_ABI_RELEASE_PIN)
        status = moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "release: the provider has no pins");
    if (status)
        return status;
    struct mock_leaving *leaving = calloc(1, sizeof *leaving + args->point_count * sizeof leaving->points[0]);
    if (!leaving)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "release: no host memory for its record");
    leaving->cookie = args->cookie;
    status = claim(context, args, &leaving->object, error);
    if (!status) {
        status = submit(context, args, leaving, error);
        if (!status)
            return MOOR_OK;
        unclaim(context, args);
    }
    mock_lock(context->mock); /* guards the references to clocks */
    destroy_leaving(leaving);
    mock_unlock(context->mock);
    return status;
}

/* ---- frees ---- */

static int32_t watermark(void *user, struct moor_abi_stream *stream, uint64_t *ret_value,
                         struct moor_abi_error *error)
{
    (void)user;
    return mock_stream_watermark(stream, ret_value, error);
}

/* Requires mock->lock. */
static int32_t free_object(struct moor_abi_context *context, const struct moor_abi_release *release,
                           uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct mock_object *object = leaving_of(release)->object;
    switch (release->kind) {
    case MOOR_ABI_RELEASE_ALLOCATION:
        *ret_bytes = object->bytes;
        return mock_allocation_free(context, object, error);
    case MOOR_ABI_RELEASE_SEGMENT:
        *ret_bytes = object->bytes;
        return mock_segment_free(context, object, error);
    case MOOR_ABI_RELEASE_RANGE:
        return mock_range_free(context, object, error);
    default:
        return mock_range_free_part(context, object, release, ret_bytes, error);
    }
}

static int32_t free_now(void *user, const struct moor_abi_release *release, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error)
{
    struct moor_abi_context *context = user;
    struct moor_mock *mock = context->mock;
    uint64_t bytes = 0;
    uint64_t delay_ns = 0;
    mock_lock(mock);
    leaving_of(release)->due = true;
    int32_t status = mock_call_count(mock, MOCK_FREE, &delay_ns, error);
    if (!status)
        status = free_object(context, release, &bytes, error);
    mock->counts.releases -= status == MOOR_OK;
    mock_unlock(mock);
    if (!status && moor_kit_release_is_part(release->kind))
        moor_kit_handles_put(context->kit.handles, release->handle);
    if (delay_ns > 0)
        mock_clock_pass(mock, delay_ns);
    if (!status)
        *ret_actual_bytes = bytes;
    return status;
}

/* ---- reap ---- */

/* Reaps. With a real clock the kit waits; with a virtual clock this function lets the clock run until a
 * release is due. */
static int32_t reap_any(struct moor_abi_context *context, struct moor_abi_completion *completions,
                        uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                        struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    bool runs = mock_is_virtual(mock) && deadline_ns != 0;
    for (;;) {
        uint32_t count = 0;
        int32_t status = moor_kit_queue_reap(context->kit.queue, completions, stride, capacity,
                                             runs ? 0 : deadline_ns, &count, error);
        bool goes_on = false;
        if (!status && count == 0 && runs && moor_kit_queue_length(context->kit.queue) > 0) {
            mock_lock(mock);
            goes_on = mock_clock_step(mock);
            mock_unlock(mock);
        }
        if (!status)
            *ret_count = count;
        if (!goes_on)
            return status;
    }
}

static struct mock_leaving *completed_of(const char *place)
{
    struct moor_abi_completion completion;
    memcpy(&completion, place, sizeof completion);
    return (struct mock_leaving *)(uintptr_t)completion.cookie;
}

/* Sorts completions by submission. The queue's order depends on the addresses of streams, and one seed must
 * give one run. They are few. */
static void sort(struct moor_abi_completion *completions, uint32_t stride, uint32_t count)
{
    char *first = (char *)completions;
    for (uint32_t i = 1; i < count; i++) {
        struct moor_abi_completion moved;
        memcpy(&moved, first + (size_t)i * stride, sizeof moved);
        uint64_t number = completed_of((const char *)&moved)->number;
        uint32_t hole = i;
        while (hole > 0 && completed_of(first + (size_t)(hole - 1) * stride)->number > number) {
            memcpy(first + (size_t)hole * stride, first + (size_t)(hole - 1) * stride, sizeof moved);
            hole--;
        }
        memcpy(first + (size_t)hole * stride, &moved, sizeof moved);
    }
}

static int32_t reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    uint32_t count = 0;
    int32_t status = mock_call_begin(mock, MOCK_REAP, error);
    if (!status && !mock_is_bystander(mock))
        status = reap_any(context, completions, stride, capacity, deadline_ns, &count, error);
    if (status)
        return status;
    sort(completions, stride, count);
    char *place = (char *)completions;
    mock_lock(mock);
    for (uint32_t i = 0; i < count; i++, place += stride) {
        struct moor_abi_completion completion;
        memcpy(&completion, place, sizeof completion);
        struct mock_leaving *leaving = completed_of(place);
        completion.cookie = leaving->cookie;
        memcpy(place, &completion, sizeof completion);
        /* otherwise one of the streams is lost */
        for (uint32_t j = 0; leaving->due && j < leaving->point_count; j++)
            mock_host_sees(mock, &leaving->points[j]);
        destroy_leaving(leaving);
    }
    mock_unlock(mock);
    *ret_count = count;
    return MOOR_OK;
}

const struct moor_kit_queue_callbacks mock_queue_callbacks = {watermark, free_now, give_up};

MOOR_KIT_TABLE(release, mock_release_table, .release = release, .reap = reap);
