/* SPDX-License-Identifier: MIT */
/*
 * SHARED: a segment is one handle of physical memory, mapped as a whole wherever it is wanted. It is zeroed
 * when it is made, at addresses that are only there for that.
 *
 * What a segment that could not be made has left, because undoing failed too, is a scrap of its device: tried
 * again with the next one, and when the device closes.
 */
#include "provider.h"
#include <errno.h>
#include <stdlib.h>

/* ---- scraps: physical memory and where it is mapped for a moment ---- */

struct cuda_scrap {
    struct cuda_scrap *next; /* by device->lock */
    uint64_t bytes;
    CUmemGenericAllocationHandle memory;
    uint64_t address;
    bool has_memory;
    bool has_address;
    bool is_mapped;
};

static int32_t put_away(struct cuda_device *device, struct cuda_scrap *scrap, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    int32_t status = MOOR_OK;
    if (scrap->is_mapped) {
        CUresult code = driver->cuMemUnmap(scrap->address, scrap->bytes);
        status = cuda_check_free(device, code, "cuMemUnmap", error);
        scrap->is_mapped = status != MOOR_OK;
        if (status == MOOR_OK && code != CUDA_SUCCESS)
            scrap->has_address = false; /* they stay with a lost device, as the mapping does */
    }
    if (status == MOOR_OK && scrap->has_address) {
        status = cuda_check_free(device, driver->cuMemAddressFree(scrap->address, scrap->bytes),
                                 "cuMemAddressFree", error);
        scrap->has_address = status != MOOR_OK;
    }
    return status;
}

/* The scrap goes, now or later. A scope of the device is entered. */
static void discard(struct cuda_device *device, struct cuda_scrap *scrap)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = put_away(device, scrap, &error);
    if (!scrap->is_mapped && scrap->has_memory) { /* memory first: addresses can wait */
        int32_t released = cuda_check_free(device, cuda_driver_of(device)->cuMemRelease(scrap->memory),
                                           "cuMemRelease", &error);
        scrap->has_memory = released != MOOR_OK;
        status = status == MOOR_OK ? released : status;
    }
    if (status == MOOR_OK) {
        free(scrap);
        return;
    }
    cuda_log(device->instance, MOOR_ABI_LOG_WARNING, "undoing a segment failed, it is tried again: %s",
             error.text);
    pthread_mutex_lock(&device->lock);
    scrap->next = device->scraps;
    device->scraps = scrap;
    pthread_mutex_unlock(&device->lock);
}

bool cuda_scraps_discard(struct cuda_device *device)
{
    pthread_mutex_lock(&device->lock);
    struct cuda_scrap *scraps = device->scraps;
    device->scraps = NULL;
    pthread_mutex_unlock(&device->lock);
    bool had_any = scraps != NULL;
    while (scraps) {
        struct cuda_scrap *scrap = scraps;
        scraps = scrap->next;
        if (cuda_has_gone(device))
            free(scrap);
        else
            discard(device, scrap);
    }
    return had_any;
}

static int32_t map_scrap(struct cuda_device *device, struct cuda_scrap *scrap, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    CUdeviceptr address = 0;
    int32_t status = cuda_check(
        device, driver->cuMemAddressReserve(&address, scrap->bytes, device->granule_min_bytes, 0, 0),
        MOOR_NO_VA, "cuMemAddressReserve", error);
    if (status != MOOR_OK)
        return status;
    scrap->address = address;
    scrap->has_address = true;
    status = cuda_memory_map(device, address, scrap->bytes, scrap->memory, error);
    if (status != MOOR_OK)
        return status;
    scrap->is_mapped = true;
    return cuda_check(device,
                      cuda_set_access(device, address, scrap->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                      MOOR_DEVICE_NOMEM, "cuMemSetAccess", error);
}

/* Zeroed memory, mapped nowhere. On success the scrap is its record and nothing else is left of it. */
static int32_t make_memory(struct cuda_device *device, struct cuda_scrap *scrap, struct moor_abi_error *error)
{
    int32_t status = cuda_memory_create(device, scrap->bytes, &scrap->memory, error);
    if (status != MOOR_OK)
        return status;
    scrap->has_memory = true;
    status = map_scrap(device, scrap, error);
    if (status == MOOR_OK)
        status = cuda_zero(device, scrap->address, scrap->bytes, error);
    if (status == MOOR_OK)
        status = put_away(device, scrap, error);
    return status;
}

/* ---- create and free ---- */

static int32_t create_in_scope(struct moor_abi_context *context, struct cuda_segment *segment,
                               struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    (void)cuda_scraps_discard(device);
    struct cuda_scrap *scrap = calloc(1, sizeof(*scrap));
    if (!scrap)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a segment's record");
    scrap->bytes = segment->bytes;
    int32_t status = make_memory(device, scrap, error);
    segment->memory = scrap->memory;
    if (status == MOOR_OK)
        status = moor_kit_handles_add(context->handles, CUDA_SEGMENT, segment, 0, &segment->handle, error);
    if (status == MOOR_OK)
        free(scrap);
    else
        discard(device, scrap);
    return status;
}

static int32_t create(struct moor_abi_context *context, const struct moor_abi_segment_args *args,
                      struct moor_abi_segment *ret_segment, struct moor_abi_error *error)
{
    uint64_t least = context->device->granule_min_bytes;
    int32_t status = moor_kit_check_segment(args, least ? least : 1, error);
    if (status == MOOR_OK)
        status = cuda_check_virtual(context, args->domain, error);
    if (status == MOOR_OK)
        status = moor_kit_check_out(ret_segment, MOOR_ABI_SEGMENT_SIZE, "segment", error);
    if (status == MOOR_OK && args->size_bytes > context->device->total_bytes)
        status = moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0, "%llu bytes are more than the device's %llu",
                               (unsigned long long)args->size_bytes,
                               (unsigned long long)context->device->total_bytes);
    if (status != MOOR_OK)
        return status;
    struct cuda_segment *segment = calloc(1, sizeof(*segment));
    if (!segment)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a segment's record");
    segment->bytes = args->size_bytes;
    struct cuda_scope scope;
    status = cuda_enter(context->device, &scope, error);
    if (status == MOOR_OK) {
        status = create_in_scope(context, segment, error);
        cuda_leave(&scope);
    }
    if (status != MOOR_OK) {
        free(segment);
        return status;
    }
    atomic_fetch_add(&context->held_bytes[CUDA_DOMAIN_DEVICE], segment->bytes);
    struct moor_abi_segment result = {MOOR_ABI_SEGMENT_SIZE, 0, segment->handle, segment->bytes};
    return moor_kit_fill_out(ret_segment, &result, MOOR_ABI_SEGMENT_SIZE, MOOR_ABI_SEGMENT_SIZE, "segment",
                             error);
}

