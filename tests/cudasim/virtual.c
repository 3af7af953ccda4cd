/* SPDX-License-Identifier: MIT */
/* Reservations, handles, mappings and access. Each call first checks everything that the documentation
 * demands. No call here needs a current context. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

struct memory {
    uint64_t handle;
    unsigned references;           /* cuMemCreate and cuMemRetainAllocationHandle */
    struct sim_physical *physical; /* [ref] */
};

static struct {
    struct sim_reservation *reservations;
    size_t count;
    size_t capacity;
} reserved;

/* ---- granules ---- */

static uint64_t least_granule(void)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < sim.device_count; i++) {
        if (sim_gpu(i)->granule_min_bytes < least)
            least = sim_gpu(i)->granule_min_bytes;
    }
    return least;
}

static bool multiple(uint64_t number, uint64_t unit)
{
    return number % unit == 0;
}

static CUresult check_location(const CUmemLocation *location)
{
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) /* host memory is not modelled */
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!sim_device(location->id))
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_gpu(location->id)->virtual_memory ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult check_property(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->win32HandleMetaData)
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "allocation properties: invalid");
    if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED; /* export is not modelled */
    return check_location(&prop->location);
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                               CUmemAllocationGranularity_flags option)
{
    struct sim_call call = sim_enter(SIM_cuMemGetAllocationGranularity, 0);
    if (call.result == CUDA_SUCCESS && (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                                         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)))
        call.result = CUDA_ERROR_INVALID_VALUE;
    if (call.result == CUDA_SUCCESS)
        call.result = check_property(prop);
    if (call.result == CUDA_SUCCESS) {
        const struct sim_gpu *gpu = sim_gpu(prop->location.id);
        *granularity =
            option == CU_MEM_ALLOC_GRANULARITY_MINIMUM ? gpu->granule_min_bytes : gpu->granule_bytes;
    }
    return sim_leave(call.result);
}

/* ---- reservations ---- */

const struct sim_reservation *sim_reservation_find(uint64_t address)
{
    for (size_t i = 0; i < reserved.count; i++) {
        if (address >= reserved.reservations[i].base &&
            address - reserved.reservations[i].base < reserved.reservations[i].size_bytes)
            return &reserved.reservations[i];
    }
    return NULL;
}

static bool add_reservation(uint64_t base, uint64_t size_bytes)
{
    if (reserved.count == reserved.capacity) {
        size_t capacity = reserved.capacity ? reserved.capacity * 2 : 16;
        struct sim_reservation *more = realloc(reserved.reservations, capacity * sizeof(*more));
        if (!more)
            return false;
        reserved.reservations = more;
        reserved.capacity = capacity;
    }
    reserved.reservations[reserved.count++] = (struct sim_reservation){base, size_bytes};
    return true;
}

static CUresult reserve(CUdeviceptr *ptr, uint64_t size_bytes, uint64_t alignment, CUdeviceptr hint,
                        unsigned long long flags)
{
    uint64_t granule = least_granule();
    bool any = false;
    for (int i = 0; i < sim.device_count; i++)
        any = any || sim_gpu(i)->virtual_memory;
    if (!any)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!ptr || size_bytes == 0 || !multiple(size_bytes, granule) || !multiple(hint, granule))
        return sim_refuse(CUDA_ERROR_INVALID_VALUE,
                          "cuMemAddressReserve: size 0x%llx, address 0x%llx, granule 0x%llx",
                          (unsigned long long)size_bytes, hint, (unsigned long long)granule);
    if ((alignment & (alignment - 1)) != 0 || flags != 0)
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemAddressReserve: alignment 0x%llx, flags 0x%llx",
                          (unsigned long long)alignment, flags);
    uint64_t aligned = alignment > granule ? alignment : granule;
    /* no more aligned than requested; a hint is no promise */
    uint64_t base = sim_space_take(size_bytes, aligned * 2, aligned, hint && hint % aligned == 0 ? hint : 0);
    if (!base)
        base = sim_space_take(size_bytes, aligned, 0, 0);
    if (!base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!add_reservation(base, size_bytes))
        abort();
    *ptr = base;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                     unsigned long long flags)
{
    struct sim_call call = sim_enter(SIM_cuMemAddressReserve, SIM_UNSAFE);
    return sim_leave(call.result ? call.result : reserve(ptr, size, alignment, addr, flags));
}

