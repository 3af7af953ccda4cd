/* SPDX-License-Identifier: MIT */
/*
 * A host of the CUDA provider over the simulated driver, through the public API alone: a runtime, a device, a
 * holder and a stream. Tests steer the driver through its controls (moorage/cudasim.h).
 */
#ifndef MOORAGE_TESTS_CUDA_HOST_H
#define MOORAGE_TESTS_CUDA_HOST_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <moorage/cudasim.h>
#include <moorage/moorage.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define BLOCK_BYTES (2 * MIB) /* size of the block behind a small allocation */
#define LENGTH(array_) (sizeof(array_) / sizeof(array_)[0])

#define EXPECT(status_, call_)                                                                               \
    do {                                                                                                     \
        moor_status answered_ = (call_);                                                                     \
        cr_assert_eq(answered_, (status_), "%s answered %s, not %s: %s", #call_,                             \
                     moor_status_name(answered_), moor_status_name(status_), moor_last_error()->text);       \
    } while (0)
#define MUST(call_) EXPECT(MOOR_OK, call_)

struct host {
    const struct moor_cudasim *sim;
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    struct moor_device *device;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *stream;
    uint64_t granule; /* the smallest granule in bytes */
};

static inline const char *path_of(const char *variable)
{
    const char *path = getenv(variable);
    cr_assert_not_null(path, "%s is not set", variable);
    return path;
}

static inline void configure(const struct host *host, const char *settings)
{
    cr_assert_eq(host->sim->configure(settings), 0, "%s", settings);
}

static inline void host_bind(struct host *host, uint32_t device)
{
    struct moor_abi_domain_info domain;
    MUST(moor_provider_get_device(host->provider, device, &host->device));
    MUST(moor_device_get_domain_info(host->device, 0, &domain));
    MUST(moor_device_get_authority(host->device, 0, &host->authority));
    MUST(moor_holder_create(host->authority, NULL, &host->holder));
    MUST(moor_binding_open(host->device, 0, host->holder, &host->binding));
    MUST(moor_stream_create(host->device, NULL, &host->stream));
    host->granule = domain.granule_min_bytes;
}

/* runtime: NULL makes one. key, value: a setting of the provider's, or NULL. */
static inline void host_join(struct host *host, struct moor_runtime *runtime, const char *key,
                             const char *value)
{
    const struct moor_setting settings[] = {{"driver", path_of("MOOR_CUDA_DRIVER")}, {key, value}};
    const struct moor_load_options options = {.settings = settings, .setting_count = key ? 2 : 1};
    host->runtime = runtime;
    if (!runtime)
        MUST(moor_runtime_create(NULL, &host->runtime));
    MUST(moor_provider_load(host->runtime, path_of("MOOR_CUDA_PROVIDER"), &options, &host->provider));
    host_bind(host, 0);
}

static inline void host_simulate(struct host *host, const char *sim)
{
    void *driver = dlopen(path_of("MOOR_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(driver, "%s", dlerror());
    *host = (struct host){.sim = dlsym(driver, MOOR_CUDASIM_SYMBOL)};
    cr_assert_not_null(host->sim, "%s", dlerror());
    configure(host, "granule_min=64KiB,granule=64KiB,context=0,delay_us=20");
    configure(host, sim);
}

static inline void host_open(struct host *host, const char *sim, const char *key, const char *value)
{
    host_simulate(host, sim);
    host_join(host, NULL, key, value);
}

static inline void host_settle(const struct host *host)
{
    MUST(moor_runtime_reap(host->runtime, moor_clock_ns() + UINT64_C(60000000000)));
}

static inline struct moor_authority_stats host_stats(const struct host *host)
{
    struct moor_authority_stats stats;
    MUST(moor_authority_get_stats(host->authority, &stats, NULL, 0, NULL));
    return stats;
}

static inline struct moor_cudasim_live host_live(const struct host *host)
{
    struct moor_cudasim_live live;
    host->sim->live(&live);
    return live;
}

/* Expects, while no call is under way, that the charged bytes equal the bytes that the provider holds, and
 * that the accounts add up. Returns the sum. */
static inline uint64_t host_check(const struct host *host)
{
    struct moor_authority_stats stats;
    struct moor_device_stats device;
    host_settle(host);
    stats = host_stats(host);
    MUST(moor_device_get_stats(host->device, 0, &device));
    cr_assert_eq(stats.charged_bytes, stats.live_bytes + stats.pending_bytes + stats.quarantined_bytes);
    cr_assert_eq(stats.committed_bytes, stats.charged_bytes - stats.leased_bytes);
    cr_assert_eq(device.held_bytes, stats.committed_bytes, "%llu bytes are held, %llu are committed",
                 (unsigned long long)device.held_bytes, (unsigned long long)stats.committed_bytes);
    return stats.charged_bytes;
}

/* Expects that no byte is charged and no object is left with the driver. */
static inline void host_part(struct host *host)
{
    MUST(moor_stream_destroy(host->stream));
    cr_assert_eq(host_check(host), 0, "bytes are held at the end");
    MUST(moor_binding_close(host->binding));
    MUST(moor_holder_destroy(host->holder));
}

static inline void host_close(struct host *host)
{
    const struct moor_cudasim *sim = host->sim;
    host_part(host);
    MUST(moor_runtime_destroy(host->runtime));
    struct moor_cudasim_live live, none = {0};
    sim->live(&live);
    cr_assert_eq(memcmp(&live, &none, sizeof live), 0, "something of ours is left with the driver");
    cr_assert_eq(sim->violations(), 0, "%s", sim->violation(0));
}

static inline void *host_native(const struct host *host)
{
    uint64_t native;
    MUST(moor_stream_get_native(host->stream, &native));
    return (void *)(uintptr_t)native;
}

static inline moor_buffer host_allocate(const struct host *host, uint64_t bytes)
{
    moor_buffer buffer = 0;
    MUST(moor_buffer_allocate(host->binding, bytes, NULL, &buffer));
    return buffer;
}

static inline moor_range host_reserve(const struct host *host, uint64_t granules)
{
    moor_range range = 0;
    const struct moor_range_options options = {.granule_bytes = host->granule};
    MUST(moor_range_reserve(host->binding, granules * host->granule, &options, &range));
    return range;
}

static inline struct moor_view host_view(const struct host *host, moor_range range, uint64_t offset,
                                         uint64_t bytes)
{
    struct moor_view whole, view = {0};
    MUST(moor_range_get_view(host->runtime, range, &whole));
    MUST(moor_view_slice(&whole, offset, bytes, &view));
    return view;
}

static inline void host_fill(const struct host *host, const struct moor_view *view, uint8_t value)
{
    struct moor_fence fence;
    MUST(moor_fill(host->stream, view, value, 1));
    MUST(moor_stream_record(host->stream, &fence));
    MUST(moor_fence_wait(&fence, MOOR_FOREVER));
}

/* Returns true if memory, read without regard to streams, holds one value throughout. */
static inline bool host_holds(const struct host *host, const struct moor_view *view, uint8_t value)
{
    unsigned char *bytes = malloc(view->size_bytes);
    bool same = host->sim->peek(view->address, bytes, view->size_bytes) == 0;
    for (uint64_t i = 0; i < view->size_bytes && same; i++)
        same = bytes[i] == value;
    free(bytes);
    return same;
}

#endif
