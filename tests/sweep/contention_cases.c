/* SPDX-License-Identifier: MIT */
/*
 * Cases from the field about many threads on one pool: clients that together request more than the pool has,
 * and observers of threads at work.
 */
#include "host.h"

#include <stdlib.h>

TestSuite(contention_cases, .timeout = 110);

/* ---- O18: six clients, and a budget for four ---- */

#define CLIENTS 6u
#define ROUNDS 60u
#define PARTS 4u
#define PASSED_MAX 16u /* core/README.md: then the request gets its turn, which lasts at least: */
#define TURN_NS UINT64_C(100000000)

struct client {
    pthread_t thread;
    struct host *host;
    moor_range range; /* PARTS granules */
    uint64_t most_passed;
    uint32_t misses;
};

static uint64_t unit(const struct client *client)
{
    return PARTS * client->host->granule;
}

/* Uses the granted bytes in parts, independently of the other clients. */
static void use_grant(struct client *client, moor_grant grant)
{
    uint64_t granule = client->host->granule;
    for (uint64_t i = 0; i < PARTS; i++)
        MUST(moor_range_commit(client->host->runtime, client->range, i * granule, granule, grant));
    MUST(moor_grant_release(client->host->runtime, grant));
    MUST(moor_range_decommit(client->host->runtime, client->range, 0, PARTS * granule));
    struct moor_view view;
    uint64_t left = 1, deadline_ns = soon(LATE_MS);
    while (left) { /* the same addresses again, so wait until they are free */
        /* other clients' memory may still be behind fences */
        (void)moor_runtime_reap(client->host->runtime, soon(100));
        MUST(moor_range_get_view(client->host->runtime, client->range, &view));
        MUST(moor_range_get_committed(client->host->runtime, client->range, 0, PARTS * granule, &left));
        CHECK(moor_clock_ns() < deadline_ns, "decommitted memory does not return");
    }
}

/* Waits with a ticket, which counts how often it was passed. */
static void wait_for_room(struct client *client)
{
    const struct moor_request request = {client->host->holder, unit(client)};
    struct moor_ticket_stats stats = {0};
    moor_ticket ticket;
    moor_grant grant;
    uint64_t deadline_ns = soon(LATE_MS), opened_ns = moor_clock_ns();
    MUST(moor_ticket_open(&request, 1, MOOR_FOREVER, &ticket));
    while (!stats.served) {
        MUST(moor_ticket_get_stats(client->host->runtime, ticket, &stats));
        /* Afterwards its turn may be over, on a machine too busy to use it. */
        if (stats.passed > client->most_passed && moor_clock_ns() - opened_ns < TURN_NS)
            client->most_passed = stats.passed;
        CHECK(moor_clock_ns() < deadline_ns, "starved");
        pause_ms(0);
    }
    MUST(moor_ticket_wait(client->host->runtime, ticket, &grant, 1));
    use_grant(client, grant);
}

static void try_for_room(struct client *client)
{
    moor_grant grant;
    moor_status status = moor_grant_reserve(client->host->holder, unit(client), MOOR_NO_WAIT, &grant);
    if (status == MOOR_OK) {
        use_grant(client, grant);
        return;
    }
    CHECK(status == MOOR_OVER_BUDGET || status == MOOR_PENDING, "a miss is called %s",
          moor_status_name(status));
    client->misses++;
}

static void *run_client(void *user)
{
    struct client *client = user;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        try_for_room(client);
        wait_for_room(client);
    }
    return NULL;
}

struct sampler {
    pthread_t thread;
    struct host *host;
    _Atomic bool stop;
};

/* Samples every millisecond: neither the accounts nor the device ever exceed the budget. */
static void *sample(void *user)
{
    struct sampler *sampler = user;
    while (!atomic_load(&sampler->stop)) {
        struct moor_authority_stats stats = host_stats(sampler->host);
        uint64_t held;
        CHECK(sampler->host->mock->held(sampler->host->mock->mock, 0, &held) == MOOR_OK,
              "the device does not report its held bytes");
        CHECK(stats.reserved_bytes + stats.charged_bytes <= stats.capacity_bytes &&
                  held <= stats.capacity_bytes,
              "%llu bytes are charged and %llu reserved of %llu", (unsigned long long)stats.charged_bytes,
              (unsigned long long)stats.reserved_bytes, (unsigned long long)stats.capacity_bytes);
        pause_ms(1);
    }
    return NULL;
}

