/* SPDX-License-Identifier: MIT */
/*
 * Slow, lying and misbehaving pressure functions. None keeps its requester beyond the deadline, none keeps
 * other holders from a pressure request, none stops the runtime, and the accounts hold. Slow functions wait
 * at a gate, so that no test depends on timing.
 */
#include "asked.h"
#include "util/limits.h"

#include <string.h>

TestSuite(callbacks, .timeout = 120);

/* A full pool: the bad party, which gets the first pressure request, has four units, and the good one has
 * four. */
struct scene {
    struct party *bad;
    struct party *good;
};

static struct scene open_scene(struct fixture *f, party_answer bad, party_answer good)
{
    fixture_set_capacity(f, UNITS(8));
    return (struct scene){party_open(f, -1, 4, bad), party_open(f, 0, 4, good)};
}

/* ---- slow functions ---- */

static uint64_t sleep_two_seconds(struct party *party, const struct moor_pressure *pressure)
{
    (void)nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    return 0;
}

FIXTURE_TEST(callbacks, while_one_function_sleeps_others_are_called)
{
    struct scene scene = open_scene(f, sleep_two_seconds, evict_requested);
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, fixture_soon(LATE_MS)));
    cr_assert(scene.bad->entered == 1 && scene.bad->left == 0, "the slow function was waited for");
    cr_assert_eq(scene.good->left, 1);
}

FIXTURE_TEST(callbacks, while_one_function_sleeps_the_deadline_holds)
{
    struct scene scene = open_scene(f, sleep_two_seconds, NULL);
    EXPECT(MOOR_TIMEOUT, try_reserve(f, f->holder, UNIT, fixture_soon(200)));
    cr_assert(scene.bad->entered == 1 && scene.bad->left == 0, "the slow function was waited for");
    EXPECT(MOOR_NO_VICTIM,
           try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT)); /* nor does a request without a deadline wait */
    cr_assert_eq(scene.bad->left, 0, "the slow function was waited for");
}

/* The function keeps one thread busy and nothing else; its late eviction still counts. */
FIXTURE_TEST(callbacks, a_function_that_does_not_return_delays_no_request)
{
    struct waiter waiter;
    struct scene scene = open_scene(f, evict_at_the_gate, NULL);
    EXPECT(MOOR_NO_VICTIM, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    EXPECT(MOOR_TIMEOUT, try_reserve(f, f->holder, UNIT, fixture_soon(20)));
    (void)party_evict(scene.good, UNIT);
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, fixture_soon(LATE_MS)));
    cr_assert_eq(scene.bad->entered, 1, "no second pressure request");
    waiter_start(&waiter, f->holder, UNITS(2), fixture_soon(LATE_MS));
    await_tickets(f, 1);
    cr_assert_eq(scene.bad->left, 0);
    atomic_store(&scene.bad->gate, 1);
    waiter_end(f, &waiter, MOOR_OK);
}

/* More slow parties than worker threads: the parties inside stay there, the other ones wait for a thread, and
 * no request waits beyond its deadline. One party is closed while it waits and gets no pressure request any
 * more. */
FIXTURE_TEST(callbacks, more_slow_parties_than_threads)
{
    enum { PARTIES = MOOR_LIMIT_PRESSURE_WORKERS + 6, STAYING = PARTIES - 1 };
    struct party *parties[PARTIES];
    int inside = 0;
    fixture_set_capacity(f, UNITS(PARTIES));
    for (size_t i = 0; i < PARTIES; i++) {
        parties[i] = party_open(f, 0, 1, evict_at_the_gate);
    }
    moor_ticket ticket = open_ticket(f->holder, UNITS(PARTIES));
    for (size_t i = 0; i < MOOR_LIMIT_PRESSURE_WORKERS; i++)
        fixture_await(&parties[i]->entered, 1);
    struct waiter waiter;
    waiter_start(&waiter, f->holder, UNIT, fixture_soon(100));
    waiter_end(f, &waiter, MOOR_TIMEOUT);
    for (size_t i = 0; i < PARTIES; i++)
        inside += parties[i]->entered;
    cr_assert_eq(inside, MOOR_LIMIT_PRESSURE_WORKERS, "%d are inside", inside);
    party_close(parties[STAYING]);
    for (size_t i = 0; i < STAYING; i++)
        atomic_store(&parties[i]->gate, 1);
    for (size_t i = 0; i < STAYING; i++)
        fixture_await(&parties[i]->left, 1);
    cr_assert_eq(parties[STAYING]->entered, 0);
    uint64_t deadline_ns = fixture_soon(LATE_MS);
    while (!is_served(f, ticket))
        cr_assert_lt(moor_clock_ns(), deadline_ns);
    return_ticket(f, ticket);
}

