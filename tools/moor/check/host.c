/* SPDX-License-Identifier: MIT */
/* Hosts for checks: see check/host.h. */
#include "check/host.h"

#include <stdlib.h>
#include <string.h>

/* The least budget. The budget also has room for the small buffers at any footprint. */
#define BUDGET_BYTES (UINT64_C(64) << 20)
#define BUDGET_BUFFERS 128u

void host_expect(moor_status actual, moor_status expected, const char *what)
{
    check_that(actual == expected, "%s returned %s, not %s%s%s", what, moor_status_name(actual),
               moor_status_name(expected), actual != MOOR_OK ? ": " : "",
               actual != MOOR_OK ? moor_last_error()->text : "");
}

void host_expect_ok(moor_status actual, const char *what)
{
    host_expect(actual, MOOR_OK, what);
}

/* ---- open and close ---- */

static struct moor_provider *load(struct moor_runtime *runtime)
{
    struct moor_provider *provider = NULL;
    host_expect_ok(moor_provider_load(runtime, run.path, run.options, &provider), "load");
    return provider;
}

/* Finds the first domain that has the capabilities. */
static bool find_domain(struct host *host, uint64_t capabilities)
{
    for (uint32_t i = 0; i < run.device_count; i++) {
        struct moor_abi_device_info device;
        if (moor_provider_get_device(host->provider, i, &host->device) != MOOR_OK)
            return false; /* the core left some devices out */
        host_expect_ok(moor_device_get_info(host->device, &device), "device info");
        for (host->domain = 0; host->domain < device.domain_count; host->domain++) {
            host_expect_ok(moor_device_get_domain_info(host->device, host->domain, &host->info),
                           "domain info");
            if ((capabilities & ~host->info.capabilities) == 0)
                return true;
        }
    }
    return false;
}

static void set_budget(const struct host *host)
{
    uint64_t each = 0;
    host_expect_ok(moor_binding_get_footprint(host->binding, HOST_SMALL_BYTES, NULL, &each), "footprint");
    uint64_t bytes = BUDGET_BUFFERS * each > BUDGET_BYTES ? BUDGET_BUFFERS * each : BUDGET_BYTES;
    host_expect_ok(moor_authority_set_capacity(host->authority, bytes, 0, NULL), "set capacity");
}

struct host host_open(uint64_t capabilities)
{
    struct host host = {0};
    host_expect_ok(moor_runtime_create(NULL, &host.runtime), "runtime create");
    host.provider = load(host.runtime);
    if (!find_domain(&host, capabilities))
        check_skip("no domain has the needed capabilities");
    host_expect_ok(moor_device_get_authority(host.device, host.domain, &host.authority), "authority");
    host_expect_ok(moor_holder_create(host.authority, NULL, &host.holder), "holder create");
    host_expect_ok(moor_binding_open(host.device, host.domain, host.holder, &host.binding), "binding open");
    set_budget(&host);
    host_expect_ok(moor_stream_create(host.device, NULL, &host.stream), "stream create");
    return host;
}

void host_reap(const struct host *host)
{
    host_expect_ok(moor_runtime_reap(host->runtime, run.deadline_ns), "reap");
}

struct moor_authority_stats host_accounts(const struct host *host)
{
    struct moor_authority_stats stats;
    host_expect_ok(moor_authority_get_stats(host->authority, &stats, NULL, 0, NULL), "authority stats");
    return stats;
}

void host_expect_charged(const struct host *host, uint64_t bytes, const char *when)
{
    struct moor_authority_stats stats = host_accounts(host);
    struct moor_device_stats device;
    check_that(stats.charged_bytes == bytes && stats.live_bytes == bytes && stats.reserved_bytes == 0,
               "%s: %llu bytes are charged, %llu of them live, %llu are reserved; not %llu charged and live",
               when, (unsigned long long)stats.charged_bytes, (unsigned long long)stats.live_bytes,
               (unsigned long long)stats.reserved_bytes, (unsigned long long)bytes);
    if ((host->info.capabilities & MOOR_ABI_CAP_STATS) == 0)
        return;
    host_expect_ok(moor_device_get_stats(host->device, host->domain, &device), "device stats");
    check_that(device.inconsistent == 0, "%s: the device statistics are inconsistent", when);
    check_that((device.valid & MOOR_ABI_STAT_HELD) == 0 || device.held_bytes == bytes - stats.leased_bytes,
               "%s: %llu bytes are charged, and held_bytes is %llu", when,
               (unsigned long long)(bytes - stats.leased_bytes), (unsigned long long)device.held_bytes);
}

