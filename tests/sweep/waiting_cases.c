/* SPDX-License-Identifier: MIT */
/* Cases from the field about waiting: for pending room, for room that another holder must make, and in
 * vain. */
#include "host.h"

TestSuite(waiting_cases, .timeout = 90);

/* ---- O09: room behind a fence ---- */

struct opening {
    pthread_t thread;
    struct host *host;
    uint64_t native;
};

/* The stream continues once the request waits. */
static void *open_stream(void *user)
{
    struct opening *opening = user;
    uint64_t deadline_ns = soon(LATE_MS);
    while (host_stats(opening->host).tickets == 0)
        CHECK(moor_clock_ns() < deadline_ns, "no request waits");
    CHECK(opening->host->mock->open(opening->host->mock->mock, opening->native) == MOOR_OK,
          "the stream cannot be opened");
    return NULL;
}

HOST_CASE(waiting_cases, O09_memory_behind_a_fence_is_waited_for, MOCK, SETTINGS({"total_bytes", "1MiB"}))
{
    struct opening opening = {.host = host};
    struct moor_stream *stream;
    moor_buffer pages[16], page;
    struct moor_view view;
    MUST(moor_stream_create(host->device, NULL, &stream));
    MUST(moor_stream_get_native(stream, &opening.native));
    for (size_t i = 0; i < LENGTH(pages); i++)
        pages[i] = host_allocate(host, 64 * KIB);
    /* Without pending bytes the request fails at once. */
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(host->binding, 64 * KIB, NULL, &page));
    CHECK(host->mock->hold(host->mock->mock, opening.native) == MOOR_OK, "the stream cannot be held");
    MUST(moor_buffer_get_view(host->runtime, pages[0], &view));
    uint64_t address = view.address;
    MUST(moor_fill(stream, &view, 1, 1));
    MUST(moor_buffer_release(host->runtime, pages[0]));
    for (int i = 0; i < 3; i++) { /* the same call returns the same status */
        EXPECT(MOOR_PENDING, moor_buffer_allocate(host->binding, 64 * KIB, NULL, &page));
        CHECK(moor_last_error()->bytes == 64 * KIB, "%s", moor_last_error()->text);
    }
    EXPECT(MOOR_OVER_BUDGET,
           moor_buffer_allocate(host->binding, 64 * KIB + 1, NULL, &page)); /* fewer than that */
    const struct moor_buffer_options waiting = {.deadline_ns = soon(LATE_MS)};
    CHECK(pthread_create(&opening.thread, NULL, open_stream, &opening) == 0, "no thread");
    MUST(moor_buffer_allocate(host->binding, 64 * KIB, &waiting, &page));
    CHECK(pthread_join(opening.thread, NULL) == 0, "the thread is lost");
    MUST(moor_buffer_get_view(host->runtime, page, &view));
    CHECK(view.address == address, "another page");
    MUST(moor_buffer_release(host->runtime, page));
    for (size_t i = 1; i < LENGTH(pages); i++)
        MUST(moor_buffer_release(host->runtime, pages[i]));
    host_settle(host);
    MUST(moor_stream_destroy(stream));
}

/* Another holder has idle backing: it is evicted, and the same call tries again once before it fails. First
 * the device is full while the budget has room; once the governor knows it, the budget requests the bytes. */
HOST_CASE(waiting_cases, O09_idle_memory_is_trimmed_before_a_call_fails, MOCK,
          SETTINGS({"total_bytes", "1MiB"}))
{
    struct cache cache;
    moor_buffer page;
    cache_open(&cache, host, 16);
    CHECK(host_stats(host).free_bytes == 0, "the cache does not fill the device");
    host_capacity(host, 2 * MIB);
    atomic_store(&cache.gives, true);
    uint64_t allocations = host->mock->calls(host->mock->mock, "allocate");
    MUST(moor_buffer_allocate(host->binding, 64 * KIB, NULL, &page));
    CHECK(cache.asked == 1 && cache.reason == MOOR_PRESSURE_DEVICE && cache.asked_bytes == 64 * KIB,
          "the cache got %d pressure requests, for reason %u", cache.asked, cache.reason);
    CHECK(host->mock->calls(host->mock->mock, "allocate") == allocations + 2, "not tried again once");
    const struct moor_buffer_options waiting = {.deadline_ns = soon(LATE_MS)};
    moor_buffer second;
    MUST(moor_authority_refresh(host->authority));
    MUST(moor_buffer_allocate(host->binding, 64 * KIB, &waiting, &second));
    CHECK(cache.asked == 2 && cache.reason == MOOR_PRESSURE_REQUEST, "the budget does not ask");
    CHECK(host->mock->calls(host->mock->mock, "allocate") == allocations + 3,
          "a request over the device's memory reached the provider");
    MUST(moor_buffer_release(host->runtime, page));
    MUST(moor_buffer_release(host->runtime, second));
    cache_close(&cache);
}

