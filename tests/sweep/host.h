/* SPDX-License-Identifier: MIT */
/*
 * A host for cases about budgets: a runtime, one device of a provider with the case's own settings, loaded as
 * a host loads it, and a holder on it. A failed check ends the process, as in world.h, and uses its macros.
 */
#ifndef MOOR_TESTS_SWEEP_HOST_H
#define MOOR_TESTS_SWEEP_HOST_H

#include "opened.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define LATE_MS 60000u /* a deadline that no case reaches */

struct host {
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    struct moor_device *device;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    const struct moor_mock_control *mock; /* NULL: the provider is not a simulated device */
    uint64_t granule;                     /* the smallest granule, in bytes */
};

static inline uint64_t soon(uint64_t milliseconds)
{
    return moor_clock_ns() + milliseconds * 1000000;
}

static inline void pause_ms(long milliseconds)
{
    (void)nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL);
}

/* runtime: NULL: the host gets its own. settings: ends with a NULL key. */
static inline void host_join(struct host *host, struct moor_runtime *runtime, enum which which,
                             uint32_t device, const struct moor_setting *settings)
{
    *host = (struct host){.runtime = runtime};
    const void *table;
    struct moor_abi_domain_info domain;
    struct moor_load_options options = {.settings = settings};
    while (settings && settings[options.setting_count].key)
        options.setting_count++;
    (void)snprintf(world_trial, sizeof world_trial, "%s", which == CPU ? "cpu" : "mock");
    if (!runtime)
        MUST(moor_runtime_create(NULL, &host->runtime));
    MUST(moor_provider_load(host->runtime, path_of(which == CPU ? "MOOR_CPU_PROVIDER" : "MOOR_MOCK_PROVIDER"),
                            &options, &host->provider));
    if (which == MOCK) {
        MUST(moor_provider_get_extension(host->provider, MOOR_MOCK_CONTROL, MOOR_MOCK_CONTROL_VERSION,
                                         &table));
        host->mock = table;
    }
    MUST(moor_provider_get_device(host->provider, device, &host->device));
    MUST(moor_device_get_domain_info(host->device, 0, &domain));
    MUST(moor_device_get_authority(host->device, 0, &host->authority));
    MUST(moor_holder_create(host->authority, NULL, &host->holder));
    MUST(moor_binding_open(host->device, 0, host->holder, &host->binding));
    host->granule = domain.granule_min_bytes;
}

static inline void host_open(struct host *host, enum which which, const struct moor_setting *settings)
{
    host_join(host, NULL, which, 0, settings);
}

static inline struct moor_authority_stats host_stats(const struct host *host)
{
    struct moor_authority_stats stats;
    MUST(moor_authority_get_stats(host->authority, &stats, NULL, 0, NULL));
    return stats;
}

static inline void host_settle(const struct host *host)
{
    MUST(moor_runtime_reap(host->runtime, soon(LATE_MS)));
}

/* Checks at a quiet point that the charged bytes are the bytes that the device holds; returns them. */
static inline uint64_t host_check(const struct host *host)
{
    struct moor_authority_stats stats = host_stats(host);
    CHECK(stats.charged_bytes == stats.live_bytes + stats.pending_bytes + stats.quarantined_bytes,
          "charged is not live, pending and quarantined together");
    CHECK(stats.committed_bytes == stats.charged_bytes - stats.leased_bytes,
          "committed is not charged less leased");
    uint64_t used = stats.reserved_bytes + stats.charged_bytes, held = 0;
    CHECK(stats.free_bytes == (stats.capacity_bytes > used ? stats.capacity_bytes - used : 0),
          "free, reserved and charged are not the capacity");
    if (!host->mock)
        return stats.committed_bytes;
    CHECK(host->mock->held(host->mock->mock, 0, &held) == MOOR_OK,
          "the device does not report its held bytes");
    CHECK(stats.committed_bytes == held, "%llu bytes are committed, %llu are held",
          (unsigned long long)stats.committed_bytes, (unsigned long long)held);
    return held;
}

static inline void host_capacity(const struct host *host, uint64_t bytes)
{
    MUST(moor_authority_set_capacity(host->authority, bytes, 0, NULL));
}

/* Closes everything but the runtime. */
static inline void host_part(struct host *host)
{
    struct moor_mock_violation first = {0};
    uint64_t total = 0;
    uint32_t count = 0;
    host_settle(host);
    CHECK(host_check(host) == 0, "bytes are held at the end");
    CHECK(host_stats(host).reserved_bytes == 0, "bytes are reserved at the end");
    if (host->mock)
        CHECK(host->mock->violations(host->mock->mock, &total, &first, 1, &count) == MOOR_OK && total == 0,
              "%s\n%s", first.text, first.history);
    MUST(moor_binding_close(host->binding));
    MUST(moor_holder_destroy(host->holder));
}

