/* SPDX-License-Identifier: MIT */
/* Primary contexts, and each thread's stack of current contexts. A context that is made again keeps its
 * handle, as the real one does. Objects that are left in a context at its last release are a violation. */
#include "sim.h"

#define DEPTH_MAX 128

static _Thread_local struct {
    CUcontext contexts[DEPTH_MAX];
    unsigned depth;
} stack;

CUcontext sim_context_current(void)
{
    return stack.depth > 0 ? stack.contexts[stack.depth - 1] : NULL;
}

struct sim_context *sim_context(CUcontext handle)
{
    for (int i = 0; i < sim.device_count; i++) {
        if (sim.devices[i].primary.handle == handle)
            return &sim.devices[i].primary;
    }
    return NULL;
}

/* ---- primary contexts ---- */

static CUresult retain(struct sim_device *device, CUcontext *pctx)
{
    struct sim_context *context = &device->primary;
    uint64_t own_bytes = sim_gpu(context->device)->context_bytes;
    if (context->lost != CUDA_SUCCESS)
        return context->lost;
    if (context->references == 0) {
        if (!sim_take_bytes(context->device, own_bytes))
            return CUDA_ERROR_OUT_OF_MEMORY;
        context->legacy = sim_stream_legacy(context);
        if (!context->legacy) {
            sim_return_bytes(context->device, own_bytes);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        sim_engine_start();
    }
    context->references++;
    *pctx = context->handle;
    return CUDA_SUCCESS;
}

/* Returns a word for the objects that are left in the context; NULL: none. */
static const char *left_in(const struct sim_context *context)
{
    if (sim_stream_any_of(context))
        return "streams or work of theirs";
    if (sim_event_any_of(context))
        return "events";
    if (sim_map_any_of(SIM_MEMORY_BLOCK, context))
        return "device memory";
    if (sim_map_any_of(SIM_MEMORY_MANAGED, context))
        return "managed memory";
    if (sim_map_any_of(SIM_MEMORY_HOST, context))
        return "host memory";
    if (sim_map_any_of(SIM_MEMORY_REGISTERED, context))
        return "registered host memory";
    return NULL;
}

/* Objects that are left after a counted violation, or in a lost context, stay allocated; no call on them
 * works. */
static CUresult release(struct sim_context *context)
{
    if (context->references == 0)
        return sim_refuse(CUDA_ERROR_INVALID_CONTEXT,
                          "cuDevicePrimaryCtxRelease: device %d has none retained", context->device);
    if (--context->references > 0)
        return CUDA_SUCCESS;
    const char *left = left_in(context);
    if (left && context->lost == CUDA_SUCCESS)
        sim_violate("the context of device %d is released with %s in it", context->device, left);
    sim_stream_end_all(context);
    sim_return_bytes(context->device, sim_gpu(context->device)->context_bytes);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    struct sim_call call = sim_enter(SIM_cuDevicePrimaryCtxRetain, 0);
    struct sim_device *device = sim_device(dev);
    if (call.result == CUDA_SUCCESS && !pctx)
        call.result = CUDA_ERROR_INVALID_VALUE;
    if (call.result == CUDA_SUCCESS && !device)
        call.result = CUDA_ERROR_INVALID_DEVICE;
    return sim_leave(call.result ? call.result : retain(device, pctx));
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    struct sim_call call = sim_enter(SIM_cuDevicePrimaryCtxRelease, 0);
    struct sim_device *device = sim_device(dev);
    if (call.result == CUDA_SUCCESS && !device)
        call.result = CUDA_ERROR_INVALID_DEVICE;
    return sim_leave(call.result ? call.result : release(&device->primary));
}

/* ---- current contexts ---- */

static CUresult push(CUcontext handle)
{
    struct sim_context *context = sim_context(handle);
    if (!context)
        return sim_refuse(CUDA_ERROR_INVALID_CONTEXT, "cuCtxPushCurrent: no such context");
    if (context->references == 0)
        return sim_refuse(CUDA_ERROR_CONTEXT_IS_DESTROYED, "cuCtxPushCurrent: the context has been released");
    if (stack.depth == DEPTH_MAX)
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "cuCtxPushCurrent: %d contexts deep", DEPTH_MAX);
    stack.contexts[stack.depth++] = handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext ctx)
{
    struct sim_call call = sim_enter(SIM_cuCtxPushCurrent, 0);
    if (call.result == CUDA_SUCCESS)
        call.result = push(ctx);
    /* a fault: it belongs to the context that is not current yet */
    else if (sim_sticky(call.result) && sim_context(ctx))
        sim_lose(sim_context(ctx), call.result);
    return sim_leave(call.result);
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *pctx)
{
    struct sim_call call = sim_enter(SIM_cuCtxPopCurrent, 0);
    if (call.result == CUDA_SUCCESS && stack.depth == 0)
        call.result = sim_refuse(CUDA_ERROR_INVALID_CONTEXT, "cuCtxPopCurrent: no context is current");
    if (call.result == CUDA_SUCCESS) {
        stack.depth--;
        if (pctx)
            *pctx = stack.contexts[stack.depth];
    }
    return sim_leave(call.result);
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *pctx)
{
    struct sim_call call = sim_enter_query(SIM_cuCtxGetCurrent, 0, pctx);
    if (call.result == CUDA_SUCCESS)
        *pctx = sim_context_current();
    return sim_leave(call.result);
}

/* Replaces the top of the stack; NULL removes it. */
static CUresult set(CUcontext handle)
{
    struct sim_context *context = sim_context(handle);
    if (handle && !context)
        return sim_refuse(CUDA_ERROR_INVALID_CONTEXT, "cuCtxSetCurrent: no such context");
    if (handle && context->references == 0)
        return sim_refuse(CUDA_ERROR_CONTEXT_IS_DESTROYED, "cuCtxSetCurrent: the context has been released");
    if (stack.depth > 0)
        stack.depth--;
    if (handle)
        stack.contexts[stack.depth++] = handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx)
{
    struct sim_call call = sim_enter(SIM_cuCtxSetCurrent, 0);
    return sim_leave(call.result ? call.result : set(ctx));
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
    struct sim_call call = sim_enter_query(SIM_cuCtxGetDevice, SIM_CURRENT, device);
    if (call.result == CUDA_SUCCESS)
        *device = call.context->device;
    return sim_leave(call.result);
}