/* The holder of idle backing evicts nothing: it gets one pressure request, and the call is not tried
 * again. */
HOST_CASE(waiting_cases, O09_a_full_device_is_reported_without_an_eviction, MOCK,
          SETTINGS({"total_bytes", "1MiB"}))
{
    struct cache cache;
    moor_buffer page;
    cache_open(&cache, host, 16);
    host_capacity(host, 2 * MIB);
    uint64_t allocations = host->mock->calls(host->mock->mock, "allocate");
    EXPECT(MOOR_DEVICE_NOMEM, moor_buffer_allocate(host->binding, 64 * KIB, NULL, &page));
    CHECK(cache.asked == 1 && cache.reason == MOOR_PRESSURE_DEVICE, "the cache got %d pressure requests",
          cache.asked);
    CHECK(host->mock->calls(host->mock->mock, "allocate") == allocations + 1, "tried again for nothing");
    cache_close(&cache);
}

/* ---- O21: requests that can never be served, and long waits ---- */

static uint64_t cpu_ns(clockid_t clock)
{
    struct timespec time;
    CHECK(clock_gettime(clock, &time) == 0, "no clock");
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Waits a second in vain. The thread and the runtime's own threads may use at most a twentieth of that as
 * processor time. */
static void wait_in_vain(const struct host *host, uint64_t bytes)
{
    moor_grant grant;
    uint64_t thread_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID), process_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t deadline_ns = soon(1000);
    EXPECT(MOOR_TIMEOUT, moor_grant_reserve(host->holder, bytes, deadline_ns, &grant));
    uint64_t late_ns = moor_clock_ns() - deadline_ns;
    thread_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID) - thread_ns;
    process_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - process_ns;
    /* not earlier either, which would wrap */
    CHECK(late_ns < UINT64_C(10000000000), "the call did not return in time");
    CHECK(thread_ns < 50000000, "the thread has worked for %llu us", (unsigned long long)thread_ns / 1000);
    CHECK(process_ns < 50000000, "the process has worked for %llu us", (unsigned long long)process_ns / 1000);
}

HOST_CASE(waiting_cases, O21_a_request_that_can_never_fit_does_not_wait, MOCK, NULL)
{
    struct cache cache;
    moor_grant grant;
    cache_open(&cache, host, 4);
    host_capacity(host, 16 * host->granule);
    EXPECT(MOOR_NEVER_FITS, moor_grant_reserve(host->holder, 16 * host->granule + 1, MOOR_FOREVER, &grant));
    CHECK(moor_last_error()->bytes == 16 * host->granule && cache.asked == 0, "%s", moor_last_error()->text);
    cache_close(&cache);
}

