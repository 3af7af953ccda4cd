/* SPDX-License-Identifier: MIT */
/* cuMemAlloc and its relatives. Small blocks share chunks of 2 MiB, as the real driver's do, so
 * cuMemGetInfo moves by chunks. Addresses are multiples of 256, deliberately never of more. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

#define UNITS (SIM_CHUNK / SIM_UNIT)

struct sim_chunk {
    struct sim_chunk *next;
    struct sim_physical *physical; /* [ref] */
    uint64_t base;
    unsigned blocks;
    bool taken[UNITS];
};

static struct sim_chunk *chunks;

static uint64_t round_up(uint64_t number, uint64_t unit)
{
    return (number + unit - 1) / unit * unit;
}

static void grant_access(struct sim_mapping *mapping, int device)
{
    mapping->access[device] = MOOR_CUDASIM_READ | MOOR_CUDASIM_WRITE;
}

static void grant_access_all(struct sim_mapping *mapping)
{
    for (int i = 0; i < sim.device_count; i++)
        grant_access(mapping, i);
}

/* ---- chunks ---- */

static struct sim_chunk *create_chunk(int device)
{
    struct sim_chunk *chunk = calloc(1, sizeof(*chunk));
    if (!chunk)
        return NULL;
    chunk->physical = sim_physical_create(device, SIM_CHUNK);
    chunk->base = chunk->physical ? sim_space_take(SIM_CHUNK, SIM_UNIT, 0, 0) : 0;
    if (!chunk->base) {
        sim_physical_unref(chunk->physical);
        free(chunk);
        return NULL;
    }
    chunk->next = chunks;
    chunks = chunk;
    return chunk;
}

static void destroy_chunk(struct sim_chunk *chunk)
{
    struct sim_chunk **link = &chunks;
    while (*link != chunk)
        link = &(*link)->next;
    *link = chunk->next;
    sim_space_free(chunk->base);
    sim_physical_unref(chunk->physical);
    free(chunk);
}

static bool is_free(const struct sim_chunk *chunk, unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++) {
        if (i >= UNITS || chunk->taken[i])
            return false;
    }
    return true;
}

/* Finds the first fitting place at a multiple of 256 and of no more. UNITS: none. */
static unsigned fit(const struct sim_chunk *chunk, unsigned count)
{
    unsigned even = UNITS;
    for (unsigned i = 0; i + count <= UNITS; i++) {
        if (!is_free(chunk, i, count))
            continue;
        if ((chunk->base / SIM_UNIT + i) % 2 == 1)
            return i;
        if (even == UNITS)
            even = i;
    }
    return even;
}

static CUresult allocate_small(struct sim_context *context, uint64_t size_bytes,
                               struct sim_mapping *ret_mapping)
{
    unsigned count = (unsigned)(round_up(size_bytes, SIM_UNIT) / SIM_UNIT);
    struct sim_chunk *chunk = chunks;
    unsigned at = UNITS;
    for (; chunk; chunk = chunk->next) {
        at = chunk->physical->device == context->device ? fit(chunk, count) : UNITS;
        if (at < UNITS)
            break;
    }
    if (!chunk) {
        chunk = create_chunk(context->device);
        if (!chunk)
            return CUDA_ERROR_OUT_OF_MEMORY;
        at = fit(chunk, count);
    }
    memset(&chunk->taken[at], true, count);
    chunk->blocks++;
    sim_garbage(chunk->physical->bytes + (uint64_t)at * SIM_UNIT, (uint64_t)count * SIM_UNIT);
    sim_physical_ref(chunk->physical);
    ret_mapping->physical = chunk->physical;
    ret_mapping->offset = (uint64_t)at * SIM_UNIT;
    ret_mapping->base = chunk->base + ret_mapping->offset;
    ret_mapping->chunk = chunk;
    return CUDA_SUCCESS;
}

static void free_small(struct sim_chunk *chunk, uint64_t base, uint64_t size_bytes)
{
    uint64_t count = round_up(size_bytes, SIM_UNIT) / SIM_UNIT;
    memset(&chunk->taken[(base - chunk->base) / SIM_UNIT], false, count);
    if (--chunk->blocks == 0)
        destroy_chunk(chunk);
}