int32_t cuda_segment_free(struct moor_abi_context *context, struct cuda_segment *segment, uint64_t *ret_bytes,
                          struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    CUresult code = cuda_has_gone(device) ? CUDA_ERROR_DEINITIALIZED
                                          : cuda_driver_of(device)->cuMemRelease(segment->memory);
    int32_t status = cuda_check_free(device, code, "cuMemRelease", error);
    if (status != MOOR_OK)
        return status;
    atomic_fetch_sub(&context->held_bytes[CUDA_DOMAIN_DEVICE], segment->bytes);
    *ret_bytes = segment->bytes;
    moor_kit_handles_remove(context->handles, segment->handle);
    free(segment);
    return MOOR_OK;
}

/* ---- map and protect ---- */

static CUmemAccess_flags to_flags(uint32_t access)
{
    return access == MOOR_ABI_ACCESS_READ ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                          : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* A device that cannot do read-only says so in one of two ways; read and write is no answer to it. */
static int32_t give_access(struct cuda_device *device, uint64_t address, uint64_t bytes,
                           CUmemAccess_flags flags, struct moor_abi_error *error)
{
    CUresult code = cuda_set_access(device, address, bytes, flags);
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_READ &&
        (code == CUDA_ERROR_INVALID_VALUE || code == CUDA_ERROR_NOT_SUPPORTED))
        return moor_kit_fail(error, MOOR_UNSUPPORTED, code, "the device has no read-only mappings");
    return cuda_check(device, code, MOOR_DEVICE_NOMEM, "cuMemSetAccess", error);
}

int32_t cuda_segment_unmap(struct moor_abi_context *context, struct cuda_range *range, uint64_t first,
                           struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    struct cuda_mapping *mapping = range->mappings[first];
    CUresult code = cuda_has_gone(device)
                        ? CUDA_ERROR_DEINITIALIZED
                        : cuda_driver_of(device)->cuMemUnmap(
                              range->kit.address + first * range->kit.granule_bytes, mapping->segment->bytes);
    int32_t status = cuda_check_free(device, code, "cuMemUnmap", error);
    if (status != MOOR_OK)
        return status;
    if (code != CUDA_SUCCESS)
        atomic_store(&range->is_kept, true);
    moor_kit_handles_put(context->handles, mapping->segment->handle);
    range->mappings[first] = NULL;
    free(mapping);
    return MOOR_OK;
}

static void drop_map(struct moor_abi_context *context, const struct moor_abi_map_args *args)
{
    moor_kit_handles_put(context->handles, args->segment);
    moor_kit_handles_put(context->handles, args->range);
}

/* Looks up both ends of a map; they are borrowed until drop_map. */
static int32_t get_map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct cuda_range **ret_range, struct cuda_segment **ret_segment,
                       struct moor_abi_error *error)
{
    void *segment = NULL;
    struct moor_kit_range *range = NULL;
    int32_t status = moor_kit_check_map(args, error);
    if (status == MOOR_OK)
        status = moor_kit_handles_get(context->handles, args->segment, CUDA_SEGMENT, &segment, error);
    if (status != MOOR_OK)
        return status;
    *ret_segment = segment;
    status = moor_kit_range_get(context->handles, args->range, CUDA_RANGE, args->offset_bytes,
                                (*ret_segment)->bytes, &range, error);
    if (status == MOOR_OK)
        *ret_range = (struct cuda_range *)range;
    else
        moor_kit_handles_put(context->handles, args->segment);
    return status;
}

