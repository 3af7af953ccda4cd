/* SPDX-License-Identifier: MIT */
/*
 * Cases from the field about budgets: the charged bytes, limits that shrink and grow, and a reservation after
 * a failed request.
 */
#include "host.h"

#include <stdlib.h>
#include <sys/resource.h>

TestSuite(governor_cases, .timeout = 90);

/* ---- O01: the charge equals the actual bytes ---- */

HOST_CASE(governor_cases, O01_the_charge_equals_the_devices_actual_bytes, MOCK,
          SETTINGS({"total_bytes", "1GiB"}, {"alignment_bytes", "2MiB"}, {"contents", "none"}))
{
    moor_buffer buffers[50], buffer;
    const uint64_t asked = MIB + 1;
    CHECK(host_stats(host).capacity_bytes == 1024 * MIB, "the pool is not of 1 GiB");
    host_capacity(host, 100 * MIB);
    for (size_t i = 0; i < LENGTH(buffers); i++)
        buffers[i] = host_allocate(host, asked);
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(host->binding, asked, NULL, &buffer));
    CHECK(host_check(host) == 100 * MIB, "not as much is held as was given");
    struct moor_authority_stats stats = host_stats(host);
    CHECK(stats.requested_bytes == LENGTH(buffers) * asked && stats.committed_bytes == 100 * MIB,
          "%llu bytes are said to be requested, %llu committed", (unsigned long long)stats.requested_bytes,
          (unsigned long long)stats.committed_bytes);
    MUST(moor_buffer_release(host->runtime, buffers[0]));
    host_settle(host);
    stats = host_stats(host);
    host_fail(host, "allocate", UINT32_MAX, MOOR_DEVICE_NOMEM, 0);
    for (int i = 0; i < 1000; i++) {
        EXPECT(MOOR_DEVICE_NOMEM, moor_buffer_allocate(host->binding, asked, NULL, &buffer));
        struct moor_authority_stats now = host_stats(host);
        CHECK(now.charged_bytes == stats.charged_bytes && now.reserved_bytes == 0 &&
                  now.free_bytes == 2 * MIB,
              "failure %d has used something up", i);
    }
    CHECK(host->mock->clear_faults(host->mock->mock) == MOOR_OK, "faults cannot be cleared");
    for (size_t i = 1; i < LENGTH(buffers); i++)
        MUST(moor_buffer_release(host->runtime, buffers[i]));
    host_settle(host);
    buffer = host_allocate(host, 100 * MIB); /* the whole capacity */
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(host->binding, 1, NULL, &buffers[0]));
    MUST(moor_buffer_release(host->runtime, buffer));
}

/* Returns VmLck of the process, in bytes. */
static uint64_t locked_bytes(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    CHECK(status, "/proc/self/status cannot be read");
    while (fgets(line, sizeof line, status) && sscanf(line, "VmLck: %llu", &kib) != 1)
        ;
    (void)fclose(status); /* read only */
    return kib * KIB;
}

/* Pinned memory is not rounded to a power of two: at most one host page more is locked, or the additional
 * bytes are charged and reported. */
Test(governor_cases, O01_pinned_memory_is_charged_as_it_is_locked)
{
    const uint64_t asked = 65 * MIB + 1;
    struct host host;
    struct moor_authority *authority;
    struct moor_binding *binding;
    struct moor_abi_domain_info domain;
    struct rlimit limit;
    moor_buffer buffer;
    host_open(&host, CPU, NULL);
    MUST(moor_device_get_domain_info(host.device, 1, &domain));
    MUST(moor_device_get_authority(host.device, 1, &authority));
    CHECK(domain.kind == MOOR_ABI_DOMAIN_PINNED && authority == host.authority,
          "no pinned memory on the same pool");
    (void)getrlimit(RLIMIT_MEMLOCK, &limit); /* cannot fail */
    if (limit.rlim_cur < 128 * MIB) {
        host_close(&host);
        cr_skip_test("RLIMIT_MEMLOCK is %llu", (unsigned long long)limit.rlim_cur);
    }
    MUST(moor_binding_open(host.device, 1, host.holder, &binding));
    uint64_t before = locked_bytes();
    MUST(moor_buffer_allocate(binding, asked, NULL, &buffer));
    struct moor_authority_stats stats = host_stats(&host);
    CHECK(stats.requested_bytes == asked && stats.charged_bytes <= asked + 4096,
          "%llu bytes are charged for %llu", (unsigned long long)stats.charged_bytes,
          (unsigned long long)stats.requested_bytes);
    CHECK(locked_bytes() - before <= stats.charged_bytes, "%llu bytes are locked, %llu charged",
          (unsigned long long)(locked_bytes() - before), (unsigned long long)stats.charged_bytes);
    MUST(moor_buffer_release(host.runtime, buffer));
    host_settle(&host);
    MUST(moor_binding_close(binding));
    host_close(&host);
}

/* ---- O02: a limit shrinks below the used bytes and grows back ---- */

#define BLOCKS 10u /* 100 MiB each */

