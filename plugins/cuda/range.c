/* SPDX-License-Identifier: MIT */
/*
 * VIRTUAL: a range is a reservation of addresses, with one state and one handle of physical memory per
 * granule. Each granule is mapped by itself, so that each can go by itself: the driver unmaps exactly what it
 * has mapped.
 *
 * A granule changes state under the range's lock; the driver is called without it, in a state that nobody
 * else touches (BUSY, DECOMMITTING, UNMAPPING), so that commits of different granules run side by side. A
 * commit is undone step by step, from what was really done. What cannot be undone is STUCK: nobody has it,
 * and it is tried again before the granule is used and before the range goes.
 */
#include "provider.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool cuda_range_all(const struct cuda_range *range, uint64_t first, uint64_t count, enum cuda_granule state)
{
    for (uint64_t i = first; i < first + count; i++) {
        if (range->states[i] != state)
            return false;
    }
    return true;
}

static bool is_used(uint8_t state)
{
    return state != CUDA_GRANULE_FREE && state != CUDA_GRANULE_STUCK;
}

void cuda_range_set(struct cuda_range *range, uint64_t first, uint64_t count, enum cuda_granule state)
{
    for (uint64_t i = first; i < first + count; i++) {
        range->used_count += (uint64_t)is_used((uint8_t)state) - (uint64_t)is_used(range->states[i]);
        range->stuck_count +=
            (uint64_t)(state == CUDA_GRANULE_STUCK) - (uint64_t)(range->states[i] == CUDA_GRANULE_STUCK);
        range->states[i] = (uint8_t)state;
    }
}

void cuda_range_settle(struct cuda_range *range, uint64_t first, uint64_t count, enum cuda_granule state)
{
    pthread_mutex_lock(&range->lock);
    cuda_range_set(range, first, count, state);
    pthread_mutex_unlock(&range->lock);
}

/* ---- reserve ---- */

int32_t cuda_check_virtual(struct moor_abi_context *context, uint32_t domain, struct moor_abi_error *error)
{
    const struct cuda_device *device = context->device;
    int32_t status = cuda_check_domain(device, domain, error);
    if (status != MOOR_OK)
        return status;
    if (domain != CUDA_DOMAIN_DEVICE)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0,
                             "only the device's own memory has ranges and segments");
    if (device->granule_min_bytes == 0)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "this device has no virtual memory management");
    return MOOR_OK;
}

static void free_record(struct cuda_range *range)
{
    if (!range)
        return;
    pthread_mutex_destroy(&range->lock);
    free(range->mappings);
    free(range->pages);
    free(range->states);
    free(range);
}

static struct cuda_range *create_record(const struct moor_abi_range_args *args)
{
    uint64_t count = args->size_bytes / args->granule_bytes;
    struct cuda_range *range = calloc(1, sizeof(*range));
    if (!range)
        return NULL;
    pthread_mutex_init(&range->lock, NULL); /* does not fail on Linux with default attributes */
    range->states = calloc(count, sizeof(*range->states));
    range->pages = calloc(count, sizeof(struct cuda_page *));
    range->mappings = calloc(count, sizeof(struct cuda_mapping *));
    if (!range->states || !range->pages || !range->mappings) {
        free_record(range);
        return NULL;
    }
    range->bytes = args->size_bytes;
    range->granule_bytes = args->granule_bytes;
    return range;
}

static int32_t free_addresses(struct cuda_device *device, const struct cuda_range *range,
                              struct moor_abi_error *error)
{
    if (atomic_load(&range->is_kept))
        return MOOR_OK;
    CUresult code = cuda_has_gone(device)
                        ? CUDA_ERROR_DEINITIALIZED
                        : cuda_driver_of(device)->cuMemAddressFree(range->address, range->bytes);
    return cuda_check_free(device, code, "cuMemAddressFree", error);
}