HOST_CASE(contention_cases, O18_a_granted_reservation_commits_and_nobody_starves, MOCK, NULL)
{
    struct client clients[CLIENTS];
    struct sampler sampler = {.host = host};
    host_capacity(host, 4 * PARTS * host->granule);
    CHECK(pthread_create(&sampler.thread, NULL, sample, &sampler) == 0, "a thread cannot be created");
    for (size_t i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.host = host, .range = host_reserve(host, PARTS)};
        CHECK(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]) == 0,
              "a thread cannot be created");
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        CHECK(pthread_join(clients[i].thread, NULL) == 0, "a thread is lost");
        /* Before its own turn come the turns of the older waiting requests. */
        CHECK(clients[i].most_passed <= PASSED_MAX + CLIENTS, "client %zu was passed %llu times", i,
              (unsigned long long)clients[i].most_passed);
    }
    atomic_store(&sampler.stop, true);
    CHECK(pthread_join(sampler.thread, NULL) == 0, "a thread is lost");
    for (size_t i = 0; i < CLIENTS; i++)
        MUST(moor_range_release(host->runtime, clients[i].range));
}

/* Other processes fill the device: the commit returns a status, and the reservation is unchanged. */
HOST_CASE(contention_cases, O18_memory_that_another_process_takes_fails_a_commit_and_no_more, MOCK,
          SETTINGS({"total_bytes", "16MiB"}))
{
    moor_grant grant;
    uint64_t left;
    moor_range range = host_reserve(host, 8);
    MUST(moor_range_commit(host->runtime, range, 0, host->granule, 0));
    MUST(moor_grant_reserve(host->holder, 4 * host->granule, MOOR_NO_WAIT, &grant));
    host_external(host, 16 * MIB - 2 * host->granule);
    MUST(moor_range_commit(host->runtime, range, host->granule, host->granule,
                           grant)); /* one granule is left */
    EXPECT(MOOR_DEVICE_NOMEM,
           moor_range_commit(host->runtime, range, 2 * host->granule, host->granule, grant));
    MUST(moor_grant_get_remaining(host->runtime, grant, &left));
    CHECK(left == 3 * host->granule && host_check(host) == 2 * host->granule,
          "%llu bytes are left of the reservation", (unsigned long long)left);
    host_external(host, 0);
    for (uint64_t i = 2; i < 5; i++)
        MUST(moor_range_commit(host->runtime, range, i * host->granule, host->granule, grant));
    MUST(moor_grant_release(host->runtime, grant));
    MUST(moor_range_release(host->runtime, range));
}

/* ---- O23: many threads on a pool, and some that observe it ---- */

#define WORKERS 8u
#define POLLERS 2u
#define POOL_GRANULES 64u

struct crowd {
    struct host *host;
    struct moor_holder *holders[WORKERS];
    struct moor_binding *bindings[WORKERS];
    pthread_t threads[WORKERS + POLLERS];
    _Atomic uint32_t started;
    _Atomic bool stop;
    _Atomic uint64_t done; /* calls that succeeded */
};

static bool is_shortage(moor_status status)
{
    return status == MOOR_OVER_BUDGET || status == MOOR_PENDING || status == MOOR_TIMEOUT ||
           status == MOOR_NO_VICTIM;
}

static void allocate_and_free(struct crowd *crowd, uint32_t index, uint64_t bytes)
{
    moor_buffer buffer;
    const struct moor_buffer_options options = {.deadline_ns = bytes % 2 ? soon(5) : MOOR_NO_WAIT};
    moor_status status = moor_buffer_allocate(crowd->bindings[index], bytes, &options, &buffer);
    CHECK(status == MOOR_OK || is_shortage(status), "an allocation gets %s", moor_status_name(status));
    if (status)
        return;
    MUST(moor_buffer_release(crowd->host->runtime, buffer));
    atomic_fetch_add(&crowd->done, 1);
}

