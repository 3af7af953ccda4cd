/* SPDX-License-Identifier: MIT */
/* Copies, memsets, values and host functions, as they are submitted. Directions are checked here. effect.c
 * checks, when the operation runs, whether its bytes are mapped and accessible. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

static struct sim_span device_span(const struct sim_context *context, CUdeviceptr address,
                                   uint64_t size_bytes, unsigned access)
{
    return (struct sim_span){address, size_bytes, SIM_SIDE_DEVICE, context->device, access};
}

/* ---- host memory ---- */

/* Classifies host bytes as the driver sees them: pinned (HOST) or pageable (PRIVATE). */
static CUresult classify(const struct sim_context *context, const void *host, uint64_t size_bytes,
                         enum sim_side *ret_side)
{
    uint64_t address = (uintptr_t)host;
    if (!host || address + size_bytes < address)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_space_owns(address, size_bytes))
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "a copy: %p is a device address, not the host's", host);
    const struct sim_mapping *mapping = sim_map_find_host(address);
    *ret_side = SIM_SIDE_PRIVATE;
    if (!mapping && sim_map_overlaps_host(address, size_bytes))
        return sim_refuse(CUDA_ERROR_INVALID_VALUE,
                          "a copy: the host memory at %p is pinned from its middle on", host);
    if (!mapping)
        return CUDA_SUCCESS;
    if (size_bytes > mapping->host + mapping->size_bytes - address)
        return sim_refuse(CUDA_ERROR_INVALID_VALUE,
                          "a copy: the host memory at %p is pinned up to its middle", host);
    if (mapping->kind != SIM_MEMORY_REGISTERED || mapping->flags & CU_MEMHOSTREGISTER_PORTABLE ||
        mapping->owner == context)
        *ret_side = SIM_SIDE_HOST;
    return CUDA_SUCCESS;
}

static struct sim_operation *copy_operation(struct sim_span to, struct sim_span from)
{
    struct sim_operation *operation = sim_operation_create(SIM_COPY, 2);
    operation->spans[0] = to;
    operation->spans[1] = from;
    return operation;
}

/* ---- host to device ---- */

/* Copies pageable memory: waits for the stream, and reads the bytes before the call returns. */
static CUresult stage(struct sim_stream *stream, CUdeviceptr to, const void *from, uint64_t size_bytes)
{
    CUresult result = stream->capture ? CUDA_SUCCESS : sim_stream_wait(stream);
    if (result != CUDA_SUCCESS)
        return result;
    void *bytes = malloc(size_bytes);
    if (!bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(bytes, from, size_bytes);
    struct sim_span source = {(uintptr_t)bytes, size_bytes, SIM_SIDE_PRIVATE, 0, MOOR_CUDASIM_READ};
    struct sim_operation *operation =
        copy_operation(device_span(stream->context, to, size_bytes, MOOR_CUDASIM_WRITE), source);
    operation->staging = bytes;
    return sim_submit(stream, operation);
}

static CUresult to_device(CUstream handle, CUdeviceptr to, const void *from, uint64_t size_bytes)
{
    struct sim_stream *stream = NULL;
    enum sim_side side = SIM_SIDE_HOST;
    CUresult result = sim_stream_of(handle, "cuMemcpyHtoDAsync", &stream);
    if (result != CUDA_SUCCESS || size_bytes == 0)
        return result;
    result = classify(stream->context, from, size_bytes, &side);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_map_known(to, size_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (side == SIM_SIDE_PRIVATE)
        return stage(stream, to, from, size_bytes);
    struct sim_span source = {(uintptr_t)from, size_bytes, side, 0, MOOR_CUDASIM_READ};
    return sim_submit(
        stream, copy_operation(device_span(stream->context, to, size_bytes, MOOR_CUDASIM_WRITE), source));
}

CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                                      CUstream hStream)
{
    struct sim_call call = sim_enter(SIM_cuMemcpyHtoDAsync, SIM_CONTEXT);
    return sim_leave(call.result ? call.result : to_device(hStream, dstDevice, srcHost, ByteCount));
}

/* From pageable memory the copy to the device may follow after the call; from pinned memory it may not. */
CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    struct sim_call call = sim_enter(SIM_cuMemcpyHtoD, SIM_CONTEXT | SIM_UNSAFE);
    if (call.result == CUDA_SUCCESS)
        call.result = to_device(NULL, dstDevice, srcHost, ByteCount);
    return sim_leave(call.result ? call.result : sim_stream_wait(call.context->legacy));
}

