/* SPDX-License-Identifier: MIT */
/*
 * Two kinds of timeline.
 *
 * Memory: the stream writes its values into a word of pinned host memory, so reading the watermark is one
 * load, and a wait on another stream compares that word. Words are never set back: a word that serves another
 * stream goes on from where it was, and that is the new stream's 0. So a wait that has not been come to yet
 * stays satisfied after the stream it is for has been destroyed.
 *
 * Events: each value is an event, and those that are not known to be reached stand in a ring. The driver is
 * asked for the oldest ones.
 *
 * Neither tells of a lost device in time: a word just stands still. So where a value is missing the driver is
 * asked now and then (cuda_device_check).
 */
#include "provider.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPINS 200u
#define SLEEP_MIN_NS 20000L
#define SLEEP_MAX_NS 200000L

/* ---- words ---- */

static int32_t add_slab(struct cuda_device *device, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    struct cuda_slab *slab = calloc(1, sizeof(*slab));
    if (!slab)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for the words of streams");
    int32_t status = cuda_check(device,
                                driver->cuMemHostAlloc(&slab->memory, CUDA_SLAB_SLOTS * CUDA_SLOT_BYTES,
                                                       CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                                MOOR_HOST_NOMEM, "cuMemHostAlloc", error);
    if (status != MOOR_OK) {
        free(slab);
        return status;
    }
    CUdeviceptr address = 0;
    status = cuda_check(device, driver->cuMemHostGetDevicePointer(&address, slab->memory, 0), MOOR_HOST_NOMEM,
                        "cuMemHostGetDevicePointer", error);
    if (status != MOOR_OK) {
        (void)driver->cuMemFreeHost(slab->memory); /* the first failure is what is told */
        free(slab);
        return status;
    }
    memset(slab->memory, 0, CUDA_SLAB_SLOTS * CUDA_SLOT_BYTES);
    for (uint32_t i = 0; i < CUDA_SLAB_SLOTS; i++) {
        struct cuda_slot *slot = &slab->slots[i];
        slot->words = (_Atomic uint64_t *)(void *)((char *)slab->memory + i * CUDA_SLOT_BYTES);
        slot->address = address + i * CUDA_SLOT_BYTES;
        slot->next = device->free_slots;
        device->free_slots = slot;
    }
    slab->next = device->slabs;
    device->slabs = slab;
    return MOOR_OK;
}

int32_t cuda_slot_take(struct cuda_device *device, struct cuda_slot **ret_slot, struct moor_abi_error *error)
{
    pthread_mutex_lock(&device->lock);
    int32_t status = device->free_slots ? MOOR_OK : add_slab(device, error);
    if (status == MOOR_OK) {
        *ret_slot = device->free_slots;
        device->free_slots = (*ret_slot)->next;
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

void cuda_slot_give(struct cuda_device *device, struct cuda_slot *slot)
{
    pthread_mutex_lock(&device->lock);
    slot->next = device->free_slots;
    device->free_slots = slot;
    pthread_mutex_unlock(&device->lock);
}

void cuda_slabs_free(struct cuda_device *device)
{
    while (device->slabs) {
        struct cuda_slab *slab = device->slabs;
        device->slabs = slab->next;
        if (cuda_out_of_reach(device) == CUDA_SUCCESS)
            (void)cuda_driver_of(device)->cuMemFreeHost(slab->memory); /* goes with the context in any case */
        free(slab);
    }
    device->free_slots = NULL;
}

/* The word's value is one that was submitted, or a device that is lost has not come so far. */
static uint64_t read_word(const struct cuda_slot *slot, uint32_t word)
{
    /* Acquire: who sees the value sees the work before it, too. */
    return atomic_load_explicit(&slot->words[word], memory_order_acquire);
}

static int32_t write_word(struct moor_abi_stream *stream, uint32_t word, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    struct cuda_slot *slot = stream->rest->slot;
    CUresult code =
        cuda_driver_of(device)->cuStreamWriteValue64(stream->native, slot->address + word * sizeof(uint64_t),
                                                     slot->written[word] + 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    int32_t status = cuda_check(device, code, MOOR_HOST_NOMEM, "cuStreamWriteValue64", error);
    if (status == MOOR_OK)
        slot->written[word]++;
    return status;
}

/* ---- events ---- */

int32_t cuda_event_take(struct cuda_device *device, CUevent *ret_event, struct moor_abi_error *error)
{
    CUevent event = NULL;
    pthread_mutex_lock(&device->lock);
    if (device->spare_count > 0)
        event = device->spare[--device->spare_count];
    pthread_mutex_unlock(&device->lock);
    int32_t status = MOOR_OK;
    if (!event)
        status = cuda_check(device, cuda_driver_of(device)->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING),
                            MOOR_HOST_NOMEM, "cuEventCreate", error);
    if (status == MOOR_OK)
        *ret_event = event;
    return status;
}

void cuda_event_give(struct cuda_device *device, CUevent event)
{
    pthread_mutex_lock(&device->lock);
    bool is_kept = device->spare_count < CUDA_SPARE_EVENTS_MAX;
    if (is_kept)
        device->spare[device->spare_count++] = event;
    pthread_mutex_unlock(&device->lock);
    struct cuda_scope scope;
    if (is_kept || cuda_enter_lost(device, &scope, NULL) != MOOR_OK)
        return;
    (void)cuda_driver_of(device)->cuEventDestroy(event); /* goes with the context in any case */
    cuda_leave(&scope);
}

void cuda_events_free(struct cuda_device *device)
{
    for (; device->spare_count > 0; device->spare_count--) {
        if (cuda_out_of_reach(device) == CUDA_SUCCESS)
            (void)cuda_driver_of(device)->cuEventDestroy(
                device->spare[device->spare_count - 1]); /* likewise */
    }
}

/* The ring's lock is held. */
static int32_t make_room(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    if (stream->ring.count < stream->ring.capacity)
        return MOOR_OK;
    if (stream->ring.capacity >= CUDA_STREAM_RECORDS_MAX)
        return moor_kit_fail(error, MOOR_LIMIT, 0, "%u values of this stream are not reached: no more fit",
                             stream->ring.count);
    uint32_t capacity = stream->ring.capacity ? stream->ring.capacity * 2 : 64;
    CUevent *events = malloc(capacity * sizeof(*events));
    if (!events)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for %u values of a stream", capacity);
    for (uint32_t i = 0; i < stream->ring.count; i++)
        events[i] = stream->ring.events[(stream->ring.first + i) & (stream->ring.capacity - 1)];
    free(stream->ring.events);
    stream->ring.events = events;
    stream->ring.capacity = capacity;
    stream->ring.first = 0;
    return MOOR_OK;
}

static int32_t record_event(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    CUevent event = NULL;
    int32_t status = cuda_event_take(device, &event, error);
    if (status != MOOR_OK)
        return status;
    pthread_mutex_lock(&stream->ring.lock);
    status = make_room(stream, error);
    if (status == MOOR_OK)
        status = cuda_check(device, cuda_driver_of(device)->cuEventRecord(event, stream->native),
                            MOOR_HOST_NOMEM, "cuEventRecord", error);
    if (status == MOOR_OK) {
        uint32_t place = (stream->ring.first + stream->ring.count) & (stream->ring.capacity - 1);
        stream->ring.events[place] = event;
        stream->ring.count++;
    }
    pthread_mutex_unlock(&stream->ring.lock);
    if (status != MOOR_OK)
        cuda_event_give(device, event);
    return status;
}

/* Moves on over what is reached. The ring's lock is held, a scope entered. */
static int32_t advance(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    while (stream->ring.count > 0) {
        CUevent event = stream->ring.events[stream->ring.first];
        CUresult code = cuda_driver_of(device)->cuEventQuery(event);
        if (code == CUDA_ERROR_NOT_READY)
            return MOOR_OK;
        int32_t status = cuda_check(device, code, MOOR_HOST_NOMEM, "cuEventQuery", error);
        if (status != MOOR_OK)
            return status;
        stream->ring.first = (stream->ring.first + 1) & (stream->ring.capacity - 1);
        stream->ring.count--;
        stream->ring.reached++;
        cuda_event_give(device, event);
    }
    return MOOR_OK;
}

static int32_t read_events(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    int32_t status = MOOR_OK;
    pthread_mutex_lock(&stream->ring.lock);
    if (stream->ring.count > 0) {
        struct cuda_scope scope;
        status = cuda_enter(device, &scope, error);
        if (status == MOOR_OK) {
            status = advance(stream, error);
            cuda_leave(&scope);
        }
    }
    if (status == MOOR_OK)
        *ret_value = stream->ring.reached;
    pthread_mutex_unlock(&stream->ring.lock);
    return status;
}

/* ---- reading ---- */

bool cuda_timeline_is_lost(struct moor_abi_stream *stream)
{
    return atomic_load(&stream->context->device->lost) != 0 || cuda_has_gone(stream->context->device);
}

int32_t cuda_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                              struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    uint64_t recorded = atomic_load(&stream->recorded);
    uint64_t reached = recorded;
    int32_t status = MOOR_OK;
    if (!cuda_has_gone(device)) {
        if (stream->rest->slot)
            reached = read_word(stream->rest->slot, CUDA_WORD_VALUE) - stream->base;
        else
            status = read_events(stream, &reached, error);
        if (status == MOOR_OK && reached < recorded)
            status = cuda_device_check(device, error);
    }
    if (cuda_has_gone(device)) { /* nothing works any more, so nothing uses anything: frees may go on */
        status = MOOR_OK;
        reached = recorded;
    }
    if (status == MOOR_DEVICE_LOST || cuda_has_gone(device))
        cuda_staging_cancel(&stream->rest->staging);
    if (status == MOOR_OK)
        *ret_value = reached;
    return status;
}

int32_t cuda_stream_check_recorded(struct moor_abi_stream *stream, uint64_t value,
                                   struct moor_abi_error *error)
{
    if (value <= atomic_load(&stream->recorded))
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0, "value %llu was never recorded on the stream",
                         (unsigned long long)value);
}

/* Looks a few times at once, then more and more rarely. */
static void pause_between(const struct moor_abi_host *host, uint32_t looks, uint64_t deadline_ns)
{
    if (looks < SPINS)
        return;
    long pause_ns = SLEEP_MIN_NS * (long)(1 + (looks - SPINS) / 8);
    pause_ns = pause_ns < SLEEP_MAX_NS ? pause_ns : SLEEP_MAX_NS;
    if (deadline_ns != UINT64_MAX) {
        uint64_t now_ns = host->clock_ns(host->user);
        uint64_t left_ns = now_ns < deadline_ns ? deadline_ns - now_ns : 0;
        pause_ns = left_ns < (uint64_t)pause_ns ? (long)left_ns : pause_ns;
    }
    const struct timespec pause = {.tv_nsec = pause_ns};
    (void)nanosleep(&pause, NULL); /* cut short: it looks again */
}

int32_t cuda_stream_wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                         struct moor_abi_error *error)
{
    const struct moor_abi_host *host = stream->context->instance->host;
    int32_t status = cuda_stream_check_recorded(stream, value, error);
    for (uint32_t looks = 0; status == MOOR_OK; looks += looks < UINT32_MAX) {
        uint64_t reached = 0;
        status = cuda_stream_watermark(stream, &reached, error);
        if (status != MOOR_OK || reached >= value)
            return status;
        if (deadline_ns == 0 || (deadline_ns != UINT64_MAX && host->clock_ns(host->user) >= deadline_ns))
            return moor_kit_fail(error, MOOR_TIMEOUT, 0, "value %llu is not reached: %llu is",
                                 (unsigned long long)value, (unsigned long long)reached);
        pause_between(host, looks, deadline_ns);
    }
    return status;
}