static void expect_nothing_left(const struct host *host)
{
    static const struct moor_object_counts none = {0};
    struct moor_object_counts counts;
    host_expect_ok(moor_runtime_get_counts(host->runtime, &counts), "counts");
    check_that(
        memcmp(&counts, &none, sizeof counts) == 0,
        "left: %llu buffers, %llu ranges, %llu segments, %llu streams, %llu bindings, %llu releases, %llu "
        "quarantined",
        (unsigned long long)counts.buffers, (unsigned long long)counts.ranges,
        (unsigned long long)counts.segments, (unsigned long long)counts.streams,
        (unsigned long long)counts.bindings, (unsigned long long)counts.releases,
        (unsigned long long)counts.quarantined);
}

void host_close(struct host *host)
{
    host_expect_ok(moor_stream_destroy(host->stream), "stream destroy");
    host_reap(host);
    host_expect_charged(host, 0, "at the end");
    host_expect_ok(moor_binding_close(host->binding), "binding close");
    expect_nothing_left(host);
    host_expect_ok(moor_holder_destroy(host->holder), "holder destroy");
    host_expect_ok(moor_runtime_destroy(host->runtime), "runtime destroy");
}

/* ---- memory ---- */

uint64_t host_footprint(const struct host *host, uint64_t size_bytes)
{
    uint64_t bytes = 0;
    host_expect_ok(moor_binding_get_footprint(host->binding, size_bytes, NULL, &bytes), "footprint");
    return bytes;
}

moor_buffer host_allocate(const struct host *host, uint64_t size_bytes)
{
    /* waits for pending releases */
    const struct moor_buffer_options options = {.deadline_ns = run.deadline_ns};
    moor_buffer buffer = 0;
    host_expect_ok(moor_buffer_allocate(host->binding, size_bytes, &options, &buffer), "allocate");
    return buffer;
}

void host_expect_no_allocation(const struct host *host, uint64_t size_bytes, moor_status expected,
                               const char *what)
{
    moor_buffer buffer = 0;
    host_expect(moor_buffer_allocate(host->binding, size_bytes, NULL, &buffer), expected, what);
    check_that(buffer == 0, "%s: a refused allocate wrote its output", what);
}

void host_release(const struct host *host, moor_buffer buffer)
{
    host_expect_ok(moor_buffer_release(host->runtime, buffer), "buffer release");
}

struct moor_view host_view(const struct host *host, moor_buffer buffer)
{
    struct moor_view view = {0};
    host_expect_ok(moor_buffer_get_view(host->runtime, buffer, &view), "buffer view");
    return view;
}

struct moor_view host_slice(const struct moor_view *view, uint64_t offset_bytes, uint64_t size_bytes)
{
    struct moor_view part = {0};
    host_expect_ok(moor_view_slice(view, offset_bytes, size_bytes, &part), "slice");
    return part;
}

void host_finish(const struct host *host)
{
    struct moor_fence fence;
    host_expect_ok(moor_stream_record(host->stream, &fence), "record");
    host_expect_ok(moor_fence_wait(&fence, run.deadline_ns), "fence wait");
}

void host_fill(const struct host *host, const struct moor_view *view, uint8_t value)
{
    host_expect_ok(moor_fill(host->stream, view, value, 1), "fill");
    host_finish(host);
}

void host_expect_bytes(const struct host *host, const struct moor_view *view, uint8_t value, const char *what)
{
    uint8_t *bytes = check_memory(view->size_bytes, 1);
    struct moor_view seen = moor_view_host(bytes, view->size_bytes);
    memset(bytes, ~value, view->size_bytes);
    host_expect_ok(moor_copy(host->stream, &seen, view), "copy to the host");
    host_finish(host);
    for (uint64_t i = 0; i < view->size_bytes; i++)
        if (bytes[i] != value)
            check_that(false, "%s: byte %llu reads as 0x%02x, not 0x%02x", what, (unsigned long long)i,
                       bytes[i], value);
    free(bytes);
}