/* ---- device to host ---- */

static CUresult to_host(CUstream handle, void *to, CUdeviceptr from, uint64_t size_bytes)
{
    struct sim_stream *stream = NULL;
    enum sim_side side = SIM_SIDE_HOST;
    CUresult result = sim_stream_of(handle, "cuMemcpyDtoHAsync", &stream);
    if (result != CUDA_SUCCESS || size_bytes == 0)
        return result;
    result = classify(stream->context, to, size_bytes, &side);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_map_known(from, size_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_span target = {(uintptr_t)to, size_bytes, side, 0, MOOR_CUDASIM_WRITE};
    result = sim_submit(
        stream, copy_operation(target, device_span(stream->context, from, size_bytes, MOOR_CUDASIM_READ)));
    if (result == CUDA_SUCCESS && side == SIM_SIDE_PRIVATE && !stream->capture)
        result = sim_stream_wait(stream); /* pageable: the call returns after the copy */
    return result;
}

CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                      CUstream hStream)
{
    struct sim_call call = sim_enter(SIM_cuMemcpyDtoHAsync, SIM_CONTEXT);
    return sim_leave(call.result ? call.result : to_host(hStream, dstHost, srcDevice, ByteCount));
}

CUresult CUDAAPI cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    struct sim_call call = sim_enter(SIM_cuMemcpyDtoH, SIM_CONTEXT | SIM_UNSAFE);
    if (call.result == CUDA_SUCCESS)
        call.result = to_host(NULL, dstHost, srcDevice, ByteCount);
    return sim_leave(call.result ? call.result : sim_stream_wait(call.context->legacy));
}

/* ---- device to device ---- */

static CUresult between(struct sim_stream *stream, struct sim_span to, struct sim_span from)
{
    if (to.size_bytes == 0)
        return CUDA_SUCCESS;
    if (!sim_map_known(to.address, to.size_bytes) || !sim_map_known(from.address, from.size_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_submit(stream, copy_operation(to, from));
}

CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                      CUstream hStream)
{
    struct sim_call call = sim_enter(SIM_cuMemcpyDtoDAsync, SIM_CONTEXT);
    struct sim_stream *stream = NULL;
    if (call.result == CUDA_SUCCESS)
        call.result = sim_stream_of(hStream, "cuMemcpyDtoDAsync", &stream);
    if (call.result == CUDA_SUCCESS)
        call.result = between(stream, device_span(stream->context, dstDevice, ByteCount, MOOR_CUDASIM_WRITE),
                              device_span(stream->context, srcDevice, ByteCount, MOOR_CUDASIM_READ));
    return sim_leave(call.result);
}

/* The context that is named for an end must reach it. */
static CUresult between_peers(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                              uint64_t size_bytes, CUstream handle)
{
    struct sim_stream *stream = NULL;
    const struct sim_context *target = sim_context(to_context);
    const struct sim_context *source = sim_context(from_context);
    if (!target || !source || target->references == 0 || source->references == 0)
        return sim_refuse(CUDA_ERROR_INVALID_CONTEXT, "cuMemcpyPeerAsync: no such context");
    CUresult result = sim_stream_of(handle, "cuMemcpyPeerAsync", &stream);
    if (result == CUDA_SUCCESS)
        result = target->lost ? target->lost : source->lost;
    if (result != CUDA_SUCCESS)
        return result;
    return between(stream, device_span(target, to, size_bytes, MOOR_CUDASIM_WRITE),
                   device_span(source, from, size_bytes, MOOR_CUDASIM_READ));
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                   CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    struct sim_call call = sim_enter(SIM_cuMemcpyPeerAsync, SIM_CONTEXT);
    if (call.result == CUDA_SUCCESS)
        call.result = between_peers(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
    return sim_leave(call.result);
}

/* ---- memsets ---- */

static CUresult fill(const struct sim_call *call, CUdeviceptr to, uint64_t value, unsigned element_bytes,
                     uint64_t count, CUstream handle)
{
    struct sim_stream *stream = NULL;
    CUresult result = sim_stream_of(handle, sim_function_name(call->function), &stream);
    if (result != CUDA_SUCCESS || count == 0)
        return result;
    if (to % element_bytes != 0)
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "a memset of %u-byte elements at 0x%llx", element_bytes,
                          to);
    if (count > UINT64_MAX / element_bytes || !sim_map_known(to, count * element_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_operation *operation = sim_operation_create(SIM_FILL, 1);
    operation->spans[0] = device_span(stream->context, to, count * element_bytes, MOOR_CUDASIM_WRITE);
    operation->value = value;
    operation->element_bytes = element_bytes;
    return sim_submit(stream, operation);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    struct sim_call call = sim_enter(SIM_cuMemsetD8Async, SIM_CONTEXT);
    return sim_leave(call.result ? call.result : fill(&call, dstDevice, uc, 1, N, hStream));
}

CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    struct sim_call call = sim_enter(SIM_cuMemsetD16Async, SIM_CONTEXT);
    return sim_leave(call.result ? call.result : fill(&call, dstDevice, us, 2, N, hStream));
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    struct sim_call call = sim_enter(SIM_cuMemsetD32Async, SIM_CONTEXT);
    return sim_leave(call.result ? call.result : fill(&call, dstDevice, ui, 4, N, hStream));
}

/* ---- values and host functions ---- */

static CUresult value(const struct sim_call *call, enum sim_operation_kind kind, CUstream handle,
                      CUdeviceptr address, uint64_t number, unsigned flags)
{
    struct sim_stream *stream = NULL;
    CUresult result = sim_stream_of(handle, sim_function_name(call->function), &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_gpu(stream->context->device)->memory_operations)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (address % sizeof(uint64_t) != 0 || !sim_map_known(address, sizeof(uint64_t)))
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "%s: no word at the device address 0x%llx",
                          sim_function_name(call->function), address);
    if (sim_map_find(address)->kind == SIM_MEMORY_MANAGED)
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "%s: managed memory at 0x%llx",
                          sim_function_name(call->function), address);
    struct sim_operation *operation = sim_operation_create(kind, 1);
    operation->spans[0] = device_span(stream->context, address, sizeof(uint64_t),
                                      kind == SIM_WRITE_VALUE ? MOOR_CUDASIM_WRITE : MOOR_CUDASIM_READ);
    operation->value = number;
    operation->flags = flags;
    return sim_submit(stream, operation);
}

