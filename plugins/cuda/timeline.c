/* SPDX-License-Identifier: MIT */
/*
 * The two kinds of timeline.
 *
 * Words: the stream writes its values into a word of pinned host memory, so reading the watermark is one
 * load, and a wait on another stream compares that word. Words never go back: when a word serves another
 * stream it continues from its last value, which is the new stream's 0. So a stream that still has to wait
 * for a destroyed stream finds its wait satisfied.
 *
 * Events: each value is an event. The events that are not known to be reached stand in a ring, oldest first,
 * and the driver is asked for the oldest ones.
 *
 * Neither kind reports a lost device in time: a word just stays as it is. So while a value is missing the
 * device is polled (cuda_device_poll).
 */
#include "stream.h"
#include <assert.h>
#include <errno.h>
#include <moorage/kit/host.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPINS 200u
#define SLEEP_MIN_NS UINT64_C(20000)
#define SLEEP_MAX_NS UINT64_C(200000)

_Static_assert(CUDA_WORD_COUNT * sizeof(uint64_t) <= CUDA_SLOT_BYTES, "the words of a slot fit in it");
_Static_assert((CUDA_STREAM_RECORDS_MAX & (CUDA_STREAM_RECORDS_MAX - 1)) == 0, "a ring doubles up to it");

/* ---- words ---- */

/* Requires device->streams.lock. */
static int32_t add_slab(struct cuda_device *device, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    struct cuda_stream_pool *streams = &device->streams;
    assert(cuda_is_locked(&streams->lock));
    struct cuda_slab *slab = calloc(1, sizeof *slab);
    if (!slab)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "stream: no memory for words");
    CUdeviceptr address = 0;
    int32_t status =
        CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuMemHostAlloc, &slab->memory,
                  CUDA_SLAB_SLOTS * CUDA_SLOT_BYTES, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (status)
        goto free_record;
    status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuMemHostGetDevicePointer, &address, slab->memory, 0);
    if (status)
        goto free_memory;
    memset(slab->memory, 0, CUDA_SLAB_SLOTS * CUDA_SLOT_BYTES);
    for (uint32_t i = 0; i < CUDA_SLAB_SLOTS; i++) {
        struct cuda_slot *slot = &slab->slots[i];
        slot->words = (_Atomic uint64_t *)(void *)((char *)slab->memory + i * CUDA_SLOT_BYTES);
        slot->address = address + i * CUDA_SLOT_BYTES;
        slot->next = streams->free_slots;
        streams->free_slots = slot;
    }
    slab->next = streams->slabs;
    streams->slabs = slab;
    return MOOR_OK;

free_memory:
    (void)driver->cuMemFreeHost(slab->memory); /* the first failure is reported */
free_record:
    free(slab);
    return status;
}

int32_t cuda_slot_acquire(struct cuda_device *device, struct cuda_slot **ret_slot,
                          struct moor_abi_error *error)
{
    struct cuda_stream_pool *streams = &device->streams;
    pthread_mutex_lock(&streams->lock);
    int32_t status = streams->free_slots ? MOOR_OK : add_slab(device, error);
    if (status == MOOR_OK) {
        *ret_slot = streams->free_slots;
        streams->free_slots = (*ret_slot)->next;
    }
    pthread_mutex_unlock(&streams->lock);
    return status;
}

void cuda_slot_return(struct cuda_device *device, struct cuda_slot *slot)
{
    pthread_mutex_lock(&device->streams.lock);
    slot->next = device->streams.free_slots;
    device->streams.free_slots = slot;
    pthread_mutex_unlock(&device->streams.lock);
}

void cuda_slabs_free(struct cuda_device *device)
{
    while (device->streams.slabs) {
        struct cuda_slab *slab = device->streams.slabs;
        device->streams.slabs = slab->next;
        if (cuda_out_of_reach(device) == CUDA_SUCCESS)
            (void)cuda_driver_of(device)->cuMemFreeHost(slab->memory); /* else the context's end frees it */
        free(slab);
    }
    device->streams.free_slots = NULL;
}