static void lease_and_resize(struct crowd *crowd, uint32_t index, uint64_t bytes)
{
    moor_grant grant;
    moor_lease lease;
    moor_status status = moor_grant_reserve(crowd->holders[index], bytes, MOOR_NO_WAIT, &grant);
    CHECK(status == MOOR_OK || is_shortage(status), "a reservation gets %s", moor_status_name(status));
    if (status)
        return;
    MUST(moor_grant_commit(crowd->host->runtime, grant, 1 + bytes / 2, &lease));
    status = moor_lease_adjust(crowd->host->runtime, lease, 2 * bytes, soon(2));
    CHECK(status == MOOR_OK || is_shortage(status), "a lease gets %s", moor_status_name(status));
    MUST(moor_lease_adjust(crowd->host->runtime, lease, 1, MOOR_NO_WAIT));
    MUST(moor_lease_refund(crowd->host->runtime, lease));
    atomic_fetch_add(&crowd->done, 1);
}

static void commit_and_decommit(struct crowd *crowd, moor_range range, uint64_t granules)
{
    uint64_t granule = crowd->host->granule;
    moor_status status = moor_range_commit(crowd->host->runtime, range, 0, granules * granule, 0);
    CHECK(status == MOOR_OK || is_shortage(status), "a commit gets %s", moor_status_name(status));
    if (status)
        return;
    MUST(moor_range_decommit(crowd->host->runtime, range, 0, granules * granule));
    atomic_fetch_add(&crowd->done, 1);
}

static void *work(void *user)
{
    struct crowd *crowd = user;
    uint32_t index = atomic_fetch_add(&crowd->started, 1);
    uint64_t granule = crowd->host->granule;
    unsigned int seed = index;
    moor_range range;
    const struct moor_range_options options = {.granule_bytes = granule};
    MUST(moor_range_reserve(crowd->bindings[index], 16 * granule, &options, &range));
    while (!atomic_load(&crowd->stop)) {
        allocate_and_free(crowd, index, 1 + (uint64_t)rand_r(&seed) % (8 * granule));
        lease_and_resize(crowd, index, 1 + (uint64_t)rand_r(&seed) % (8 * granule));
        commit_and_decommit(crowd, range, 1 + (uint64_t)rand_r(&seed) % 16);
    }
    MUST(moor_range_release(crowd->host->runtime, range));
    return NULL;
}

static void check_snapshot(const struct crowd *crowd)
{
    struct moor_authority_stats stats;
    struct moor_holder_stats holders[WORKERS + 1];
    size_t count;
    uint64_t charged = 0, reserved = 0;
    MUST(moor_authority_get_stats(crowd->host->authority, &stats, holders, LENGTH(holders), &count));
    CHECK(stats.free_bytes + stats.reserved_bytes + stats.live_bytes + stats.pending_bytes +
                  stats.quarantined_bytes ==
              stats.capacity_bytes,
          "free, reserved, live and pending are not the capacity");
    CHECK(stats.capacity_bytes == POOL_GRANULES * crowd->host->granule &&
              stats.headroom_bytes <= stats.free_bytes && stats.guaranteed_bytes <= stats.free_bytes &&
              stats.leased_bytes <= stats.live_bytes && stats.over_bytes == 0 &&
              stats.peak_charged_bytes <= stats.capacity_bytes,
          "a figure is more than its total");
    for (size_t i = 0; i < count; i++) {
        charged += holders[i].charged_bytes;
        reserved += holders[i].reserved_bytes;
        CHECK(holders[i].pending_bytes + holders[i].leased_bytes <= holders[i].charged_bytes,
              "parts of a holder's");
    }
    CHECK(count == WORKERS + 1 && charged == stats.charged_bytes && reserved == stats.reserved_bytes,
          "the holders are not the whole");
}