/* ---- parties that evict nothing or return wrong figures ---- */

/* Each cool-down is twice as long as the one before, up to a second. The elapsed time bounds the number of
 * pressure requests. */
FIXTURE_TEST(callbacks, a_holder_that_evicts_nothing_is_not_asked_in_a_loop)
{
    struct scene scene = open_scene(f, NULL, NULL);
    uint64_t began_ns = moor_clock_ns();
    EXPECT(MOOR_TIMEOUT, try_reserve(f, f->holder, UNIT, fixture_soon(300)));
    EXPECT(MOOR_NO_VICTIM, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    moor__pressure_settle(f->runtime);
    uint64_t took_ns = moor_clock_ns() - began_ns, rested_ns = 0;
    int most = 1;
    for (uint64_t cool_down_ns = MOOR_COOL_DOWN_NS; rested_ns + cool_down_ns <= took_ns; most++) {
        rested_ns += cool_down_ns;
        cool_down_ns = 2 * cool_down_ns < MOOR_COOL_DOWN_MAX_NS ? 2 * cool_down_ns : MOOR_COOL_DOWN_MAX_NS;
    }
    cr_assert(scene.bad->left >= 2 && scene.bad->left <= most, "%d pressure requests in %llu ns",
              scene.bad->left, (unsigned long long)took_ns);
    cr_assert(scene.good->left >= 2 && scene.good->left <= most, "%d pressure requests", scene.good->left);
}

static _Atomic int warnings;

static void count_warnings(void *user, uint32_t level, const char *message)
{
    if (level == MOOR_ABI_LOG_WARNING && strstr(message, "party: the pressure function reports"))
        atomic_fetch_add(&warnings, 1);
}

static uint64_t lie(struct party *party, const struct moor_pressure *pressure)
{
    return UINT64_C(1) << 30;
}

Test(callbacks, a_false_return_value_is_found_by_the_accounts)
{
    struct moor_runtime *runtime = NULL;
    EXPECT(MOOR_OK, moor_runtime_create(&(struct moor_runtime_options){.log = count_warnings}, &runtime));
    struct fixture f = fixture_join(runtime, NULL, 0);
    clock_stop(&f);
    fixture_set_capacity(&f, UNITS(4));
    struct party *party = party_open(&f, 0, 4, lie);
    moor_ticket ticket = open_ticket(f.holder, UNIT);
    moor__pressure_settle(f.runtime);
    struct moor_ticket_stats stats = ticket_stats(&f, ticket);
    cr_assert(stats.asked == 1 && stats.evicted_bytes == 0 && !stats.served);
    cr_assert_eq(party_stats(party).evicted_bytes, 0);
    cr_assert_eq(party_stats(party).charged_bytes, UNITS(4));
    cr_assert_eq(atomic_load(&warnings), 1);
    cr_assert_eq(asked_count(), 1, "the cool-down of a holder that evicts nothing");
    EXPECT(MOOR_OK, moor_ticket_cancel(f.runtime, ticket));
    fixture_close(&f);
}

FIXTURE_TEST(callbacks, evicting_more_than_requested_is_permitted)
{
    clock_stop(f);
    struct scene scene = open_scene(f, evict_all, NULL);
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    expect_asked(0, scene.bad, UNIT, MOOR_PRESSURE_REQUEST);
    cr_assert_eq(party_stats(scene.bad).evicted_bytes, UNITS(4));
    cr_assert_eq(fixture_stats(f).free_bytes, UNITS(4));
    cr_assert_eq(scene.good->entered, 0);
}

/* ---- other threads ---- */

static void *give_one(void *user)
{
    (void)party_evict(user, UNIT);
    return NULL;
}

static uint64_t give_on_a_thread(struct party *party, const struct moor_pressure *pressure)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, give_one, party), 0);
    join(thread);
    return 0; /* the function does not know the evicted bytes */
}

