/* SPDX-License-Identifier: MIT */
/* The controls of tests over the driver: moorage/cudasim.h. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int configure(const char *settings)
{
    pthread_mutex_lock(&sim.lock);
    bool good = sim_settings_parse(&sim.settings, settings, sim.phase != SIM_PHASE_NEW);
    if (good && strstr(settings, "seed=")) {
        sim.order_state = sim.settings.seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
        sim.delay_state = sim.order_state ^ UINT64_C(0xd1342543de82ef95);
    }
    pthread_mutex_unlock(&sim.lock);
    return good ? 0 : -1;
}

/* ---- time ---- */

static int change_hold(void *handle, bool hold)
{
    struct sim_stream *stream = NULL;
    pthread_mutex_lock(&sim.lock);
    CUresult result = sim_stream_of(handle, "the test's hold", &stream);
    if (stream && hold)
        stream->held++;
    else if (stream && stream->held > 0)
        stream->held--;
    pthread_cond_broadcast(&sim.work);
    pthread_mutex_unlock(&sim.lock);
    return (int)result;
}

static int hold(void *stream)
{
    return change_hold(stream, true);
}

static int open_stream(void *stream)
{
    return change_hold(stream, false);
}

static void pause_all(void)
{
    pthread_mutex_lock(&sim.lock);
    sim.paused++;
    pthread_mutex_unlock(&sim.lock);
}

static void resume(void)
{
    pthread_mutex_lock(&sim.lock);
    if (sim.paused > 0)
        sim.paused--;
    pthread_cond_broadcast(&sim.work);
    pthread_mutex_unlock(&sim.lock);
}

static int step(void)
{
    uint64_t wake_ns;
    pthread_mutex_lock(&sim.lock);
    struct sim_stream *stream = sim.paused > 0 ? sim_engine_pick(false, &wake_ns) : NULL;
    if (stream) {
        uint64_t sequence = stream->head->sequence;
        stream->waiters++;
        sim.chosen = stream;
        pthread_cond_broadcast(&sim.work);
        while (sim.phase == SIM_PHASE_READY && stream->head && stream->head->sequence == sequence)
            pthread_cond_wait(&sim.done, &sim.lock);
        stream->waiters--;
        sim_stream_reap(stream);
    }
    pthread_mutex_unlock(&sim.lock);
    return stream != NULL;
}

static bool idle(void)
{
    uint64_t wake_ns;
    uint64_t order = sim.order_state; /* the probe must not use up a random pick */
    bool nothing = sim.working == 0 && (sim.paused > 0 || !sim_engine_pick(false, &wake_ns));
    sim.order_state = order;
    return nothing;
}

static void settle(void)
{
    pthread_mutex_lock(&sim.lock);
    while (sim.phase == SIM_PHASE_READY && !idle()) {
        uint64_t until_ns = sim_now_ns() + 1000000;
        struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
        (void)pthread_cond_timedwait(&sim.done, &sim.lock, &until);
    }
    pthread_mutex_unlock(&sim.lock);
}

static uint64_t hold_begun(int is_held)
{
    pthread_mutex_lock(&sim.lock);
    sim.begun_held = is_held != 0;
    uint64_t waiting = sim.begun_waiting;
    pthread_cond_broadcast(&sim.work);
    pthread_mutex_unlock(&sim.lock);
    return waiting;
}

static CUresult submit_kernel(struct sim_stream *stream, const struct moor_cudasim_span *spans,
                              uint32_t count, void (*function)(void *user, void *const *bytes), void *user)
{
    struct sim_operation *operation = sim_operation_create(SIM_KERNEL, count);
    operation->function = function;
    operation->user = user;
    for (uint32_t i = 0; i < count; i++)
        operation->spans[i] = (struct sim_span){spans[i].address, spans[i].size_bytes, SIM_SIDE_DEVICE,
                                                stream->context->device, spans[i].access};
    return sim_submit(stream, operation);
}

