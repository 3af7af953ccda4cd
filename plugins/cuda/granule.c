/* SPDX-License-Identifier: MIT */
/*
 * The memory at single granules of a range. Each granule is mapped separately, so that each can be unmapped
 * alone: the driver unmaps exactly the spans that were mapped.
 *
 * A granule is STUCK if undoing it failed: no caller owns it. Undoing is tried again before the range takes
 * memory and before the range goes.
 */
#include "memory.h"
#include <assert.h>
#include <stdlib.h>

int32_t cuda_granule_back(struct cuda_device *device, struct cuda_range *range, uint64_t index,
                          struct moor_abi_error *error)
{
    struct cuda_page *page = NULL;
    assert(!range->pages[index] && !range->mappings[index]);
    int32_t status = cuda_page_acquire(device, range->kit.granule_bytes, &page, error);
    if (status)
        return status;
    range->pages[index] = page;
    status = cuda_memory_map(device, cuda_granule_address(range, index), range->kit.granule_bytes,
                             page->memory, error);
    page->is_mapped = status == MOOR_OK;
    return status;
}

static int32_t unmap(struct cuda_device *device, struct cuda_range *range, uint64_t first, uint64_t bytes,
                     struct moor_abi_error *error)
{
    bool is_kept = false;
    int32_t status = cuda_memory_unmap(device, cuda_granule_address(range, first), bytes, &is_kept, error);
    if (status == MOOR_OK && is_kept)
        atomic_store(&range->is_kept, true);
    return status;
}

int32_t cuda_granule_drop(struct cuda_device *device, struct cuda_range *range, uint64_t index,
                          struct moor_abi_error *error)
{
    struct cuda_page *page = range->pages[index];
    if (!page)
        return MOOR_OK;
    if (page->is_mapped) {
        int32_t status = unmap(device, range, index, range->kit.granule_bytes, error);
        if (status)
            return status;
        page->is_mapped = false;
    }
    int32_t status = cuda_page_return(device, range->kit.granule_bytes, page, error);
    if (status == MOOR_OK)
        range->pages[index] = NULL;
    return status;
}

int32_t cuda_mapping_remove(struct moor_abi_context *context, struct cuda_range *range, uint64_t first,
                            struct moor_abi_error *error)
{
    struct cuda_mapping *mapping = range->mappings[first];
    assert(mapping && !range->pages[first]);
    int32_t status = unmap(context->device, range, first, mapping->segment->bytes, error);
    if (status)
        return status;
    moor_kit_handles_put(context->kit.handles, mapping->segment->handle);
    range->mappings[first] = NULL;
    free(mapping);
    return MOOR_OK;
}

/* The driver is called with the range's lock held: that delays other calls in this rare case alone. */
int32_t cuda_range_unstick(struct moor_abi_context *context, struct cuda_range *range,
                           struct moor_abi_error *error)
{
    int32_t status = MOOR_OK;
    pthread_mutex_lock(&range->kit.lock);
    for (uint64_t i = 0; status == MOOR_OK && range->kit.stuck_count > 0; i++) {
        assert(i < range->kit.size_bytes / range->kit.granule_bytes);
        if (range->kit.states[i] != MOOR_KIT_GRANULE_STUCK)
            continue;
        status = cuda_granule_drop(context->device, range, i, error);
        if (status == MOOR_OK && range->mappings[i])
            status = cuda_mapping_remove(context, range, i, error);
        if (status == MOOR_OK)
            moor_kit_range_set(&range->kit, i, 1, MOOR_KIT_GRANULE_FREE);
    }
    pthread_mutex_unlock(&range->kit.lock);
    return status;
}

int32_t cuda_range_claim(struct moor_abi_context *context, struct cuda_range *range, uint64_t first,
                         uint64_t count, struct moor_abi_error *error)
{
    struct moor_abi_error reason = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t stuck = cuda_range_unstick(context, range, &reason);
    int32_t status = moor_kit_range_claim(&range->kit, first, count, error);
    if (status && stuck) /* a STUCK granule may be the reason; elsewhere in the range it hinders no call */
        status = moor_kit_fail(error, stuck, reason.native_code, "%s", reason.text);
    return status;
}