static int32_t reserve_addresses(struct moor_abi_context *context, struct cuda_range *range,
                                 uint64_t alignment_bytes, struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status != MOOR_OK)
        return status;
    CUdeviceptr address = 0;
    status = cuda_check(
        device, cuda_driver_of(device)->cuMemAddressReserve(&address, range->bytes, alignment_bytes, 0, 0),
        MOOR_NO_VA, "cuMemAddressReserve", error);
    range->address = address;
    if (status == MOOR_OK) {
        if (address % alignment_bytes != 0)
            status =
                moor_kit_fail(error, MOOR_PROVIDER, 0, "cuMemAddressReserve: 0x%llx is not aligned to %llu",
                              (unsigned long long)address, (unsigned long long)alignment_bytes);
        else
            status = moor_kit_handles_add(context->handles, CUDA_RANGE, range, 0, &range->handle, error);
        if (status != MOOR_OK)
            (void)free_addresses(device, range, NULL); /* the first failure is what is told */
    }
    cuda_leave(&scope);
    return status;
}

static int32_t reserve(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                       struct moor_abi_range *ret_range, struct moor_abi_error *error)
{
    uint64_t least = context->device->granule_min_bytes;
    int32_t status = moor_kit_check_range(args, least ? least : 1, error);
    if (status == MOOR_OK)
        status = cuda_check_virtual(context, args->domain, error);
    if (status == MOOR_OK && args->size_bytes > CUDA_ADDRESS_BYTES_MAX)
        status = moor_kit_fail(error, MOOR_NO_VA, 0, "%llu bytes: larger than the address space",
                               (unsigned long long)args->size_bytes);
    if (status == MOOR_OK)
        status = moor_kit_check_out(ret_range, MOOR_ABI_RANGE_SIZE, "range", error);
    if (status != MOOR_OK)
        return status;
    struct cuda_range *range = create_record(args);
    if (!range)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for the states of a range");
    status = reserve_addresses(context, range, args->alignment_bytes, error);
    if (status != MOOR_OK) {
        free_record(range);
        return status;
    }
    struct moor_abi_range result = {MOOR_ABI_RANGE_SIZE, 0, range->handle, range->address};
    return moor_kit_fill_out(ret_range, &result, MOOR_ABI_RANGE_SIZE, MOOR_ABI_RANGE_SIZE, "range", error);
}

/* ---- single granules ---- */

static int32_t add_page(struct cuda_device *device, struct cuda_range *range, uint64_t index,
                        struct moor_abi_error *error)
{
    struct cuda_page *page = NULL;
    int32_t status = cuda_page_take(device, range->granule_bytes, &page, error);
    if (status != MOOR_OK)
        return status;
    range->pages[index] = page;
    status = cuda_memory_map(device, range->address + index * range->granule_bytes, range->granule_bytes,
                             page->handle, error);
    page->is_mapped = status == MOOR_OK;
    return status;
}

/* From where it is, so that one that has failed half way goes on. */
static int32_t drop_page(struct cuda_device *device, struct cuda_range *range, uint64_t index,
                         struct moor_abi_error *error)
{
    struct cuda_page *page = range->pages[index];
    if (!page)
        return MOOR_OK;
    if (page->is_mapped) {
        uint64_t address = range->address + index * range->granule_bytes;
        CUresult code = cuda_has_gone(device)
                            ? CUDA_ERROR_DEINITIALIZED
                            : cuda_driver_of(device)->cuMemUnmap(address, range->granule_bytes);
        int32_t status = cuda_check_free(device, code, "cuMemUnmap", error);
        if (status != MOOR_OK)
            return status;
        if (code != CUDA_SUCCESS)
            atomic_store(&range->is_kept, true);
        page->is_mapped = false;
    }
    int32_t status = cuda_page_give(device, range->granule_bytes, page, error);
    if (status == MOOR_OK)
        range->pages[index] = NULL;
    return status;
}

/* All that is stuck in the range; its lock is held, which delays others in the rare case that something is.
 * */
static int32_t unstick(struct cuda_device *device, struct cuda_range *range, struct moor_abi_error *error)
{
    uint64_t count = range->bytes / range->granule_bytes;
    for (uint64_t i = 0; i < count && range->stuck_count > 0; i++) {
        if (range->states[i] != CUDA_GRANULE_STUCK)
            continue;
        int32_t status = drop_page(device, range, i, error);
        if (status == MOOR_OK && range->mappings[i])
            status = cuda_segment_unmap(device, range, i, error);
        if (status != MOOR_OK)
            return status;
        cuda_range_set(range, i, 1, CUDA_GRANULE_FREE);
    }
    return MOOR_OK;
}