struct blocks {
    struct host *host;
    struct moor_holder *holder;
    struct moor_binding *binding;
    moor_buffer block[BLOCKS];
    _Atomic int asked;
    _Atomic uint64_t asked_bytes;
    _Atomic uint32_t reason;
};

/* A pressure function that notes the request and evicts nothing. */
static uint64_t blocks_asked(void *user, const struct moor_pressure *pressure)
{
    struct blocks *blocks = user;
    atomic_store(&blocks->asked_bytes, pressure->bytes);
    atomic_store(&blocks->reason, pressure->reason);
    atomic_fetch_add(&blocks->asked, 1);
    return 0;
}

static void shrink_and_grow(uint64_t reserved)
{
    static const struct moor_setting settings[] = {
        {"total_bytes", "2GiB"}, {"alignment_bytes", "1MiB"}, {"contents", "none"}, {NULL, NULL}};
    struct host host;
    struct blocks blocks = {.host = &host};
    moor_grant grant = 0;
    moor_buffer buffer;
    uint64_t over;
    host_open(&host, MOCK, settings);
    const struct moor_holder_options options = {.pressure = blocks_asked, .pressure_user = &blocks};
    MUST(moor_holder_create(host.authority, &options, &blocks.holder));
    MUST(moor_binding_open(host.device, 0, blocks.holder, &blocks.binding));
    host_capacity(&host, 1536 * MIB);
    for (size_t i = 0; i < BLOCKS; i++)
        MUST(moor_buffer_allocate(blocks.binding, 100 * MIB, NULL, &blocks.block[i]));
    if (reserved)
        MUST(moor_grant_reserve(host.holder, reserved, MOOR_NO_WAIT, &grant));
    MUST(moor_authority_set_capacity(host.authority, 240 * MIB, 0, &over));
    CHECK(over == 760 * MIB + reserved, "%llu MiB are over", (unsigned long long)(over / MIB));
    CHECK(host_stats(&host).over_bytes == over, "another figure is shown");
    await(&blocks.asked, 1);
    uint64_t asked = over < 1000 * MIB ? over : 1000 * MIB; /* at most the bytes of the holder */
    CHECK(blocks.asked_bytes == asked && blocks.reason == MOOR_PRESSURE_CAPACITY,
          "the pressure request is for %llu MiB", (unsigned long long)(blocks.asked_bytes / MIB));
    CHECK(moor_buffer_allocate(host.binding, MIB, NULL, &buffer) == MOOR_NO_VICTIM,
          "a new one is refused: %s", moor_last_error()->text);
    CHECK(host_check(&host) == 1000 * MIB, "existing memory stays");
    struct moor_view view;
    for (size_t i = 0; i < BLOCKS; i++)
        MUST(moor_buffer_get_view(host.runtime, blocks.block[i], &view));
    if (reserved) { /* an open reservation is honoured */
        const struct moor_buffer_options drawn = {.grant = grant};
        MUST(moor_buffer_allocate(host.binding, reserved, &drawn, &buffer));
        MUST(moor_buffer_release(host.runtime, buffer));
        MUST(moor_grant_release(host.runtime, grant));
    }
    for (size_t i = 0; i < 8; i++)
        MUST(moor_buffer_release(host.runtime, blocks.block[i]));
    host_settle(&host);
    CHECK(host_check(&host) == 200 * MIB && host_stats(&host).over_bytes == 0, "800 MiB are free again");
    MUST(moor_buffer_allocate(host.binding, 40 * MIB, NULL, &buffer)); /* up to 240 */
    MUST(moor_buffer_release(host.runtime, buffer));
    host_settle(&host);
    MUST(moor_authority_set_capacity(host.authority, 1536 * MIB, 0, &over));
    CHECK(over == 0 && host_stats(&host).tickets == 0, "bytes are still over the capacity");
    MUST(moor_buffer_allocate(host.binding, 1336 * MIB, NULL, &buffer)); /* up to 1536 */
    CHECK(host_check(&host) == 1536 * MIB && host_stats(&host).free_bytes == 0,
          "the capacity is not used up");
    MUST(moor_buffer_release(host.runtime, buffer));
    for (size_t i = 8; i < BLOCKS; i++)
        MUST(moor_buffer_release(host.runtime, blocks.block[i]));
    host_settle(&host);
    MUST(moor_binding_close(blocks.binding));
    MUST(moor_holder_destroy(blocks.holder));
    host_close(&host);
}

Test(governor_cases, O02_a_limit_shrinks_below_use_and_grows_back)
{
    shrink_and_grow(0);
}

Test(governor_cases, O02_open_reservations_are_honoured)
{
    shrink_and_grow(300 * MIB);
}

struct changing {
    pthread_t thread;
    struct host *host;
    _Atomic bool done;
};

static void *change_limits(void *user)
{
    struct changing *changing = user;
    unsigned int seed = 2;
    for (int i = 0; i < 10000; i++)
        host_capacity(changing->host, (uint64_t)(rand_r(&seed) % 1536) * MIB);
    atomic_store(&changing->done, true);
    return NULL;
}

