/* SPDX-License-Identifier: MIT */
/*
 * One device: what it is, its primary context while something of it is open, and the way into that context.
 *
 * The primary context is the one that a host's own code uses, too, so that both see the same memory. It is
 * retained when the first of our contexts opens. When the last one has closed it is let go, unless something
 * in it has to last longer: words that streams may still wait for, and what destroyed streams have left. Then
 * shutdown lets it go.
 */
#include "provider.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- into the context and back ---- */

static int32_t enter(struct cuda_device *device, struct cuda_scope *scope, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    *scope = (struct cuda_scope){device, CU_STREAM_CAPTURE_MODE_RELAXED};
    int32_t status = cuda_check(device, driver->cuCtxPushCurrent(device->primary), MOOR_HOST_NOMEM,
                                "cuCtxPushCurrent", error);
    if (status != MOOR_OK)
        return status;
    /* A capture that the host has under way on this thread does not mind what we do. */
    status = cuda_check(device, driver->cuThreadExchangeStreamCaptureMode(&scope->mode), MOOR_HOST_NOMEM,
                        "cuThreadExchangeStreamCaptureMode", error);
    if (status != MOOR_OK) {
        CUcontext popped = NULL;
        (void)driver->cuCtxPopCurrent(&popped); /* just pushed, so it is there; the first failure is told */
    }
    return status;
}

int32_t cuda_enter_lost(struct cuda_device *device, struct cuda_scope *scope, struct moor_abi_error *error)
{
    if (cuda_out_of_reach(device) != CUDA_SUCCESS)
        return cuda_fail_lost(device, error);
    int32_t status = enter(device, scope, error);
    if (status == MOOR_DEVICE_LOST)
        atomic_store(&device->is_out, true);
    return status;
}

int32_t cuda_enter(struct cuda_device *device, struct cuda_scope *scope, struct moor_abi_error *error)
{
    if (atomic_load(&device->lost) || atomic_load(&device->instance->has_gone))
        return cuda_fail_lost(device, error);
    return cuda_enter_lost(device, scope, error);
}

void cuda_leave(const struct cuda_scope *scope)
{
    const struct cuda_driver *driver = cuda_driver_of(scope->device);
    CUstreamCaptureMode mode = scope->mode;
    CUcontext popped = NULL;
    /* Both undo what was done a moment ago; what they may say is of earlier work, which others find out. */
    (void)driver->cuThreadExchangeStreamCaptureMode(&mode);
    (void)driver->cuCtxPopCurrent(&popped);
}

int32_t cuda_device_look(struct cuda_device *device, struct moor_abi_error *error)
{
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status != MOOR_OK)
        return status;
    CUresult code = cuda_driver_of(device)->cuStreamQuery(device->zero);
    cuda_leave(&scope);
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY)
        return MOOR_OK;
    status = cuda_check(device, code, MOOR_PROVIDER, "cuStreamQuery", error);
    return status == MOOR_DEVICE_LOST ? status : MOOR_OK; /* others say nothing of the device */
}

int32_t cuda_device_check(struct cuda_device *device, struct moor_abi_error *error)
{
    const struct moor_abi_host *host = device->instance->host;
    if (atomic_load(&device->lost))
        return cuda_fail_lost(device, error);
    uint64_t now_ns = host->clock_ns(host->user);
    uint64_t looked_ns = atomic_load_explicit(&device->looked_ns, memory_order_relaxed);
    if (now_ns - looked_ns < CUDA_LOOK_NS ||
        !atomic_compare_exchange_strong(&device->looked_ns, &looked_ns, now_ns))
        return MOOR_OK; /* relaxed: it only keeps most of those away who come too early */
    return cuda_device_look(device, error);
}

/* Until nothing is queued on the zero stream. A wait that fails for reasons of its own leaves the work under
 * way, and nothing may be unmapped under it, so it is then looked for. */
