/* SPDX-License-Identifier: MIT */
/* Device figures: a provider's report on a domain, checked for sense and not trusted. */
#include "loader/call.h"
#include "util/error.h"

#define KNOWN_FIGURES                                                                                        \
    (MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD | MOOR_ABI_STAT_SYSTEM_HELD |             \
     MOOR_ABI_STAT_HUGE)

/* Cuts a figure down to the whole that it is a part of. Returns true if it was larger. */
static bool clamp(uint64_t *part, uint64_t whole)
{
    bool is_larger = *part > whole;
    if (is_larger)
        *part = whole;
    return is_larger;
}

/* Requires that unknown figures are 0. An unknown whole limits no part. */
static void make_sane(struct moor_device_stats *stats)
{
    uint64_t total = stats->valid & MOOR_ABI_STAT_TOTAL ? stats->total_bytes : UINT64_MAX;
    bool odd = clamp(&stats->free_bytes, total);
    odd |= clamp(&stats->held_bytes, total);
    odd |= clamp(&stats->system_held_bytes, total);
    odd |= clamp(&stats->huge_bytes, total);
    if (stats->valid & MOOR_ABI_STAT_SYSTEM_HELD)
        odd |= clamp(&stats->huge_bytes, stats->system_held_bytes);
    const uint64_t all = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD;
    if ((stats->valid & all) == all && stats->held_bytes > stats->total_bytes - stats->free_bytes) {
        stats->free_bytes = stats->total_bytes - stats->held_bytes;
        odd = true;
    }
    stats->inconsistent = odd;
}

moor_status moor__device_stats(struct moor_device *device, uint32_t domain,
                               struct moor_device_stats *ret_stats)
{
    if (!(device->domains[domain].info.capabilities & MOOR_ABI_CAP_STATS))
        return moor__fail(MOOR_UNSUPPORTED, "%s: domain %u of %s has no STATS", device->provider->table.name,
                          domain, device->info.name);
    struct moor_abi_stats raw = {.struct_size = sizeof raw};
    moor_status status = moor__call_stats(device, domain, &raw);
    if (status)
        return status;
    struct moor_device_stats stats = {
        .valid = raw.valid & KNOWN_FIGURES,
        .total_bytes = raw.valid & MOOR_ABI_STAT_TOTAL ? raw.total_bytes : 0,
        .free_bytes = raw.valid & MOOR_ABI_STAT_FREE ? raw.free_bytes : 0,
        .held_bytes = raw.valid & MOOR_ABI_STAT_HELD ? raw.held_bytes : 0,
        .system_held_bytes = raw.valid & MOOR_ABI_STAT_SYSTEM_HELD ? raw.system_held_bytes : 0,
        .huge_bytes = raw.valid & MOOR_ABI_STAT_HUGE ? raw.huge_bytes : 0,
    };
    make_sane(&stats);
    *ret_stats = stats;
    return MOOR_OK;
}

moor_status moor_device_get_stats(struct moor_device *device, uint32_t domain,
                                  struct moor_device_stats *ret_stats)
{
    moor_status status = moor__domain_enter(device, domain, ret_stats);
    if (!status)
        status = moor__device_open(device);
    return moor__leave(status ? status : moor__device_stats(device, domain, ret_stats));
}

/* ---- objects ---- */

static void add_device(const struct moor_device *device, struct moor_object_counts *counts)
{
    uint64_t *const sums[MOOR__COUNTS] = {
        [MOOR__COUNT_BUFFER] = &counts->buffers,         [MOOR__COUNT_RANGE] = &counts->ranges,
        [MOOR__COUNT_SEGMENT] = &counts->segments,       [MOOR__COUNT_STREAM] = &counts->streams,
        [MOOR__COUNT_BINDING] = &counts->bindings,       [MOOR__COUNT_RELEASE] = &counts->releases,
        [MOOR__COUNT_QUARANTINE] = &counts->quarantined,
    };
    for (int kind = 0; kind < MOOR__COUNTS; kind++)
        *sums[kind] += atomic_load_explicit(&device->counts[kind], memory_order_acquire);
}

moor_status moor_runtime_get_counts(struct moor_runtime *runtime, struct moor_object_counts *ret_counts)
{
    moor_status status = moor__enter(runtime);
    if (!status && !ret_counts)
        status = moor__fail(MOOR_INVALID, "ret_counts is NULL");
    if (status)
        return moor__leave(status);
    struct moor_object_counts counts = {0};
    moor__governor_count(runtime->governor, &counts.grants, &counts.leases, &counts.tickets);
    moor__lock_acquire(&runtime->lock);
    for (const struct moor_provider *provider = runtime->providers; provider; provider = provider->next)
        for (uint32_t i = 0; i < provider->device_count; i++)
            add_device(&provider->devices[i], &counts);
    moor__lock_release(&runtime->lock);
    *ret_counts = counts;
    return MOOR_OK;
}