static CUresult unreserve(CUdeviceptr ptr, uint64_t size_bytes)
{
    const struct sim_reservation *found = sim_reservation_find(ptr);
    if (!found || found->base != ptr || found->size_bytes != size_bytes)
        return sim_refuse(CUDA_ERROR_INVALID_VALUE,
                          "cuMemAddressFree: [0x%llx, +0x%llx) is not a whole reservation", ptr,
                          (unsigned long long)size_bytes);
    if (!sim_map_none(ptr, size_bytes))
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemAddressFree: [0x%llx, +0x%llx) has mappings in it",
                          ptr, (unsigned long long)size_bytes);
    reserved.reservations[found - reserved.reservations] = reserved.reservations[--reserved.count];
    sim_space_free(ptr);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    struct sim_call call = sim_enter(SIM_cuMemAddressFree, SIM_UNSAFE);
    return sim_leave(call.result ? call.result : unreserve(ptr, size));
}

/* ---- handles ---- */

static struct memory *memory_of(CUmemGenericAllocationHandle handle, const char *function)
{
    bool ended;
    struct memory *memory = sim_handle_object(handle, SIM_HANDLE_MEMORY, &ended);
    if (!memory)
        (void)sim_refuse(CUDA_ERROR_INVALID_VALUE, "%s: 0x%llx %s", function, handle,
                         ended ? "was released before" : "is no handle of cuMemCreate");
    return memory;
}

static CUresult create(CUmemGenericAllocationHandle *handle, uint64_t size_bytes,
                       const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult result = check_property(prop);
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || flags != 0 || size_bytes == 0 ||
        !multiple(size_bytes, sim_gpu(prop->location.id)->granule_min_bytes))
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemCreate: size 0x%llx, flags 0x%llx",
                          (unsigned long long)size_bytes, flags);
    struct memory *memory = malloc(sizeof(*memory));
    struct sim_physical *physical = memory ? sim_physical_create(prop->location.id, size_bytes) : NULL;
    if (!physical) {
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *memory = (struct memory){.references = 1, .physical = physical};
    memory->handle = sim_handle_make(SIM_HANDLE_MEMORY, memory);
    *handle = memory->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct sim_call call = sim_enter(SIM_cuMemCreate, SIM_UNSAFE);
    return sim_leave(call.result ? call.result : create(handle, size, prop, flags));
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct sim_call call = sim_enter(SIM_cuMemRelease, SIM_UNSAFE);
    struct memory *memory = call.result == CUDA_SUCCESS ? memory_of(handle, "cuMemRelease") : NULL;
    if (call.result == CUDA_SUCCESS && !memory)
        call.result = CUDA_ERROR_INVALID_VALUE;
    if (memory && --memory->references == 0) {
        sim_handle_end(handle);
        sim_physical_unref(memory->physical); /* mappings keep it */
        free(memory);
    }
    return sim_leave(call.result);
}

static CUresult retain(CUmemGenericAllocationHandle *handle, uint64_t address)
{
    const struct sim_mapping *mapping = sim_map_find(address);
    if (!handle || !mapping || mapping->kind != SIM_MEMORY_VIRTUAL)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t cursor = 0;
    for (struct memory *memory; (memory = sim_handle_next(SIM_HANDLE_MEMORY, &cursor)) != NULL;) {
        if (memory->physical != mapping->physical)
            continue;
        memory->references++;
        *handle = memory->handle;
        return CUDA_SUCCESS;
    }
    /* The handle was released and would have to come back with the same value; handles are never given
     * twice here. */
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    struct sim_call call = sim_enter(SIM_cuMemRetainAllocationHandle, SIM_UNSAFE);
    return sim_leave(call.result ? call.result : retain(handle, (uintptr_t)addr));
}

/* ---- mappings ---- */

static bool inside(const struct sim_reservation *reservation, uint64_t address, uint64_t size_bytes)
{
    return reservation && size_bytes <= reservation->base + reservation->size_bytes - address;
}

static CUresult map(CUdeviceptr ptr, uint64_t size_bytes, uint64_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    const struct memory *memory = memory_of(handle, "cuMemMap");
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t granule = sim_gpu(memory->physical->device)->granule_min_bytes;
    const char *wrong = NULL;
    if (size_bytes == 0 || !multiple(size_bytes, granule) || !multiple(ptr, granule) || offset != 0 ||
        flags != 0)
        wrong = "not multiples of the granule, or an offset or flags";
    else if (size_bytes > memory->physical->size_bytes)
        wrong = "larger than the allocation";
    else if (!inside(sim_reservation_find(ptr), ptr, size_bytes))
        wrong = "not within one reservation";
    else if (!sim_map_none(ptr, size_bytes))
        wrong = "something is mapped there";
    if (wrong)
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemMap: [0x%llx, +0x%llx): %s", ptr,
                          (unsigned long long)size_bytes, wrong);
    struct sim_mapping mapping = {.base = ptr,
                                  .size_bytes = size_bytes,
                                  .kind = SIM_MEMORY_VIRTUAL,
                                  .device = memory->physical->device,
                                  .physical = memory->physical};
    sim_physical_ref(memory->physical);
    if (!sim_map_add(&mapping))
        abort();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
    struct sim_call call = sim_enter(SIM_cuMemMap, SIM_UNSAFE);
    return sim_leave(call.result ? call.result : map(ptr, size, offset, handle, flags));
}