/* Returns a value that was submitted. On a lost device the word may stay below the last one. */
static uint64_t read_word(const struct cuda_slot *slot, enum cuda_word word)
{
    /* Acquire: a thread that sees the value sees the results of the work before it, too. */
    return atomic_load_explicit(&slot->words[word], memory_order_acquire);
}

bool cuda_slot_is_reached(const struct cuda_slot *slot, enum cuda_word word)
{
    return read_word(slot, word) == slot->written[word];
}

static int32_t write_word(struct moor_abi_stream *stream, enum cuda_word word, struct moor_abi_error *error)
{
    struct cuda_slot *slot = stream->parts->slot;
    int32_t status = CUDA_CALL(stream->kit.context->device, MOOR_HOST_NOMEM, error, cuStreamWriteValue64,
                               stream->native, slot->address + word * sizeof(uint64_t),
                               slot->written[word] + 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (status == MOOR_OK)
        slot->written[word]++;
    return status;
}

/* ---- events ---- */

int32_t cuda_event_acquire(struct cuda_device *device, CUevent *ret_event, struct moor_abi_error *error)
{
    CUevent event = NULL;
    pthread_mutex_lock(&device->streams.lock);
    if (device->streams.spare_event_count > 0)
        event = device->streams.spare_events[--device->streams.spare_event_count];
    pthread_mutex_unlock(&device->streams.lock);
    int32_t status = MOOR_OK;
    if (!event)
        status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    if (status == MOOR_OK)
        *ret_event = event;
    return status;
}

void cuda_event_return(struct cuda_device *device, CUevent event)
{
    assert(event);
    pthread_mutex_lock(&device->streams.lock);
    bool is_kept = device->streams.spare_event_count < CUDA_SPARE_EVENTS_MAX;
    if (is_kept)
        device->streams.spare_events[device->streams.spare_event_count++] = event;
    pthread_mutex_unlock(&device->streams.lock);
    struct cuda_scope scope;
    if (is_kept || cuda_enter_lost(device, &scope, NULL))
        return;
    (void)cuda_driver_of(device)->cuEventDestroy(event); /* after a failure the context's end frees it */
    cuda_leave(&scope);
}

void cuda_events_free(struct cuda_device *device)
{
    struct cuda_stream_pool *streams = &device->streams;
    for (; streams->spare_event_count > 0; streams->spare_event_count--) {
        if (cuda_out_of_reach(device) == CUDA_SUCCESS) /* else the context's end frees it */
            (void)cuda_driver_of(device)->cuEventDestroy(
                streams->spare_events[streams->spare_event_count - 1]);
    }
}

/* Requires stream->ring.lock. */
static CUevent *ring_at(struct moor_abi_stream *stream, uint32_t index)
{
    assert(index < stream->ring.capacity);
    return &stream->ring.events[(stream->ring.first + index) & (stream->ring.capacity - 1)];
}

/* Requires stream->ring.lock. */
static int32_t grow_ring(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    assert(cuda_is_locked(&stream->ring.lock) && stream->ring.count == stream->ring.capacity);
    if (stream->ring.capacity >= CUDA_STREAM_RECORDS_MAX)
        return moor_kit_fail(error, MOOR_LIMIT, 0,
                             "stream: %u values are not reached, which is the limit: wait for some",
                             stream->ring.count);
    uint32_t capacity = stream->ring.capacity ? stream->ring.capacity * 2 : 64;
    CUevent *events = malloc(capacity * sizeof *events);
    if (!events)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "stream: no memory for %u values", capacity);
    for (uint32_t i = 0; i < stream->ring.count; i++)
        events[i] = *ring_at(stream, i);
    free(stream->ring.events);
    stream->ring.events = events;
    stream->ring.capacity = capacity;
    stream->ring.first = 0;
    return MOOR_OK;
}

