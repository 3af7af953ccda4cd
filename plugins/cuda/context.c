/* SPDX-License-Identifier: MIT */
/*
 * Opening and closing of contexts, and with them of devices: this file uses all layers below.
 *
 * A host's own code uses the primary context of a device, too, so both see the same memory. The primary
 * context is retained when the first of our contexts opens. After the last one has closed it is released,
 * unless parts in it must last longer: words for which streams may still have to wait, peer streams, and
 * retired parts of destroyed streams. Then shutdown releases it.
 */
#include "context.h"
#include "memory.h"
#include "stream.h"
#include <assert.h>
#include <time.h>

/* ---- the primary context; open.lock is held, or it is shutdown ---- */

/* Releases the primary context with everything of ours in it. Memory in a context is freed only from inside
 * it: if the context cannot be entered just now it stays until shutdown (is_last), and its end then frees the
 * memory. */
static void release_primary(struct cuda_device *device, bool is_last)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    struct cuda_scope scope;
    assert(device->context.is_retained && !atomic_load(&device->is_open));
    bool is_entered = cuda_enter_lost(device, &scope, NULL) == MOOR_OK;
    if (!is_entered && !is_last && cuda_out_of_reach(device) == CUDA_SUCCESS)
        return;
    if (!is_entered)
        atomic_store(&device->is_out, true);
    cuda_slabs_free(device);
    cuda_events_free(device);
    cuda_blocks_free(device);
    if (device->context.zero && is_entered)
        (void)driver->cuStreamDestroy(device->context.zero); /* idle; else the context's end destroys it */
    if (is_entered)
        cuda_leave(&scope);
    if (CUDA_FREE(device, cuda_gone(device), &error, cuDevicePrimaryCtxRelease, device->native))
        cuda_log(device->instance, MOOR_ABI_LOG_WARNING, "%s: %s", device->traits.name, error.text);
    device->context.zero = NULL;
    device->context.primary = NULL;
    device->context.is_retained = false;
    device->streams.must_stay = false;
}

static void release_primary_if_unused(struct cuda_device *device)
{
    if (cuda_retired_sweep(device) && !device->streams.must_stay)
        release_primary(device, false);
}

static int32_t retain_primary(struct cuda_device *device, struct moor_abi_error *error)
{
    /* The context is new, unless other users keep the old one: then the next call finds the loss again. */
    atomic_store(&device->lost, 0);
    int32_t status = CUDA_CALL(device, MOOR_DEVICE_NOMEM, error, cuDevicePrimaryCtxRetain,
                               &device->context.primary, device->native);
    if (status)
        return status;
    device->context.is_retained = true;
    atomic_store(&device->is_out, false);
    struct cuda_scope scope;
    status = cuda_enter_lost(device, &scope, error);
    if (status == MOOR_OK) {
        status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuStreamCreate, &device->context.zero,
                           CU_STREAM_NON_BLOCKING);
        cuda_leave(&scope);
    }
    if (status) {
        device->context.zero = NULL;
        release_primary(device, true);
    }
    return status;
}

/* ---- devices; requires open.lock ---- */

/* Asks the driver once for each pair of devices that are open together. */
static int32_t probe_reach(struct cuda_device *device, struct cuda_device *to, struct moor_abi_error *error)
{
    uint8_t *reach = &device->context.reach[to - to->instance->devices];
    if (*reach != CUDA_REACH_UNKNOWN)
        return MOOR_OK;
    int can = 0;
    int32_t status =
        CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuDeviceCanAccessPeer, &can, device->native, to->native);
    if (status == MOOR_OK)
        *reach = can ? CUDA_REACH_FULL : CUDA_REACH_NONE;
    return status;
}