static CUresult allocate_large(struct sim_context *context, uint64_t size_bytes,
                               struct sim_mapping *ret_mapping)
{
    if (size_bytes > UINT64_MAX - SIM_CHUNK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t rounded = round_up(size_bytes, SIM_CHUNK);
    ret_mapping->physical = sim_physical_create(context->device, rounded);
    if (!ret_mapping->physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ret_mapping->base = sim_space_take(rounded, 2 * SIM_UNIT, SIM_UNIT, 0);
    if (ret_mapping->base)
        return CUDA_SUCCESS;
    sim_physical_unref(ret_mapping->physical);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- blocks ---- */

static CUresult allocate(struct sim_context *context, CUdeviceptr *dptr, size_t size_bytes)
{
    if (!dptr || size_bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_mapping mapping = {
        .size_bytes = size_bytes, .kind = SIM_MEMORY_BLOCK, .device = context->device, .owner = context};
    grant_access(&mapping, context->device);
    CUresult result = size_bytes < SIM_SMALL ? allocate_small(context, size_bytes, &mapping)
                                             : allocate_large(context, size_bytes, &mapping);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_map_add(&mapping))
        abort(); /* the machine of the test has no memory */
    *dptr = mapping.base;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    struct sim_call call = sim_enter(SIM_cuMemAlloc, SIM_CONTEXT | SIM_UNSAFE);
    return sim_leave(call.result ? call.result : allocate(call.context, dptr, bytesize));
}

/* Managed memory is the process's own: its device address equals its host address. The share of it that a
 * real device would hold is not modelled. */
static CUresult allocate_managed(struct sim_context *context, CUdeviceptr *dptr, size_t size_bytes,
                                 unsigned flags)
{
    if (!sim_gpu(context->device)->managed)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!dptr || size_bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    if (size_bytes > UINT64_MAX - SIM_PAGE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_physical *physical = sim_physical_create(-1, round_up(size_bytes, SIM_PAGE));
    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_mapping mapping = {.base = (uintptr_t)physical->bytes,
                                  .size_bytes = size_bytes,
                                  .host = (uintptr_t)physical->bytes,
                                  .kind = SIM_MEMORY_MANAGED,
                                  .device = context->device,
                                  .owner = context,
                                  .physical = physical};
    grant_access_all(&mapping);
    if (!sim_map_add(&mapping))
        abort();
    *dptr = mapping.base;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    struct sim_call call = sim_enter(SIM_cuMemAllocManaged, SIM_CONTEXT | SIM_UNSAFE);
    return sim_leave(call.result ? call.result : allocate_managed(call.context, dptr, bytesize, flags));
}

static CUresult free_block(CUdeviceptr dptr)
{
    struct sim_mapping *mapping = sim_map_find(dptr);
    if (!mapping || mapping->base != dptr)
        return sim_refuse(CUDA_ERROR_INVALID_VALUE,
                          "cuMemFree: nothing was allocated at 0x%llx, or it was freed before", dptr);
    if (mapping->kind != SIM_MEMORY_BLOCK && mapping->kind != SIM_MEMORY_MANAGED)
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemFree: 0x%llx is not from cuMemAlloc", dptr);
    sim_check_unused(mapping, "cuMemFree");
    struct sim_chunk *chunk = mapping->chunk;
    uint64_t size_bytes = mapping->size_bytes;
    if (mapping->kind == SIM_MEMORY_BLOCK && !chunk)
        sim_space_free(dptr);
    sim_map_remove(mapping);
    if (chunk)
        free_small(chunk, dptr, size_bytes);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr)
{
    struct sim_call call = sim_enter(SIM_cuMemFree, SIM_CONTEXT | SIM_UNSAFE);
    return sim_leave(call.result ? call.result : free_block(dptr));
}

/* ---- attributes of an address ---- */

static struct sim_mapping *find(CUdeviceptr ptr)
{
    struct sim_mapping *mapping = sim_map_find(ptr);
    return mapping ? mapping : sim_map_find_host(ptr);
}

static bool host_kind(const struct sim_mapping *mapping)
{
    return mapping->kind == SIM_MEMORY_HOST || mapping->kind == SIM_MEMORY_REGISTERED;
}

/* Returns the offset of a device or host address in its memory. */
static uint64_t offset_in(const struct sim_mapping *mapping, CUdeviceptr ptr)
{
    uint64_t by_device = ptr - mapping->base;
    return by_device < mapping->size_bytes ? by_device : ptr - mapping->host;
}

static CUresult start_and_size(const struct sim_mapping *mapping, CUdeviceptr ptr, uint64_t *ret_base,
                               uint64_t *ret_size_bytes)
{
    const struct sim_reservation *reservation = sim_reservation_find(ptr);
    if (!mapping && !reservation)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_base = reservation ? reservation->base : mapping->base;
    *ret_size_bytes = reservation ? reservation->size_bytes : mapping->size_bytes;
    return CUDA_SUCCESS;
}

static CUresult attribute(const struct sim_call *call, void *data, CUpointer_attribute attribute,
                          CUdeviceptr ptr)
{
    struct sim_mapping *mapping = find(ptr);
    uint64_t base;
    uint64_t size_bytes;
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPED) {
        *(int *)data = mapping != NULL;
        return CUDA_SUCCESS;
    }
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        CUresult result = start_and_size(mapping, ptr, &base, &size_bytes);
        if (result != CUDA_SUCCESS)
            return result;
        if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
            *(size_t *)data = size_bytes;
        else
            *(CUdeviceptr *)data = base;
        return CUDA_SUCCESS;
    }
    if (!mapping)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: /* memory of cuMemMap has no context */
        *(CUcontext *)data = mapping->owner ? mapping->owner->handle : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = host_kind(mapping) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = mapping->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = mapping->kind == SIM_MEMORY_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (!call->context)
            return CUDA_ERROR_INVALID_CONTEXT;
        if (!mapping->access[call->context->device])
            return CUDA_ERROR_INVALID_VALUE;
        *(CUdeviceptr *)data = mapping->base + offset_in(mapping, ptr);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!mapping->host)
            return CUDA_ERROR_INVALID_VALUE;
        *(uint64_t *)data = mapping->host + offset_in(mapping, ptr);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attrib, CUdeviceptr ptr)
{
    struct sim_call call = sim_enter(SIM_cuPointerGetAttribute, 0);
    return sim_leave(call.result ? call.result : attribute(&call, data, attrib, ptr));
}