static int32_t record_event(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->kit.context->device;
    CUevent event = NULL;
    int32_t status = cuda_event_acquire(device, &event, error);
    if (status)
        return status;
    pthread_mutex_lock(&stream->ring.lock);
    if (stream->ring.count == stream->ring.capacity)
        status = grow_ring(stream, error);
    if (status == MOOR_OK)
        status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuEventRecord, event, stream->native);
    if (status == MOOR_OK)
        *ring_at(stream, stream->ring.count++) = event;
    pthread_mutex_unlock(&stream->ring.lock);
    if (status)
        cuda_event_return(device, event);
    return status;
}

/* Removes the reached events. Requires stream->ring.lock and a scope. */
static int32_t advance_ring(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->kit.context->device;
    assert(cuda_is_locked(&stream->ring.lock));
    while (stream->ring.count > 0) {
        CUevent event = *ring_at(stream, 0);
        CUresult code = cuda_driver_of(device)->cuEventQuery(event);
        if (code == CUDA_ERROR_NOT_READY)
            return MOOR_OK;
        int32_t status = cuda_check(device, code, MOOR_HOST_NOMEM, "cuEventQuery", error);
        if (status)
            return status;
        stream->ring.first = (stream->ring.first + 1) & (stream->ring.capacity - 1);
        stream->ring.count--;
        stream->ring.reached++;
        cuda_event_return(device, event);
    }
    return MOOR_OK;
}

static int32_t read_events(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    struct cuda_scope scope;
    int32_t status = MOOR_OK;
    pthread_mutex_lock(&stream->ring.lock);
    if (stream->ring.count > 0) {
        status = cuda_enter(stream->kit.context->device, &scope, error);
        if (status == MOOR_OK) {
            status = advance_ring(stream, error);
            cuda_leave(&scope);
        }
    }
    if (status == MOOR_OK)
        *ret_value = stream->ring.reached;
    pthread_mutex_unlock(&stream->ring.lock);
    return status;
}

/* ---- reading ---- */

int32_t cuda_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                              struct moor_abi_error *error)
{
    struct cuda_device *device = stream->kit.context->device;
    uint64_t recorded = atomic_load(&stream->recorded);
    uint64_t reached = recorded;
    int32_t status = MOOR_OK;
    if (!cuda_has_gone(device)) {
        if (stream->parts->slot)
            reached = read_word(stream->parts->slot, CUDA_WORD_VALUE) - stream->base;
        else
            status = read_events(stream, &reached, error);
        if (status == MOOR_OK && reached < recorded)
            status = cuda_device_poll(device, error);
    }
    if (cuda_has_gone(device)) { /* all work has stopped and uses no memory any more: frees may go on */
        status = MOOR_OK;
        reached = recorded;
    }
    if (status == MOOR_DEVICE_LOST || cuda_has_gone(device))
        cuda_staging_cancel(&stream->parts->staging);
    if (status == MOOR_OK)
        *ret_value = reached;
    return status;
}

int32_t cuda_stream_check_recorded(struct moor_abi_stream *stream, uint64_t value,
                                   struct moor_abi_error *error)
{
    if (value <= atomic_load(&stream->recorded))
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0, "stream: value %llu was never recorded",
                         (unsigned long long)value);
}

/* Returns at once for the first polls, then sleeps longer and longer, but never past the time that is
 * left. */
static void pause_between_polls(uint32_t polls, uint64_t left_ns)
{
    if (polls < SPINS)
        return;
    uint64_t pause_ns = SLEEP_MIN_NS * (1 + (polls - SPINS) / 8);
    pause_ns = pause_ns < SLEEP_MAX_NS ? pause_ns : SLEEP_MAX_NS;
    pause_ns = pause_ns < left_ns ? pause_ns : left_ns;
    const struct timespec pause = {.tv_nsec = (long)pause_ns};
    (void)nanosleep(&pause, NULL); /* a shorter sleep only polls earlier */
}

