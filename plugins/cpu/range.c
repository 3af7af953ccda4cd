/* SPDX-License-Identifier: MIT */
/*
 * VIRTUAL: a range is a reservation and, beside it, the kit's state of each granule.
 *
 * After a segment was mapped in a range, each granule that becomes free is replaced by a fresh reservation
 * over the whole free run around it (cpu_range_reset). The segment's mapping has cut the anon_vma of the run
 * in two, and only a run that is one mapping again can be committed without more maps. The reset needs
 * range->lock: no commit may begin in the run meanwhile.
 */
#include "cpu.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static bool is_free(const struct cpu_range *range, uint64_t index)
{
    return range->kit.states[index] == MOOR_KIT_GRANULE_FREE;
}

int32_t cpu_range_reset(struct cpu_range *range, uint64_t first, uint64_t count, struct moor_abi_error *error)
{
    const struct moor_kit_range *kit = &range->kit;
    uint64_t start = first;
    uint64_t end = first + count;
    uint64_t granules = kit->size_bytes / kit->granule_bytes;
    assert(count > 0 && end <= granules);
    while (start > 0 && is_free(range, start - 1))
        start--;
    while (end < granules && is_free(range, end))
        end++;
    return cpu_pages_reset(kit->address + start * kit->granule_bytes, (end - start) * kit->granule_bytes,
                           range->large, error);
}

/* ---- reserve ---- */

int32_t cpu_check_virtual(uint32_t domain, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_index("domain", domain, CPU_DOMAIN_COUNT, error);
    if (status)
        return status;
    if (domain != CPU_DOMAIN_DEVICE)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0,
                             "domain 1: pinned memory has no ranges and no segments");
    return MOOR_OK;
}

static int32_t check_args(const struct moor_abi_range_args *args, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_range(args, CPU_GRANULE_MIN_BYTES, error);
    if (!status)
        status = cpu_check_virtual(args->domain, error);
    if (!status && args->size_bytes > CPU_ADDRESS_BYTES_MAX)
        status = moor_kit_fail(error, MOOR_NO_VA, 0, "%llu bytes are requested: more than the address space",
                               (unsigned long long)args->size_bytes);
    return status;
}

static void free_record(struct cpu_range *range)
{
    moor_kit_range_finish(&range->kit);
    free(range->mapped);
    free(range);
}

static int32_t create_record(const struct moor_abi_range_args *args, struct cpu_range **ret_range,
                             struct moor_abi_error *error)
{
    struct cpu_range *range = calloc(1, sizeof *range);
    if (!range)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "range: no host memory for its record");
    int32_t status = moor_kit_range_init(&range->kit, args, error);
    if (status) {
        free(range);
        return status;
    }
    range->large = args->granule_bytes % CPU_HUGE_BYTES == 0;
    *ret_range = range;
    return MOOR_OK;
}

static int32_t reserve(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                       struct moor_abi_range *ret_range, struct moor_abi_error *error)
{
    struct cpu_range *range = NULL;
    int32_t status = check_args(args, error);
    if (!status)
        status = moor_kit_check_out(ret_range, MOOR_ABI_RANGE_SIZE, "range", error);
    if (!status)
        status = create_record(args, &range, error);
    if (status)
        return status;
    struct moor_kit_range *kit = &range->kit;
    status = cpu_pages_reserve(kit->size_bytes, args->alignment_bytes, range->large, &kit->address, error);
    if (status)
        goto free_range;
    cpu_pages_prime(kit->address);
    status = moor_kit_handles_add(context->kit.handles, MOOR_KIT_RANGE, range, 0, &kit->handle, error);
    if (status)
        goto unmap;
    struct moor_abi_range result = {MOOR_ABI_RANGE_SIZE, 0, kit->handle, kit->address};
    return moor_kit_fill_out(ret_range, &result, MOOR_ABI_RANGE_SIZE, MOOR_ABI_RANGE_SIZE, "range", error);

unmap:
    (void)cpu_pages_unmap(kit->address, kit->size_bytes, NULL); /* cannot fail for a fresh mapping */
free_range:
    free_record(range);
    return status;
}

