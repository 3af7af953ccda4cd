/* SPDX-License-Identifier: MIT */
/*
 * Where work of a stream is submitted. Memory of another device is for that device's context alone, unless
 * the two are peers, so work on it runs on a stream there, the side, between two events: it begins when the
 * stream has come to it, and the stream goes on when it is done.
 */
#include "provider.h"
#include <errno.h>
#include <stdlib.h>

int32_t cuda_lane_check_capture(struct moor_abi_stream *stream, struct moor_abi_error *error)
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

/* The second stream goes on when the first has come to here. */
static int32_t chain(const struct cuda_lane *first, const struct cuda_lane *second,
                     struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(first->device);
    struct cuda_scope scope;
    CUevent event = NULL;
    int32_t status = cuda_enter(first->device, &scope, error);
    if (status != MOOR_OK)
        return status;
    status = cuda_event_take(first->device, &event, error);
    if (status == MOOR_OK)
        status = cuda_check(first->device, driver->cuEventRecord(event, first->native), MOOR_HOST_NOMEM,
                            "cuEventRecord", error);
    cuda_leave(&scope);
    if (status == MOOR_OK)
        status = cuda_enter(second->device, &scope, error);
    if (status == MOOR_OK) {
        status = cuda_check(second->device,
                            driver->cuStreamWaitEvent(second->native, event, CU_EVENT_WAIT_DEFAULT),
                            MOOR_HOST_NOMEM, "cuStreamWaitEvent", error);
        cuda_leave(&scope);
    }
    if (event)
        cuda_event_give(first->device, event); /* the wait keeps what it waits for */
    return status;
}

static int32_t find_side(struct moor_abi_stream *stream, struct cuda_device *device, CUstream *ret_native,
                         struct moor_abi_error *error)
{
    struct cuda_side *side = stream->sides;
    while (side && side->device != device)
        side = side->next;
    if (side) {
        *ret_native = side->native;
        return MOOR_OK;
    }
    side = calloc(1, sizeof(*side));
    if (!side)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a stream on another device");
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status == MOOR_OK) {
        status =
            cuda_check(device, cuda_driver_of(device)->cuStreamCreate(&side->native, CU_STREAM_NON_BLOCKING),
                       MOOR_HOST_NOMEM, "cuStreamCreate", error);
        cuda_leave(&scope);
    }
    if (status != MOOR_OK) {
        free(side);
        return status;
    }
    side->device = device;
    side->next = stream->sides;
    stream->sides = side;
    *ret_native = side->native;
    return MOOR_OK;
}

void cuda_sides_destroy(struct moor_abi_stream *stream)
{
    while (stream->sides) {
        struct cuda_side *side = stream->sides;
        struct cuda_scope scope;
        stream->sides = side->next;
        if (cuda_enter_lost(side->device, &scope, NULL) == MOOR_OK) {
            (void)cuda_driver_of(side->device)
                ->cuStreamDestroy(side->native); /* goes with its context else */
            cuda_leave(&scope);
        }
        free(side);
    }
}

int32_t cuda_lane_begin(struct moor_abi_stream *stream, struct cuda_device *device,
                        struct cuda_lane *ret_lane, struct cuda_scope *ret_scope,
                        struct moor_abi_error *error)
{
    struct cuda_lane own = {stream->context->device, stream->native};
    if (device == own.device) {
        *ret_lane = own;
        return MOOR_OK;
    }
    struct cuda_lane lane = {device, NULL};
    int32_t status = find_side(stream, device, &lane.native, error);
    if (status == MOOR_OK)
        status = chain(&own, &lane, error);
    if (status == MOOR_OK)
        status = cuda_enter(device, ret_scope, error);
    if (status == MOOR_OK)
        *ret_lane = lane;
    return status;
}

int32_t cuda_lane_end(struct moor_abi_stream *stream, const struct cuda_lane *lane,
                      const struct cuda_scope *scope, int32_t status, struct moor_abi_error *error)
{
    struct cuda_lane own = {stream->context->device, stream->native};
    if (lane->device == own.device)
        return status;
    cuda_leave(scope);
    int32_t chained = chain(lane, &own, status == MOOR_OK ? error : NULL);
    if (chained != MOOR_OK && chained != MOOR_DEVICE_LOST) {
        /* The stream does not know of work that is under way, be it that of a copy that has failed half way:
         * it must be over before anybody is told. */
        struct cuda_scope side;
        if (cuda_enter(lane->device, &side, NULL) == MOOR_OK) {
            (void)cuda_driver_of(lane->device)->cuStreamSynchronize(lane->native);
            cuda_leave(&side);
        }
    }
    return status == MOOR_OK ? chained : status;
}
