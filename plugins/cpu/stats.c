/* SPDX-License-Identifier: MIT */
/*
 * STATS: the provider's own counts beside the kernel's figures. The latter come from the kernel alone:
 * private memory by address (kernel.c) over whole ranges, so that a page outside the counts is found;
 * segments by the blocks of their file. The two are equal whenever no call and no release is in progress.
 */
#include "cpu.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Returns true if a record has private memory in the domain, and its addresses. */
static bool get_interval(uint32_t kind, const void *record, uint32_t domain,
                         struct cpu_interval *ret_interval)
{
    if (kind == MOOR_KIT_ALLOCATION) {
        const struct cpu_allocation *allocation = record;
        *ret_interval =
            (struct cpu_interval){allocation->address, allocation->address + allocation->bytes, false};
        return allocation->domain == domain;
    }
    if (kind == MOOR_KIT_RANGE && domain == CPU_DOMAIN_DEVICE) {
        const struct cpu_range *range = record;
        *ret_interval = (struct cpu_interval){range->kit.address, range->kit.address + range->kit.size_bytes,
                                              atomic_load(&range->mixed)};
        return true;
    }
    return false;
}

/* The intervals that a walk over the handles collects. */
struct list {
    uint32_t domain;
    uint32_t count;
    uint32_t capacity;
    struct cpu_interval *intervals;
};

static void list_add(void *user, uint32_t kind, void *record)
{
    struct list *list = user;
    assert(list->count <= list->capacity);
    if (list->count < list->capacity &&
        get_interval(kind, record, list->domain, &list->intervals[list->count]))
        list->count++;
}

/* Adds the memory of the segments. Returns 0 or an errno. */
static int add_segments(struct moor_abi_context *context, struct cpu_held *held)
{
    pthread_mutex_lock(&context->segments.lock);
    int file = context->segments.file; /* stays open until the context closes */
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
    /* A record that is added meanwhile may displace another one: the figure is exact only while no call is in
     * progress. */
    struct list list = {.domain = domain, .capacity = moor_kit_handles_length(context->kit.handles)};
    list.intervals = malloc((list.capacity + 1u) * sizeof *list.intervals);
    if (!list.intervals)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "stats: no host memory for a list of mappings");
    moor_kit_handles_each(context->kit.handles, list_add, &list);
    struct cpu_held held;
    int code = cpu_kernel_held(list.intervals, list.count, &held);
    free(list.intervals);
    if (code == 0 && domain == CPU_DOMAIN_DEVICE)
        code = add_segments(context, &held);
    if (code != 0)
        return MOOR_OK; /* without /proc only this figure is unknown */
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
    int32_t status = moor_kit_check_index("domain", domain, CPU_DOMAIN_COUNT, error);
    if (status)
        return status;
    struct moor_abi_stats result = {
        .struct_size = MOOR_ABI_STATS_SIZE,
        .valid = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD,
        .total_bytes = context->kit.instance->pool.total_bytes,
        .held_bytes = moor_kit_held(context, domain),
    };
    status = cpu_pool_free_bytes(&context->kit.instance->pool, &result.free_bytes, error);
    if (!status)
        status = add_system(context, domain, &result, error);
    if (status)
        return status;
    return moor_kit_fill_out(ret_stats, &result, MOOR_ABI_STATS_SIZE, MOOR_ABI_STATS_SIZE, "stats", error);
}

MOOR_KIT_TABLE(stats, cpu_stats_table, .stats = stats);
