/* SPDX-License-Identifier: MIT */
/*
 * COPY. The direction names the caller's view of each end; the driver knows the memory: pinned memory has
 * addresses that are both the host's and the device's, unified memory moves as the driver likes, and a host
 * may have registered memory of its own. With the driver's view only those calls are chosen that do not wait
 * for earlier work of the stream. The calls for pageable memory do wait, unless the stream is idle: then host
 * functions copy (staging.c).
 */
#include "stream.h"
#include <assert.h>
#include <string.h>

enum end_kind { END_PAGEABLE, END_PINNED, END_DEVICE };

struct end {
    enum end_kind kind;
    bool is_mixed;              /* PAGEABLE, and partly pinned: the driver refuses it */
    struct cuda_device *device; /* DEVICE */
    uint64_t address;
};

/* Returns the device that owns memory which the driver knows. */
static struct cuda_device *find_owner(struct cuda_device *device, uint64_t address)
{
    struct moor_abi_instance *instance = device->instance;
    int ordinal = 0;
    if (atomic_load(&instance->open_device_count) < 2)
        return device;
    CUresult code =
        cuda_driver_of(device)->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    for (uint32_t i = 0; code == CUDA_SUCCESS && i < instance->kit.device_count; i++) {
        if (instance->devices[i].native == ordinal && atomic_load(&instance->devices[i].is_open))
            return &instance->devices[i];
    }
    return device;
}

/* Returns true if one pinned block holds the whole span, not just its beginning. */
static bool is_wholly_pinned(const struct cuda_driver *driver, uint64_t address, uint64_t bytes)
{
    CUdeviceptr start = 0;
    size_t size = 0;
    if (driver->cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) ||
        driver->cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address))
        return false;
    return address >= start && address - start <= size && bytes <= size - (address - start);
}

/* Returns true for an address without a type that is the host's. Reserved addresses without memory have no
 * type either, but the driver knows the start of their range. */
static bool is_foreign(const struct cuda_driver *driver, uint64_t address)
{
    CUdeviceptr start = 0;
    return driver->cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) !=
           CUDA_SUCCESS;
}

static int32_t classify_end(struct cuda_device *device, uint64_t address, uint64_t bytes, bool is_host,
                            struct end *ret_end, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    struct end end = {is_host ? END_PAGEABLE : END_DEVICE, false, device, address};
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    CUresult code = driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    if (code == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST) {
        if (!is_host || is_wholly_pinned(driver, address, bytes))
            end.kind = END_PINNED;
        else
            end.is_mixed = true;
    } else if (code == CUDA_SUCCESS) {
        end.kind = END_DEVICE;
        end.device = find_owner(device, address);
    } else if (code != CUDA_ERROR_INVALID_VALUE) { /* INVALID_VALUE: the driver does not know the address */
        return cuda_check(device, code, MOOR_HOST_NOMEM, "cuPointerGetAttribute", error);
    } else if (is_foreign(driver, address)) {
        end.kind = END_PAGEABLE;
        end.is_mixed = driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                     address + bytes - 1) == CUDA_SUCCESS;
    }
    *ret_end = end;
    return MOOR_OK;
}

/* Returns true if no work is left to wait for. Then a copy needs no host function. Host functions of all
 * streams run one at a time, so such a copy does not wait for those of other streams. A blocking stream with
 * an empty queue may still have to wait for the default stream. */
static bool is_idle(const struct moor_abi_stream *stream, const struct cuda_target *target)
{
    if (stream->is_blocking && target->native == stream->native)
        return false;
    return cuda_driver_of(target->device)->cuStreamQuery(target->native) == CUDA_SUCCESS;
}

/* Submits a copy with at most one end on a device, or both on the same device. */
static int32_t submit_to_target(struct moor_abi_stream *stream, const struct cuda_target *target,
                                const struct end *to, const struct end *from, uint64_t bytes,
                                struct moor_abi_error *error)
{
    struct cuda_device *device = target->device;
    bool to_device = to->kind == END_DEVICE;
    bool from_device = from->kind == END_DEVICE;
    bool is_pageable = to->kind == END_PAGEABLE || from->kind == END_PAGEABLE;
    if (to_device && from_device)
        return CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuMemcpyDtoDAsync, to->address, from->address, bytes,
                         target->native);
    if (to_device || from_device) {
        uint64_t device_address = to_device ? to->address : from->address;
        uint64_t host_address = to_device ? from->address : to->address;
        if (!is_pageable || (!to->is_mixed && !from->is_mixed && is_idle(stream, target)))
            return cuda_transfer(device, target->native, to_device, device_address,
                                 cuda_pointer(host_address), bytes, error);
        return cuda_staging_copy_device(stream, target, to_device, device_address, host_address, bytes,
                                        error);
    }
    if (is_idle(stream, target)) {
        memcpy(cuda_pointer(to->address), cuda_pointer(from->address), bytes);
        return MOOR_OK;
    }
    return cuda_staging_copy_host(stream, target, to->address, from->address, bytes, error);
}