/* The granules are BUSY; on failure what there is of the map is in range->mappings. */
static int32_t map_busy(struct cuda_device *device, struct cuda_range *range, struct cuda_segment *segment,
                        uint64_t first, CUmemAccess_flags flags, struct moor_abi_error *error)
{
    struct cuda_mapping *mapping = calloc(1, sizeof(*mapping));
    if (!mapping)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a mapping's record");
    uint64_t address = range->kit.address + first * range->kit.granule_bytes;
    int32_t status = cuda_memory_map(device, address, segment->bytes, segment->memory, error);
    if (status != MOOR_OK) {
        free(mapping);
        return status;
    }
    *mapping = (struct cuda_mapping){segment, flags};
    range->mappings[first] = mapping;
    return give_access(device, address, segment->bytes, flags, error);
}

/* ret_has_segment: the mapping has it from here on, also one that has failed and is undone already, or stuck. */
static int32_t map_in_scope(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                            struct cuda_range *range, struct cuda_segment *segment, bool *ret_has_segment,
                            struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    uint64_t first = args->offset_bytes / range->kit.granule_bytes;
    uint64_t count = segment->bytes / range->kit.granule_bytes;
    CUmemAccess_flags flags = to_flags(args->access);
    int32_t status = cuda_range_claim(context, range, first, count, error);
    if (status != MOOR_OK)
        return status;
    uint64_t openings = atomic_load(&context->instance->openings);
    status = map_busy(device, range, segment, first, flags, error);
    *ret_has_segment = range->mappings[first] != NULL;
    if (status == MOOR_OK) {
        cuda_range_publish(device, range, first, count, MOOR_KIT_GRANULE_MAPPED, flags, openings);
        return MOOR_OK;
    }
    if (range->mappings[first])
        (void)cuda_segment_unmap(context, range, first, NULL); /* the first failure is what is told */
    moor_kit_range_settle(&range->kit, first, count,
                          range->mappings[first] ? MOOR_KIT_GRANULE_STUCK : MOOR_KIT_GRANULE_FREE);
    return status;
}

static int32_t map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                   struct moor_abi_error *error)
{
    struct cuda_range *range = NULL;
    struct cuda_segment *segment = NULL;
    int32_t status = get_map(context, args, &range, &segment, error);
    if (status != MOOR_OK)
        return status;
    bool has_segment = false;
    struct cuda_scope scope;
    status = cuda_enter(context->device, &scope, error);
    if (status == MOOR_OK) {
        status = map_in_scope(context, args, range, segment, &has_segment, error);
        cuda_leave(&scope);
    }
    if (!has_segment)
        moor_kit_handles_put(context->handles, args->segment);
    moor_kit_handles_put(context->handles, args->range);
    return status;
}

/* From MAPPED to BUSY, so that it is neither unmapped nor protected meanwhile. */
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

static int32_t protect_in_scope(struct cuda_device *device, const struct moor_abi_map_args *args,
                                struct cuda_range *range, const struct cuda_segment *segment,
                                struct moor_abi_error *error)
{
    uint64_t first = args->offset_bytes / range->kit.granule_bytes;
    uint64_t address = range->kit.address + args->offset_bytes;
    struct cuda_mapping *mapping = claim_mapping(range, segment, first);
    if (!mapping)
        return moor_kit_fail(error, MOOR_INVALID, 0, "the segment is not mapped at offset %llu",
                             (unsigned long long)args->offset_bytes);
    uint64_t openings = atomic_load(&device->instance->openings);
    int32_t status = give_access(device, address, segment->bytes, to_flags(args->access), error);
    if (status == MOOR_OK)
        mapping->access = to_flags(args->access);
    else /* of several devices some may have changed; the first failure is what is told */
        (void)cuda_set_access(device, address, segment->bytes, mapping->access);
    cuda_range_publish(device, range, first, segment->bytes / range->kit.granule_bytes,
                       MOOR_KIT_GRANULE_MAPPED, mapping->access, openings);
    return status;
}

static int32_t protect(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct moor_abi_error *error)
{
    struct cuda_range *range = NULL;
    struct cuda_segment *segment = NULL;
    int32_t status = get_map(context, args, &range, &segment, error);
    if (status != MOOR_OK)
        return status;
    struct cuda_scope scope;
    status = cuda_enter(context->device, &scope, error);
    if (status == MOOR_OK) {
        status = protect_in_scope(context->device, args, range, segment, error);
        cuda_leave(&scope);
    }
    drop_map(context, args);
    return status;
}

const struct moor_abi_shared_table cuda_shared_table = {
    .struct_size = MOOR_ABI_SHARED_TABLE_SIZE,
    .create = create,
    .map = map,
    .protect = protect,
};
