/* SPDX-License-Identifier: MIT */
/*
 * STREAM: a stream of the driver's, made here or imported from the host, with a timeline (timeline.c).
 *
 * Streams made here do not synchronise with the default stream. An imported stream is only ever submitted to,
 * and may be gone when ours is destroyed. Work that is submitted while the host captures the stream into a
 * graph would become part of the graph instead of taking effect, so such a submission is refused.
 */
#include "stream.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* Imports a stream that belongs to the device's primary context and is the same stream on each thread. */
static int32_t import(struct moor_abi_stream *stream, CUstream native, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->kit.context->device;
    unsigned int flags = 0;
    if (native == CU_STREAM_PER_THREAD)
        return moor_kit_fail(
            error, MOOR_INVALID, 0,
            "stream: CU_STREAM_PER_THREAD is another stream on each thread: import one of them");
    CUcontext context = NULL;
    int32_t status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuStreamGetCtx, native, &context);
    if (status == MOOR_OK && context != device->context.primary)
        return moor_kit_fail(error, MOOR_FOREIGN, 0, "stream: not of the primary context of this device");
    if (status == MOOR_OK)
        status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuStreamGetFlags, native, &flags);
    stream->native = native;
    stream->is_imported = true;
    stream->is_blocking = !(flags & CU_STREAM_NON_BLOCKING);
    return status;
}

static int32_t get_native(struct moor_abi_stream *stream, const struct moor_abi_stream_args *args,
                          struct moor_abi_error *error)
{
    if (args->flags & MOOR_ABI_STREAM_IMPORT)
        return import(stream, (CUstream)cuda_pointer(args->native), error);
    return CUDA_CALL(stream->kit.context->device, MOOR_HOST_NOMEM, error, cuStreamCreate, &stream->native,
                     CU_STREAM_NON_BLOCKING);
}

static int32_t start(struct moor_abi_stream *stream, const struct moor_abi_stream_args *args,
                     struct moor_abi_error *error)
{
    struct cuda_device *device = stream->kit.context->device;
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status)
        return status;
    status = get_native(stream, args, error);
    if (status == MOOR_OK && device->traits.has_words) {
        status = cuda_slot_acquire(device, &stream->parts->slot, error);
        if (status == MOOR_OK)
            stream->base = stream->parts->slot->written[CUDA_WORD_VALUE];
        else if (!stream->is_imported)
            (void)cuda_driver_of(device)->cuStreamDestroy(stream->native); /* idle: no work was submitted */
    }
    cuda_leave(&scope);
    return status;
}

static int32_t create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                      struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_stream(args, error);
    if (status)
        return status;
    (void)cuda_retired_sweep(context->device); /* parts that are not done yet stay for the next sweep */
    struct moor_abi_stream *stream = calloc(1, sizeof *stream);
    struct cuda_parts *parts = calloc(1, sizeof *parts);
    if (!stream || !parts) {
        status = moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "stream: no memory for its record");
        goto free_parts;
    }
    stream->kit.context = context;
    stream->parts = parts;
    status = start(stream, args, error);
    if (status)
        goto free_parts;
    pthread_mutex_init(&stream->submit.lock, NULL); /* neither fails on Linux with default attributes */
    pthread_mutex_init(&stream->ring.lock, NULL);
    moor_kit_stream_begin(stream, context);
    *ret_stream = stream;
    return MOOR_OK;

free_parts:
    if (parts)
        cuda_parts_free(context->device, parts);
    free(stream);
    return status;
}

/* Ends the driver's stream. A failure leaves the stream as it was. */
static int32_t end_native(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->kit.context->device;
    struct cuda_scope scope;
    if (stream->is_imported || cuda_has_gone(device))
        return MOOR_OK;
    int32_t status = cuda_enter_lost(device, &scope, error);
    if (status)
        return status == MOOR_DEVICE_LOST ? MOOR_OK : status;
    if (stream->submit.is_dirty && !cuda_is_lost(stream->kit.context->device))
        status = cuda_timeline_mark_tail(stream, error);
    if (status == MOOR_OK || status == MOOR_DEVICE_LOST)
        status = cuda_check_free(device, cuda_driver_of(device)->cuStreamDestroy(stream->native),
                                 "cuStreamDestroy", error);
    cuda_leave(&scope);
    return status;
}