static int32_t wait_for_zero(struct cuda_device *device, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    const struct timespec pause = {.tv_nsec = 20000};
    CUresult code = driver->cuStreamSynchronize(device->zero);
    if (code == CUDA_SUCCESS)
        return MOOR_OK;
    while ((code = driver->cuStreamQuery(device->zero)) == CUDA_ERROR_NOT_READY)
        (void)nanosleep(&pause, NULL); /* cut short: it looks again */
    return cuda_check(device, code, MOOR_HOST_NOMEM, "cuStreamQuery", error);
}

int32_t cuda_zero(struct cuda_device *device, CUdeviceptr address, uint64_t bytes,
                  struct moor_abi_error *error)
{
    int32_t status =
        cuda_check(device, cuda_driver_of(device)->cuMemsetD8Async(address, 0, bytes, device->zero),
                   MOOR_DEVICE_NOMEM, "cuMemsetD8Async", error);
    return status == MOOR_OK ? wait_for_zero(device, error) : status;
}

static CUmemAccessDesc access_of(const struct cuda_device *device, CUmemAccess_flags flags)
{
    return (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->device},
                             .flags = flags};
}

uint32_t cuda_access_list(struct cuda_device *device, CUmemAccess_flags flags, CUmemAccessDesc *list)
{
    struct moor_abi_instance *instance = device->instance;
    uint32_t count = 0;
    list[count++] = access_of(device, flags);
    for (uint32_t i = 0; i < instance->device_count; i++) {
        struct cuda_device *other = &instance->devices[i];
        bool is_usable =
            atomic_load(&other->is_open) && !atomic_load(&other->lost); /* its error is not ours */
        if (other != device && is_usable && other->reach[device - instance->devices] == 2)
            list[count++] = access_of(other, flags);
    }
    return count;
}

/* ---- what it is ---- */

static int32_t get_attribute(struct cuda_device *device, CUdevice_attribute attribute, int *ret_value,
                             struct moor_abi_error *error)
{
    int value = 0;
    CUresult code = cuda_driver_of(device)->cuDeviceGetAttribute(&value, attribute, device->device);
    if (code == CUDA_ERROR_INVALID_VALUE) /* an attribute that this driver does not know: it is not there */
        code = CUDA_SUCCESS;
    *ret_value = value;
    return cuda_check(device, code, MOOR_HOST_NOMEM, "cuDeviceGetAttribute", error);
}

static int32_t describe_abilities(struct cuda_device *device, bool *ret_virtual, struct moor_abi_error *error)
{
    const struct {
        CUdevice_attribute attribute;
        bool *ret_has;
    } abilities[] = {
        {CU_DEVICE_ATTRIBUTE_INTEGRATED, &device->is_integrated},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, &device->has_words},
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, &device->has_unified},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, &device->unified_is_shared},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ret_virtual},
    };
    for (size_t i = 0; i < sizeof(abilities) / sizeof(abilities[0]); i++) {
        int value = 0;
        int32_t status = get_attribute(device, abilities[i].attribute, &value, error);
        if (status != MOOR_OK)
            return status;
        *abilities[i].ret_has = value != 0;
    }
    device->has_unified = device->has_unified && device->instance->wants_unified;
    return MOOR_OK;
}

static int32_t describe_granules(struct cuda_device *device, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    const CUmemAllocationProp property = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->device},
    };
    size_t least = 0;
    size_t recommended = 0;
    int32_t status = cuda_check(
        device, driver->cuMemGetAllocationGranularity(&least, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        MOOR_HOST_NOMEM, "cuMemGetAllocationGranularity", error);
    if (status == MOOR_OK)
        status = cuda_check(device,
                            driver->cuMemGetAllocationGranularity(&recommended, &property,
                                                                  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                            MOOR_HOST_NOMEM, "cuMemGetAllocationGranularity", error);
    if (status != MOOR_OK)
        return status;
    if (!cuda_is_power_of_two(least) || !cuda_is_power_of_two(recommended) || recommended < least)
        return MOOR_OK; /* nothing that the contract can say: no virtual memory, then */
    uint64_t wanted = device->instance->granule_bytes;
    device->granule_min_bytes = least;
    device->granule_bytes = wanted ? (wanted > least ? wanted : least) : recommended;
    device->block_bytes = least > CUDA_GRANULE_DEFAULT_BYTES ? least : CUDA_GRANULE_DEFAULT_BYTES;
    return MOOR_OK;
}

static void write_key(const CUuuid *uuid, char *key, size_t key_bytes)
{
    size_t length = 0;
    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += (size_t)snprintf(key + length, key_bytes - length, "%s%02x", dash,
                                   (unsigned int)(unsigned char)uuid->bytes[i]);
    }
}

