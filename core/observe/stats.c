/* SPDX-License-Identifier: MIT */
/* Snapshots. An authority's is one critical section, so it adds up; a device's is what the provider says,
 * made sane. */
#include "governor/governor.h"
#include "loader/provider.h"
#include "util/error.h"

#include <moorage/stats.h>
#include <string.h>

#define KNOWN_FIGURES                                                                                        \
    (MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD | MOOR_ABI_STAT_SYSTEM_HELD |             \
     MOOR_ABI_STAT_HUGE)

/* lock held. */
static void describe_holder(const struct moor_holder *holder, struct moor_holder_stats *ret_stats)
{
    *ret_stats = (struct moor_holder_stats){
        .role = holder->role,
        .limit_bytes = holder->limit == UINT64_MAX ? 0 : holder->limit,
        .reserved_bytes = holder->account.reserved,
        .charged_bytes = holder->account.charged,
        .pending_bytes = holder->account.pending,
        .quarantined_bytes = holder->account.quarantined,
        .external_bytes = holder->account.external,
        .peak_charged_bytes = holder->account.peak_charged,
    };
    memcpy(ret_stats->name, holder->name, sizeof ret_stats->name);
}

moor_status moor_authority_get_stats(struct moor_authority *authority, struct moor_authority_stats *ret_stats,
                                     struct moor_holder_stats *ret_holders, size_t capacity,
                                     size_t *ret_count)
{
    if (!authority || !ret_stats || (capacity && !ret_holders))
        return moor__fail(MOOR_INVALID,
                          "authority and ret_stats must not be NULL, nor ret_holders with a capacity");
    moor_status status = moor__enter(authority->runtime);
    if (status)
        return status;
    size_t count = 0;
    pthread_mutex_lock(&authority->lock);
    const struct moor__account *total = &authority->total;
    uint64_t held = total->reserved + total->charged;
    *ret_stats = (struct moor_authority_stats){
        .capacity_bytes = authority->capacity,
        .free_bytes = held < authority->capacity ? authority->capacity - held : 0,
        .reserved_bytes = total->reserved,
        .charged_bytes = total->charged,
        .live_bytes = total->charged - total->pending - total->quarantined,
        .pending_bytes = total->pending,
        .quarantined_bytes = total->quarantined,
        .external_bytes = total->external,
        .peak_charged_bytes = total->peak_charged,
        .holder_count = authority->holder_count,
    };
    for (const struct moor_holder *holder = authority->holders; holder && count < capacity;
         holder = holder->next)
        describe_holder(holder, &ret_holders[count++]);
    pthread_mutex_unlock(&authority->lock);
    if (ret_count)
        *ret_count = count;
    return MOOR_OK;
}

moor_status moor_holder_get_stats(struct moor_holder *holder, struct moor_holder_stats *ret_stats)
{
    if (!holder || !ret_stats)
        return moor__fail(MOOR_INVALID, "holder and ret_stats must not be NULL");
    moor_status status = moor__enter(holder->authority->runtime);
    if (status)
        return status;
    pthread_mutex_lock(&holder->authority->lock);
    describe_holder(holder, ret_stats);
    pthread_mutex_unlock(&holder->authority->lock);
    return MOOR_OK;
}

/* A figure that is known and above what it is a part of. */
static bool clamp(uint64_t *figure, uint64_t bit, uint64_t whole, uint64_t whole_bit, uint64_t valid)
{
    if (!(valid & bit) || !(valid & whole_bit) || *figure <= whole)
        return false;
    *figure = whole;
    return true;
}

static void make_sane(struct moor_device_stats *stats)
{
    bool odd =
        clamp(&stats->free_bytes, MOOR_ABI_STAT_FREE, stats->total_bytes, MOOR_ABI_STAT_TOTAL, stats->valid);
    odd |=
        clamp(&stats->held_bytes, MOOR_ABI_STAT_HELD, stats->total_bytes, MOOR_ABI_STAT_TOTAL, stats->valid);
    odd |= clamp(&stats->system_held_bytes, MOOR_ABI_STAT_SYSTEM_HELD, stats->total_bytes,
                 MOOR_ABI_STAT_TOTAL, stats->valid);
    odd |=
        clamp(&stats->huge_bytes, MOOR_ABI_STAT_HUGE, stats->total_bytes, MOOR_ABI_STAT_TOTAL, stats->valid);
    odd |= clamp(&stats->huge_bytes, MOOR_ABI_STAT_HUGE, stats->system_held_bytes, MOOR_ABI_STAT_SYSTEM_HELD,
                 stats->valid);
    const uint64_t all = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD;
    if ((stats->valid & all) == all && stats->held_bytes > stats->total_bytes - stats->free_bytes) {
        stats->free_bytes = stats->total_bytes - stats->held_bytes;
        odd = true;
    }
    stats->inconsistent = odd;
}

moor_status moor_device_get_stats(struct moor_device *device, uint32_t domain,
                                  struct moor_device_stats *ret_stats)
{
    if (!device || !ret_stats)
        return moor__fail(MOOR_INVALID, "device and ret_stats must not be NULL");
    const struct moor__table *table = &device->provider->table;
    moor_status status = moor__enter(device->provider->runtime);
    if (status)
        return status;
    if (domain >= device->info.domain_count)
        return moor__fail(MOOR_INVALID, "domain %u of %u", domain, device->info.domain_count);
    if (!(device->domains[domain].info.capabilities & MOOR_ABI_CAP_STATS))
        return moor__fail(MOOR_UNSUPPORTED, "%s: domain %u of %s has no STATS", table->name, domain,
                          device->info.name);
    status = moor__device_open(device);
    if (status)
        return status;
    struct moor_abi_error error = MOOR__ERROR_INIT;
    struct moor_abi_stats raw = {.struct_size = sizeof raw};
    int32_t called = table->stats.stats(device->context, domain, &raw, &error);
    if (called)
        return moor__fail_provider(called, &error, table->name, "stats");
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
    if (status)
        return status;
    if (!ret_counts)
        return moor__fail(MOOR_INVALID, "ret_counts is NULL");
    struct moor_object_counts counts = {
        .grants = atomic_load_explicit(&runtime->grant_count, memory_order_acquire),
        .leases = atomic_load_explicit(&runtime->lease_count, memory_order_acquire),
    };
    pthread_mutex_lock(&runtime->lock);
    for (const struct moor_provider *provider = runtime->providers; provider; provider = provider->next)
        for (uint32_t i = 0; i < provider->device_count; i++)
            add_device(&provider->devices[i], &counts);
    pthread_mutex_unlock(&runtime->lock);
    *ret_counts = counts;
    return MOOR_OK;
}
