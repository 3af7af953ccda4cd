/* SPDX-License-Identifier: MIT */
/*
 * COPY: the direction says what the caller takes each end for, the driver what it is: pinned memory has
 * addresses that are both the host's and the device's, unified memory is the driver's to move, and a host may
 * have wrapped memory of its own. With that, only calls are used that do not wait for earlier work of the
 * stream. Those for pageable memory do, unless there is none: else host functions copy (staging.c).
 */
#include "provider.h"
#include <string.h>

enum end_kind { END_PAGEABLE, END_PINNED, END_DEVICE };

struct end {
    enum end_kind kind;
    bool is_mixed;              /* PAGEABLE, and partly pinned: not for the driver */
    struct cuda_device *device; /* DEVICE */
    uint64_t address;
};

/* Of memory that the driver knows: which device's it is. */
static struct cuda_device *find_owner(struct cuda_device *device, uint64_t address)
{
    struct moor_abi_instance *instance = device->instance;
    int ordinal = 0;
    if (atomic_load(&instance->open_count) < 2)
        return device;
    CUresult code =
        cuda_driver_of(device)->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    for (uint32_t i = 0; code == CUDA_SUCCESS && i < instance->device_count; i++) {
        if (instance->devices[i].device == ordinal && atomic_load(&instance->devices[i].is_open))
            return &instance->devices[i];
    }
    return device;
}

/* Whether all of it is pinned, and not just its beginning. */
static bool is_whole(const struct cuda_driver *driver, uint64_t address, uint64_t bytes)
{
    CUdeviceptr start = 0;
    size_t size = 0;
    if (driver->cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) !=
            CUDA_SUCCESS ||
        driver->cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) != CUDA_SUCCESS)
        return false;
    return address >= start && address - start <= size && bytes <= size - (address - start);
}

/* Of what has no type: reserved addresses without memory are the driver's; all others are the host's. */
static bool is_foreign(const struct cuda_driver *driver, uint64_t address)
{
    CUdeviceptr start = 0;
    return driver->cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) !=
           CUDA_SUCCESS;
}

static int32_t look_at_end(struct cuda_device *device, uint64_t address, uint64_t bytes, bool is_host,
                           struct end *ret_end, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    struct end end = {is_host ? END_PAGEABLE : END_DEVICE, false, device, address};
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    CUresult code = driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    if (code == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST) {
        if (!is_host || is_whole(driver, address, bytes))
            end.kind = END_PINNED;
        else
            end.is_mixed = true;
    } else if (code == CUDA_SUCCESS) {
        end.kind = END_DEVICE;
        end.device = find_owner(device, address);
    } else if (code != CUDA_ERROR_INVALID_VALUE) { /* that one says: nothing is known of it */
        return cuda_check(device, code, MOOR_HOST_NOMEM, "cuPointerGetAttribute", error);
    } else if (is_foreign(driver, address)) {
        end.kind = END_PAGEABLE;
        end.is_mixed = driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                     address + bytes - 1) == CUDA_SUCCESS;
    }
    *ret_end = end;
    return MOOR_OK;
}

/* Nothing is left to wait for. Host functions run one at a time, whatever their streams, so a copy that can
 * do without one is not held up by another's. A blocking stream that has nothing queued may have to wait for
 * the default stream all the same. */
static bool is_idle(const struct moor_abi_stream *stream, const struct cuda_lane *lane)
{
    if (stream->is_blocking && lane->native == stream->native)
        return false;
    return cuda_driver_of(lane->device)->cuStreamQuery(lane->native) == CUDA_SUCCESS;
}

/* One copy between ends of which at most one is on a device, or both on the same. */
static int32_t submit_on_lane(struct moor_abi_stream *stream, const struct cuda_lane *lane,
                              const struct end *to, const struct end *from, uint64_t bytes,
                              struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(lane->device);
    bool to_device = to->kind == END_DEVICE;
    bool from_device = from->kind == END_DEVICE;
    bool is_pageable = to->kind == END_PAGEABLE || from->kind == END_PAGEABLE;
    bool is_direct = (to_device || from_device) &&
                     (!is_pageable || (!to->is_mixed && !from->is_mixed && is_idle(stream, lane)));
    if (to_device && from_device)
        return cuda_check(lane->device,
                          driver->cuMemcpyDtoDAsync(to->address, from->address, bytes, lane->native),
                          MOOR_HOST_NOMEM, "cuMemcpyDtoDAsync", error);
    if (to_device && is_direct)
        return cuda_check(
            lane->device,
            driver->cuMemcpyHtoDAsync(to->address, cuda_pointer(from->address), bytes, lane->native),
            MOOR_HOST_NOMEM, "cuMemcpyHtoDAsync", error);
    if (from_device && is_direct)
        return cuda_check(
            lane->device,
            driver->cuMemcpyDtoHAsync(cuda_pointer(to->address), from->address, bytes, lane->native),
            MOOR_HOST_NOMEM, "cuMemcpyDtoHAsync", error);
    if (to_device)
        return cuda_staging_copy_device(stream, lane, true, to->address, from->address, bytes, error);
    if (from_device)
        return cuda_staging_copy_device(stream, lane, false, from->address, to->address, bytes, error);
    if (is_idle(stream, lane)) {
        memcpy(cuda_pointer(to->address), cuda_pointer(from->address), bytes);
        return MOOR_OK;
    }
    return cuda_staging_copy_host(stream, lane, to->address, from->address, bytes, error);
}