static inline void host_close(struct host *host)
{
    host_part(host);
    MUST(moor_runtime_destroy(host->runtime));
}

static inline void run_host(enum which which, const struct moor_setting *settings,
                            void (*body)(struct host *host))
{
    struct host host;
    host_open(&host, which, settings);
    body(&host);
    host_close(&host);
}

#define SETTINGS(...) ((const struct moor_setting[]){__VA_ARGS__, {NULL, NULL}})

/* A case with an open host `host` on one provider. */
#define HOST_CASE(suite_, name_, which_, settings_)                                                          \
    static void suite_##_##name_(struct host *host);                                                         \
    Test(suite_, name_)                                                                                      \
    {                                                                                                        \
        run_host(which_, settings_, suite_##_##name_);                                                       \
    }                                                                                                        \
    static void suite_##_##name_(struct host *host)

static inline void host_fail(const struct host *host, const char *function, uint32_t times,
                             moor_status status, uint64_t delay_ns)
{
    const struct moor_mock_fault fault = {function, 1, times, status, 0, delay_ns};
    CHECK(host->mock->fault(host->mock->mock, &fault) == MOOR_OK, "a fault cannot be set");
}

static inline void host_external(const struct host *host, uint64_t bytes)
{
    CHECK(host->mock->set_external(host->mock->mock, 0, bytes) == MOOR_OK, "external use cannot be set");
}

static inline moor_buffer host_allocate(const struct host *host, uint64_t bytes)
{
    moor_buffer buffer;
    MUST(moor_buffer_allocate(host->binding, bytes, NULL, &buffer));
    return buffer;
}

static inline moor_range host_reserve(const struct host *host, uint64_t granules)
{
    moor_range range;
    const struct moor_range_options options = {.granule_bytes = host->granule};
    MUST(moor_range_reserve(host->binding, granules * host->granule, &options, &range));
    return range;
}

/* Creates a lease, for which there must be room. */
static inline moor_lease host_lease(const struct host *host, struct moor_holder *holder, uint64_t bytes)
{
    moor_grant grant;
    moor_lease lease;
    MUST(moor_grant_reserve(holder, bytes, MOOR_NO_WAIT, &grant));
    MUST(moor_grant_commit(host->runtime, grant, bytes, &lease));
    return lease;
}

/* ---- a holder with a pressure function ---- */

struct cache {
    struct host *host;
    struct moor_holder *holder;
    struct moor_binding *binding;
    moor_range range; /* 16 granules */
    uint64_t first;   /* granules from this one up to `count` are committed */
    uint64_t count;
    _Atomic bool gives; /* the function evicts the requested bytes */
    _Atomic int asked;
    _Atomic uint64_t asked_bytes; /* in the last request */
    _Atomic uint32_t reason;
};

/* Evicts idle backing, granule by granule. */
static inline uint64_t cache_asked(void *user, const struct moor_pressure *pressure)
{
    struct cache *cache = user;
    uint64_t given = 0, granule = cache->host->granule;
    atomic_store(&cache->asked_bytes, pressure->bytes);
    atomic_store(&cache->reason, pressure->reason);
    while (atomic_load(&cache->gives) && given < pressure->bytes && cache->first < cache->count) {
        MUST(moor_range_decommit(cache->host->runtime, cache->range, granule * cache->first++, granule));
        given += granule;
    }
    atomic_fetch_add(&cache->asked, 1);
    return given;
}

#define CACHE_GRANULES 16u

static inline void cache_open(struct cache *cache, struct host *host, uint64_t granules)
{
    *cache = (struct cache){.host = host, .count = granules};
    const struct moor_holder_options options = {
        .name = "cache", .role = MOOR_ROLE_CACHE, .pressure = cache_asked, .pressure_user = cache};
    const struct moor_range_options in_granules = {.granule_bytes = host->granule};
    MUST(moor_holder_create(host->authority, &options, &cache->holder));
    MUST(moor_binding_open(host->device, 0, cache->holder, &cache->binding));
    MUST(moor_range_reserve(cache->binding, CACHE_GRANULES * host->granule, &in_granules, &cache->range));
    if (granules)
        MUST(moor_range_commit(host->runtime, cache->range, 0, granules * host->granule, 0));
}

static inline void cache_close(struct cache *cache)
{
    MUST(moor_range_release(cache->host->runtime, cache->range));
    MUST(moor_holder_set_pressure(cache->holder, NULL, NULL));
    host_settle(cache->host);
    MUST(moor_binding_close(cache->binding));
    MUST(moor_holder_destroy(cache->holder));
}

static inline void await(const _Atomic int *stage, int reached)
{
    uint64_t deadline_ns = soon(LATE_MS);
    while (atomic_load(stage) < reached) {
        CHECK(moor_clock_ns() < deadline_ns, "another thread has not reached stage %d", reached);
        pause_ms(1);
    }
}

#endif