int32_t cuda_range_claim(struct moor_abi_context *context, struct cuda_range *range, uint64_t first,
                         uint64_t count, struct moor_abi_error *error)
{
    pthread_mutex_lock(&range->lock);
    struct moor_abi_error why = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = range->stuck_count ? unstick(context->device, range, &why) : MOOR_OK;
    if (cuda_range_all(range, first, count,
                       CUDA_GRANULE_FREE)) { /* what is stuck elsewhere is in nobody's way */
        cuda_range_set(range, first, count, CUDA_GRANULE_BUSY);
        status = MOOR_OK;
    } else if (status != MOOR_OK) {
        status = moor_kit_fail(error, status, why.native_code, "%s", why.text);
    } else {
        status =
            moor_kit_fail(error, MOOR_INVALID, 0, "a granule of [%llu, +%llu) is committed or mapped already",
                          (unsigned long long)(first * range->granule_bytes),
                          (unsigned long long)(count * range->granule_bytes));
    }
    pthread_mutex_unlock(&range->lock);
    return status;
}

int32_t cuda_range_free(struct moor_abi_context *context, struct cuda_range *range,
                        struct moor_abi_error *error)
{
    pthread_mutex_lock(&range->lock);
    int32_t status = unstick(context->device, range, error);
    pthread_mutex_unlock(&range->lock);
    if (status == MOOR_OK)
        status = free_addresses(context->device, range, error);
    if (status != MOOR_OK)
        return status;
    moor_kit_handles_remove(context->handles, range->handle);
    free_record(range);
    return MOOR_OK;
}

/* ---- commit ---- */

static int32_t get(struct moor_abi_context *context, uint64_t handle, uint64_t offset, uint64_t length,
                   struct cuda_range **ret_range, struct moor_abi_error *error)
{
    void *found = NULL;
    int32_t status = moor_kit_handles_get(context->handles, handle, CUDA_RANGE, &found, error);
    if (status != MOOR_OK)
        return status;
    struct cuda_range *range = found;
    status = moor_kit_check_span(offset, length, range->bytes, range->granule_bytes, error);
    if (status == MOOR_OK)
        *ret_range = range;
    else
        moor_kit_handles_put(context->handles, handle);
    return status;
}

static int32_t back(struct cuda_device *device, struct cuda_range *range, uint64_t first, uint64_t count,
                    struct moor_abi_error *error)
{
    uint64_t address = range->address + first * range->granule_bytes;
    uint64_t bytes = count * range->granule_bytes;
    int32_t status = MOOR_OK;
    for (uint64_t i = first; i < first + count && status == MOOR_OK; i++)
        status = add_page(device, range, i, error);
    if (status == MOOR_OK)
        status =
            cuda_check(device, cuda_set_access(device, address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                       MOOR_DEVICE_NOMEM, "cuMemSetAccess", error);
    return status == MOOR_OK ? cuda_zero(device, address, bytes, error) : status;
}

static void take_back(struct cuda_device *device, struct cuda_range *range, uint64_t first, uint64_t count)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    for (uint64_t i = first + count; i-- > first;) {
        bool is_stuck = drop_page(device, range, i, &error) != MOOR_OK;
        cuda_range_settle(range, i, 1, is_stuck ? CUDA_GRANULE_STUCK : CUDA_GRANULE_FREE);
        if (is_stuck)
            cuda_log(device->instance, MOOR_ABI_LOG_WARNING, "undoing a commit failed, it is tried again: %s",
                     error.text);
    }
}

static int32_t commit_granules(struct moor_abi_context *context, struct cuda_range *range, uint64_t first,
                               uint64_t count, struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status != MOOR_OK)
        return status;
    status = cuda_range_claim(context, range, first, count, error);
    if (status == MOOR_OK) {
        uint64_t openings = atomic_load(&context->instance->openings);
        status = back(device, range, first, count, error);
        if (status == MOOR_OK)
            cuda_range_publish(device, range, first, count, CUDA_GRANULE_COMMITTED,
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE, openings);
        else
            take_back(device, range, first, count);
    }
    cuda_leave(&scope);
    return status;
}