int32_t cpu_range_free(struct moor_abi_context *context, struct cpu_range *range,
                       struct moor_abi_error *error)
{
    assert(range->kit.used_count == 0);
    int32_t status = cpu_pages_unmap(range->kit.address, range->kit.size_bytes, error);
    if (status)
        return status;
    moor_kit_handles_remove(context->kit.handles, range->kit.handle);
    free_record(range);
    return MOOR_OK;
}

/* ---- commit ---- */

static int32_t back(struct cpu_pool *pool, uint64_t address, uint64_t bytes, struct moor_abi_error *error)
{
    int32_t status = cpu_pool_take(pool, bytes, error);
    if (status)
        return status;
    status = cpu_pages_back(address, bytes, error);
    cpu_pool_confirm(pool, bytes);
    if (status)
        cpu_pool_return(pool, bytes);
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
    uint64_t first = offset / range->granule_bytes;
    uint64_t count = length / range->granule_bytes;
    assert(count > 0 && count * range->granule_bytes == length);
    status = moor_kit_range_claim(range, first, count, error);
    if (!status) {
        status = back(&context->kit.instance->pool, range->address + offset, length, error);
        moor_kit_range_settle(range, first, count,
                              status == MOOR_OK ? MOOR_KIT_GRANULE_COMMITTED : MOOR_KIT_GRANULE_FREE);
    }
    if (!status) {
        moor_kit_held_add(context, CPU_DOMAIN_DEVICE, length);
        *ret_actual_bytes = length;
    }
    moor_kit_handles_put(context->kit.handles, handle);
    return status;
}

/* ---- decommit and unmap ---- */

static int32_t decommit(struct cpu_range *range, uint64_t first, uint64_t count, struct moor_abi_error *error)
{
    struct moor_kit_range *kit = &range->kit;
    if (!atomic_load(&range->mixed))
        return cpu_pages_unback(kit->address + first * kit->granule_bytes, count * kit->granule_bytes, error);
    pthread_mutex_lock(&kit->lock);
    int32_t status = cpu_range_reset(range, first, count, error);
    pthread_mutex_unlock(&kit->lock);
    return status;
}

static int32_t unmap_segment(struct moor_abi_context *context, struct cpu_range *range, uint64_t first,
                             uint64_t count, struct moor_abi_error *error)
{
    pthread_mutex_lock(&range->kit.lock);
    int32_t status = cpu_range_reset(range, first, count, error);
    pthread_mutex_unlock(&range->kit.lock);
    assert(range->mapped && range->mapped[first]);
    if (!status)
        moor_kit_handles_put(context->kit.handles, range->mapped[first]);
    return status;
}

int32_t cpu_range_free_part(struct moor_abi_context *context, struct cpu_range *range,
                            const struct moor_abi_release *release, uint64_t *ret_bytes,
                            struct moor_abi_error *error)
{
    uint64_t first = release->offset_bytes / range->kit.granule_bytes;
    uint64_t count = release->length_bytes / range->kit.granule_bytes;
    bool is_unmap = release->kind == MOOR_ABI_RELEASE_UNMAP;
    assert(moor_kit_release_is_part(release->kind) && count > 0);
    int32_t status =
        is_unmap ? unmap_segment(context, range, first, count, error) : decommit(range, first, count, error);
    if (status)
        return status;
    *ret_bytes = is_unmap ? 0 : release->length_bytes;
    if (!is_unmap) {
        moor_kit_held_sub(context, CPU_DOMAIN_DEVICE, release->length_bytes);
        cpu_pool_return(&context->kit.instance->pool, release->length_bytes);
    }
    moor_kit_range_done(context->kit.handles, release);
    return MOOR_OK;
}

MOOR_KIT_TABLE(virtual, cpu_virtual_table, .reserve = reserve, .commit = commit,
               .committed = moor_kit_committed);
