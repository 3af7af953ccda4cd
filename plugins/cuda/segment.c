/* SPDX-License-Identifier: MIT */
/*
 * SHARED: a segment is one handle of physical memory, mapped as a whole wherever the host maps it. The memory
 * is zeroed when the segment is made, at scratch addresses that exist only for that (vmm.c).
 */
#include "memory.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* ---- create and free ---- */

static int32_t map_scratch(struct cuda_device *device, struct cuda_scratch *scratch,
                           struct moor_abi_error *error)
{
    int32_t status = cuda_addresses_reserve(device, scratch->bytes, device->traits.granule_min_bytes,
                                            &scratch->address, error);
    if (status)
        return status;
    scratch->has_address = true;
    status = cuda_memory_map(device, scratch->address, scratch->bytes, scratch->memory, error);
    if (status)
        return status;
    scratch->is_mapped = true;
    CUresult code =
        cuda_set_access(device, scratch->address, scratch->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return cuda_check(device, code, MOOR_DEVICE_NOMEM, "cuMemSetAccess", error);
}

/* Makes zeroed memory. On success the scratch holds the memory alone, mapped nowhere. */
static int32_t create_memory(struct cuda_device *device, struct cuda_scratch *scratch,
                             struct moor_abi_error *error)
{
    int32_t status = cuda_memory_create(device, scratch->bytes, &scratch->memory, error);
    if (status)
        return status;
    scratch->has_memory = true;
    status = map_scratch(device, scratch, error);
    if (status == MOOR_OK)
        status = cuda_zero(device, scratch->address, scratch->bytes, error);
    if (status == MOOR_OK)
        status = cuda_scratch_unmap(device, scratch, error);
    return status;
}

static int32_t create_in_scope(struct moor_abi_context *context, struct cuda_segment *segment,
                               struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    (void)cuda_leaked_retry(device);
    struct cuda_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "segment: no memory for its record");
    scratch->bytes = segment->bytes;
    int32_t status = create_memory(device, scratch, error);
    segment->memory = scratch->memory;
    if (status == MOOR_OK)
        status =
            moor_kit_handles_add(context->kit.handles, MOOR_KIT_SEGMENT, segment, 0, &segment->handle, error);
    if (status == MOOR_OK)
        free(scratch);
    else
        cuda_scratch_discard(device, scratch);
    return status;
}

static int32_t create(struct moor_abi_context *context, const struct moor_abi_segment_args *args,
                      struct moor_abi_segment *ret_segment, struct moor_abi_error *error)
{
    const struct cuda_traits *traits = &context->device->traits;
    uint64_t least = traits->granule_min_bytes;
    int32_t status = moor_kit_check_segment(args, least ? least : 1, error);
    if (status == MOOR_OK)
        status = cuda_check_virtual(context->device, args->domain, error);
    if (status == MOOR_OK)
        status = moor_kit_check_out(ret_segment, MOOR_ABI_SEGMENT_SIZE, "segment", error);
    if (status == MOOR_OK && args->size_bytes > traits->total_bytes)
        status =
            moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0, "segment: %llu bytes are more than the device's %llu",
                          (unsigned long long)args->size_bytes, (unsigned long long)traits->total_bytes);
    if (status)
        return status;
    struct cuda_segment *segment = calloc(1, sizeof *segment);
    if (!segment)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "segment: no memory for its record");
    segment->bytes = args->size_bytes;
    struct cuda_scope scope;
    status = cuda_enter(context->device, &scope, error);
    if (status == MOOR_OK) {
        status = create_in_scope(context, segment, error);
        cuda_leave(&scope);
    }
    if (status) {
        free(segment);
        return status;
    }
    moor_kit_held_add(context, CUDA_DOMAIN_DEVICE, segment->bytes);
    struct moor_abi_segment result = {MOOR_ABI_SEGMENT_SIZE, 0, segment->handle, segment->bytes};
    return moor_kit_fill_out(ret_segment, &result, MOOR_ABI_SEGMENT_SIZE, MOOR_ABI_SEGMENT_SIZE, "segment",
                             error);
}

int32_t cuda_segment_free(struct moor_abi_context *context, struct cuda_segment *segment, uint64_t *ret_bytes,
                          struct moor_abi_error *error)
{
    int32_t status = cuda_memory_release(context->device, segment->memory, error);
    if (status)
        return status;
    moor_kit_held_sub(context, CUDA_DOMAIN_DEVICE, segment->bytes);
    *ret_bytes = segment->bytes;
    moor_kit_handles_remove(context->kit.handles, segment->handle);
    free(segment);
    return MOOR_OK;
}

/* ---- map and protect ---- */

static CUmemAccess_flags to_flags(uint32_t access)
{
    return access == MOOR_ABI_ACCESS_READ ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                          : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* A device without read-only mappings answers with one of two codes. The caller did not ask for
 * write access, so the map is UNSUPPORTED. */
static int32_t set_access(struct cuda_device *device, uint64_t address, uint64_t bytes,
                          CUmemAccess_flags flags, struct moor_abi_error *error)
{
    CUresult code = cuda_set_access(device, address, bytes, flags);
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_READ &&
        (code == CUDA_ERROR_INVALID_VALUE || code == CUDA_ERROR_NOT_SUPPORTED))
        return moor_kit_fail(error, MOOR_UNSUPPORTED, code, "map: the device has no read-only mappings");
    return cuda_check(device, code, MOOR_DEVICE_NOMEM, "cuMemSetAccess", error);
}