static int32_t commit(struct moor_abi_context *context, uint64_t handle, uint64_t offset, uint64_t length,
                      uint64_t *ret_actual_bytes, struct moor_abi_error *error)
{
    struct cuda_range *range = NULL;
    int32_t status = get(context, handle, offset, length, &range, error);
    if (status != MOOR_OK)
        return status;
    status =
        commit_granules(context, range, offset / range->granule_bytes, length / range->granule_bytes, error);
    if (status == MOOR_OK) {
        atomic_fetch_add(&context->held_bytes[CUDA_DOMAIN_DEVICE], length);
        *ret_actual_bytes = length;
    }
    moor_kit_handles_put(context->handles, handle);
    return status;
}

static int32_t committed(struct moor_abi_context *context, uint64_t handle, uint64_t offset, uint64_t length,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct cuda_range *range = NULL;
    int32_t status = get(context, handle, offset, length, &range, error);
    if (status != MOOR_OK)
        return status;
    uint64_t first = offset / range->granule_bytes;
    uint64_t end = first + length / range->granule_bytes;
    uint64_t count = 0;
    pthread_mutex_lock(&range->lock);
    for (uint64_t i = first; i < end; i++) /* what is queued for decommit is still there */
        count += range->states[i] == CUDA_GRANULE_COMMITTED || range->states[i] == CUDA_GRANULE_DECOMMITTING;
    pthread_mutex_unlock(&range->lock);
    *ret_bytes = count * range->granule_bytes;
    moor_kit_handles_put(context->handles, handle);
    return status;
}

/* ---- decommit and unmap ---- */

int32_t cuda_range_mark(struct cuda_range *range, const struct moor_abi_release *release,
                        struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_span(release->offset_bytes, release->length_bytes, range->bytes,
                                         range->granule_bytes, error);
    if (status != MOOR_OK)
        return status;
    uint64_t first = release->offset_bytes / range->granule_bytes;
    uint64_t count = release->length_bytes / range->granule_bytes;
    bool unmap = release->kind == MOOR_ABI_RELEASE_UNMAP;

    pthread_mutex_lock(&range->lock);
    bool whole = cuda_range_all(range, first, count, unmap ? CUDA_GRANULE_MAPPED : CUDA_GRANULE_COMMITTED);
    if (whole && unmap) {
        const struct cuda_mapping *mapping = range->mappings[first];
        whole = mapping && mapping->granule_count == count;
    }
    if (whole)
        cuda_range_set(range, first, count, unmap ? CUDA_GRANULE_UNMAPPING : CUDA_GRANULE_DECOMMITTING);
    pthread_mutex_unlock(&range->lock);
    if (!whole)
        status = moor_kit_fail(error, MOOR_INVALID, 0, "[%llu, +%llu) is not %s",
                               (unsigned long long)release->offset_bytes,
                               (unsigned long long)release->length_bytes,
                               unmap ? "exactly one mapping" : "committed throughout");
    return status;
}

void cuda_range_unmark(struct cuda_range *range, const struct moor_abi_release *release)
{
    cuda_range_settle(range, release->offset_bytes / range->granule_bytes,
                      release->length_bytes / range->granule_bytes,
                      release->kind == MOOR_ABI_RELEASE_UNMAP ? CUDA_GRANULE_MAPPED : CUDA_GRANULE_COMMITTED);
}

int32_t cuda_range_give_back(struct moor_abi_context *context, struct cuda_range *range,
                             const struct moor_abi_release *release, uint64_t *ret_bytes,
                             struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    uint64_t first = release->offset_bytes / range->granule_bytes;
    uint64_t count = release->length_bytes / range->granule_bytes;
    bool unmap = release->kind == MOOR_ABI_RELEASE_UNMAP;
    int32_t status = MOOR_OK;
    if (unmap)
        status = cuda_segment_unmap(device, range, first, error);
    for (uint64_t i = first; !unmap && i < first + count && status == MOOR_OK; i++)
        status = drop_page(device, range, i, error); /* nothing, where an earlier try has been */
    if (status != MOOR_OK)
        return status;
    cuda_range_settle(range, first, count, CUDA_GRANULE_FREE);
    *ret_bytes = unmap ? 0 : release->length_bytes;
    atomic_fetch_sub(&context->held_bytes[CUDA_DOMAIN_DEVICE], *ret_bytes);
    return MOOR_OK;
}

const struct moor_abi_virtual_table cuda_virtual_table = {
    .struct_size = MOOR_ABI_VIRTUAL_TABLE_SIZE,
    .reserve = reserve,
    .commit = commit,
    .committed = committed,
};