FIXTURE_TEST(callbacks, another_thread_may_evict)
{
    clock_stop(f);
    struct scene scene = open_scene(f, give_on_a_thread, NULL);
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    cr_assert_eq(party_stats(scene.bad).evicted_bytes, UNIT);
    cr_assert_eq(scene.good->entered, 0);
}

static uint64_t give_later(struct party *party, const struct moor_pressure *pressure)
{
    cr_assert_eq(pthread_create(party->user, NULL, give_one, party), 0);
    return 0;
}

/* The function has returned 0 by then. The later eviction still serves the request. */
FIXTURE_TEST(callbacks, another_thread_may_evict_later)
{
    pthread_t thread;
    struct scene scene = open_scene(f, give_later, NULL);
    scene.bad->user = &thread;
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, fixture_soon(LATE_MS)));
    EXPECT(MOOR_OK, moor_holder_set_pressure(scene.bad->holder, NULL, NULL));
    join(thread);
}

static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t take_the_host_lock(struct party *party, const struct moor_pressure *pressure)
{
    pthread_mutex_lock(&host_lock);
    uint64_t given = party_evict(party, pressure->bytes);
    pthread_mutex_unlock(&host_lock);
    return given;
}

/* The requester holds the lock that the function waits for. The wait ends at the requester's deadline. */
FIXTURE_TEST(callbacks, waiting_for_a_lock_of_the_host_ends_at_the_deadline)
{
    struct scene scene = open_scene(f, take_the_host_lock, NULL);
    pthread_mutex_lock(&host_lock);
    EXPECT(MOOR_TIMEOUT, try_reserve(f, f->holder, UNIT, fixture_soon(100)));
    cr_assert_eq(scene.bad->left, 0);
    pthread_mutex_unlock(&host_lock);
    fixture_await(&scene.bad->left, 1);
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, fixture_soon(LATE_MS)));
}

/* ---- memory ---- */

struct inner {
    size_t asked;
    moor_status reserved;
    moor_status waited;
    moor_status allocated;
};

static uint64_t allocate_first(struct party *party, const struct moor_pressure *pressure)
{
    struct inner *inner = party->user;
    const struct moor_buffer_options waiting = {.deadline_ns = MOOR_FOREVER};
    moor_grant grant = 0;
    moor_buffer buffer = 0;
    size_t before = asked_count();
    inner->reserved = moor_grant_reserve(party->holder, UNIT, MOOR_NO_WAIT, &grant);
    inner->waited = moor_grant_reserve(party->holder, UNIT, MOOR_FOREVER, &grant);
    inner->allocated = moor_buffer_allocate(party->binding, UNIT, &waiting, &buffer);
    inner->asked = asked_count() - before;
    return party_evict(party, pressure->bytes);
}

/* Without an emergency reserve a request inside a pressure function is refused at once, even before its
 * deadline. No holder gets a pressure request for it, least of all the requester. */
FIXTURE_TEST(callbacks, allocating_before_an_eviction_is_refused_and_asks_nobody)
{
    struct inner inner = {0};
    clock_stop(f);
    struct scene scene = open_scene(f, allocate_first, evict_requested);
    scene.bad->user = &inner;
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    cr_assert_eq(inner.reserved, MOOR_OVER_BUDGET, "%s", moor_status_name(inner.reserved));
    cr_assert_eq(inner.waited, MOOR_OVER_BUDGET, "%s", moor_status_name(inner.waited));
    cr_assert_eq(inner.allocated, MOOR_OVER_BUDGET, "%s", moor_status_name(inner.allocated));
    cr_assert_eq(inner.asked, 0);
    cr_assert_eq(asked_count(), 1);
}

static uint64_t take_and_give_back(struct party *party, const struct moor_pressure *pressure)
{
    moor_grant grant = 0;
    EXPECT(MOOR_OK, moor_grant_reserve(party->holder, UNIT, MOOR_NO_WAIT, &grant));
    EXPECT(MOOR_OK, moor_grant_release(party->f->runtime, grant));
    return 0;
}

/* Bytes that the function took itself do not count as evicted: the holder cools down as one that evicts
 * nothing. */
