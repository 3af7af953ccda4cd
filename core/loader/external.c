/* SPDX-License-Identifier: MIT */
/*
 * External use: bytes of a pool that its devices report as used, less the bytes that providers of this
 * runtime hold. The figures come from several calls, between which anything may change, so they are clamped
 * and never become a line of an account. Where several devices report on one pool, the least free bytes
 * count.
 */
#include "loader/provider.h"
#include "util/error.h"

struct sum {
    uint64_t total;
    uint64_t free_bytes;
    uint64_t held;
    bool known;
    bool inconsistent;
};

static bool is_open(struct moor_device *device)
{
    moor__lock_acquire(&device->lock);
    bool open = device->state == MOOR__DEVICE_OPEN;
    moor__lock_release(&device->lock);
    return open;
}

static void add_domain(struct moor_device *device, uint32_t domain, struct sum *sum)
{
    const uint64_t needed = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE;
    struct moor_device_stats stats;
    if (moor__device_stats(device, domain, &stats))
        return;
    sum->inconsistent |= stats.inconsistent != 0;
    if (stats.valid & MOOR_ABI_STAT_HELD)
        sum->held += stats.held_bytes;
    if ((stats.valid & needed) != needed)
        return;
    if (!sum->known || stats.free_bytes < sum->free_bytes)
        sum->free_bytes = stats.free_bytes;
    if (!sum->known || stats.total_bytes > sum->total)
        sum->total = stats.total_bytes;
    sum->known = true;
}

moor_status moor__external_refresh(struct moor_authority *authority)
{
    struct moor_runtime *runtime = authority->runtime;
    struct sum sum = {0};
    for (struct moor_provider *provider = moor__registry_visit(runtime, NULL); provider;
         provider = moor__registry_visit(runtime, provider))
        for (uint32_t i = 0; i < provider->device_count; i++) {
            struct moor_device *device = &provider->devices[i];
            for (uint32_t d = 0; d < device->info.domain_count && is_open(device); d++)
                if (device->domains[d].authority == authority)
                    add_domain(device, d, &sum);
        }
    if (!sum.known)
        return moor__fail(MOOR_UNSUPPORTED, "pool %s: no open device reports its free bytes",
                          authority->pool_key);
    moor__authority_set_external(authority, sum.total, sum.free_bytes, sum.held, sum.inconsistent);
    return MOOR_OK;
}

moor_status moor_authority_refresh(struct moor_authority *authority)
{
    moor_status status = moor__authority_enter(authority);
    return moor__leave(status ? status : moor__external_refresh(authority));
}