/* Returns true if the span consists of whole mappings of one reservation, without a gap. */
static bool covered(uint64_t address, uint64_t size_bytes)
{
    if (size_bytes == 0 || !inside(sim_reservation_find(address), address, size_bytes))
        return false;
    for (uint64_t at = address; at < address + size_bytes;) {
        const struct sim_mapping *mapping = sim_map_find(at);
        if (!mapping || mapping->base != at || mapping->size_bytes > address + size_bytes - at)
            return false;
        at += mapping->size_bytes;
    }
    return true;
}

static CUresult unmap(CUdeviceptr ptr, uint64_t size_bytes)
{
    if (!covered(ptr, size_bytes))
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemUnmap: [0x%llx, +0x%llx) is not whole mappings",
                          ptr, (unsigned long long)size_bytes);
    for (uint64_t at = ptr; at < ptr + size_bytes;) {
        struct sim_mapping *mapping = sim_map_find(at);
        at += mapping->size_bytes;
        sim_check_unused(mapping, "cuMemUnmap");
        sim_map_remove(mapping);
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    struct sim_call call = sim_enter(SIM_cuMemUnmap, SIM_UNSAFE);
    return sim_leave(call.result ? call.result : unmap(ptr, size));
}

/* ---- access ---- */

static CUresult check_access(const CUmemAccessDesc *desc, int device)
{
    CUresult result = check_location(&desc->location);
    if (result != CUDA_SUCCESS)
        return result;
    switch ((int)desc->flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
        break;
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
        result = sim_gpu(device)->read_refused;
        break;
    default:
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemSetAccess: flags 0x%x", (unsigned)desc->flags);
    }
    if (result == CUDA_SUCCESS && !sim_peer(desc->location.id, device))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS) /* the call reports errors of earlier work, too */
        result = sim.devices[desc->location.id].primary.lost;
    return result;
}

static void set_access(struct sim_mapping *mapping, const CUmemAccessDesc *desc, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned access = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? 0
                          : desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ
                              ? MOOR_CUDASIM_READ
                              : MOOR_CUDASIM_READ | MOOR_CUDASIM_WRITE;
        mapping->access[desc[i].location.id] = (unsigned char)access;
    }
}

static CUresult change_access(CUdeviceptr ptr, uint64_t size_bytes, const CUmemAccessDesc *desc, size_t count)
{
    if (!desc || count == 0)
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemSetAccess: no location");
    if (!covered(ptr, size_bytes))
        return sim_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemSetAccess: [0x%llx, +0x%llx) is not whole mappings",
                          ptr, (unsigned long long)size_bytes);
    for (uint64_t at = ptr; at < ptr + size_bytes;) {
        const struct sim_mapping *mapping = sim_map_find(at);
        for (size_t i = 0; i < count; i++) {
            CUresult result = check_access(&desc[i], mapping->device);
            if (result != CUDA_SUCCESS)
                return result;
        }
        at += mapping->size_bytes;
    }
    for (uint64_t at = ptr; at < ptr + size_bytes;) {
        struct sim_mapping *mapping = sim_map_find(at);
        set_access(mapping, desc, count);
        at += mapping->size_bytes;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    struct sim_call call = sim_enter(SIM_cuMemSetAccess, SIM_UNSAFE);
    return sim_leave(call.result ? call.result : change_access(ptr, size, desc, count));
}

static CUresult get_access(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    const struct sim_mapping *mapping = sim_map_find(ptr);
    if (!flags || !location || !mapping || mapping->kind != SIM_MEMORY_VIRTUAL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_location(location);
    if (result != CUDA_SUCCESS)
        return result;
    unsigned access = mapping->access[location->id];
    *flags = access & MOOR_CUDASIM_WRITE ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : access                    ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    struct sim_call call = sim_enter(SIM_cuMemGetAccess, 0);
    return sim_leave(call.result ? call.result : get_access(flags, location, ptr));
}

/* ---- counts ---- */

uint64_t sim_reservation_count(void)
{
    return reserved.count;
}
