/* SPDX-License-Identifier: MIT */
/* A host's handles, threads and loads of this provider, and absent capabilities. */
#include "check/host.h"

#include <string.h>

/* ---- handles ---- */

/* Passes a wrong handle to every call. None may accept it. */
static void expect_no_handle(const struct host *host, uint64_t handle)
{
    struct moor_view view;
    uint64_t bytes = 0;
    const moor_status answers[] = {moor_buffer_get_view(host->runtime, handle, &view),
                                   moor_buffer_release(host->runtime, handle),
                                   moor_range_get_view(host->runtime, handle, &view),
                                   moor_range_release(host->runtime, handle),
                                   moor_segment_release(host->runtime, handle),
                                   moor_grant_get_remaining(host->runtime, handle, &bytes),
                                   moor_grant_release(host->runtime, handle),
                                   moor_lease_refund(host->runtime, handle)};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        check_that(answers[i] == MOOR_INVALID || answers[i] == MOOR_STALE || answers[i] == MOOR_FOREIGN,
                   "call %zu on the invented handle 0x%llx returned %s", i, (unsigned long long)handle,
                   moor_status_name(answers[i]));
}

static void wrong_handles(void)
{
    struct host host = host_open(0);
    struct host other = host_open(0);
    moor_buffer buffer = host_allocate(&host, HOST_SMALL_BYTES);
    moor_buffer foreign = host_allocate(&other, HOST_SMALL_BYTES);
    moor_buffer stale = host_allocate(&host, HOST_SMALL_BYTES);
    struct moor_view view;
    host_release(&host, stale);
    host_expect(moor_buffer_get_view(host.runtime, stale, &view), MOOR_STALE,
                "the view of a released buffer");
    host_expect(moor_buffer_release(host.runtime, stale), MOOR_STALE, "a second release");
    host_expect(moor_buffer_get_view(host.runtime, foreign, &view), MOOR_FOREIGN,
                "the view of a foreign buffer");
    host_expect(moor_buffer_release(host.runtime, foreign), MOOR_FOREIGN, "the release of a foreign buffer");

    uint64_t random = 88172645463325252u;
    for (unsigned int i = 0; i < 10000; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if (random != buffer)
            expect_no_handle(&host, random);
        expect_no_handle(&host, (buffer ^ (UINT64_C(1) << i % 64)));
    }
    view = host_view(&host, buffer); /* the buffer has survived every call */
    host_release(&host, buffer);
    host_release(&other, foreign);
    host_close(&other);
    host_close(&host);
}

/* ---- threads ---- */

static void churn(unsigned int index, void *user)
{
    enum { ROUNDS = 100, LIVE = 4 };
    const struct host *host = user;
    moor_buffer live[LIVE] = {0};
    for (unsigned int i = 0; i < ROUNDS; i++) {
        host_release(host, live[i % LIVE]); /* a release of handle 0 does nothing */
        live[i % LIVE] = host_allocate(host, 1 + (index * 977 + i * 4099) % HOST_SMALL_BYTES);
    }
    for (unsigned int i = 0; i < LIVE; i++)
        host_release(host, live[i]);
}

static void many_threads(void)
{
    struct host host = host_open(0);
    check_parallel(16, churn, &host);
    host_close(&host);
}

/* ---- loading and unloading ---- */

static void unload_waits_for_objects(void)
{
    struct host host = host_open(0);
    moor_buffer buffer = host_allocate(&host, HOST_SMALL_BYTES);
    host_expect(moor_provider_unload(host.provider), MOOR_BUSY, "unload with a live buffer");
    struct moor_view view = host_view(&host, buffer); /* the refused unload changed nothing */
    check_that(view.size_bytes == HOST_SMALL_BYTES, "the size of a buffer changed to %llu bytes",
               (unsigned long long)view.size_bytes);
    host_release(&host, buffer);
    host_expect_ok(moor_stream_destroy(host.stream), "stream destroy");
    host_reap(&host);
    host_expect_ok(moor_binding_close(host.binding), "binding close");
    host_expect_ok(moor_holder_destroy(host.holder), "holder destroy");
    host_expect_ok(moor_provider_unload(host.provider), "unload");
    host_expect_ok(moor_runtime_destroy(host.runtime), "runtime destroy");
}