static CUresult check_launch(CUstream handle, struct sim_stream **ret_stream)
{
    CUcontext current = sim_context_current();
    if (sim_thread_busy) {
        sim_violate("a kernel is launched from a host function");
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (sim.phase != SIM_PHASE_READY)
        return sim.phase == SIM_PHASE_GONE ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED;
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = sim_stream_of(handle, "a launch", ret_stream);
    if (result == CUDA_SUCCESS && (*ret_stream)->context->handle != current)
        result = CUDA_ERROR_INVALID_HANDLE;
    return result;
}

static int launch(void *handle, const struct moor_cudasim_span *spans, uint32_t count,
                  void (*function)(void *user, void *const *bytes), void *user)
{
    struct sim_stream *stream = NULL;
    pthread_mutex_lock(&sim.lock);
    CUresult result = check_launch(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = submit_kernel(stream, spans, count, function, user);
    pthread_mutex_unlock(&sim.lock);
    return (int)result;
}

/* ---- bytes ---- */

/* Reads or writes bytes, regardless of the access that devices have. */
static int reach(uint64_t address, unsigned char *bytes, uint64_t size_bytes, bool write)
{
    pthread_mutex_lock(&sim.lock);
    bool known = size_bytes > 0 && sim_map_known(address, size_bytes);
    for (uint64_t at = 0; known && at < size_bytes;) {
        const struct sim_mapping *mapping = sim_map_find(address + at);
        uint64_t offset = address + at - mapping->base;
        uint64_t part = mapping->size_bytes - offset;
        if (part > size_bytes - at)
            part = size_bytes - at;
        unsigned char *found = mapping->physical->bytes + mapping->offset + offset;
        if (write)
            memcpy(found, bytes + at, part);
        else
            memcpy(bytes + at, found, part);
        at += part;
    }
    pthread_mutex_unlock(&sim.lock);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int peek(uint64_t address, void *ret_bytes, uint64_t size_bytes)
{
    return reach(address, ret_bytes, size_bytes, false);
}

static int poke(uint64_t address, const void *bytes, uint64_t size_bytes)
{
    return reach(address, (unsigned char *)(uintptr_t)bytes, size_bytes, true);
}

/* ---- failures ---- */

static void lose(int device, int code)
{
    pthread_mutex_lock(&sim.lock);
    if (sim_device(device))
        sim_lose(&sim.devices[device].primary, (CUresult)code);
    pthread_mutex_unlock(&sim.lock);
}

static void leave(void)
{
    pthread_mutex_lock(&sim.lock);
    sim.phase = SIM_PHASE_GONE;
    pthread_cond_broadcast(&sim.work);
    pthread_cond_broadcast(&sim.done);
    pthread_mutex_unlock(&sim.lock);
}

/* ---- observations ---- */

static uint64_t violations(void)
{
    pthread_mutex_lock(&sim.lock);
    uint64_t count = sim.violations;
    pthread_mutex_unlock(&sim.lock);
    return count;
}

/* Returns a text that never changes after it was written. */
static const char *violation(uint64_t index)
{
    return index < violations() && index < SIM_VIOLATIONS_KEPT ? sim.violation_texts[index] : "";
}

static uint64_t calls(const char *name)
{
    uint64_t count = 0;
    pthread_mutex_lock(&sim.lock);
    for (unsigned i = 0; i < SIM_FUNCTIONS; i++) {
        if (!*name || strcmp(name, sim_function_name((enum sim_function)i)) == 0)
            count += sim.calls[i];
    }
    pthread_mutex_unlock(&sim.lock);
    return count;
}

static uint64_t waits(void)
{
    pthread_mutex_lock(&sim.lock);
    uint64_t count = sim.waits;
    pthread_mutex_unlock(&sim.lock);
    return count;
}

static void live(struct moor_cudasim_live *ret_live)
{
    pthread_mutex_lock(&sim.lock);
    *ret_live = (struct moor_cudasim_live){.reservations = sim_reservation_count(),
                                           .handles = sim_handle_count(SIM_HANDLE_MEMORY)};
    for (int i = 0; i < sim.device_count; i++) {
        const struct sim_device *device = &sim.devices[i];
        bool active = device->primary.references > 0;
        ret_live->contexts += active;
        ret_live->physical_bytes += device->used_bytes - (active ? sim_gpu(i)->context_bytes : 0);
    }
    sim_stream_count(ret_live);
    sim_map_count(ret_live);
    pthread_mutex_unlock(&sim.lock);
}

__attribute__((visibility("default"))) const struct moor_cudasim moor_cudasim = {
    .size_bytes = sizeof(struct moor_cudasim),
    .version = 1,
    .text = "Moorage's simulated CUDA driver, for tests: no GPU is behind it",
    .configure = configure,
    .hold = hold,
    .open = open_stream,
    .pause = pause_all,
    .resume = resume,
    .step = step,
    .settle = settle,
    .hold_begun = hold_begun,
    .launch = launch,
    .peek = peek,
    .poke = poke,
    .lose = lose,
    .leave = leave,
    .violations = violations,
    .violation = violation,
    .calls = calls,
    .waits = waits,
    .live = live,
};
