/* SPDX-License-Identifier: MIT */
/*
 * What has to outlast a stream. A stream may be destroyed with work behind its last record: copies that host
 * functions carry out, with memory of ours between, and waits for words. None of the calls that end a stream
 * may wait for it, so what that work uses is left with the device and freed when the stream's tail, a mark
 * behind all of it, is reached: looked for when streams come and go, and at the end of the device.
 */
#include "provider.h"
#include <stdlib.h>

struct cuda_rest *cuda_rest_create(void)
{
    return calloc(1, sizeof(struct cuda_rest));
}

static bool is_word_there(const struct cuda_slot *slot, uint32_t word)
{
    /* Acquire: the work before it is done, and what it used may go. */
    return atomic_load_explicit(&slot->words[word], memory_order_acquire) == slot->written[word];
}

static bool is_event_there(struct cuda_device *device, CUevent event)
{
    struct cuda_scope scope;
    if (cuda_enter(device, &scope, NULL) != MOOR_OK)
        return atomic_load(&device->lost) != 0;
    CUresult code = cuda_driver_of(device)->cuEventQuery(event);
    cuda_leave(&scope);
    if (code == CUDA_ERROR_NOT_READY)
        return false;
    int32_t status = cuda_check(device, code, MOOR_HOST_NOMEM, "cuEventQuery", NULL);
    return status == MOOR_OK || status == MOOR_DEVICE_LOST;
}

static bool is_past(struct cuda_device *device, struct cuda_rest *rest)
{
    if (cuda_has_gone(device) || atomic_load(&device->lost))
        return true; /* nothing of it will run any more */
    if (rest->is_unmarked)
        return false;
    if (!rest->has_tail)
        return true;
    if (rest->slot && !is_word_there(rest->slot, CUDA_WORD_TAIL))
        return cuda_device_check(device, NULL) != MOOR_OK;
    return rest->slot || is_event_there(device, rest->tail);
}

void cuda_rest_free(struct cuda_device *device, struct cuda_rest *rest)
{
    cuda_staging_finish(device, &rest->staging);
    if (rest->tail)
        cuda_event_give(device, rest->tail);
    /* A word that was given up on the way serves nobody else: it goes with its slab. */
    if (rest->slot && !cuda_has_gone(device) && is_word_there(rest->slot, CUDA_WORD_VALUE) &&
        is_word_there(rest->slot, CUDA_WORD_TAIL))
        cuda_slot_give(device, rest->slot);
    free(rest);
}

void cuda_rest_leave(struct cuda_device *device, struct cuda_rest *rest)
{
    pthread_mutex_lock(&device->lock);
    rest->next = device->rests;
    device->rests = rest;
    pthread_mutex_unlock(&device->lock);
    (void)cuda_rests_sweep(device);
}

bool cuda_rests_sweep(struct cuda_device *device)
{
    pthread_mutex_lock(&device->lock);
    struct cuda_rest *rests = device->rests;
    device->rests = NULL; /* looked at without the lock */
    pthread_mutex_unlock(&device->lock);
    struct cuda_rest *kept = NULL;
    while (rests) {
        struct cuda_rest *rest = rests;
        rests = rest->next;
        if (is_past(device, rest)) {
            cuda_rest_free(device, rest);
        } else {
            rest->next = kept;
            kept = rest;
        }
    }
    pthread_mutex_lock(&device->lock);
    while (kept) {
        struct cuda_rest *rest = kept;
        kept = rest->next;
        rest->next = device->rests;
        device->rests = rest;
    }
    bool is_empty = device->rests == NULL;
    pthread_mutex_unlock(&device->lock);
    return is_empty;
}