int32_t cuda_device_describe(struct cuda_device *device, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    CUuuid uuid;
    size_t total = 0;
    bool has_virtual = false;
    int32_t status =
        cuda_check(device, driver->cuDeviceGetName(device->name, sizeof(device->name), device->device),
                   MOOR_HOST_NOMEM, "cuDeviceGetName", error);
    device->name[sizeof(device->name) - 1] = '\0';
    if (status == MOOR_OK)
        status = cuda_check(device, driver->cuDeviceGetUuid(&uuid, device->device), MOOR_HOST_NOMEM,
                            "cuDeviceGetUuid", error);
    if (status == MOOR_OK)
        status = cuda_check(device, driver->cuDeviceTotalMem(&total, device->device), MOOR_HOST_NOMEM,
                            "cuDeviceTotalMem", error);
    if (status == MOOR_OK)
        status = describe_abilities(device, &has_virtual, error);
    device->block_bytes = CUDA_GRANULE_DEFAULT_BYTES;
    if (status == MOOR_OK && has_virtual)
        status = describe_granules(device, error);
    if (status != MOOR_OK)
        return status;
    write_key(&uuid, device->key, sizeof(device->key));
    device->total_bytes = total;
    return MOOR_OK;
}

/* ---- open and close ---- */

/* Asks once for each pair of devices that are open together. */
static int32_t learn_reach(struct cuda_device *device, struct cuda_device *to, struct moor_abi_error *error)
{
    uint8_t *reach = &device->reach[to - to->instance->devices];
    if (*reach != 0)
        return MOOR_OK;
    int can = 0;
    int32_t status =
        cuda_check(device, cuda_driver_of(device)->cuDeviceCanAccessPeer(&can, device->device, to->device),
                   MOOR_HOST_NOMEM, "cuDeviceCanAccessPeer", error);
    if (status == MOOR_OK)
        *reach = can ? 2 : 1;
    return status;
}

/* Both ways, to and from all that are open; and the device gets access to what there is already. */
static int32_t join_others(struct cuda_device *device, struct moor_abi_error *error)
{
    struct moor_abi_instance *instance = device->instance;
    int32_t status = MOOR_OK;
    for (uint32_t i = 0; i < instance->device_count && status == MOOR_OK; i++) {
        struct cuda_device *other = &instance->devices[i];
        if (other == device || !atomic_load(&other->is_open))
            continue;
        status = learn_reach(device, other, error);
        if (status == MOOR_OK)
            status = learn_reach(other, device, error);
    }
    if (status != MOOR_OK)
        return status;
    /* In this order: a commit that is at work either sees the device, or sees that one has opened meanwhile.
     * */
    atomic_store(&device->is_open, true);
    atomic_fetch_add(&instance->openings, 1);
    for (struct moor_abi_context *context = instance->contexts; context && status == MOOR_OK;
         context = context->next) {
        if (context->device != device && device->reach[context->device - instance->devices] == 2)
            status = cuda_ranges_share(context, device, error);
    }
    if (status != MOOR_OK)
        atomic_store(&device->is_open, false);
    return status;
}

/* Nothing that lies in a context is freed from outside of it. If it cannot be entered just now it stays
 * until shutdown, and then takes along what is in it. */
