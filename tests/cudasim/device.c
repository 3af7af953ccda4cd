/* SPDX-License-Identifier: MIT */
/* The driver's start and its devices: their attributes, and the part of their memory that is taken. */
#include "sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct sim_device *sim_device(CUdevice device)
{
    return device >= 0 && device < sim.device_count ? &sim.devices[device] : NULL;
}

const struct sim_gpu *sim_gpu(int device)
{
    return &sim.settings.gpu[sim.devices[device].gpu];
}

bool sim_peer(int device, int peer)
{
    return device == peer || (sim_gpu(device)->peers >> sim.devices[peer].gpu & 1u);
}

static uint64_t free_bytes(int device)
{
    const struct sim_device *info = &sim.devices[device];
    uint64_t taken = info->used_bytes + sim_gpu(device)->other_bytes;
    return taken < info->total_bytes ? info->total_bytes - taken : 0;
}

bool sim_take_bytes(int device, uint64_t size_bytes)
{
    if (size_bytes > free_bytes(device))
        return false;
    sim.devices[device].used_bytes += size_bytes;
    return true;
}

void sim_return_bytes(int device, uint64_t size_bytes)
{
    sim.devices[device].used_bytes -= size_bytes;
}

/* ---- start and end ---- */

static void make_devices(void)
{
    struct sim_visible visible[SIM_DEVICES_MAX];
    unsigned count = sim_visible(&sim.settings, getenv("CUDA_VISIBLE_DEVICES"), visible);
    for (unsigned i = 0; i < count; i++) {
        const struct sim_gpu *gpu = &sim.settings.gpu[visible[i].gpu];
        struct sim_device *device = &sim.devices[i];
        *device = (struct sim_device){
            .gpu = visible[i].gpu,
            .instance = visible[i].instance,
            .uuid = gpu->uuid,
            .total_bytes = gpu->total_bytes,
            .primary = {.handle = (CUcontext)(UINT64_C(0x00ca0f0000000000) + (i + 1) * 64), .device = (int)i},
        };
        (void)snprintf(device->name, sizeof(device->name), "%s", gpu->name);
        if (visible[i].instance < 0)
            continue;
        device->uuid = sim_instance_uuid(&sim.settings, visible[i].gpu, (unsigned)visible[i].instance);
        device->total_bytes = sim_instance_bytes(&sim.settings, visible[i].gpu);
        (void)snprintf(device->name, sizeof(device->name), "%.40s MIG %d", gpu->name, visible[i].instance);
    }
    sim.device_count = (int)count;
}

static pid_t starter; /* the process that called cuInit */

/* Shuts the driver down: later calls of other atexit functions get CUDA_ERROR_DEINITIALIZED, as with the
 * real driver. A forked child has none of the driver's threads, and a broadcast to conditions on which
 * they wait can block for ever, so the child touches nothing. */
static void at_exit(void)
{
    struct moor_cudasim_live live;
    if (getpid() != starter)
        return;
    pthread_mutex_lock(&sim.lock);
    if (sim.phase == SIM_PHASE_READY && sim.settings.leaks) {
        pthread_mutex_unlock(&sim.lock);
        moor_cudasim.live(&live);
        pthread_mutex_lock(&sim.lock);
        if (live.contexts || live.streams || live.events || live.allocations || live.managed || live.host ||
            live.registered || live.reservations || live.mappings || live.handles)
            sim_violate(
                "left at exit: %d contexts, %d streams, %d events, %d allocations, %d managed, %d host, "
                "%d registered, %d reservations, %d mappings, %d handles",
                (int)live.contexts, (int)live.streams, (int)live.events, (int)live.allocations,
                (int)live.managed, (int)live.host, (int)live.registered, (int)live.reservations,
                (int)live.mappings, (int)live.handles);
    }
    sim.phase = SIM_PHASE_GONE;
    pthread_cond_broadcast(&sim.work);
    pthread_cond_broadcast(&sim.done);
    pthread_mutex_unlock(&sim.lock);
}

static void before_fork(void)
{
    pthread_mutex_lock(&sim.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&sim.lock);
}

/* Ends the driver in a forked child: the real one does not survive a fork, either. */
static void in_child(void)
{
    if (sim.phase == SIM_PHASE_READY)
        sim.phase = SIM_PHASE_FORKED;
    pthread_mutex_unlock(&sim.lock);
}

__attribute__((constructor)) static void load(void)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) || pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) ||
        pthread_cond_init(&sim.work, &monotonic) || pthread_cond_init(&sim.done, &monotonic))
        abort();
    (void)pthread_condattr_destroy(&monotonic); /* the conditions do not need it any more */
    sim_settings_default(&sim.settings);
    const char *text = getenv("MOOR_CUDASIM");
    if (text && !sim_settings_parse(&sim.settings, text, false))
        abort();
    (void)pthread_atfork(before_fork, after_fork, in_child);
}