/* Maps the segment at BUSY granules. After a failure the parts that were made are in range->mappings. */
static int32_t map_busy(struct moor_abi_context *context, struct cuda_range *range,
                        struct cuda_segment *segment, uint64_t first, CUmemAccess_flags flags,
                        struct moor_abi_error *error)
{
    uint64_t address = cuda_granule_address(range, first);
    void *borrowed = NULL;
    assert(!range->mappings[first] && !range->pages[first]);
    struct cuda_mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "mapping: no memory for its record");
    int32_t status = cuda_memory_map(context->device, address, segment->bytes, segment->memory, error);
    if (status) {
        free(mapping);
        return status;
    }
    int32_t got =
        moor_kit_handles_get(context->kit.handles, segment->handle, MOOR_KIT_SEGMENT, &borrowed, NULL);
    assert(got == MOOR_OK && borrowed == segment); /* borrowed by the call, so not claimed */
    *mapping = (struct cuda_mapping){segment, flags};
    range->mappings[first] = mapping;
    return set_access(context->device, address, segment->bytes, flags, error);
}

static int32_t map_in_scope(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                            struct cuda_range *range, struct cuda_segment *segment,
                            struct moor_abi_error *error)
{
    uint64_t first = args->offset_bytes / range->kit.granule_bytes;
    uint64_t count = segment->bytes / range->kit.granule_bytes;
    CUmemAccess_flags flags = to_flags(args->access);
    int32_t status = cuda_range_claim(context, range, first, count, error);
    if (status)
        return status;
    uint64_t openings = atomic_load(&context->kit.instance->openings);
    status = map_busy(context, range, segment, first, flags, error);
    if (status == MOOR_OK) {
        cuda_range_publish(context->device, range, first, count, MOOR_KIT_GRANULE_MAPPED, flags, openings);
        return MOOR_OK;
    }
    if (range->mappings[first])
        (void)cuda_mapping_remove(context, range, first, NULL); /* the first failure is reported */
    moor_kit_range_settle(&range->kit, first, count,
                          range->mappings[first] ? MOOR_KIT_GRANULE_STUCK : MOOR_KIT_GRANULE_FREE);
    return status;
}

/* Moves a mapping of the segment from MAPPED to BUSY, so that no call unmaps or protects it meanwhile. NULL:
 * there is none. */
static struct cuda_mapping *claim_mapping(struct cuda_range *range, const struct cuda_segment *segment,
                                          uint64_t first)
{
    pthread_mutex_lock(&range->kit.lock);
    uint64_t count = moor_kit_range_mapping(&range->kit, first);
    struct cuda_mapping *mapping = count > 0 ? range->mappings[first] : NULL;
    if (mapping && mapping->segment != segment)
        mapping = NULL;
    if (mapping)
        moor_kit_range_set(&range->kit, first, count, MOOR_KIT_GRANULE_BUSY);
    pthread_mutex_unlock(&range->kit.lock);
    return mapping;
}

static int32_t protect_in_scope(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                                struct cuda_range *range, struct cuda_segment *segment,
                                struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    uint64_t first = args->offset_bytes / range->kit.granule_bytes;
    uint64_t address = cuda_granule_address(range, first);
    struct cuda_mapping *mapping = claim_mapping(range, segment, first);
    if (!mapping)
        return moor_kit_fail(error, MOOR_INVALID, 0, "protect: the segment is not mapped at offset %llu",
                             (unsigned long long)args->offset_bytes);
    uint64_t openings = atomic_load(&device->instance->openings);
    int32_t status = set_access(device, address, segment->bytes, to_flags(args->access), error);
    if (status == MOOR_OK)
        mapping->access = to_flags(args->access);
    else /* the access of some devices may have changed already; the first failure is reported */
        (void)cuda_set_access(device, address, segment->bytes, mapping->access);
    cuda_range_publish(device, range, first, segment->bytes / range->kit.granule_bytes,
                       MOOR_KIT_GRANULE_MAPPED, mapping->access, openings);
    return status;
}

/* Borrows the range and the segment, and runs the step in a scope. */
static int32_t run_step(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                        int32_t (*step)(struct moor_abi_context *context,
                                        const struct moor_abi_map_args *args, struct cuda_range *range,
                                        struct cuda_segment *segment, struct moor_abi_error *error),
                        struct moor_abi_error *error)
{
    struct moor_kit_handles *handles = context->kit.handles;
    struct moor_kit_range *range = NULL;
    void *segment = NULL;
    struct cuda_scope scope;
    int32_t status = moor_kit_check_map(args, error);
    if (status == MOOR_OK)
        status = moor_kit_handles_get(handles, args->segment, MOOR_KIT_SEGMENT, &segment, error);
    if (status)
        return status;
    status = moor_kit_range_get(handles, args->range, MOOR_KIT_RANGE, args->offset_bytes,
                                ((struct cuda_segment *)segment)->bytes, &range, error);
    if (status)
        goto put_segment;
    status = cuda_enter(context->device, &scope, error);
    if (status)
        goto put_range;
    status = step(context, args, (struct cuda_range *)range, segment, error);
    cuda_leave(&scope);
put_range:
    moor_kit_handles_put(handles, args->range);
put_segment:
    moor_kit_handles_put(handles, args->segment);
    return status;
}

static int32_t map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                   struct moor_abi_error *error)
{
    return run_step(context, args, map_in_scope, error);
}

static int32_t protect(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct moor_abi_error *error)
{
    return run_step(context, args, protect_in_scope, error);
}

MOOR_KIT_TABLE(shared, cuda_shared_table, .create = create, .map = map, .protect = protect);