/* Finds the reach from and to all open devices, and gives the device access to the memory of the others. */
static int32_t join_open_devices(struct cuda_device *device, struct moor_abi_error *error)
{
    struct moor_abi_instance *instance = device->instance;
    int32_t status = MOOR_OK;
    for (uint32_t i = 0; i < instance->kit.device_count && status == MOOR_OK; i++) {
        struct cuda_device *other = &instance->devices[i];
        if (other == device || !atomic_load(&other->is_open))
            continue;
        status = probe_reach(device, other, error);
        if (status == MOOR_OK)
            status = probe_reach(other, device, error);
    }
    if (status)
        return status;
    /* In this order: a commit at work either lists the device as open, or finds that openings has risen. */
    atomic_store(&device->is_open, true);
    atomic_fetch_add(&instance->openings, 1);
    for (struct moor_abi_context *context = instance->open.contexts; context && status == MOOR_OK;
         context = context->next) {
        if (context->device != device &&
            device->context.reach[context->device - instance->devices] == CUDA_REACH_FULL)
            status = cuda_ranges_share(context, device, error);
    }
    if (status)
        atomic_store(&device->is_open, false);
    return status;
}

static int32_t open_device(struct cuda_device *device, struct moor_abi_error *error)
{
    assert(cuda_is_locked(&device->instance->open.lock));
    if (device->context.open_count > 0) {
        device->context.open_count++;
        return MOOR_OK;
    }
    int32_t status = device->context.is_retained ? MOOR_OK : retain_primary(device, error);
    if (status)
        return status;
    status = join_open_devices(device, error);
    if (status) {
        release_primary_if_unused(device);
        return status;
    }
    device->context.open_count = 1;
    atomic_fetch_add(&device->instance->open_device_count, 1);
    return MOOR_OK;
}

static void close_device(struct cuda_device *device)
{
    assert(cuda_is_locked(&device->instance->open.lock) && device->context.open_count > 0);
    if (--device->context.open_count > 0)
        return;
    atomic_store(&device->is_open, false);
    atomic_fetch_sub(&device->instance->open_device_count, 1);
    struct cuda_scope scope;
    bool is_entered = cuda_enter_lost(device, &scope, NULL) == MOOR_OK;
    (void)cuda_pages_trim(device, 0);
    if (is_entered)
        cuda_leave(&scope);
    release_primary_if_unused(device);
}

/* Waits for the retired parts of the device, at most CUDA_DRAIN_NS. Returns true if none is left. */
static bool drain_device(struct cuda_device *device)
{
    const struct moor_abi_host *host = device->instance->kit.host;
    const struct timespec pause = {.tv_nsec = 1000000};
    uint64_t end_ns = host->clock_ns(host->user) + CUDA_DRAIN_NS;
    while (device->context.is_retained && !cuda_retired_sweep(device)) {
        if (host->clock_ns(host->user) >= end_ns)
            return false;
        (void)nanosleep(&pause, NULL); /* a shorter sleep only polls earlier */
    }
    return true;
}

bool cuda_devices_finish(struct moor_abi_instance *instance)
{
    assert(!instance->open.contexts && atomic_load(&instance->open_device_count) == 0);
    bool is_drained = true;
    for (uint32_t i = 0; i < instance->kit.device_count; i++)
        is_drained = drain_device(&instance->devices[i]) && is_drained;
    if (!is_drained)
        return false;
    for (uint32_t i = 0; i < instance->kit.device_count; i++) {
        struct cuda_device *device = &instance->devices[i];
        if (device->context.is_retained)
            release_primary(device, true);
        cuda_pages_finish(device);
        pthread_mutex_destroy(&device->streams.lock);
    }
    return true;
}

/* ---- contexts ---- */

int32_t cuda_context_open(struct moor_abi_context *context, struct moor_abi_error *error)
{
    struct moor_abi_instance *instance = context->kit.instance;
    assert(context->kit.device < instance->kit.device_count);
    context->device = &instance->devices[context->kit.device];
    pthread_mutex_lock(&instance->open.lock);
    int32_t status = open_device(context->device, error);
    if (status == MOOR_OK) {
        context->next = instance->open.contexts;
        instance->open.contexts = context;
    }
    pthread_mutex_unlock(&instance->open.lock);
    return status;
}

void cuda_context_close(struct moor_abi_context *context)
{
    struct moor_abi_instance *instance = context->kit.instance;
    pthread_mutex_lock(&instance->open.lock);
    struct moor_abi_context **place = &instance->open.contexts;
    while (*place != context)
        place = &(*place)->next;
    *place = context->next;
    close_device(context->device);
    pthread_mutex_unlock(&instance->open.lock);
}