/* 12 of 16 granules are leased and cannot be evicted; the cache has two and gets one pressure request. */
HOST_CASE(waiting_cases, O21_pinned_memory_is_reported_or_waited_for_without_work, MOCK, NULL)
{
    struct cache cache;
    moor_grant grant;
    host_capacity(host, 16 * host->granule);
    struct moor_holder *pinned;
    MUST(moor_holder_create(host->authority, NULL, &pinned));
    moor_lease lease = host_lease(host, pinned, 12 * host->granule);
    EXPECT(MOOR_OVER_BUDGET, moor_grant_reserve(host->holder, 5 * host->granule, MOOR_NO_WAIT, &grant));
    cache_open(&cache, host, 2);
    EXPECT(MOOR_NO_VICTIM, moor_grant_reserve(host->holder, 5 * host->granule, MOOR_NO_WAIT, &grant));
    CHECK(cache.asked == 1, "the cache got %d pressure requests", cache.asked);
    /* Waits with nothing pending; then behind a held stream; then with a holder that evicts nothing. */
    MUST(moor_holder_set_pressure(cache.holder, NULL, NULL));
    wait_in_vain(host, 5 * host->granule);
    struct moor_stream *stream;
    struct moor_view view;
    uint64_t native;
    MUST(moor_stream_create(host->device, NULL, &stream));
    MUST(moor_stream_get_native(stream, &native));
    CHECK(host->mock->hold(host->mock->mock, native) == MOOR_OK, "the stream cannot be held");
    MUST(moor_range_get_view(host->runtime, cache.range, &view));
    MUST(moor_view_slice(&view, 0, host->granule, &view));
    MUST(moor_fill(stream, &view, 1, 1));
    MUST(moor_range_decommit(host->runtime, cache.range, 0, host->granule));
    wait_in_vain(host, 5 * host->granule);
    CHECK(host->mock->open(host->mock->mock, native) == MOOR_OK, "the stream cannot be opened");
    MUST(moor_holder_set_pressure(cache.holder, cache_asked, &cache));
    wait_in_vain(host, 5 * host->granule);
    host_settle(host);
    MUST(moor_stream_destroy(stream));
    MUST(moor_lease_refund(host->runtime, lease));
    MUST(moor_holder_destroy(pinned));
    cache_close(&cache);
}

struct blocked {
    pthread_t thread;
    struct host *host;
    moor_ticket ticket;
    moor_status status;
};

static void *wait_for_ticket(void *user)
{
    struct blocked *blocked = user;
    moor_grant grant;
    blocked->status = moor_ticket_wait(blocked->host->runtime, blocked->ticket, &grant, 1);
    return NULL;
}

/* A blocked request does not block later ones, and ends when it is cancelled, although its deadline never
 * comes. */
HOST_CASE(waiting_cases, O21_a_blocked_request_lets_others_pass_and_can_be_cancelled, MOCK, NULL)
{
    struct blocked blocked = {.host = host};
    moor_grant grant;
    host_capacity(host, 16 * host->granule);
    moor_lease lease = host_lease(host, host->holder, 8 * host->granule);
    const struct moor_request big = {host->holder, 16 * host->granule};
    MUST(moor_ticket_open(&big, 1, MOOR_FOREVER, &blocked.ticket));
    CHECK(pthread_create(&blocked.thread, NULL, wait_for_ticket, &blocked) == 0, "no thread");
    for (int i = 0; i < 10; i++) {
        MUST(moor_grant_reserve(host->holder, host->granule, soon(LATE_MS), &grant));
        MUST(moor_grant_release(host->runtime, grant));
    }
    MUST(moor_ticket_cancel(host->runtime, blocked.ticket));
    /* a failed cancel would hang here */
    CHECK(pthread_join(blocked.thread, NULL) == 0, "the thread is lost");
    CHECK(blocked.status == MOOR_CANCELLED || blocked.status == MOOR_STALE, "the wait returns %s",
          moor_status_name(blocked.status));
    MUST(moor_lease_refund(host->runtime, lease));
}

/* After three vain pressure requests the next ones are ever rarer, however long a request waits. */
HOST_CASE(waiting_cases, O21_a_holder_that_evicts_nothing_is_not_asked_in_a_loop, MOCK, NULL)
{
    struct cache cache;
    moor_grant grant;
    cache_open(&cache, host, 4);
    host_capacity(host, 4 * host->granule);
    uint64_t began_ns = moor_clock_ns();
    EXPECT(MOOR_TIMEOUT, moor_grant_reserve(host->holder, host->granule, soon(1000), &grant));
    uint64_t took_ns = moor_clock_ns() - began_ns;
    /* The cool-down is 10, 20, 40, ... ms and at most a second (core/README.md); one second has room for
     * seven cool-downs. */
    int most = 8 + (int)(took_ns / 1000000000);
    CHECK(cache.asked >= 3 && cache.asked <= most, "%d pressure requests in %llu ms", cache.asked,
          (unsigned long long)(took_ns / 1000000));
    cache_close(&cache);
}
