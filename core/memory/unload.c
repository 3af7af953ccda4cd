/* SPDX-License-Identifier: MIT */
/*
 * Unloads providers. A provider ends when its last load is undone and none of its objects is alive. Until
 * that is certain nothing changes; then the provider drains, shuts down and is forgotten. Its code stays in
 * the process.
 */
#include "loader/provider.h"

#include "memory/release.h"
#include "util/error.h"

#include <sched.h>

static moor_status check_idle(struct moor_provider *provider)
{
    uint64_t sum[MOOR__COUNTS] = {0};
    uint64_t alive = 0;
    for (uint32_t i = 0; i < provider->device_count; i++)
        for (int kind = 0; kind < MOOR__COUNTS; kind++) {
            uint64_t count = atomic_load_explicit(&provider->devices[i].counts[kind], memory_order_acquire);
            sum[kind] += count;
            alive += count;
        }
    if (alive == 0)
        return MOOR_OK;
    return moor__fail(
        MOOR_BUSY,
        "%s: alive: %llu buffers, %llu ranges, %llu segments, %llu streams, %llu bindings, %llu releases "
        "pending, %llu quarantined",
        provider->table.name, (unsigned long long)sum[MOOR__COUNT_BUFFER],
        (unsigned long long)sum[MOOR__COUNT_RANGE], (unsigned long long)sum[MOOR__COUNT_SEGMENT],
        (unsigned long long)sum[MOOR__COUNT_STREAM], (unsigned long long)sum[MOOR__COUNT_BINDING],
        (unsigned long long)sum[MOOR__COUNT_RELEASE], (unsigned long long)sum[MOOR__COUNT_QUARANTINE]);
}

/* Completes the provider's finished releases and streams, then checks its counts. Requires a closed provider.
 * BUSY: objects are alive. */
static moor_status settle(struct moor_provider *provider)
{
    for (uint32_t i = 0; i < provider->device_count; i++) {
        if (!provider->devices[i].context)
            continue;
        moor__quarantine_retry(&provider->devices[i]);
        moor__device_reap(&provider->devices[i], MOOR_NO_WAIT);
    }
    moor__streams_retire(provider, true);
    return check_idle(provider);
}

/* Ends a settled provider. */
static void end(struct moor_provider *provider)
{
    /* The last calls on objects that are gone may still be returning. */
    for (uint32_t i = 0; i < provider->device_count; i++)
        while (atomic_load_explicit(&provider->devices[i].calls, memory_order_acquire))
            (void)sched_yield();
    moor__registry_leave(provider);
    moor__provider_shut_down(provider);
    moor__registry_forget(provider);
    moor__provider_free(provider);
}

moor_status moor_provider_unload(struct moor_provider *provider)
{
    if (!provider)
        return moor__leave(moor__fail(MOOR_INVALID, "the provider is NULL"));
    bool is_last = false;
    moor_status status = moor__enter(provider->runtime);
    if (!status)
        status = moor__registry_close(provider, &is_last);
    if (status || !is_last)
        return moor__leave(status);
    status = settle(provider);
    if (status)
        moor__registry_open(provider);
    else
        end(provider);
    return moor__leave(status);
}

moor_status moor__providers_unload(struct moor_runtime *runtime)
{
    moor_status status = moor__registry_close_all(runtime);
    if (status)
        return status;
    struct moor_provider *provider = runtime->providers;
    for (; provider && !status; provider = provider->next)
        status = settle(provider);
    if (status)
        moor__registry_open_all(runtime);
    while (!status && runtime->providers)
        end(runtime->providers);
    return status;
}