/* A sticky error may come from any of the devices and the call does not say from which, so all are probed. */
static int32_t copy_between(struct moor_abi_stream *stream, const struct end *to, const struct end *from,
                            uint64_t bytes, struct moor_abi_error *error)
{
    struct cuda_device *own = stream->kit.context->device;
    const struct cuda_driver *driver = cuda_driver_of(own);
    CUresult code = driver->cuMemcpyPeerAsync(to->address, to->device->context.primary, from->address,
                                              from->device->context.primary, bytes, stream->native);
    if (!cuda_is_sticky(code))
        return cuda_check(own, code, MOOR_HOST_NOMEM, "cuMemcpyPeerAsync", error);
    (void)cuda_device_probe(own, NULL);
    (void)cuda_device_probe(to->device, NULL);
    (void)cuda_device_probe(from->device, NULL);
    return cuda_fail(driver, MOOR_DEVICE_LOST, code, "cuMemcpyPeerAsync", error);
}

static int32_t submit_copy(struct moor_abi_stream *stream, const struct end *to, const struct end *from,
                           uint64_t bytes, struct moor_abi_error *error)
{
    struct cuda_device *own = stream->kit.context->device;
    bool to_device = to->kind == END_DEVICE;
    bool from_device = from->kind == END_DEVICE;
    stream->submit.is_dirty = true;
    if (to_device && from_device && to->device != from->device)
        return copy_between(stream, to, from, bytes, error);
    struct cuda_device *device = to_device ? to->device : from_device ? from->device : own;
    struct cuda_target target;
    struct cuda_scope scope;
    int32_t status = cuda_target_begin(stream, device, &target, &scope, error);
    if (status)
        return status;
    status = submit_to_target(stream, &target, to, from, bytes, error);
    status = cuda_target_end(stream, &target, &scope, status, error);
    bool may_have_job = !(to_device || from_device) || to->kind == END_PAGEABLE || from->kind == END_PAGEABLE;
    if (may_have_job)
        cuda_timeline_mark_dirty(stream);
    return status;
}

static int32_t copy_in_scope(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                             struct moor_abi_error *error)
{
    struct cuda_device *device = stream->kit.context->device;
    bool to_host = args->direction == MOOR_ABI_COPY_H2H || args->direction == MOOR_ABI_COPY_D2H;
    bool from_host = args->direction == MOOR_ABI_COPY_H2H || args->direction == MOOR_ABI_COPY_H2D;
    struct end to;
    struct end from;
    int32_t status = classify_end(device, args->destination, args->size_bytes, to_host, &to, error);
    if (status == MOOR_OK)
        status = classify_end(device, args->source, args->size_bytes, from_host, &from, error);
    return status ? status : submit_copy(stream, &to, &from, args->size_bytes, error);
}

static int32_t copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error)
{
    struct cuda_scope scope;
    int32_t status = moor_kit_check_copy(args, error);
    if (status == MOOR_OK)
        status = cuda_stream_begin(stream, &scope, error);
    return status ? status : cuda_stream_end(stream, &scope, copy_in_scope(stream, args, error));
}

static int32_t submit_fill(const struct cuda_target *target, const struct moor_abi_fill_args *args,
                           struct moor_abi_error *error)
{
    struct cuda_device *device = target->device;
    CUdeviceptr at = args->destination;
    uint64_t count = args->size_bytes / args->pattern_bytes;
    if (args->pattern_bytes == 1)
        return CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuMemsetD8Async, at, (unsigned char)args->pattern,
                         count, target->native);
    if (args->pattern_bytes == 2)
        return CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuMemsetD16Async, at, (unsigned short)args->pattern,
                         count, target->native);
    assert(args->pattern_bytes == 4);
    return CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuMemsetD32Async, at, (unsigned int)args->pattern, count,
                     target->native);
}

static int32_t fill_in_scope(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                             struct moor_abi_error *error)
{
    struct cuda_device *device = stream->kit.context->device;
    struct end to = {END_DEVICE, false, device, args->destination};
    int32_t status = MOOR_OK;
    if (atomic_load(&device->instance->open_device_count) > 1)
        status = classify_end(device, args->destination, args->size_bytes, false, &to, error);
    if (status)
        return status;
    struct cuda_target target;
    struct cuda_scope scope;
    stream->submit.is_dirty = true;
    status = cuda_target_begin(stream, to.device, &target, &scope, error);
    if (status)
        return status;
    return cuda_target_end(stream, &target, &scope, submit_fill(&target, args, error), error);
}

static int32_t fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                    struct moor_abi_error *error)
{
    struct cuda_scope scope;
    int32_t status = moor_kit_check_fill(args, error);
    if (status == MOOR_OK)
        status = cuda_stream_begin(stream, &scope, error);
    return status ? status : cuda_stream_end(stream, &scope, fill_in_scope(stream, args, error));
}

MOOR_KIT_TABLE(copy, cuda_copy_table, .copy = copy, .fill = fill);
