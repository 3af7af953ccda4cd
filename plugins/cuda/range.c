/* SPDX-License-Identifier: MIT */
/*
 * VIRTUAL: a range is a reservation of addresses, with one page of physical memory per committed granule and
 * the kit's granule states. A commit that fails is undone granule by granule, from the steps that were really
 * done.
 */
#include "memory.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* ---- reserve ---- */

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
    struct cuda_range *range = calloc(1, sizeof *range);
    if (!range)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "range: no memory for its record");
    int32_t status = moor_kit_range_init(&range->kit, args, error);
    if (status) {
        free(range);
        return status;
    }
    range->pages = calloc(count, sizeof(struct cuda_page *));
    range->mappings = calloc(count, sizeof(struct cuda_mapping *));
    if (!range->pages || !range->mappings) {
        free_record(range);
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "range: no memory for its granules");
    }
    *ret_range = range;
    return MOOR_OK;
}

static int32_t free_addresses(struct cuda_device *device, const struct cuda_range *range,
                              struct moor_abi_error *error)
{
    return atomic_load(&range->is_kept)
               ? MOOR_OK
               : cuda_addresses_free(device, range->kit.address, range->kit.size_bytes, error);
}

static int32_t check_args(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                          const struct moor_abi_range *range, struct moor_abi_error *error)
{
    uint64_t least = context->device->traits.granule_min_bytes;
    int32_t status = moor_kit_check_range(args, least ? least : 1, error);
    if (status == MOOR_OK)
        status = cuda_check_virtual(context->device, args->domain, error);
    if (status == MOOR_OK && args->size_bytes > CUDA_ADDRESS_BYTES_MAX)
        status = moor_kit_fail(error, MOOR_NO_VA, 0, "range: %llu bytes are more than the address space has",
                               (unsigned long long)args->size_bytes);
    return status ? status : moor_kit_check_out(range, MOOR_ABI_RANGE_SIZE, "range", error);
}

static int32_t reserve(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                       struct moor_abi_range *ret_range, struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    struct cuda_range *range = NULL;
    struct cuda_scope scope;
    int32_t status = check_args(context, args, ret_range, error);
    if (status == MOOR_OK)
        status = create_record(args, &range, error);
    if (status)
        return status;
    status = cuda_enter(device, &scope, error);
    if (status)
        goto free_record;
    status =
        cuda_addresses_reserve(device, args->size_bytes, args->alignment_bytes, &range->kit.address, error);
    if (status)
        goto leave;
    status = moor_kit_handles_add(context->kit.handles, MOOR_KIT_RANGE, range, 0, &range->kit.handle, error);
    if (status)
        goto free_addresses;
    cuda_leave(&scope);
    struct moor_abi_range result = {MOOR_ABI_RANGE_SIZE, 0, range->kit.handle, range->kit.address};
    return moor_kit_fill_out(ret_range, &result, MOOR_ABI_RANGE_SIZE, MOOR_ABI_RANGE_SIZE, "range", error);

free_addresses:
    (void)free_addresses(device, range, NULL); /* the first failure is reported */
leave:
    cuda_leave(&scope);
free_record:
    free_record(range);
    return status;
}

int32_t cuda_range_free(struct moor_abi_context *context, struct cuda_range *range,
                        struct moor_abi_error *error)
{
    int32_t status = cuda_range_unstick(context, range, error);
    if (status == MOOR_OK)
        status = free_addresses(context->device, range, error);
    if (status)
        return status;
    assert(range->kit.used_count == 0 && range->kit.stuck_count == 0);
    moor_kit_handles_remove(context->kit.handles, range->kit.handle);
    free_record(range);
    return MOOR_OK;
}

/* ---- commit ---- */