CUresult CUDAAPI cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t number,
                                         unsigned int flags)
{
    struct sim_call call = sim_enter(SIM_cuStreamWriteValue64, 0);
    /* The other flag belongs to another version of the function. */
    if (call.result == CUDA_SUCCESS && flags != CU_STREAM_WRITE_VALUE_DEFAULT)
        call.result = CUDA_ERROR_INVALID_VALUE;
    return sim_leave(call.result ? call.result : value(&call, SIM_WRITE_VALUE, stream, addr, number, flags));
}

/* NOR and FLUSH need an attribute that these devices do not have. */
CUresult CUDAAPI cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t number,
                                        unsigned int flags)
{
    struct sim_call call = sim_enter(SIM_cuStreamWaitValue64, 0);
    if (call.result == CUDA_SUCCESS && flags > CU_STREAM_WAIT_VALUE_AND)
        call.result = flags == CU_STREAM_WAIT_VALUE_NOR || flags & CU_STREAM_WAIT_VALUE_FLUSH
                          ? CUDA_ERROR_NOT_SUPPORTED
                          : CUDA_ERROR_INVALID_VALUE;
    return sim_leave(call.result ? call.result : value(&call, SIM_WAIT_VALUE, stream, addr, number, flags));
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    struct sim_call call = sim_enter(SIM_cuLaunchHostFunc, SIM_CONTEXT);
    struct sim_stream *stream = NULL;
    if (call.result == CUDA_SUCCESS && !fn)
        call.result = CUDA_ERROR_INVALID_VALUE;
    if (call.result == CUDA_SUCCESS)
        call.result = sim_stream_of(hStream, "cuLaunchHostFunc", &stream);
    if (call.result == CUDA_SUCCESS) {
        struct sim_operation *operation = sim_operation_create(SIM_HOST_FUNCTION, 0);
        operation->host_function = fn;
        operation->user = userData;
        call.result = sim_submit(stream, operation);
    }
    return sim_leave(call.result);
}
