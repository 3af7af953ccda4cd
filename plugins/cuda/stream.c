/* SPDX-License-Identifier: MIT */
/*
 * STREAM: a stream of the driver's, made here or the host's own, with a timeline (timeline.c).
 *
 * Streams of ours do not synchronise with the default stream. One of the host's is only ever submitted to: it
 * may be gone when ours is destroyed. What is submitted while the host captures the stream into a graph would
 * become part of the graph instead of taking effect, so it is refused.
 */
#include "provider.h"
#include <errno.h>
#include <stdlib.h>

/* A stream of the host's can be ours if it is of the device's primary context, and one stream to all threads. */
static int32_t import(struct moor_abi_stream *stream, CUstream native, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    const struct cuda_driver *driver = cuda_driver_of(device);
    unsigned int flags = 0;
    if (native == CU_STREAM_PER_THREAD)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "CU_STREAM_PER_THREAD is another stream on each thread: name one of them");
    CUcontext context = NULL;
    int32_t status = cuda_check(device, driver->cuStreamGetCtx(native, &context), MOOR_HOST_NOMEM,
                                "cuStreamGetCtx", error);
    if (status == MOOR_OK && context != device->primary)
        return moor_kit_fail(error, MOOR_FOREIGN, 0,
                             "the stream is not of the primary context of this device");
    if (status == MOOR_OK)
        status = cuda_check(device, driver->cuStreamGetFlags(native, &flags), MOOR_HOST_NOMEM,
                            "cuStreamGetFlags", error);
    stream->native = native;
    stream->is_imported = true;
    stream->is_blocking = !(flags & CU_STREAM_NON_BLOCKING);
    return status;
}

static int32_t get_native(struct moor_abi_stream *stream, const struct moor_abi_stream_args *args,
                          struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    if (args->flags & MOOR_ABI_STREAM_IMPORT)
        return import(stream, (CUstream)cuda_pointer(args->native), error);
    return cuda_check(device, cuda_driver_of(device)->cuStreamCreate(&stream->native, CU_STREAM_NON_BLOCKING),
                      MOOR_HOST_NOMEM, "cuStreamCreate", error);
}

static int32_t start(struct moor_abi_stream *stream, const struct moor_abi_stream_args *args,
                     struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status != MOOR_OK)
        return status;
    status = get_native(stream, args, error);
    if (status == MOOR_OK && device->has_words) {
        status = cuda_slot_take(device, &stream->rest->slot, error);
        if (status == MOOR_OK)
            stream->base = stream->rest->slot->written[CUDA_WORD_VALUE];
        else if (!stream->is_imported)
            (void)cuda_driver_of(device)->cuStreamDestroy(stream->native); /* nothing was submitted to it */
    }
    cuda_leave(&scope);
    return status;
}

static int32_t create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                      struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_stream(args, error);
    if (status != MOOR_OK)
        return status;
    (void)cuda_rests_sweep(context->device); /* what is left after it is looked at by the next one */
    struct moor_abi_stream *stream = calloc(1, sizeof(*stream));
    struct cuda_rest *rest = cuda_rest_create();
    if (!stream || !rest) {
        status = moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a stream");
        goto free_parts;
    }
    stream->context = context;
    stream->rest = rest;
    status = start(stream, args, error);
    if (status != MOOR_OK)
        goto free_parts;
    pthread_mutex_init(&stream->submit, NULL); /* neither fails on Linux with default attributes */
    pthread_mutex_init(&stream->ring.lock, NULL);
    atomic_fetch_add(&context->stream_count, 1);
    *ret_stream = stream;
    return MOOR_OK;

free_parts:
    if (rest)
        cuda_rest_free(context->device, rest);
    free(stream);
    return status;
}

/* The driver's part of the end. Nothing has changed if it fails. */
static int32_t end_native(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    struct cuda_scope scope;
    if (stream->is_imported || cuda_has_gone(device))
        return MOOR_OK;
    int32_t status = cuda_enter_lost(device, &scope, error);
    if (status != MOOR_OK)
        return status == MOOR_DEVICE_LOST ? MOOR_OK : status;
    if (stream->is_dirty && !cuda_timeline_is_lost(stream))
        status = cuda_timeline_mark_tail(stream, error);
    if (status == MOOR_OK || status == MOOR_DEVICE_LOST)
        status = cuda_check_free(device, cuda_driver_of(device)->cuStreamDestroy(stream->native),
                                 "cuStreamDestroy", error);
    cuda_leave(&scope);
    return status;
}