static int32_t back_granules(struct cuda_device *device, struct cuda_range *range, uint64_t first,
                             uint64_t count, struct moor_abi_error *error)
{
    uint64_t address = cuda_granule_address(range, first);
    uint64_t bytes = count * range->kit.granule_bytes;
    int32_t status = MOOR_OK;
    for (uint64_t i = first; i < first + count && status == MOOR_OK; i++)
        status = cuda_granule_back(device, range, i, error);
    if (status == MOOR_OK)
        status =
            cuda_check(device, cuda_set_access(device, address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                       MOOR_DEVICE_NOMEM, "cuMemSetAccess", error);
    return status ? status : cuda_zero(device, address, bytes, error);
}

static void undo_granules(struct cuda_device *device, struct cuda_range *range, uint64_t first,
                          uint64_t count)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    for (uint64_t i = first + count; i-- > first;) {
        bool is_stuck = cuda_granule_drop(device, range, i, &error) != MOOR_OK;
        assert(is_stuck == (range->pages[i] != NULL));
        moor_kit_range_settle(&range->kit, i, 1, is_stuck ? MOOR_KIT_GRANULE_STUCK : MOOR_KIT_GRANULE_FREE);
        if (is_stuck)
            cuda_log(device->instance, MOOR_ABI_LOG_WARNING,
                     "undoing a commit failed and is tried again later: %s", error.text);
    }
}

static int32_t commit_granules(struct moor_abi_context *context, struct cuda_range *range, uint64_t first,
                               uint64_t count, struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status)
        return status;
    status = cuda_range_claim(context, range, first, count, error);
    if (status == MOOR_OK) {
        uint64_t openings = atomic_load(&context->kit.instance->openings);
        status = back_granules(device, range, first, count, error);
        if (status == MOOR_OK)
            cuda_range_publish(device, range, first, count, MOOR_KIT_GRANULE_COMMITTED,
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE, openings);
        else
            undo_granules(device, range, first, count);
    }
    cuda_leave(&scope);
    return status;
}

static int32_t commit(struct moor_abi_context *context, uint64_t handle, uint64_t offset, uint64_t length,
                      uint64_t *ret_actual_bytes, struct moor_abi_error *error)
{
    struct moor_kit_range *range = NULL;
    int32_t status =
        moor_kit_range_get(context->kit.handles, handle, MOOR_KIT_RANGE, offset, length, &range, error);
    if (status)
        return status;
    status = commit_granules(context, (struct cuda_range *)range, offset / range->granule_bytes,
                             length / range->granule_bytes, error);
    if (status == MOOR_OK) {
        moor_kit_held_add(context, CUDA_DOMAIN_DEVICE, length);
        *ret_actual_bytes = length;
    }
    moor_kit_handles_put(context->kit.handles, handle);
    return status;
}

/* ---- decommit and unmap ---- */

int32_t cuda_range_free_part(struct moor_abi_context *context, struct cuda_range *range,
                             const struct moor_abi_release *release, uint64_t *ret_bytes,
                             struct moor_abi_error *error)
{
    uint64_t first = release->offset_bytes / range->kit.granule_bytes;
    uint64_t count = release->length_bytes / range->kit.granule_bytes;
    bool is_unmap = release->kind == MOOR_ABI_RELEASE_UNMAP;
    assert(moor_kit_release_is_part(release->kind));
    int32_t status = is_unmap ? cuda_mapping_remove(context, range, first, error) : MOOR_OK;
    for (uint64_t i = first; !is_unmap && i < first + count && status == MOOR_OK; i++)
        status = cuda_granule_drop(context->device, range, i, error); /* no-op for dropped ones */
    if (status)
        return status;
    *ret_bytes = is_unmap ? 0 : release->length_bytes;
    moor_kit_held_sub(context, CUDA_DOMAIN_DEVICE, *ret_bytes);
    moor_kit_range_done(context->kit.handles, release);
    return MOOR_OK;
}

MOOR_KIT_TABLE(virtual, cuda_virtual_table, .reserve = reserve, .commit = commit,
               .committed = moor_kit_committed);
