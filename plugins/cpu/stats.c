/* SPDX-License-Identifier: MIT */
/*
 * STATS: the provider's own books beside what the kernel says. The second is asked of the kernel alone:
 * private memory by address (kernel.c), over whole ranges, so that a page that the books do not know is
 * found; segments by the blocks of their file. The two are equal whenever no call and no release is at work.
 */
#include "cpu.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Where an object of the domain has private memory; false: it has none. */
static bool get_interval(const struct cpu_object *object, uint32_t domain, struct cpu_interval *ret_interval)
{
    if (object->kind == CPU_ALLOCATION) {
        const struct cpu_allocation *allocation = (const struct cpu_allocation *)object;
        *ret_interval =
            (struct cpu_interval){allocation->address, allocation->address + allocation->bytes, false};
        return allocation->domain == domain;
    }
    if (object->kind == CPU_RANGE && domain == CPU_DOMAIN_DEVICE) {
        const struct cpu_range *range = (const struct cpu_range *)object;
        *ret_interval =
            (struct cpu_interval){range->address, range->address + range->bytes, atomic_load(&range->mixed)};
        return true;
    }
    return false;
}

static int32_t list_intervals(struct cpu_objects *objects, uint32_t domain,
                              struct cpu_interval **ret_intervals, size_t *ret_count,
                              struct moor_abi_error *error)
{
    pthread_mutex_lock(&objects->lock);
    struct cpu_interval *intervals = malloc((objects->live + 1u) * sizeof(*intervals));
    size_t count = 0;
    for (uint32_t i = 0; intervals && i < objects->slot_count; i++) {
        if (objects->slots[i].object && get_interval(objects->slots[i].object, domain, &intervals[count]))
            count++;
    }
    pthread_mutex_unlock(&objects->lock);
    if (!intervals)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a list of mappings");
    *ret_intervals = intervals;
    *ret_count = count;
    return MOOR_OK;
}

/* Adds what the segments hold. 0 or an errno. */
static int add_segments(struct moor_abi_context *context, struct cpu_held *held)
{
    pthread_mutex_lock(&context->segments.lock);
    int file = context->segments.file; /* once open it stays so until the context closes */
    pthread_mutex_unlock(&context->segments.lock);
    struct stat stat;
    if (file < 0)
        return 0;
    if (fstat(file, &stat) != 0)
        return errno;
    held->bytes += (uint64_t)stat.st_blocks * 512;
    held->huge_bytes += atomic_load(&context->segment_huge_bytes);
    return 0;
}

static int32_t add_system(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *stats,
                          struct moor_abi_error *error)
{
    struct cpu_interval *intervals = NULL;
    size_t count = 0;
    int32_t status = list_intervals(&context->objects, domain, &intervals, &count, error);
    if (status != MOOR_OK)
        return status;
    struct cpu_held held;
    int code = cpu_kernel_held(intervals, count, &held);
    free(intervals);
    if (code == 0 && domain == CPU_DOMAIN_DEVICE)
        code = add_segments(context, &held);
    if (code != 0)
        return MOOR_OK; /* no /proc here: the figure is unknown, the others are not */
    stats->valid |= MOOR_ABI_STAT_SYSTEM_HELD;
    stats->system_held_bytes = held.bytes;
    if (held.huge_known) {
        stats->valid |= MOOR_ABI_STAT_HUGE;
        stats->huge_bytes = held.huge_bytes;
    }
    return MOOR_OK;
}

static int32_t stats(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                     struct moor_abi_error *error)
{
    if (domain >= CPU_DOMAIN_COUNT)
        return moor_kit_fail(error, MOOR_INVALID, 0, "domain %u: there are %u", domain, CPU_DOMAIN_COUNT);
    struct moor_abi_stats result = {
        .struct_size = MOOR_ABI_STATS_SIZE,
        .valid = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD,
        .total_bytes = context->instance->pool.total_bytes,
        .held_bytes = atomic_load(&context->held_bytes[domain]),
    };
    int32_t status = cpu_pool_free_bytes(&context->instance->pool, &result.free_bytes, error);
    if (status == MOOR_OK)
        status = add_system(context, domain, &result, error);
    if (status != MOOR_OK)
        return status;
    return moor_kit_fill_out(ret_stats, &result, MOOR_ABI_STATS_SIZE, MOOR_ABI_STATS_SIZE, "stats", error);
}

const struct moor_abi_stats_table cpu_stats_table = {
    .struct_size = MOOR_ABI_STATS_TABLE_SIZE,
    .stats = stats,
};
