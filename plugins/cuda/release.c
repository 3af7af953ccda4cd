/* SPDX-License-Identifier: MIT */
/*
 * RELEASE: the kit's queue keeps the order of fences; here is what may be queued and what happens when it is
 * due.
 *
 * A release is checked when it is queued, and what it names is marked as taken over: it can then be neither
 * used nor released twice. If it fails when due, the mark goes and the same release may be tried again.
 */
#include "provider.h"
#include <assert.h>

static int32_t check_points(struct moor_abi_context *context, const struct moor_abi_release *release,
                            struct moor_abi_error *error)
{
    for (uint32_t i = 0; i < release->point_count; i++) {
        struct moor_abi_fence_point point = moor_kit_release_point(release, i);
        if (point.stream->context->instance != context->instance)
            return moor_kit_fail(error, MOOR_FOREIGN, 0, "fence point %u: a stream of another instance", i);
        int32_t status = cuda_stream_check_recorded(point.stream, point.value, error);
        if (status != MOOR_OK)
            return status;
    }
    return MOOR_OK;
}

static int32_t take_whole(struct moor_abi_context *context, const struct moor_abi_release *release,
                          struct moor_abi_error *error)
{
    static const enum cuda_kind kinds[] = {[MOOR_ABI_RELEASE_ALLOCATION] = CUDA_ALLOCATION,
                                           [MOOR_ABI_RELEASE_RANGE] = CUDA_RANGE,
                                           [MOOR_ABI_RELEASE_SEGMENT] = CUDA_SEGMENT,
                                           [MOOR_ABI_RELEASE_PIN] = CUDA_PIN};
    enum cuda_kind kind = kinds[release->kind];
    void *record = NULL;
    int32_t status = moor_kit_handles_claim(context->handles, release->handle, kind, &record, error);
    if (status != MOOR_OK)
        return status;
    if (kind == CUDA_RANGE)
        status = moor_kit_range_check_empty(record, error);
    if (status != MOOR_OK)
        moor_kit_handles_unclaim(context->handles, release->handle);
    return status;
}

static int32_t take(struct moor_abi_context *context, const struct moor_abi_release *release,
                    struct moor_abi_error *error)
{
    if (moor_kit_release_is_part(release->kind))
        return moor_kit_range_take(context->handles, CUDA_RANGE, release, error);
    return take_whole(context, release, error);
}

/* Undoes take; the queue's, and release's own. */
static void give_up(void *user, const struct moor_abi_release *release)
{
    struct moor_abi_context *context = user;
    if (moor_kit_release_is_part(release->kind))
        moor_kit_range_give_up(context->handles, release);
    else
        moor_kit_handles_unclaim(context->handles, release->handle);
}

static int32_t release(struct moor_abi_context *context, const struct moor_abi_release *args,
                       struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_release(args, error);
    if (status == MOOR_OK)
        status = check_points(context, args, error);
    if (status != MOOR_OK)
        return status;
    status = take(context, args, error);
    if (status != MOOR_OK)
        return status;
    status = moor_kit_queue_submit(context->queue, args, error);
    if (status != MOOR_OK)
        give_up(context, args);
    return status;
}

static int32_t reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error)
{
    return moor_kit_queue_reap(context->queue, completions, stride, capacity, deadline_ns, ret_count, error);
}

static int32_t watermark(void *user, struct moor_abi_stream *stream, uint64_t *ret_value,
                         struct moor_abi_error *error)
{
    (void)user;
    return cuda_stream_watermark(stream, ret_value, error);
}

static int32_t free_in_scope(struct moor_abi_context *context, const struct moor_abi_release *args,
                             uint64_t *ret_bytes, struct moor_abi_error *error)
{
    void *record = moor_kit_handles_peek(context->handles, args->handle);
    switch (args->kind) {
    case MOOR_ABI_RELEASE_ALLOCATION:
        return cuda_allocation_free(context, record, ret_bytes, error);
    case MOOR_ABI_RELEASE_RANGE:
        return cuda_range_free(context, record, error);
    case MOOR_ABI_RELEASE_SEGMENT:
        return cuda_segment_free(context, record, ret_bytes, error);
    case MOOR_ABI_RELEASE_PIN:
        return cuda_pin_free(context, record, error);
    default:
        break;
    }
    assert(moor_kit_release_is_part(args->kind)); /* checked when it was queued */
    return cuda_range_give_back(context, record, args, ret_bytes, error);
}

static int32_t free_now(void *user, const struct moor_abi_release *args, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error)
{
    struct moor_abi_context *context = user;
    struct cuda_scope scope;
    uint64_t bytes = 0;
    /* A device that is lost, or has gone with its driver, still lets its memory go: see error.c. */
    int32_t status = cuda_enter_lost(context->device, &scope, error);
    bool is_in = status == MOOR_OK;
    if (is_in || status == MOOR_DEVICE_LOST)
        status = free_in_scope(context, args, &bytes, error);
    if (is_in)
        cuda_leave(&scope);
    if (status == MOOR_OK)
        *ret_actual_bytes = bytes;
    return status;
}

int32_t cuda_release_queue_create(struct moor_abi_context *context)
{
    static const struct moor_kit_queue_callbacks callbacks = {watermark, free_now, give_up};
    return moor_kit_queue_create(&callbacks, context, context->instance->host, CUDA_POLL_NS, &context->queue);
}

const struct moor_abi_release_table cuda_release_table = {
    .struct_size = MOOR_ABI_RELEASE_TABLE_SIZE,
    .release = release,
    .reap = reap,
};
