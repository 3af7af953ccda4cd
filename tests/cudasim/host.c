/* SPDX-License-Identifier: MIT */
/* Host memory that devices reach: allocated here or registered. A registered page has another address for
 * devices than for the host, unless the device has CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM. */
#include "sim.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

static uint64_t round_up(uint64_t number, uint64_t unit)
{
    return (number + unit - 1) / unit * unit;
}

static void grant_access_all(struct sim_mapping *mapping)
{
    for (int i = 0; i < sim.device_count; i++)
        mapping->access[i] = MOOR_CUDASIM_READ | MOOR_CUDASIM_WRITE;
}

static bool take_pinned(uint64_t size_bytes)
{
    if (size_bytes > sim.settings.pinned_bytes || sim.pinned_bytes > sim.settings.pinned_bytes - size_bytes)
        return false;
    sim.pinned_bytes += size_bytes;
    return true;
}

/* ---- allocated here ---- */

static CUresult allocate(struct sim_context *context, void **pp, size_t size_bytes, unsigned flags)
{
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (!pp || size_bytes == 0 || flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t rounded = size_bytes > UINT64_MAX - SIM_PAGE ? UINT64_MAX : round_up(size_bytes, SIM_PAGE);
    if (!take_pinned(rounded))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_physical *physical = sim_physical_create(-1, rounded);
    if (!physical) {
        sim.pinned_bytes -= rounded;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_mapping mapping = {.base = (uintptr_t)physical->bytes,
                                  .size_bytes = size_bytes,
                                  .host = (uintptr_t)physical->bytes,
                                  .kind = SIM_MEMORY_HOST,
                                  .flags = flags,
                                  .device = context->device,
                                  .owner = context,
                                  .physical = physical};
    grant_access_all(&mapping);
    if (flags & CU_MEMHOSTALLOC_WRITECOMBINED)
        mapping.base = sim_space_take(rounded, SIM_PAGE, 0, 0);
    if (!mapping.base) {
        sim_physical_unref(physical);
        sim.pinned_bytes -= rounded;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!sim_map_add(&mapping))
        abort();
    *pp = physical->bytes;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    struct sim_call call = sim_enter(SIM_cuMemHostAlloc, SIM_CONTEXT | SIM_UNSAFE);
    return sim_leave(call.result ? call.result : allocate(call.context, pp, bytesize, Flags));
}

static CUresult free_host(const void *p)
{
    struct sim_mapping *mapping = sim_map_find_host((uintptr_t)p);
    if (!mapping || mapping->host != (uintptr_t)p || mapping->kind != SIM_MEMORY_HOST)
        return sim_refuse(CUDA_ERROR_INVALID_VALUE,
                          "cuMemFreeHost: %p is not from cuMemHostAlloc, or was freed before", p);
    sim_check_unused(mapping, "cuMemFreeHost");
    sim.pinned_bytes -= mapping->physical->size_bytes;
    if (mapping->base != mapping->host)
        sim_space_free(mapping->base);
    sim_map_remove(mapping);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemFreeHost(void *p)
{
    struct sim_call call = sim_enter(SIM_cuMemFreeHost, SIM_CONTEXT | SIM_UNSAFE);
    return sim_leave(call.result ? call.result : free_host(p));
}

/* ---- registered ---- */

/* Returns true if the process has memory in the whole span. */
static bool present(uint64_t host, uint64_t size_bytes)
{
    uint64_t start = host / SIM_PAGE * SIM_PAGE;
    uint64_t pages = (round_up(host + size_bytes, SIM_PAGE) - start) / SIM_PAGE;
    unsigned char *states = malloc(pages);
    bool good = states && mincore((void *)(uintptr_t)start, pages * SIM_PAGE, states) == 0;
    free(states);
    return good;
}

static CUresult check_register(struct sim_context *context, uint64_t host, uint64_t size_bytes,
                               unsigned flags)
{
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    (void)context;
    if (host == 0 || size_bytes == 0 || flags & ~known || host + size_bytes < host)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & (CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (sim_map_overlaps_host(host, size_bytes))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (sim_space_owns(host, size_bytes) || !present(host, size_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static bool all_use_the_same(void)
{
    for (int i = 0; i < sim.device_count; i++) {
        if (!sim_gpu(i)->registered_same)
            return false;
    }
    return true;
}

static CUresult register_host(struct sim_context *context, void *p, size_t size_bytes, unsigned flags)
{
    uint64_t host = (uintptr_t)p;
    CUresult result = check_register(context, host, size_bytes, flags);
    if (result != CUDA_SUCCESS)
        return result;
    if (!take_pinned(size_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_mapping mapping = {.base = host,
                                  .size_bytes = size_bytes,
                                  .host = host,
                                  .kind = SIM_MEMORY_REGISTERED,
                                  .flags = flags,
                                  .device = context->device,
                                  .owner = context,
                                  .physical = sim_physical_of_host(p, size_bytes, false)};
    if (!all_use_the_same())
        mapping.base =
            sim_space_take(round_up(size_bytes, SIM_PAGE) + SIM_PAGE, SIM_PAGE, host % SIM_PAGE, 0);
    if (!mapping.base || !mapping.physical) {
        sim_physical_unref(mapping.physical);
        sim.pinned_bytes -= size_bytes;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    grant_access_all(&mapping);
    if (!sim_map_add(&mapping))
        abort();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    struct sim_call call = sim_enter(SIM_cuMemHostRegister, SIM_CONTEXT | SIM_UNSAFE);
    return sim_leave(call.result ? call.result : register_host(call.context, p, bytesize, Flags));
}

static CUresult unregister_host(const void *p)
{
    struct sim_mapping *mapping = sim_map_find_host((uintptr_t)p);
    if (!mapping || mapping->host != (uintptr_t)p || mapping->kind != SIM_MEMORY_REGISTERED)
        return sim_refuse(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "cuMemHostUnregister: %p is not registered",
                          p);
    sim_check_unused(mapping, "cuMemHostUnregister");
    if (!present(mapping->host, mapping->size_bytes))
        sim_violate("cuMemHostUnregister: the memory at %p was unmapped while it was registered", p);
    sim.pinned_bytes -= mapping->size_bytes;
    if (mapping->base != mapping->host)
        sim_space_free(mapping->base);
    sim_map_remove(mapping);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostUnregister(void *p)
{
    struct sim_call call = sim_enter(SIM_cuMemHostUnregister, SIM_CONTEXT | SIM_UNSAFE);
    return sim_leave(call.result ? call.result : unregister_host(p));
}

_Static_assert(CU_MEMHOSTALLOC_DEVICEMAP == CU_MEMHOSTREGISTER_DEVICEMAP, "one flag for both kinds");

static CUresult device_pointer(CUdeviceptr *pdptr, const void *p, unsigned flags)
{
    struct sim_mapping *mapping = sim_map_find_host((uintptr_t)p);
    if (!pdptr || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!mapping || (mapping->kind != SIM_MEMORY_HOST && mapping->kind != SIM_MEMORY_REGISTERED))
        return CUDA_ERROR_INVALID_VALUE;
    if (!(mapping->flags & CU_MEMHOSTALLOC_DEVICEMAP))
        return CUDA_ERROR_INVALID_VALUE;
    *pdptr = mapping->base + ((uintptr_t)p - mapping->host);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    struct sim_call call = sim_enter(SIM_cuMemHostGetDevicePointer, SIM_CONTEXT);
    return sim_leave(call.result ? call.result : device_pointer(pdptr, p, Flags));
}