/* A fatal error may be of any of the devices, and the call does not say of which: each is asked for its own. */
static int32_t copy_between(struct moor_abi_stream *stream, const struct end *to, const struct end *from,
                            uint64_t bytes, struct moor_abi_error *error)
{
    struct cuda_device *own = stream->context->device;
    const struct cuda_driver *driver = cuda_driver_of(own);
    CUresult code = driver->cuMemcpyPeerAsync(to->address, to->device->primary, from->address,
                                              from->device->primary, bytes, stream->native);
    if (!cuda_is_sticky(code))
        return cuda_check(own, code, MOOR_HOST_NOMEM, "cuMemcpyPeerAsync", error);
    (void)cuda_device_look(own, NULL);
    (void)cuda_device_look(to->device, NULL);
    (void)cuda_device_look(from->device, NULL);
    return cuda_fail(driver, MOOR_DEVICE_LOST, code, "cuMemcpyPeerAsync", error);
}

static int32_t submit(struct moor_abi_stream *stream, const struct end *to, const struct end *from,
                      uint64_t bytes, struct moor_abi_error *error)
{
    struct cuda_device *own = stream->context->device;
    bool to_device = to->kind == END_DEVICE;
    bool from_device = from->kind == END_DEVICE;
    if (to_device && from_device && to->device != from->device)
        return copy_between(stream, to, from, bytes, error);
    struct cuda_device *device = to_device ? to->device : from_device ? from->device : own;
    struct cuda_lane lane;
    struct cuda_scope scope;
    int32_t status = cuda_lane_begin(stream, device, &lane, &scope, error);
    if (status != MOOR_OK)
        return status;
    status = submit_on_lane(stream, &lane, to, from, bytes, error);
    status = cuda_lane_end(stream, &lane, &scope, status, error);
    bool has_job = !(to_device || from_device) || to->kind == END_PAGEABLE || from->kind == END_PAGEABLE;
    if (has_job)
        cuda_timeline_soil(stream);
    return status;
}

static int32_t copy_in_scope(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                             struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    bool to_host = args->direction == MOOR_ABI_COPY_H2H || args->direction == MOOR_ABI_COPY_D2H;
    bool from_host = args->direction == MOOR_ABI_COPY_H2H || args->direction == MOOR_ABI_COPY_H2D;
    struct end to;
    struct end from;
    int32_t status = look_at_end(device, args->destination, args->size_bytes, to_host, &to, error);
    if (status == MOOR_OK)
        status = look_at_end(device, args->source, args->size_bytes, from_host, &from, error);
    if (status != MOOR_OK)
        return status;
    pthread_mutex_lock(&stream->submit);
    stream->is_dirty = true;
    status = submit(stream, &to, &from, args->size_bytes, error);
    pthread_mutex_unlock(&stream->submit);
    return status;
}

static int32_t copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error)
{
    struct cuda_scope scope;
    int32_t status = moor_kit_check_copy(args, error);
    if (status == MOOR_OK)
        status = cuda_stream_enter(stream, &scope, error);
    if (status != MOOR_OK)
        return status;
    return cuda_stream_leave(stream, &scope, copy_in_scope(stream, args, error));
}

static int32_t submit_fill(const struct cuda_lane *lane, const struct moor_abi_fill_args *args,
                           struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(lane->device);
    CUdeviceptr at = args->destination;
    uint64_t count = args->size_bytes / args->pattern_bytes;
    if (args->pattern_bytes == 1)
        return cuda_check(lane->device,
                          driver->cuMemsetD8Async(at, (unsigned char)args->pattern, count, lane->native),
                          MOOR_HOST_NOMEM, "cuMemsetD8Async", error);
    if (args->pattern_bytes == 2)
        return cuda_check(lane->device,
                          driver->cuMemsetD16Async(at, (unsigned short)args->pattern, count, lane->native),
                          MOOR_HOST_NOMEM, "cuMemsetD16Async", error);
    return cuda_check(lane->device,
                      driver->cuMemsetD32Async(at, (unsigned int)args->pattern, count, lane->native),
                      MOOR_HOST_NOMEM, "cuMemsetD32Async", error);
}

static int32_t fill_in_scope(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                             struct moor_abi_error *error)
{
    struct cuda_device *device = stream->context->device;
    struct end to = {END_DEVICE, false, device, args->destination};
    int32_t status = MOOR_OK;
    if (atomic_load(&device->instance->open_count) > 1)
        status = look_at_end(device, args->destination, args->size_bytes, false, &to, error);
    if (status != MOOR_OK)
        return status;
    struct cuda_lane lane;
    struct cuda_scope scope;
    pthread_mutex_lock(&stream->submit);
    stream->is_dirty = true;
    status = cuda_lane_begin(stream, to.device, &lane, &scope, error);
    if (status == MOOR_OK)
        status = cuda_lane_end(stream, &lane, &scope, submit_fill(&lane, args, error), error);
    pthread_mutex_unlock(&stream->submit);
    return status;
}

static int32_t fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                    struct moor_abi_error *error)
{
    struct cuda_scope scope;
    int32_t status = moor_kit_check_fill(args, error);
    if (status == MOOR_OK)
        status = cuda_stream_enter(stream, &scope, error);
    if (status != MOOR_OK)
        return status;
    return cuda_stream_leave(stream, &scope, fill_in_scope(stream, args, error));
}

const struct moor_abi_copy_table cuda_copy_table = {
    .struct_size = MOOR_ABI_COPY_TABLE_SIZE,
    .copy = copy,
    .fill = fill,
};
