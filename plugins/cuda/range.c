/* SPDX-License-Identifier: MIT */
/*
 * VIRTUAL: a range is a reservation of addresses, with one handle of physical memory per granule, and the
 * kit's states. Each granule is mapped by itself, so that each can go by itself: the driver unmaps exactly
 * what it has mapped.
 *
 * A commit is undone step by step, from what was really done. What cannot be undone is STUCK: nobody has it,
 * and it is tried again before the granule is used and before the range goes.
 */
#include "provider.h"
#include <errno.h>
#include <stdlib.h>

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
    moor_kit_range_finish(&range->kit);
    free(range->mappings);
    free(range->pages);
    free(range);
}

static int32_t create_record(const struct moor_abi_range_args *args, struct cuda_range **ret_range,
                             struct moor_abi_error *error)
{
    uint64_t count = args->size_bytes / args->granule_bytes;
    struct cuda_range *range = calloc(1, sizeof(*range));
    if (!range)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a range's record");
    int32_t status = moor_kit_range_init(&range->kit, args, error);
    if (status != MOOR_OK) {
        free(range);
        return status;
    }
    range->pages = calloc(count, sizeof(struct cuda_page *));
    range->mappings = calloc(count, sizeof(struct cuda_mapping *));
    if (!range->pages || !range->mappings) {
        free_record(range);
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for the granules of a range");
    }
    *ret_range = range;
    return MOOR_OK;
}

static int32_t free_addresses(struct cuda_device *device, const struct cuda_range *range,
                              struct moor_abi_error *error)
{
    if (atomic_load(&range->is_kept))
        return MOOR_OK;
    CUresult code = cuda_has_gone(device)
                        ? CUDA_ERROR_DEINITIALIZED
                        : cuda_driver_of(device)->cuMemAddressFree(range->kit.address, range->kit.size_bytes);
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
        device,
        cuda_driver_of(device)->cuMemAddressReserve(&address, range->kit.size_bytes, alignment_bytes, 0, 0),
        MOOR_NO_VA, "cuMemAddressReserve", error);
    range->kit.address = address;
    if (status == MOOR_OK) {
        if (address % alignment_bytes != 0)
            status =
                moor_kit_fail(error, MOOR_PROVIDER, 0, "cuMemAddressReserve: 0x%llx is not aligned to %llu",
                              (unsigned long long)address, (unsigned long long)alignment_bytes);
        else
            status = moor_kit_handles_add(context->handles, CUDA_RANGE, range, 0, &range->kit.handle, error);
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
    struct cuda_range *range = NULL;
    status = create_record(args, &range, error);
    if (status != MOOR_OK)
        return status;
    status = reserve_addresses(context, range, args->alignment_bytes, error);
    if (status != MOOR_OK) {
        free_record(range);
        return status;
    }
    struct moor_abi_range result = {MOOR_ABI_RANGE_SIZE, 0, range->kit.handle, range->kit.address};
    return moor_kit_fill_out(ret_range, &result, MOOR_ABI_RANGE_SIZE, MOOR_ABI_RANGE_SIZE, "range", error);
}

/* ---- single granules ---- */

static int32_t add_page(struct cuda_device *device, struct cuda_range *range, uint64_t index,
                        struct moor_abi_error *error)
{
    struct cuda_page *page = NULL;
    int32_t status = cuda_page_take(device, range->kit.granule_bytes, &page, error);
    if (status != MOOR_OK)
        return status;
    range->pages[index] = page;
    status = cuda_memory_map(device, range->kit.address + index * range->kit.granule_bytes,
                             range->kit.granule_bytes, page->handle, error);
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
        uint64_t address = range->kit.address + index * range->kit.granule_bytes;
        CUresult code = cuda_has_gone(device)
                            ? CUDA_ERROR_DEINITIALIZED
                            : cuda_driver_of(device)->cuMemUnmap(address, range->kit.granule_bytes);
        int32_t status = cuda_check_free(device, code, "cuMemUnmap", error);
        if (status != MOOR_OK)
            return status;
        if (code != CUDA_SUCCESS)
            atomic_store(&range->is_kept, true);
        page->is_mapped = false;
    }
    int32_t status = cuda_page_give(device, range->kit.granule_bytes, page, error);
    if (status == MOOR_OK)
        range->pages[index] = NULL;
    return status;
}