static void let_go(struct cuda_device *device, bool is_last)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    struct cuda_scope scope;
    bool is_in = cuda_enter_lost(device, &scope, NULL) == MOOR_OK;
    if (!is_in && !is_last && cuda_out_of_reach(device) == CUDA_SUCCESS)
        return;
    if (!is_in)
        atomic_store(&device->is_out, true);
    cuda_slabs_free(device);
    cuda_events_free(device);
    cuda_blocks_free(device);
    if (device->zero && is_in)
        (void)driver->cuStreamDestroy(device->zero); /* idle; the context's end takes it in any case */
    if (is_in)
        cuda_leave(&scope);
    CUresult code =
        cuda_has_gone(device) ? CUDA_ERROR_DEINITIALIZED : driver->cuDevicePrimaryCtxRelease(device->device);
    if (cuda_check_free(device, code, "cuDevicePrimaryCtxRelease", &error) != MOOR_OK)
        cuda_log(device->instance, MOOR_ABI_LOG_WARNING, "%s: %s", device->name, error.text);
    device->zero = NULL;
    device->primary = NULL;
    device->is_retained = false;
    device->is_waited_for = false;
}

static int32_t retain(struct cuda_device *device, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    int32_t status = cuda_check(device, driver->cuDevicePrimaryCtxRetain(&device->primary, device->device),
                                MOOR_DEVICE_NOMEM, "cuDevicePrimaryCtxRetain", error);
    if (status != MOOR_OK)
        return status;
    device->is_retained = true;
    atomic_store(&device->is_out, false);
    struct cuda_scope scope;
    status = cuda_enter_lost(device, &scope, error);
    if (status == MOOR_OK) {
        status = cuda_check(device, driver->cuStreamCreate(&device->zero, CU_STREAM_NON_BLOCKING),
                            MOOR_HOST_NOMEM, "cuStreamCreate", error);
        cuda_leave(&scope);
    }
    if (status != MOOR_OK) {
        device->zero = NULL;
        let_go(device, true);
    }
    return status;
}

int32_t cuda_device_open(struct cuda_device *device, struct moor_abi_error *error)
{
    if (device->open_count > 0) {
        device->open_count++;
        return MOOR_OK;
    }
    if (!device->is_retained) {
        atomic_store(&device->lost,
                     0); /* a new context, unless others keep the old one: that shows at once */
        int32_t status = retain(device, error);
        if (status != MOOR_OK)
            return status;
    }
    int32_t status = join_others(device, error);
    if (status == MOOR_OK) {
        device->open_count = 1;
        atomic_fetch_add(&device->instance->open_count, 1);
    } else if (cuda_rests_sweep(device) && !device->is_waited_for) {
        let_go(device, false);
    }
    return status;
}

void cuda_device_close(struct cuda_device *device)
{
    if (--device->open_count > 0)
        return;
    atomic_store(&device->is_open, false);
    atomic_fetch_sub(&device->instance->open_count, 1);
    struct cuda_scope scope;
    bool is_in = cuda_enter_lost(device, &scope, NULL) == MOOR_OK;
    (void)cuda_scraps_discard(device);
    (void)cuda_pages_trim(device, 0);
    if (is_in)
        cuda_leave(&scope);
    if (cuda_rests_sweep(device) && !device->is_waited_for)
        let_go(device, false);
}

bool cuda_device_drain(struct cuda_device *device)
{
    const struct moor_abi_host *host = device->instance->host;
    const struct timespec pause = {.tv_nsec = 1000000};
    uint64_t end_ns = host->clock_ns(host->user) + CUDA_REST_NS;
    while (device->is_retained && !cuda_rests_sweep(device)) {
        if (host->clock_ns(host->user) >= end_ns)
            return false;
        (void)nanosleep(&pause, NULL); /* cut short: it looks again */
    }
    return true;
}

void cuda_device_finish(struct cuda_device *device)
{
    if (device->is_retained)
        let_go(device, true);
}