/* ---- writing ---- */

int32_t cuda_timeline_record(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error)
{
    int32_t status =
        stream->rest->slot ? write_word(stream, CUDA_WORD_VALUE, error) : record_event(stream, error);
    if (status != MOOR_OK)
        return status;
    *ret_value = atomic_fetch_add(&stream->recorded, 1) + 1;
    /* Nobody destroys the stream before this value is reached: what came before needs no tail. */
    stream->is_dirty = false;
    stream->rest->is_unmarked = false;
    return MOOR_OK;
}

static int32_t join_word(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                         struct moor_abi_error *error)
{
    struct cuda_device *device = other->context->device;
    pthread_mutex_lock(&device->lock);
    device->is_waited_for = true; /* before the wait is there, so that the word stays in any case */
    pthread_mutex_unlock(&device->lock);
    CUdeviceptr address = other->rest->slot->address + CUDA_WORD_VALUE * sizeof(uint64_t);
    return cuda_check(stream->context->device,
                      cuda_driver_of(device)->cuStreamWaitValue64(
                          stream->native, address, other->base + value, CU_STREAM_WAIT_VALUE_GEQ),
                      MOOR_HOST_NOMEM, "cuStreamWaitValue64", error);
}

/* The oldest event that stands for the value or a later one: they stand in the ring without a gap. */
static int32_t join_event(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                          struct moor_abi_error *error)
{
    int32_t status = MOOR_OK;
    pthread_mutex_lock(&other->ring.lock);
    if (value > other->ring.reached) {
        uint32_t index = (uint32_t)(value - other->ring.reached - 1);
        CUevent event = other->ring.events[(other->ring.first + index) & (other->ring.capacity - 1)];
        status = cuda_check(stream->context->device,
                            cuda_driver_of(stream->context->device)
                                ->cuStreamWaitEvent(stream->native, event, CU_EVENT_WAIT_DEFAULT),
                            MOOR_HOST_NOMEM, "cuStreamWaitEvent", error);
    }
    pthread_mutex_unlock(&other->ring.lock);
    return status;
}

int32_t cuda_timeline_join(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error)
{
    /* All devices of an instance have the same kind of timeline. */
    return other->rest->slot ? join_word(stream, other, value, error)
                             : join_event(stream, other, value, error);
}

/* ---- tails ---- */

int32_t cuda_timeline_mark_tail(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    struct cuda_rest *rest = stream->rest;
    int32_t status = MOOR_OK;
    if (rest->slot) {
        status = write_word(stream, CUDA_WORD_TAIL, error);
    } else {
        if (!rest->tail)
            status = cuda_event_take(device, &rest->tail, error);
        if (status == MOOR_OK)
            status = cuda_check(device, cuda_driver_of(device)->cuEventRecord(rest->tail, stream->native),
                                MOOR_HOST_NOMEM, "cuEventRecord", error);
    }
    if (status != MOOR_OK)
        return status;
    rest->has_tail = true;
    rest->is_unmarked = false;
    return MOOR_OK;
}

void cuda_timeline_soil(struct moor_abi_stream *stream)
{
    /* A stream of the host's may not be there any more when ours is destroyed, so its tail is marked now. */
    if (stream->is_imported && cuda_timeline_mark_tail(stream, NULL) != MOOR_OK)
        stream->rest->is_unmarked = true;
}