/* All that is stuck in the range. The lock is held meanwhile: that delays others in a rare case alone. */
static int32_t unstick(struct moor_abi_context *context, struct cuda_range *range,
                       struct moor_abi_error *error)
{
    int32_t status = MOOR_OK;
    pthread_mutex_lock(&range->kit.lock);
    for (uint64_t i = 0; status == MOOR_OK && range->kit.stuck_count > 0; i++) {
        if (range->kit.states[i] != MOOR_KIT_GRANULE_STUCK)
            continue;
        status = drop_page(context->device, range, i, error);
        if (status == MOOR_OK && range->mappings[i])
            status = cuda_segment_unmap(context, range, i, error);
        if (status == MOOR_OK)
            moor_kit_range_set(&range->kit, i, 1, MOOR_KIT_GRANULE_FREE);
    }
    pthread_mutex_unlock(&range->kit.lock);
    return status;
}

int32_t cuda_range_claim(struct moor_abi_context *context, struct cuda_range *range, uint64_t first,
                         uint64_t count, struct moor_abi_error *error)
{
    struct moor_abi_error why = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t unstuck = unstick(context, range, &why);
    int32_t status = moor_kit_range_claim(&range->kit, first, count, error);
    if (status != MOOR_OK && unstuck != MOOR_OK) /* what is stuck elsewhere is in nobody's way */
        status = moor_kit_fail(error, unstuck, why.native_code, "%s", why.text);
    return status;
}

int32_t cuda_range_free(struct moor_abi_context *context, struct cuda_range *range,
                        struct moor_abi_error *error)
{
    int32_t status = unstick(context, range, error);
    if (status == MOOR_OK)
        status = free_addresses(context->device, range, error);
    if (status != MOOR_OK)
        return status;
    moor_kit_handles_remove(context->handles, range->kit.handle);
    free_record(range);
    return MOOR_OK;
}

/* ---- commit ---- */

static int32_t back(struct cuda_device *device, struct cuda_range *range, uint64_t first, uint64_t count,
                    struct moor_abi_error *error)
{
    uint64_t address = range->kit.address + first * range->kit.granule_bytes;
    uint64_t bytes = count * range->kit.granule_bytes;
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
        moor_kit_range_settle(&range->kit, i, 1, is_stuck ? MOOR_KIT_GRANULE_STUCK : MOOR_KIT_GRANULE_FREE);
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
            cuda_range_publish(device, range, first, count, MOOR_KIT_GRANULE_COMMITTED,
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
    struct moor_kit_range *range = NULL;
    int32_t status = moor_kit_range_get(context->handles, handle, CUDA_RANGE, offset, length, &range, error);
    if (status != MOOR_OK)
        return status;
    status = commit_granules(context, (struct cuda_range *)range, offset / range->granule_bytes,
                             length / range->granule_bytes, error);
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
    struct moor_kit_range *range = NULL;
    int32_t status = moor_kit_range_get(context->handles, handle, CUDA_RANGE, offset, length, &range, error);
    if (status != MOOR_OK)
        return status;
    *ret_bytes = moor_kit_range_committed(range, offset, length);
    moor_kit_handles_put(context->handles, handle);
    return MOOR_OK;
}

/* ---- decommit and unmap ---- */

int32_t cuda_range_give_back(struct moor_abi_context *context, struct cuda_range *range,
                             const struct moor_abi_release *release, uint64_t *ret_bytes,
                             struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    uint64_t first = release->offset_bytes / range->kit.granule_bytes;
    uint64_t count = release->length_bytes / range->kit.granule_bytes;
    bool is_unmap = release->kind == MOOR_ABI_RELEASE_UNMAP;
    int32_t status = is_unmap ? cuda_segment_unmap(context, range, first, error) : MOOR_OK;
    for (uint64_t i = first; !is_unmap && i < first + count && status == MOOR_OK; i++)
        status = drop_page(device, range, i, error); /* nothing, where an earlier try has been */
    if (status != MOOR_OK)
        return status;
    *ret_bytes = is_unmap ? 0 : release->length_bytes;
    atomic_fetch_sub(&context->held_bytes[CUDA_DOMAIN_DEVICE], *ret_bytes);
    moor_kit_range_done(context->handles, release);
    return MOOR_OK;
}

const struct moor_abi_virtual_table cuda_virtual_table = {
    .struct_size = MOOR_ABI_VIRTUAL_TABLE_SIZE,
    .reserve = reserve,
    .commit = commit,
    .committed = committed,
};