static int32_t destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->kit.context->device;
    uint64_t recorded = atomic_load(&stream->recorded);
    uint64_t reached = 0;
    int32_t status = cuda_stream_watermark(stream, &reached, error);
    if (status && status != MOOR_DEVICE_LOST)
        return status;
    if (status == MOOR_OK && recorded != reached)
        return moor_kit_fail(error, MOOR_BUSY, 0, "stream: value %llu is recorded and not reached: %llu is",
                             (unsigned long long)recorded, (unsigned long long)reached);
    status = end_native(stream, error);
    if (status)
        return status;
    cuda_peers_destroy(stream);
    cuda_timeline_finish(stream);
    cuda_parts_retire(device, stream->parts);
    moor_kit_stream_end(stream);
    pthread_mutex_destroy(&stream->ring.lock);
    pthread_mutex_destroy(&stream->submit.lock);
    free(stream);
    return MOOR_OK;
}

/* ---- submissions ---- */

static int32_t check_capture(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->kit.context->device;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult code = cuda_driver_of(device)->cuStreamIsCapturing(stream->native, &capture);
    if (code == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return moor_kit_fail(
            error, MOOR_BUSY, code,
            "stream: the default stream waits for a stream that is being captured into a graph");
    int32_t status = cuda_check(device, code, MOOR_HOST_NOMEM, "cuStreamIsCapturing", error);
    if (status == MOOR_OK && capture != CU_STREAM_CAPTURE_STATUS_NONE)
        return moor_kit_fail(
            error, MOOR_BUSY, 0,
            "stream: it is being captured into a graph, where a submission would not take effect");
    return status;
}

/* A caller that learns of the loss may reuse the memory that the stream worked on, so its copies stop
 * first. */
static int32_t cancel_if_lost(struct moor_abi_stream *stream, int32_t status)
{
    if (status == MOOR_DEVICE_LOST && cuda_is_lost(stream->kit.context->device))
        cuda_staging_cancel(&stream->parts->staging);
    return status;
}

int32_t cuda_stream_begin(struct moor_abi_stream *stream, struct cuda_scope *scope,
                          struct moor_abi_error *error)
{
    int32_t status = cuda_enter(stream->kit.context->device, scope, error);
    if (status)
        return cancel_if_lost(stream, status);
    pthread_mutex_lock(&stream->submit.lock);
    status = check_capture(stream, error);
    return status ? cuda_stream_end(stream, scope, status) : MOOR_OK;
}

int32_t cuda_stream_end(struct moor_abi_stream *stream, const struct cuda_scope *scope, int32_t status)
{
    pthread_mutex_unlock(&stream->submit.lock);
    cuda_leave(scope);
    return cancel_if_lost(stream, status);
}

static int32_t record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    struct cuda_scope scope;
    int32_t status = cuda_stream_begin(stream, &scope, error);
    return status ? status : cuda_stream_end(stream, &scope, cuda_timeline_record(stream, ret_value, error));
}

static int32_t wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error)
{
    uint64_t reached = 0;
    int32_t status = moor_kit_stream_check_instance(stream, other, error);
    if (status == MOOR_OK)
        status = cuda_stream_check_recorded(other, value, error);
    if (status == MOOR_OK)
        status = cuda_stream_watermark(other, &reached, error);
    if (status || value <= reached || stream == other) /* a stream keeps its own order */
        return status;
    struct cuda_scope scope;
    status = cuda_stream_begin(stream, &scope, error);
    if (status)
        return status;
    stream->submit.is_dirty = true;
    status = cuda_timeline_join(stream, other, value, error);
    if (status == MOOR_OK && other->parts->slot)
        cuda_timeline_mark_dirty(stream);
    return cuda_stream_end(stream, &scope, status);
}

static int32_t host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error)
{
    if (!function)
        return moor_kit_fail(error, MOOR_INVALID, 0, "host function: NULL");
    struct cuda_scope scope;
    int32_t status = cuda_stream_begin(stream, &scope, error);
    if (status)
        return status;
    stream->submit.is_dirty = true;
    status = CUDA_CALL(stream->kit.context->device, MOOR_HOST_NOMEM, error, cuLaunchHostFunc, stream->native,
                       function, user);
    return cuda_stream_end(stream, &scope, status);
}

static int32_t native(struct moor_abi_stream *stream, uint64_t *ret_native, struct moor_abi_error *error)
{
    (void)error;
    *ret_native = (uint64_t)(uintptr_t)stream->native;
    return MOOR_OK;
}

MOOR_KIT_TABLE(stream, cuda_stream_table, .create = create, .destroy = destroy, .record = record,
               .watermark = cuda_stream_watermark, .wait = cuda_stream_wait, .wait_stream = wait_stream,
               .host_function = host_function, .native = native);
