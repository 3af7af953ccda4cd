/* SPDX-License-Identifier: MIT */
/*
 * Where work of a stream is submitted. Only the context of a device can work on its memory, unless the two
 * devices are peers. So work of a stream on another device's memory runs on a peer stream there, between two
 * events: the work begins when the stream has come to it, and the stream goes on when the work is done.
 */
#include "stream.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* Makes the second stream wait for all work that the first one has now. */
static int32_t chain(const struct cuda_target *first, const struct cuda_target *second,
                     struct moor_abi_error *error)
{
    struct cuda_scope scope;
    CUevent event = NULL;
    int32_t status = cuda_enter(first->device, &scope, error);
    if (status)
        return status;
    status = cuda_event_acquire(first->device, &event, error);
    if (status == MOOR_OK)
        status = CUDA_CALL(first->device, MOOR_HOST_NOMEM, error, cuEventRecord, event, first->native);
    cuda_leave(&scope);
    if (status == MOOR_OK)
        status = cuda_enter(second->device, &scope, error);
    if (status == MOOR_OK) {
        status = CUDA_CALL(second->device, MOOR_HOST_NOMEM, error, cuStreamWaitEvent, second->native, event,
                           CU_EVENT_WAIT_DEFAULT);
        cuda_leave(&scope);
    }
    if (event)
        cuda_event_return(first->device, event); /* a submitted wait needs it no more */
    return status;
}

static int32_t create_peer(struct moor_abi_stream *stream, struct cuda_device *device, CUstream *ret_native,
                           struct moor_abi_error *error)
{
    struct cuda_peer_stream *peer = calloc(1, sizeof *peer);
    if (!peer)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM,
                             "stream: no memory for its stream on another device");
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status == MOOR_OK) {
        status =
            CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuStreamCreate, &peer->native, CU_STREAM_NON_BLOCKING);
        cuda_leave(&scope);
    }
    if (status) {
        free(peer);
        return status;
    }
    pthread_mutex_lock(&device->streams.lock);
    device->streams.must_stay = true; /* the peer stream may outlive all contexts that are open there */
    pthread_mutex_unlock(&device->streams.lock);
    peer->device = device;
    peer->next = stream->submit.peers;
    stream->submit.peers = peer;
    *ret_native = peer->native;
    return MOOR_OK;
}

static int32_t get_peer(struct moor_abi_stream *stream, struct cuda_device *device, CUstream *ret_native,
                        struct moor_abi_error *error)
{
    assert(device != stream->kit.context->device && cuda_is_locked(&stream->submit.lock));
    for (struct cuda_peer_stream *peer = stream->submit.peers; peer; peer = peer->next) {
        if (peer->device == device) {
            *ret_native = peer->native;
            return MOOR_OK;
        }
    }
    return create_peer(stream, device, ret_native, error);
}

void cuda_peers_destroy(struct moor_abi_stream *stream)
{
    while (stream->submit.peers) {
        struct cuda_peer_stream *peer = stream->submit.peers;
        struct cuda_scope scope;
        stream->submit.peers = peer->next;
        if (cuda_enter_lost(peer->device, &scope, NULL) == MOOR_OK) {
            /* A lost stream's timeline does not show the end of the peer's work. */
            if (cuda_is_lost(stream->kit.context->device))
                (void)cuda_poll_stream(peer->device, peer->native, CUDA_DRAIN_NS);
            /* After a failure the context's end destroys the stream. */
            (void)cuda_driver_of(peer->device)->cuStreamDestroy(peer->native);
            cuda_leave(&scope);
        }
        free(peer);
    }
}

int32_t cuda_target_begin(struct moor_abi_stream *stream, struct cuda_device *device,
                          struct cuda_target *ret_target, struct cuda_scope *ret_scope,
                          struct moor_abi_error *error)
{
    struct cuda_target own = {stream->kit.context->device, stream->native};
    assert(cuda_is_locked(&stream->submit.lock));
    if (device == own.device) {
        *ret_target = own;
        return MOOR_OK;
    }
    struct cuda_target target = {device, NULL};
    int32_t status = get_peer(stream, device, &target.native, error);
    if (status == MOOR_OK)
        status = chain(&own, &target, error);
    if (status == MOOR_OK)
        status = cuda_enter(device, ret_scope, error);
    if (status == MOOR_OK)
        *ret_target = target;
    return status;
}

int32_t cuda_target_end(struct moor_abi_stream *stream, const struct cuda_target *target,
                        const struct cuda_scope *scope, int32_t status, struct moor_abi_error *error)
{
    struct cuda_target own = {stream->kit.context->device, stream->native};
    if (target->device == own.device)
        return status;
    cuda_leave(scope);
    int32_t chained = chain(target, &own, status == MOOR_OK ? error : NULL);
    if (chained) {
        /* The stream does not wait for the work on the peer stream, which may be that of a copy that failed
         * half way. That work must end before the caller learns of the failure. */
        struct cuda_scope peer;
        if (cuda_enter(target->device, &peer, NULL) == MOOR_OK) {
            if (chained == MOOR_DEVICE_LOST)
                (void)cuda_poll_stream(target->device, target->native, CUDA_DRAIN_NS);
            else
                (void)cuda_driver_of(target->device)->cuStreamSynchronize(target->native);
            cuda_leave(&peer);
        }
    }
    return status ? status : chained;
}
