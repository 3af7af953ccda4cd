/* SPDX-License-Identifier: MIT */
/*
 * Where work of a stream is submitted. Memory of another device is for that device's context alone, unless
 * the two are peers, so work on it runs on a stream there, the side, between two events: it begins when the
 * stream has come to it, and the stream goes on when it is done.
 */
#include "provider.h"
#include <errno.h>
#include <stdlib.h>
#include <time.h>

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
    pthread_mutex_lock(&device->lock);
    device->is_waited_for =
        true; /* the side stays as long as its stream, and may outlast what is open there */
    pthread_mutex_unlock(&device->lock);
    side->next = stream->sides;
    stream->sides = side;
    *ret_native = side->native;
    return MOOR_OK;
}

/* Until the side has done what it was given. It has waited for its stream first: should a driver never end such
 * a wait when that is lost, this one ends all the same. */
static void drain(const struct cuda_device *device, CUstream native)
{
    const struct moor_abi_host *host = device->instance->host;
    const struct timespec pause = {.tv_nsec = 100000};
    uint64_t end_ns = host->clock_ns(host->user) + CUDA_REST_NS;
    while (cuda_driver_of(device)->cuStreamQuery(native) == CUDA_ERROR_NOT_READY &&
           host->clock_ns(host->user) < end_ns)
        (void)nanosleep(&pause, NULL); /* cut short: it looks again */
}

void cuda_sides_destroy(struct moor_abi_stream *stream)
{
    while (stream->sides) {
        struct cuda_side *side = stream->sides;
        struct cuda_scope scope;
        stream->sides = side->next;
        if (cuda_enter_lost(side->device, &scope, NULL) == MOOR_OK) {
            if (cuda_timeline_is_lost(stream)) /* nothing of its own tells when the side is done */
                drain(side->device, side->native);
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
    if (chained != MOOR_OK) {
        /* The stream does not know of work that is under way, be it that of a copy that has failed half way:
         * it must be over before anybody is told. */
        struct cuda_scope side;
        if (cuda_enter(lane->device, &side, NULL) == MOOR_OK) {
            if (chained == MOOR_DEVICE_LOST)
                drain(lane->device, lane->native);
            else
                (void)cuda_driver_of(lane->device)->cuStreamSynchronize(lane->native);
            cuda_leave(&side);
        }
    }
    return status == MOOR_OK ? chained : status;
}