int32_t cuda_stream_wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                         struct moor_abi_error *error)
{
    int32_t status = cuda_stream_check_recorded(stream, value, error);
    for (uint32_t polls = 0; status == MOOR_OK; polls += polls < UINT32_MAX) {
        uint64_t reached = 0;
        status = cuda_stream_watermark(stream, &reached, error);
        if (status || reached >= value)
            return status;
        uint64_t left_ns = moor_kit_time_left(stream->kit.context->kit.instance->kit.host, deadline_ns);
        if (left_ns == 0)
            return moor_kit_fail(error, MOOR_TIMEOUT, 0, "stream: value %llu is not reached: %llu is",
                                 (unsigned long long)value, (unsigned long long)reached);
        pause_between_polls(polls, left_ns);
    }
    return status;
}

/* ---- writing ---- */

int32_t cuda_timeline_record(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error)
{
    assert(cuda_is_locked(&stream->submit.lock));
    int32_t status =
        stream->parts->slot ? write_word(stream, CUDA_WORD_VALUE, error) : record_event(stream, error);
    if (status)
        return status;
    *ret_value = atomic_fetch_add(&stream->recorded, 1) + 1;
    /* The stream is not destroyed before this value is reached, so the work before the value needs no
     * tail. */
    stream->submit.is_dirty = false;
    stream->parts->is_unmarked = false;
    return MOOR_OK;
}

static int32_t join_word(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                         struct moor_abi_error *error)
{
    struct cuda_stream_pool *streams = &other->kit.context->device->streams;
    pthread_mutex_lock(&streams->lock);
    streams->must_stay = true; /* set before the wait is submitted, so that the word outlives the wait */
    pthread_mutex_unlock(&streams->lock);
    CUdeviceptr address = other->parts->slot->address + CUDA_WORD_VALUE * sizeof(uint64_t);
    return CUDA_CALL(stream->kit.context->device, MOOR_HOST_NOMEM, error, cuStreamWaitValue64, stream->native,
                     address, other->base + value, CU_STREAM_WAIT_VALUE_GEQ);
}

/* Waits for the event of the value. The ring holds the events of all values after `reached` without a gap; a
 * value that is reached needs no wait. */
static int32_t join_event(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                          struct moor_abi_error *error)
{
    int32_t status = MOOR_OK;
    pthread_mutex_lock(&other->ring.lock);
    if (value > other->ring.reached) {
        assert(value - other->ring.reached <= other->ring.count);
        CUevent event = *ring_at(other, (uint32_t)(value - other->ring.reached - 1));
        status = CUDA_CALL(stream->kit.context->device, MOOR_HOST_NOMEM, error, cuStreamWaitEvent,
                           stream->native, event, CU_EVENT_WAIT_DEFAULT);
    }
    pthread_mutex_unlock(&other->ring.lock);
    return status;
}

int32_t cuda_timeline_join(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error)
{
    assert(stream != other && cuda_is_locked(&stream->submit.lock));
    assert(!stream->parts->slot == !other->parts->slot); /* all devices have the same kind of timeline */
    return other->parts->slot ? join_word(stream, other, value, error)
                              : join_event(stream, other, value, error);
}

/* ---- the end of a stream ---- */

void cuda_timeline_finish(struct moor_abi_stream *stream)
{
    for (uint32_t i = 0; i < stream->ring.count; i++)
        cuda_event_return(stream->kit.context->device, *ring_at(stream, i));
    free(stream->ring.events);
}

int32_t cuda_timeline_mark_tail(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_device *device = stream->kit.context->device;
    struct cuda_parts *parts = stream->parts;
    int32_t status = MOOR_OK;
    if (parts->slot) {
        status = write_word(stream, CUDA_WORD_TAIL, error);
    } else {
        if (!parts->tail)
            status = cuda_event_acquire(device, &parts->tail, error);
        if (status == MOOR_OK)
            status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuEventRecord, parts->tail, stream->native);
    }
    if (status)
        return status;
    parts->has_tail = true;
    parts->is_unmarked = false;
    return MOOR_OK;
}

void cuda_timeline_mark_dirty(struct moor_abi_stream *stream)
{
    assert(cuda_is_locked(&stream->submit.lock) && stream->submit.is_dirty);
    /* An imported stream may be gone when ours is destroyed, so its tail is marked now. */
    if (stream->is_imported && cuda_timeline_mark_tail(stream, NULL))
        stream->parts->is_unmarked = true;
}