FIXTURE_TEST(callbacks, releasing_a_new_grant_is_no_eviction)
{
    clock_stop(f);
    struct scene scene = open_scene(f, take_and_give_back, NULL);
    (void)party_evict(scene.good, UNIT);
    fixture_reap(f);
    /* the unit is free: no pressure request is needed */
    EXPECT(MOOR_OK, moor_authority_set_aside(f->authority, UNIT));
    SHORT(MOOR_NO_VICTIM, UNIT, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    SHORT(MOOR_NO_VICTIM, UNIT, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    cr_assert_eq(scene.bad->left, 1, "%d pressure requests", scene.bad->left);
}

struct leased {
    moor_lease lease;
    moor_grant grant;
};

/* No request waits any more and there is room, so that small requests use the thread's credit again. */
static uint64_t give_a_lease_by_the_cell(struct party *party, const struct moor_pressure *pressure)
{
    struct fixture *f = party->f;
    struct leased *leased = party->user;
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, pressure->ticket));
    fixture_set_capacity(f, MIB(512));
    EXPECT(MOOR_OK, moor_grant_reserve(party->holder, UNIT, MOOR_NO_WAIT, &leased->grant));
    uint64_t has = party->holder->has;
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, leased->lease));
    cr_assert_eq(party->holder->has, has, "the bytes returned through the account");
    return UNIT;
}

FIXTURE_TEST(callbacks, bytes_evicted_through_the_thread_account_count)
{
    struct leased leased;
    fixture_set_capacity(f, UNITS(4));
    struct party *party = party_open(f, -1, 0, give_a_lease_by_the_cell);
    party->user = &leased;
    party_take(party, 3);
    leased.lease = fixture_lease(f, party->holder, UNIT);
    (void)open_ticket(f->holder, UNIT);
    fixture_await(&party->left, 1);
    moor__pressure_settle(f->runtime);
    cr_assert_eq(party_stats(party).evicted_bytes, UNIT);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, leased.grant));
}

/* The segment was pending before the pressure request: the end of its last mapping evicts nothing further. */
FIXTURE_TEST(callbacks, a_segment_that_was_pending_before_is_not_evicted)
{
    moor_segment segment;
    moor_range range;
    fixture_set_capacity(f, 2 * GRANULE);
    struct party *party = party_open(f, -1, 0, evict_nothing_at_the_gate);
    EXPECT(MOOR_OK, moor_segment_create(party->binding, GRANULE, 0, 0, &segment));
    EXPECT(MOOR_OK, moor_range_reserve(party->binding, GRANULE, NULL, &range));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE));
    party_take(party, 1);
    scripted_hold(f->script, f->queue);
    struct moor_view view = fixture_range_view(f, range, 0, GRANULE);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0, 1));
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, range, 0, GRANULE));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
    moor_ticket ticket = open_ticket(f->holder, 2 * GRANULE);
    fixture_await(&party->entered, 1);
    fixture_open_and_reap(f);
    atomic_store(&party->gate, 1);
    fixture_await(&party->left, 1);
    moor__pressure_settle(f->runtime);
    cr_assert_eq(party_stats(party).evicted_bytes, 0);
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, ticket));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
}

static uint64_t wait_for_the_fence(struct party *party, const struct moor_pressure *pressure)
{
    struct moor_view view = fixture_buffer_view(party->f, party->buffers[party->first]);
    EXPECT(MOOR_OK, moor_memory_wait(&view, fixture_soon(LATE_MS)));
    uint64_t given = party_evict(party, UNIT);
    EXPECT(MOOR_OK, moor_runtime_reap(party->f->runtime, fixture_soon(LATE_MS)));
    return given;
}

FIXTURE_TEST(callbacks, a_pressure_function_may_wait_for_fences)
{
    struct waiter waiter;
    struct scene scene = open_scene(f, wait_for_the_fence, NULL);
    struct moor_view view = fixture_buffer_view(f, scene.bad->buffers[0]);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0, 1));
    waiter_start(&waiter, f->holder, UNIT, fixture_soon(LATE_MS));
    fixture_await(&scene.bad->entered, 1);
    cr_assert_eq(scene.bad->left, 0);
    scripted_open(f->script, f->queue);
    waiter_end(f, &waiter, MOOR_OK);
}

