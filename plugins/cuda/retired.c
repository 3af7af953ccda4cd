/* SPDX-License-Identifier: MIT */
/*
 * Parts of a stream that outlive it. A stream may be destroyed with work behind its last record: copies by
 * host functions through the provider's pinned memory, and waits for words. Calls that end a stream must not
 * wait for that work, so its parts are left to the device and freed when the stream's tail, a mark behind all
 * its work, is reached. The retired parts are swept when a stream is made or destroyed and when the device
 * closes.
 */
#include "stream.h"
#include <assert.h>
#include <stdlib.h>

static bool is_event_reached(struct cuda_device *device, CUevent event)
{
    struct cuda_scope scope;
    if (cuda_enter(device, &scope, NULL))
        return cuda_is_lost(device);
    CUresult code = cuda_driver_of(device)->cuEventQuery(event);
    cuda_leave(&scope);
    if (code == CUDA_ERROR_NOT_READY)
        return false;
    int32_t status = cuda_check(device, code, MOOR_HOST_NOMEM, "cuEventQuery", NULL);
    return status == MOOR_OK || status == MOOR_DEVICE_LOST;
}

static bool is_done(struct cuda_device *device, struct cuda_parts *parts)
{
    if (cuda_is_lost(device))
        return true; /* no work runs any more */
    if (parts->is_unmarked)
        return false;
    if (!parts->has_tail)
        return true;
    if (!parts->slot)
        return is_event_reached(device, parts->tail);
    return cuda_slot_is_reached(parts->slot, CUDA_WORD_TAIL) || cuda_device_poll(device, NULL) != MOOR_OK;
}

void cuda_parts_free(struct cuda_device *device, struct cuda_parts *parts)
{
    cuda_staging_finish(device, &parts->staging);
    if (parts->tail)
        cuda_event_return(device, parts->tail);
    /* A word that a lost device has not written to the end cannot serve another stream: it goes with its
     * slab. */
    if (parts->slot && !cuda_has_gone(device) && cuda_slot_is_reached(parts->slot, CUDA_WORD_VALUE) &&
        cuda_slot_is_reached(parts->slot, CUDA_WORD_TAIL))
        cuda_slot_return(device, parts->slot);
    free(parts);
}

static void add_retired(struct cuda_device *device, struct cuda_parts *parts)
{
    pthread_mutex_lock(&device->streams.lock);
    parts->next = device->streams.retired;
    device->streams.retired = parts;
    pthread_mutex_unlock(&device->streams.lock);
}

void cuda_parts_retire(struct cuda_device *device, struct cuda_parts *parts)
{
    add_retired(device, parts);
    (void)cuda_retired_sweep(device);
}

bool cuda_retired_sweep(struct cuda_device *device)
{
    struct cuda_stream_pool *streams = &device->streams;
    pthread_mutex_lock(&streams->lock);
    struct cuda_parts *retired = streams->retired;
    streams->retired = NULL; /* is_done asks the driver, so the lock is released for it */
    pthread_mutex_unlock(&streams->lock);
    while (retired) {
        struct cuda_parts *parts = retired;
        retired = parts->next;
        if (is_done(device, parts))
            cuda_parts_free(device, parts);
        else
            add_retired(device, parts);
    }
    pthread_mutex_lock(&streams->lock);
    bool is_empty = streams->retired == NULL;
    pthread_mutex_unlock(&streams->lock);
    return is_empty;
}