static void loads_again(void)
{
    struct moor_abi_device_info first = {0};
    for (unsigned int round = 0; round < 4; round++) {
        struct moor_abi_device_info info;
        struct host host = host_open(0);
        host_expect_ok(moor_device_get_info(host.device, &info), "device info");
        if (round == 0)
            first = info;
        check_that(strcmp(info.key, first.key) == 0,
                   "a device's key was '%s', and is '%s' after a second load", first.key, info.key);
        host_release(&host, host_allocate(&host, HOST_SMALL_BYTES));
        host_close(&host);
    }
}

/* ---- absent capabilities ---- */

static moor_status try_virtual(const struct host *host)
{
    moor_range range = 0;
    return moor_range_reserve(host->binding, HOST_SMALL_BYTES, NULL, &range);
}

static moor_status try_shared(const struct host *host)
{
    moor_segment segment = 0;
    return moor_segment_create(host->binding, HOST_SMALL_BYTES, 0, 0, &segment);
}

static moor_status try_pinned(const struct host *host)
{
    static _Alignas(HOST_SMALL_BYTES) uint8_t memory[HOST_SMALL_BYTES]; /* whole pages of any page size */
    moor_buffer buffer = 0;
    return moor_buffer_wrap(host->binding, memory, sizeof memory, MOOR_BUFFER_PIN, &buffer);
}

static moor_status try_stats(const struct host *host)
{
    struct moor_device_stats stats;
    return moor_device_get_stats(host->device, host->domain, &stats);
}

static const struct absent {
    uint64_t capability;
    moor_status (*call)(const struct host *host);
    const char *name;
} absents[] = {{MOOR_ABI_CAP_VIRTUAL, try_virtual, "a range without VIRTUAL"},
               {MOOR_ABI_CAP_SHARED, try_shared, "a segment without SHARED"},
               {MOOR_ABI_CAP_PINNED, try_pinned, "a pin without PINNED"},
               {MOOR_ABI_CAP_STATS, try_stats, "stats without STATS"}};

/* Calls the functions of capabilities that the domain lacks. Returns the number of capabilities. */
static unsigned int try_absent(const struct host *host)
{
    unsigned int tried = 0;
    for (size_t i = 0; i < sizeof absents / sizeof *absents; i++) {
        if (host->info.capabilities & absents[i].capability)
            continue;
        host_expect(absents[i].call(host), MOOR_UNSUPPORTED, absents[i].name);
        tried++;
    }
    return tried;
}

static void absent_is_unsupported(void)
{
    struct host host = host_open(0);
    struct moor_abi_device_info device;
    struct host at = host;
    unsigned int tried = 0;
    host_expect_ok(moor_device_get_info(host.device, &device), "device info");
    for (at.domain = 0; at.domain < device.domain_count; at.domain++) {
        host_expect_ok(moor_device_get_domain_info(at.device, at.domain, &at.info), "domain info");
        moor_status status = moor_binding_open(at.device, at.domain, host.holder, &at.binding);
        if (status == MOOR_FOREIGN)
            continue; /* the holder belongs to another pool */
        host_expect_ok(status, "binding open");
        tried += try_absent(&at);
        host_expect_ok(moor_binding_close(at.binding), "binding close");
    }
    host_close(&host);
    if (tried == 0)
        check_skip("every domain has every capability");
}

const struct check check_host_life[] = {
    {"host.wrong_handles", "20,000 invented, stale and foreign handles get a status and change nothing.",
     .run = wrong_handles},
    {"host.many_threads", "After 16 threads have allocated and released at once the accounts are exact.",
     .run = many_threads},
    {"host.unload_waits_for_objects",
     "Unload is BUSY while an object is live, changes nothing then, and succeeds afterwards.",
     .run = unload_waits_for_objects},
    {"host.loads_again", "The provider can be loaded and unloaded repeatedly, with the same devices.",
     .run = loads_again},
    {"host.absent_is_unsupported", "A capability that the domain lacks is UNSUPPORTED.",
     .run = absent_is_unsupported},
    {0},
};