static CUresult start(unsigned flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim.phase == SIM_PHASE_READY)
        return CUDA_SUCCESS;
    if (sim.phase == SIM_PHASE_FORKED)
        return CUDA_ERROR_NOT_INITIALIZED;
    make_devices();
    if (sim.device_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    if (!sim_space_open())
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim.order_state = sim.settings.seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    sim.delay_state = sim.order_state ^ UINT64_C(0xd1342543de82ef95);
    sim.phase = SIM_PHASE_READY;
    starter = getpid();
    (void)atexit(at_exit);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuInit(unsigned int Flags)
{
    struct sim_call call = sim_enter(SIM_cuInit, SIM_UNREADY);
    return sim_leave(call.result ? call.result : start(Flags));
}

CUresult CUDAAPI cuDriverGetVersion(int *driverVersion)
{
    struct sim_call call = sim_enter_query(SIM_cuDriverGetVersion, SIM_UNREADY, driverVersion);
    if (call.result == CUDA_SUCCESS)
        *driverVersion = sim.settings.driver_version;
    return sim_leave(call.result);
}

/* ---- devices ---- */

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    struct sim_call call = sim_enter_query(SIM_cuDeviceGetCount, 0, count);
    if (call.result == CUDA_SUCCESS)
        *count = sim.device_count;
    return sim_leave(call.result);
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    struct sim_call call = sim_enter_query(SIM_cuDeviceGet, 0, device);
    if (call.result == CUDA_SUCCESS && !sim_device(ordinal))
        call.result = CUDA_ERROR_INVALID_DEVICE;
    if (call.result == CUDA_SUCCESS)
        *device = ordinal;
    return sim_leave(call.result);
}

/* Enters a function that takes a device and a place for its result. */
static struct sim_call enter_device(enum sim_function function, CUdevice dev, const void *answer)
{
    struct sim_call call = sim_enter_query(function, 0, answer);
    if (call.result == CUDA_SUCCESS && !sim_device(dev))
        call.result = CUDA_ERROR_INVALID_DEVICE;
    return call;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int len, CUdevice dev)
{
    struct sim_call call = enter_device(SIM_cuDeviceGetName, dev, name);
    if (call.result == CUDA_SUCCESS && len <= 0)
        call.result = CUDA_ERROR_INVALID_VALUE;
    if (call.result == CUDA_SUCCESS)
        (void)snprintf(name, (size_t)len, "%s", sim.devices[dev].name);
    return sim_leave(call.result);
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    struct sim_call call = enter_device(SIM_cuDeviceGetUuid, dev, uuid);
    if (call.result == CUDA_SUCCESS)
        *uuid = sim.devices[dev].uuid;
    return sim_leave(call.result);
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    struct sim_call call = enter_device(SIM_cuDeviceTotalMem, dev, bytes);
    if (call.result == CUDA_SUCCESS)
        *bytes = sim.devices[dev].total_bytes;
    return sim_leave(call.result);
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    struct sim_call call = enter_device(SIM_cuDeviceCanAccessPeer, dev, canAccessPeer);
    if (call.result == CUDA_SUCCESS && (!sim_device(peerDev) || dev == peerDev))
        call.result = CUDA_ERROR_INVALID_DEVICE;
    if (call.result == CUDA_SUCCESS)
        *canAccessPeer = sim_peer(dev, peerDev);
    return sim_leave(call.result);
}

static int attribute(int device, CUdevice_attribute attrib)
{
    const struct sim_gpu *gpu = sim_gpu(device);
    switch ((int)attrib) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 9;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return 1;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return (int)sim.devices[device].gpu + 1;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
        return 1;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
        return gpu->integrated;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
        return gpu->managed;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        return gpu->registered_same;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return gpu->virtual_memory;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        return gpu->memory_operations;
    default: /* attributes that the device does not have, or that no caller asks for */
        return 0;
    }
}

CUresult CUDAAPI cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    struct sim_call call = enter_device(SIM_cuDeviceGetAttribute, dev, pi);
    if (call.result == CUDA_SUCCESS && ((int)attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX))
        call.result = CUDA_ERROR_INVALID_VALUE;
    if (call.result == CUDA_SUCCESS)
        *pi = attribute(dev, attrib);
    return sim_leave(call.result);
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t *free, size_t *total)
{
    struct sim_call call = sim_enter(SIM_cuMemGetInfo, SIM_CONTEXT);
    if (call.result == CUDA_SUCCESS && (!free || !total))
        call.result = CUDA_ERROR_INVALID_VALUE;
    if (call.result == CUDA_SUCCESS)
        call.result = sim_gpu(call.context->device)->query_refused;
    if (call.result == CUDA_SUCCESS) {
        *free = free_bytes(call.context->device);
        *total = sim.devices[call.context->device].total_bytes;
    }
    return sim_leave(call.result);
}