/* Makes every call that returns statistics. */
static void *watch(void *user)
{
    struct crowd *crowd = user;
    while (!atomic_load(&crowd->stop)) {
        struct moor_holder_stats holder;
        struct moor_device_stats device;
        struct moor_object_counts counts;
        uint64_t bytes;
        check_snapshot(crowd);
        MUST(moor_holder_get_stats(crowd->holders[0], &holder));
        CHECK(holder.charged_bytes + holder.reserved_bytes <= POOL_GRANULES * crowd->host->granule,
              "a holder's");
        MUST(moor_device_get_stats(crowd->host->device, 0, &device));
        CHECK(device.held_bytes + device.free_bytes <= device.total_bytes && !device.inconsistent,
              "the device's");
        MUST(moor_runtime_get_counts(crowd->host->runtime, &counts));
        CHECK(counts.quarantined == 0 && counts.ranges <= WORKERS && counts.tickets <= WORKERS, "the counts");
        MUST(moor_binding_get_footprint(crowd->bindings[0], 1, NULL, &bytes));
        MUST(moor_authority_refresh(crowd->host->authority));
    }
    return NULL;
}

HOST_CASE(contention_cases, O23_every_snapshot_adds_up, MOCK, NULL)
{
    const char *longer = getenv("MOOR_TEST_LONG");
    struct crowd crowd = {.host = host};
    host_capacity(host, POOL_GRANULES * host->granule);
    for (size_t i = 0; i < WORKERS; i++) {
        MUST(moor_holder_create(host->authority, NULL, &crowd.holders[i]));
        MUST(moor_binding_open(host->device, 0, crowd.holders[i], &crowd.bindings[i]));
    }
    for (size_t i = 0; i < WORKERS + POLLERS; i++)
        CHECK(pthread_create(&crowd.threads[i], NULL, i < WORKERS ? work : watch, &crowd) == 0,
              "a thread cannot be created");
    pause_ms(longer && strcmp(longer, "0") ? 60000 : 3000);
    atomic_store(&crowd.stop, true);
    for (size_t i = 0; i < WORKERS + POLLERS; i++)
        CHECK(pthread_join(crowd.threads[i], NULL) == 0, "a thread is lost");
    CHECK(atomic_load(&crowd.done) > WORKERS, "no call succeeded");
    host_settle(host);
    for (size_t i = 0; i < WORKERS; i++) {
        MUST(moor_binding_close(crowd.bindings[i]));
        MUST(moor_holder_destroy(crowd.holders[i]));
    }
}

struct mapper {
    pthread_t thread;
    struct host *host;
    moor_range range;
    moor_segment segment;
    _Atomic bool done;
};

static void *map_slowly(void *user)
{
    struct mapper *mapper = user;
    MUST(moor_segment_map(mapper->host->runtime, mapper->segment, mapper->range, 0, MOOR_ACCESS_READ_WRITE));
    atomic_store(&mapper->done, true);
    return NULL;
}

/* During a map of two seconds other requests are served, and a request without room ends at its deadline. */
HOST_CASE(contention_cases, O23_a_slow_map_keeps_nobody, MOCK, NULL)
{
    struct mapper mapper = {.host = host};
    moor_buffer buffer, missed;
    host_capacity(host, 4 * host->granule);
    mapper.range = host_reserve(host, 2);
    MUST(moor_segment_create(host->binding, 2 * host->granule, host->granule, 0, &mapper.segment));
    host_fail(host, "map", 1, MOOR_OK, 2000000000);
    uint64_t maps = host->mock->calls(host->mock->mock, "map"), deadline_ns = soon(LATE_MS);
    CHECK(pthread_create(&mapper.thread, NULL, map_slowly, &mapper) == 0, "a thread cannot be created");
    while (host->mock->calls(host->mock->mock, "map") == maps) {
        CHECK(moor_clock_ns() < deadline_ns, "the map does not begin");
        pause_ms(1);
    }
    const struct moor_buffer_options waiting = {.deadline_ns = soon(100)};
    MUST(moor_buffer_allocate(host->binding, 2 * host->granule, NULL, &buffer));
    EXPECT(MOOR_TIMEOUT, moor_buffer_allocate(host->binding, host->granule, &waiting, &missed));
    (void)host_stats(host);
    CHECK(!atomic_load(&mapper.done), "the map was waited for");
    CHECK(pthread_join(mapper.thread, NULL) == 0, "the thread is lost");
    MUST(moor_buffer_release(host->runtime, buffer));
    MUST(moor_range_release(host->runtime, mapper.range));
    MUST(moor_segment_release(host->runtime, mapper.segment));
}
