/* SPDX-License-Identifier: MIT */
/*
 * STATS: total and free bytes are the driver's, of the whole device; held bytes are the provider's own
 * account. They answer different questions, since other processes use the device, too. Kept pages are free to
 * the next commit, so they count as free. A figure that the driver refuses is left out; it is not 0.
 */
#include "memory.h"
#include <assert.h>

static int32_t add_device(struct cuda_device *device, struct moor_abi_stats *stats,
                          struct moor_abi_error *error)
{
    stats->valid |= MOOR_ABI_STAT_TOTAL;
    stats->total_bytes = device->traits.total_bytes;
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status)
        return status;
    size_t left = 0;
    size_t total = 0;
    CUresult code = cuda_driver_of(device)->cuMemGetInfo(&left, &total);
    cuda_leave(&scope);
    if (code == CUDA_ERROR_NOT_PERMITTED || code == CUDA_ERROR_NOT_SUPPORTED)
        return MOOR_OK;
    status = cuda_check(device, code, MOOR_HOST_NOMEM, "cuMemGetInfo", error);
    if (status)
        return status;
    uint64_t free_bytes = left + cuda_pages_bytes(device);
    stats->valid |= MOOR_ABI_STAT_FREE;
    stats->free_bytes = free_bytes < stats->total_bytes ? free_bytes : stats->total_bytes;
    return MOOR_OK;
}

static int32_t stats(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                     struct moor_abi_error *error)
{
    int32_t status = cuda_check_domain(context->device, domain, error);
    if (status)
        return status;
    assert(domain < CUDA_DOMAIN_COUNT);
    struct moor_abi_stats result = {
        .struct_size = MOOR_ABI_STATS_SIZE,
        .valid = MOOR_ABI_STAT_HELD,
        .held_bytes = moor_kit_held(context, domain),
    };
    status = domain == CUDA_DOMAIN_DEVICE ? add_device(context->device, &result, error) : MOOR_OK;
    if (status)
        return status;
    return moor_kit_fill_out(ret_stats, &result, MOOR_ABI_STATS_SIZE, MOOR_ABI_STATS_SIZE, "stats", error);
}

MOOR_KIT_TABLE(stats, cuda_stats_table, .stats = stats);