/* Requests within the limit succeed, and a grant can be drawn from under any later limit. */
HOST_CASE(governor_cases, O02_a_limit_changes_at_random_under_use, MOCK,
          SETTINGS({"total_bytes", "2GiB"}, {"alignment_bytes", "1MiB"}, {"contents", "none"}))
{
    struct changing changing = {.host = host};
    unsigned int seed = 1;
    uint64_t granted = 0;
    CHECK(pthread_create(&changing.thread, NULL, change_limits, &changing) == 0, "no thread");
    while (!atomic_load(&changing.done) || granted == 0) {
        uint64_t bytes = (uint64_t)(1 + rand_r(&seed) % 64) * MIB;
        moor_grant grant;
        moor_buffer buffer;
        moor_status status = moor_grant_reserve(host->holder, bytes, MOOR_NO_WAIT, &grant);
        CHECK(status == MOOR_OK || status == MOOR_OVER_BUDGET || status == MOOR_NEVER_FITS ||
                  status == MOOR_PENDING,
              "a request gets %s", moor_status_name(status));
        if (status)
            continue;
        granted++;
        const struct moor_buffer_options drawn = {.grant = grant};
        MUST(moor_buffer_allocate(host->binding, bytes / 2, &drawn, &buffer));
        MUST(moor_grant_release(host->runtime, grant));
        MUST(moor_buffer_release(host->runtime, buffer));
    }
    CHECK(pthread_join(changing.thread, NULL) == 0, "the thread is lost");
    host_capacity(host, 1536 * MIB);
    host_settle(host);
    CHECK(host_check(host) == 0 && host_stats(host).free_bytes == 1536 * MIB, "bytes are left");
    MUST(moor_buffer_release(host->runtime, host_allocate(host, 1536 * MIB)));
}

/* ---- O05: a reservation after a failed request ---- */

/* 10 pages are reserved, 14 are requested, and 12 are available, unless the holder of two more evicts
 * them. */
static void reservation(struct host *host)
{
    struct cache cache, other;
    moor_grant grant, others;
    uint64_t left;
    cache_open(&cache, host, 2);
    cache_open(&other, host, 0);
    MUST(moor_grant_reserve(other.holder, 3 * host->granule, MOOR_NO_WAIT, &others));
    MUST(moor_grant_reserve(host->holder, 10 * host->granule, MOOR_NO_WAIT, &grant));
    host_capacity(host, (2 + 3 + 10 + 2) * host->granule);
    moor_range range = host_reserve(host, 14);
    const struct moor_step steps[] = {
        {.kind = MOOR_STEP_COMMIT, .range = range, .length_bytes = 10 * host->granule, .grant = grant},
        {.kind = MOOR_STEP_COMMIT,
         .range = range,
         .offset_bytes = 10 * host->granule,
         .length_bytes = 4 * host->granule}};
    struct moor_step tried[2];
    size_t failed = 2;
    memcpy(tried, steps, sizeof tried);
    EXPECT(MOOR_NO_VICTIM, moor_transact(host->runtime, tried, 2, &failed));
    CHECK(failed == 1 && moor_last_error()->bytes == 2 * host->granule, "step %zu: %s", failed,
          moor_last_error()->text);
    CHECK(cache.asked_bytes == 2 * host->granule, "the pressure request is for %llu bytes",
          (unsigned long long)cache.asked_bytes);
    MUST(moor_grant_get_remaining(host->runtime, grant, &left));
    CHECK(left == 10 * host->granule, "%llu pages are left of the reservation",
          (unsigned long long)(left / host->granule));
    MUST(moor_grant_get_remaining(host->runtime, others, &left));
    CHECK(left == 3 * host->granule && host_stats(host).free_bytes == 2 * host->granule,
          "other holders have lost bytes");
    MUST(moor_range_get_committed(host->runtime, range, 0, 14 * host->granule, &left));
    CHECK(left == 0 && host_check(host) == 2 * host->granule, "a part was committed");
    atomic_store(&cache.gives, true);
    MUST(moor_holder_set_evictable(cache.holder, 2 * host->granule));
    moor_status status = moor_transact(host->runtime, tried, 2, NULL);
    if (status == MOOR_PENDING) { /* the evicted pages are pending */
        host_settle(host);
        status = moor_transact(host->runtime, tried, 2, NULL);
    }
    CHECK(status == MOOR_OK, "the transaction returns %s: %s", moor_status_name(status),
          moor_last_error()->text);
    CHECK(host_check(host) == 14 * host->granule && host_stats(host).free_bytes == 0, "14 pages are not all");
    MUST(moor_range_release(host->runtime, range));
    MUST(moor_grant_release(host->runtime, grant));
    MUST(moor_grant_release(host->runtime, others));
    cache_close(&cache);
    cache_close(&other);
}

HOST_CASE(governor_cases, O05_a_miss_asks_others_and_leaves_the_reservation_whole_mock, MOCK, NULL)
{
    reservation(host);
}

HOST_CASE(governor_cases, O05_a_miss_asks_others_and_leaves_the_reservation_whole_cpu, CPU, NULL)
{
    reservation(host);
}