/* ---- requests inside ---- */

struct inner_ticket {
    uint64_t deadline_ns;
    moor_status status;
};

static uint64_t wait_with_a_ticket(struct party *party, const struct moor_pressure *pressure)
{
    struct inner_ticket *inner = party->user;
    const struct moor_request wanted = {party->holder, UNIT};
    moor_ticket ticket = 0;
    moor_grant grant = 0;
    atomic_store(&party->answer, evict_requested); /* once is enough */
    EXPECT(MOOR_OK, moor_ticket_open(&wanted, 1, inner->deadline_ns, &ticket));
    inner->status = moor_ticket_wait(party->f->runtime, ticket, &grant, 1);
    EXPECT(MOOR_OK, moor_grant_release(party->f->runtime, grant));
    return party_evict(party, pressure->bytes);
}

FIXTURE_TEST(callbacks, a_ticket_waited_for_inside_ends_at_its_deadline)
{
    struct inner_ticket inner = {.deadline_ns = fixture_soon(200)};
    struct scene scene = open_scene(f, wait_with_a_ticket, NULL);
    scene.bad->user = &inner;
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, fixture_soon(LATE_MS)));
    cr_assert_eq(inner.status, MOOR_TIMEOUT, "%s", moor_status_name(inner.status));
}

/* Other holders get the pressure request; the party that waits inside does not. */
FIXTURE_TEST(callbacks, a_ticket_waited_for_inside_is_served_by_other_holders)
{
    struct inner_ticket inner = {.deadline_ns = fixture_soon(LATE_MS)};
    struct scene scene = open_scene(f, wait_with_a_ticket, evict_requested);
    set_limits(scene.good->holder, LIMITS(.priority = -1));
    scene.bad->user = &inner;
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, fixture_soon(LATE_MS)));
    fixture_await(&scene.bad->left, 1);
    cr_assert_eq(inner.status, MOOR_OK, "%s", moor_status_name(inner.status));
}

/* The requester waits for memory while its own pressure function makes room on another thread. */
FIXTURE_TEST(callbacks, the_requester_may_be_the_victim)
{
    moor_buffer buffer = 0;
    const struct moor_buffer_options waiting = {.deadline_ns = fixture_soon(LATE_MS)};
    fixture_set_capacity(f, UNITS(4));
    struct party *party = party_open(f, 0, 4, evict_requested);
    EXPECT(MOOR_OK, moor_buffer_allocate(party->binding, UNITS(2), &waiting, &buffer));
    cr_assert_eq(party->left, 1);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
}

#define EACH 12

static moor_grant granted[4 * EACH];
static _Atomic size_t grants;

static void *request_often(void *user)
{
    struct fixture *f = user;
    for (int i = 0; i < EACH; i++)
        EXPECT(MOOR_OK, moor_grant_reserve(f->holder, UNIT, fixture_soon(LATE_MS),
                                           &granted[atomic_fetch_add(&grants, 1)]));
    return NULL;
}

static uint64_t give_slowly(struct party *party, const struct moor_pressure *pressure)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return evict_requested(party, pressure);
}

/* One thread at a time calls a pressure function, however many requests need the holder. */
FIXTURE_TEST(callbacks, one_thread_at_a_time)
{
    pthread_t threads[4];
    struct moor_holder_stats stats;
    struct scene scene = open_scene(f, give_slowly, give_slowly);
    fixture_set_capacity(f, UNITS(4 * EACH));
    party_take(scene.bad, 2 * EACH - 4);
    party_take(scene.good, 2 * EACH - 4);
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, request_often, f), 0);
    for (size_t i = 0; i < 4; i++)
        join(threads[i]);
    EXPECT(MOOR_OK, moor_holder_get_stats(f->holder, &stats));
    cr_assert_eq(stats.reserved_bytes, UNITS(4 * EACH));
    moor__pressure_settle(f->runtime);
    cr_assert_eq(scene.bad->most_inside, 1);
    cr_assert_eq(scene.good->most_inside, 1);
    for (size_t i = 0; i < 4 * EACH; i++)
        EXPECT(MOOR_OK, moor_grant_release(f->runtime, granted[i]));
}