static int32_t destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    uint64_t recorded = atomic_load(&stream->recorded);
    uint64_t reached = 0;
    int32_t status = cuda_stream_watermark(stream, &reached, error);
    if (status != MOOR_OK && status != MOOR_DEVICE_LOST)
        return status;
    if (status == MOOR_OK && recorded != reached)
        return moor_kit_fail(error, MOOR_BUSY, 0,
                             "value %llu of the stream is recorded and not reached: %llu is",
                             (unsigned long long)recorded, (unsigned long long)reached);
    status = end_native(stream, error);
    if (status != MOOR_OK)
        return status;
    cuda_sides_destroy(stream);
    for (uint32_t i = 0; i < stream->ring.count; i++) /* of a lost device */
        cuda_event_give(device, stream->ring.events[(stream->ring.first + i) & (stream->ring.capacity - 1)]);
    free(stream->ring.events);
    cuda_rest_leave(device, stream->rest);
    atomic_fetch_sub(&stream->context->stream_count, 1);
    pthread_mutex_destroy(&stream->ring.lock);
    pthread_mutex_destroy(&stream->submit);
    free(stream);
    return MOOR_OK;
}

static int32_t check_capture(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult code = cuda_driver_of(device)->cuStreamIsCapturing(stream->native, &capture);
    if (code == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return moor_kit_fail(error, MOOR_BUSY, code,
                             "a stream that the default stream waits for is being captured into a graph");
    int32_t status = cuda_check(device, code, MOOR_HOST_NOMEM, "cuStreamIsCapturing", error);
    if (status == MOOR_OK && capture != CU_STREAM_CAPTURE_STATUS_NONE)
        return moor_kit_fail(
            error, MOOR_BUSY, 0,
            "the stream is being captured into a graph: what is captured never takes effect");
    return status;
}

/* Who is told that the stream is lost may take back the memory that it worked on. */
static int32_t tell(struct moor_abi_stream *stream, int32_t status)
{
    if (status == MOOR_DEVICE_LOST && cuda_timeline_is_lost(stream))
        cuda_staging_cancel(&stream->rest->staging);
    return status;
}

int32_t cuda_stream_enter(struct moor_abi_stream *stream, struct cuda_scope *scope,
                          struct moor_abi_error *error)
{
    int32_t status = cuda_enter(stream->context->device, scope, error);
    if (status != MOOR_OK)
        return tell(stream, status);
    status = check_capture(stream, error);
    return status == MOOR_OK ? MOOR_OK : cuda_stream_leave(stream, scope, status);
}

int32_t cuda_stream_leave(struct moor_abi_stream *stream, const struct cuda_scope *scope, int32_t status)
{
    cuda_leave(scope);
    return tell(stream, status);
}

static int32_t record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    struct cuda_scope scope;
    int32_t status = cuda_stream_enter(stream, &scope, error);
    if (status != MOOR_OK)
        return status;
    pthread_mutex_lock(&stream->submit);
    status = cuda_timeline_record(stream, ret_value, error);
    pthread_mutex_unlock(&stream->submit);
    return cuda_stream_leave(stream, &scope, status);
}

static int32_t wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error)
{
    if (stream->context->instance != other->context->instance)
        return moor_kit_fail(error, MOOR_FOREIGN, 0, "the two streams are of different instances");
    uint64_t reached = 0;
    int32_t status = cuda_stream_check_recorded(other, value, error);
    if (status == MOOR_OK)
        status = cuda_stream_watermark(other, &reached, error);
    if (status != MOOR_OK || value <= reached || stream == other) /* reached already, or in order anyway */
        return status;
    struct cuda_scope scope;
    status = cuda_stream_enter(stream, &scope, error);
    if (status != MOOR_OK)
        return status;
    pthread_mutex_lock(&stream->submit);
    stream->is_dirty = true;
    status = cuda_timeline_join(stream, other, value, error);
    if (status == MOOR_OK && other->rest->slot)
        cuda_timeline_soil(stream);
    pthread_mutex_unlock(&stream->submit);
    return cuda_stream_leave(stream, &scope, status);
}

static int32_t host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error)
{
    if (!function)
        return moor_kit_fail(error, MOOR_INVALID, 0, "host function: NULL");
    struct cuda_device *device = stream->context->device;
    struct cuda_scope scope;
    int32_t status = cuda_stream_enter(stream, &scope, error);
    if (status != MOOR_OK)
        return status;
    pthread_mutex_lock(&stream->submit); /* not between the chunks of a copy */
    stream->is_dirty = true;
    status = cuda_check(device, cuda_driver_of(device)->cuLaunchHostFunc(stream->native, function, user),
                        MOOR_HOST_NOMEM, "cuLaunchHostFunc", error);
    pthread_mutex_unlock(&stream->submit);
    return cuda_stream_leave(stream, &scope, status);
}

static int32_t native(struct moor_abi_stream *stream, uint64_t *ret_native, struct moor_abi_error *error)
{
    (void)error;
    *ret_native = (uint64_t)(uintptr_t)stream->native;
    return MOOR_OK;
}

const struct moor_abi_stream_table cuda_stream_table = {
    .struct_size = MOOR_ABI_STREAM_TABLE_SIZE,
    .create = create,
    .destroy = destroy,
    .record = record,
    .watermark = cuda_stream_watermark,
    .wait = cuda_stream_wait,
    .wait_stream = wait_stream,
    .host_function = host_function,
    .native = native,
};
