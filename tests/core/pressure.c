/* SPDX-License-Identifier: MIT */
/* Pressure requests: their holder, their bytes, their frequency, and the bytes that count for them. */
#include "asked.h"
#include "util/limits.h"

#include <string.h>

TestSuite(pressure, .timeout = 120);

/* Expects that the party got that many pressure requests, for that many bytes in total. */
static void check_asked_in_all(const struct party *party, size_t times, uint64_t bytes, int line)
{
    size_t times_asked = 0;
    uint64_t bytes_asked = 0;
    for (size_t i = 0; i < asked_count(); i++) {
        if (asked.entry[i].party != party)
            continue;
        bytes_asked += asked.entry[i].pressure.bytes;
        times_asked++;
    }
    cr_assert(times_asked == times && bytes_asked == bytes, "line %d: %zu pressure requests for %llu bytes",
              line, times_asked, (unsigned long long)bytes_asked);
}
#define EXPECT_ASKED_IN_ALL(party_, times_, bytes_) check_asked_in_all((party_), (times_), (bytes_), __LINE__)

/* ---- the victims ---- */

FIXTURE_TEST(pressure, the_lowest_priority_is_asked_first_and_the_requester_last_of_its_own)
{
    enum { REQUESTER, HIGH, FIRST, LOW, SECOND, COUNT };
    static const int32_t priorities[COUNT] = {0, 1, 0, -1, 0};
    struct party *parties[COUNT];
    clock_stop(f);
    fixture_set_capacity(f, UNITS(COUNT));
    for (size_t i = 0; i < COUNT; i++)
        parties[i] = party_open(f, priorities[i], 1, NULL);
    SHORT(MOOR_NO_VICTIM, UNIT, try_reserve(f, parties[REQUESTER]->holder, UNIT, MOOR_NO_WAIT));
    cr_assert_eq(asked_count(), 4, "%zu pressure requests", asked_count());
    expect_asked(0, parties[LOW], UNIT, MOOR_PRESSURE_REQUEST);
    expect_asked(1, parties[FIRST], UNIT, MOOR_PRESSURE_REQUEST);
    expect_asked(2, parties[SECOND], UNIT, MOOR_PRESSURE_REQUEST);
    expect_asked(3, parties[REQUESTER], UNIT, MOOR_PRESSURE_REQUEST);
    cr_assert_eq(asked.entry[0].pressure.priority, 0, "the requester's priority");
}

/* A new priority counts immediately. */
FIXTURE_TEST(pressure, priorities_change_live)
{
    clock_stop(f);
    fixture_set_capacity(f, UNITS(2));
    struct party *first = party_open(f, 0, 1, evict_requested);
    struct party *second = party_open(f, 0, 1, evict_requested);
    set_limits(first->holder, LIMITS(.priority = 1));
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    expect_asked(0, second, UNIT, MOOR_PRESSURE_REQUEST);
    EXPECT(MOOR_OK, moor_holder_set_pressure(second->holder, NULL, NULL));
    party_take(second, 1);
    EXPECT(MOOR_OVER_BUDGET, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    set_limits(f->holder, LIMITS(.priority = 1));
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    expect_asked(1, first, UNIT, MOOR_PRESSURE_REQUEST);
}

/* No holder of another pool gets a pressure request. */
FIXTURE_TEST(pressure, only_holders_of_the_pool_are_asked)
{
    struct moor_authority *other = NULL;
    EXPECT(MOOR_OK, moor_device_get_authority(f->device, SCRIPTED_DOMAIN_HOST, &other));
    (void)party_create(f, other, SCRIPTED_DOMAIN_HOST, LIMITS(0), 4, evict_all);
    (void)party_open(f, 0, 0, evict_all); /* a holder of this pool, without bytes */
    fixture_set_capacity(f, UNITS(2));
    (void)fixture_lease(f, f->holder, UNITS(2));
    EXPECT(MOOR_OVER_BUDGET, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    cr_assert_eq(asked_count(), 0);
}

/* ---- the bytes ---- */

FIXTURE_TEST(pressure, each_holder_is_asked_for_the_missing_bytes_that_it_has)
{
    clock_stop(f);
    fixture_set_capacity(f, UNITS(10));
    struct party *small = party_open(f, -1, 1, evict_requested);
    struct party *large = party_open(f, 0, 5, evict_requested);
    struct party *spare = party_open(f, 0, 3, evict_requested);
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNITS(4), MOOR_NO_WAIT)); /* one unit is free */
    EXPECT_ASKED_IN_ALL(small, 1, UNIT);
    EXPECT_ASKED_IN_ALL(large, 1, UNITS(2));
    EXPECT_ASKED_IN_ALL(spare, 0, 0);
    cr_assert_eq(party_stats(large).evicted_bytes, UNITS(2));
    cr_assert_eq(party_stats(large).asked, 1);
}

/* The bytes of a pressure request are not requested from another holder before the patience has expired. */
FIXTURE_TEST(pressure, the_same_bytes_are_asked_for_once)
{
    moor_ticket tickets[2];
    clock_stop(f);
    fixture_set_capacity(f, UNITS(6));
    struct party *slow = party_open(f, -1, 3, evict_nothing_at_the_gate);
    struct party *next = party_open(f, 0, 3, evict_at_the_gate);
    tickets[0] = open_ticket(f->holder, UNITS(2));
    fixture_await(&slow->entered, 1);
    EXPECT_ASKED_IN_ALL(slow, 1, UNITS(2));
    clock_advance(f, MOOR_PATIENCE_NS - 1);
    cr_assert_eq(ticket_stats(f, tickets[0]).asked, 1);
    /* A request that arrives now causes a further pressure request. */
    tickets[1] = open_ticket(f->holder, UNIT);
    fixture_await(&next->entered, 1);
    EXPECT_ASKED_IN_ALL(next, 1, UNIT);
    /* `next` is inside its function: it gets a request for the remaining bytes when it returns */
    clock_advance(f, 1);
    EXPECT_ASKED_IN_ALL(slow, 1, UNITS(2));
    atomic_store(&next->gate, 1);
    fixture_await(&next->left, 3);
    EXPECT_ASKED_IN_ALL(next, 3, UNITS(3)); /* for one ticket at a time */
    cr_assert_eq(atomic_load(&slow->left), 0);
    fixture_reap(f);
    cr_assert(is_served(f, tickets[0]) && is_served(f, tickets[1]));
    atomic_store(&slow->gate, 1);
    moor__pressure_settle(f->runtime);
    EXPECT_ASKED_IN_ALL(slow, 1, UNITS(2)); /* the bytes are no longer needed */
    return_ticket(f, tickets[0]);
    return_ticket(f, tickets[1]);
}

/* The host sets the patience. */
Test(pressure, the_host_sets_the_patience)
{
    struct moor_runtime *runtime = NULL;
    const struct moor_runtime_options options = {.patience_ns = 5 * MOOR_PATIENCE_NS};
    EXPECT(MOOR_OK, moor_runtime_create(&options, &runtime));
    struct fixture f = fixture_join(runtime, NULL, 0);
    clock_stop(&f);
    fixture_set_capacity(&f, UNITS(2));
    struct party *slow = party_open(&f, -1, 1, evict_nothing_at_the_gate);
    struct party *next = party_open(&f, 0, 1, evict_all);
    moor_ticket ticket = open_ticket(f.holder, UNIT);
    fixture_await(&slow->entered, 1);
    clock_advance(&f, 5 * MOOR_PATIENCE_NS - 1);
    cr_assert_eq(ticket_stats(&f, ticket).asked, 1);
    clock_advance(&f, 1);
    cr_assert_eq(ticket_stats(&f, ticket).asked, 2);
    fixture_await(&next->left, 1);
    fixture_reap(&f);
    return_ticket(&f, ticket);
    atomic_store(&slow->gate, 1);
    fixture_close(&f);
}

/* A holder that lacks bytes under its own limit gets the pressure request for its own bytes; no other holder
 * does. */
FIXTURE_TEST(pressure, a_holder_makes_room_under_its_own_limit)
{
    clock_stop(f);
    struct party *own = party_join(
        f, LIMITS(.limit_bytes = UNITS(4), .guarantee_bytes = UNITS(4), .priority = 5), 3, evict_requested);
    struct party *other = party_open(f, 0, 3, evict_all);
    fixture_set_capacity(f, UNITS(10));
    EXPECT(MOOR_OK, try_reserve(f, own->holder, UNITS(3), MOOR_NO_WAIT));
    EXPECT_ASKED_IN_ALL(own, 1, UNITS(2)); /* including its guaranteed bytes */
    EXPECT_ASKED_IN_ALL(other, 0, 0);
}

/* ---- the returned bytes ---- */

/* Waits until the ticket is served and all bytes evicted for it are back, in either order. */
static struct moor_ticket_stats await_served(struct fixture *f, moor_ticket ticket)
{
    uint64_t deadline_ns = fixture_soon(LATE_MS);
    struct moor_ticket_stats stats;
    do {
        stats = ticket_stats(f, ticket);
        cr_assert_lt(moor_clock_ns(), deadline_ns, "the ticket is not served");
    } while (!stats.served || stats.pending_bytes);
    return stats;
}

/* One of two evicted units is behind a held stream. */
FIXTURE_TEST(pressure, a_ticket_counts_evicted_pending_and_returned_bytes)
{
    struct party *party = party_open(f, 0, 2, evict_requested);
    fixture_set_capacity(f, UNITS(2));
    struct moor_view view = fixture_buffer_view(f, party->buffers[1]);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0, 1));
    moor_ticket ticket = open_ticket(f->holder, UNITS(2));
    fixture_await(&party->left, 1);
    uint64_t deadline_ns = fixture_soon(LATE_MS);
    struct moor_ticket_stats stats;
    do {
        stats = ticket_stats(f, ticket);
        cr_assert_eq(stats.evicted_bytes, UNITS(2));
        cr_assert_eq(stats.pending_bytes + stats.returned_bytes, UNITS(2));
        cr_assert_lt(moor_clock_ns(), deadline_ns, "memory that no stream holds does not return");
    } while (stats.returned_bytes < UNIT);
    cr_assert_eq(stats.pending_bytes, UNIT);
    cr_assert_eq(stats.asked, 1);
    cr_assert_not(stats.served);
    cr_assert_eq(fixture_stats(f).pending_bytes, UNIT);
    scripted_open(f->script, f->queue);
    stats = await_served(f, ticket);
    cr_assert_eq(stats.returned_bytes, UNITS(2));
    cr_assert_eq(stats.evicted_bytes, UNITS(2));
    cr_assert_eq(asked_count(), 1, "no second pressure request for pending bytes");
    return_ticket(f, ticket);
}

/* Bytes evicted on a pressure request count for its ticket; bytes evicted without a request count for no
 * ticket. */
FIXTURE_TEST(pressure, only_requested_evictions_count)
{
    clock_stop(f);
    struct party *party = party_open(f, 0, 4, NULL);
    fixture_set_capacity(f, UNITS(4));
    moor_ticket ticket = open_ticket(f->holder, UNITS(3));
    moor__pressure_settle(f->runtime);
    cr_assert_eq(party_evict(party, UNIT), UNIT);
    fixture_reap(f);
    struct moor_ticket_stats stats = ticket_stats(f, ticket);
    cr_assert(stats.asked == 1 && stats.evicted_bytes == 0 && stats.returned_bytes == 0);
    cr_assert_eq(party_stats(party).evicted_bytes, 0);
    atomic_store(&party->answer, evict_requested);
    clock_advance(f, MOOR_COOL_DOWN_NS);
    moor__pressure_settle(f->runtime);
    fixture_reap(f);
    stats = ticket_stats(f, ticket);
    cr_assert(stats.asked == 2 && stats.evicted_bytes == UNITS(2) && stats.returned_bytes == UNITS(2));
    cr_assert_eq(party_stats(party).evicted_bytes, UNITS(2));
    return_ticket(f, ticket);
}

/* user: the range. The provider refuses the unmap. */
static uint64_t unmap_in_vain(struct party *party, const struct moor_pressure *pressure)
{
    (void)pressure;
    fixture_fail(party->f, SCRIPTED_RELEASE, 1, MOOR_LIMIT);
    EXPECT(MOOR_LIMIT, moor_range_unmap(party->f->runtime, *(moor_range *)party->user, 0, GRANULE));
    return 0;
}

/* A segment whose last mapping leaves is pending; the mapping stays, so nothing was evicted. */
FIXTURE_TEST(pressure, bytes_that_turn_live_again_do_not_count)
{
    struct party *party = party_open(f, 0, 0, unmap_in_vain);
    moor_segment segment = 0;
    moor_range range = 0;
    EXPECT(MOOR_OK, moor_segment_create(party->binding, GRANULE, 0, 0, &segment));
    EXPECT(MOOR_OK, moor_range_reserve(party->binding, GRANULE, NULL, &range));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
    party->user = &range;
    fixture_set_capacity(f, GRANULE);
    EXPECT(MOOR_NO_VICTIM, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    EXPECT_ASKED_IN_ALL(party, 1, UNIT);
    cr_assert_eq(party_stats(party).evicted_bytes, 0);
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
}

/* Bytes that cannot be freed are not pending any more. */
FIXTURE_TEST(pressure, quarantined_bytes_are_requested_from_the_next_holder)
{
    struct waiter waiter;
    struct party *stuck = party_open(f, -1, 1, evict_requested);
    struct party *next = party_open(f, 0, 3, evict_requested);
    fixture_set_capacity(f, UNITS(4));
    scripted_fail_free(f->script, MOOR_ABI_RELEASE_ALLOCATION, 1, 1, MOOR_PROVIDER);
    moor_ticket ticket = open_ticket(f->holder, UNIT);
    fixture_await(&next->left, 1);
    struct moor_ticket_stats stats = await_served(f, ticket);
    cr_assert_eq(stats.evicted_bytes, UNITS(2));
    cr_assert_eq(stats.returned_bytes, UNIT);
    cr_assert_eq(stats.asked, 2);
    EXPECT_ASKED_IN_ALL(next, 1, UNIT);
    cr_assert_eq(party_stats(stuck).quarantined_bytes, UNIT);
    return_ticket(f, ticket);
    /* Quarantined bytes cannot be evicted. */
    waiter_start(&waiter, f->holder, UNITS(3), fixture_soon(LATE_MS));
    waiter_end(f, &waiter, MOOR_OK);
    EXPECT_ASKED_IN_ALL(stuck, 1, UNIT);
}

/* The failed free comes with the reap after the last answer: the request goes on to the next holder. */
FIXTURE_TEST(pressure, a_request_that_does_not_wait_goes_on_after_a_failed_free)
{
    struct party *stuck = party_open(f, -1, 1, evict_requested);
    struct party *next = party_open(f, 0, 3, evict_requested);
    fixture_set_capacity(f, UNITS(4));
    scripted_fail_free(f->script, MOOR_ABI_RELEASE_ALLOCATION, 1, 1, MOOR_PROVIDER);
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    EXPECT_ASKED_IN_ALL(stuck, 1, UNIT);
    EXPECT_ASKED_IN_ALL(next, 1, UNIT);
}

/* ---- the cool-down ---- */

/* Requests alternately for two holders, which shows that the cool-down belongs to the victim. */
static void expect_rest(struct fixture *f, struct moor_holder *other, uint64_t cool_down_ns)
{
    size_t before = asked_count();
    EXPECT(MOOR_NO_VICTIM, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    cr_assert_eq(asked_count(), before + 1, "the holder has not cooled down");
    clock_advance(f, cool_down_ns - 1);
    EXPECT(MOOR_NO_VICTIM, try_reserve(f, other, UNIT, MOOR_NO_WAIT));
    cr_assert_eq(asked_count(), before + 1, "the cool-down is %llu ns", (unsigned long long)cool_down_ns);
    clock_advance(f, 1);
}

FIXTURE_TEST(pressure, the_cool_down_doubles_after_each_small_eviction)
{
    clock_stop(f);
    struct party *party = party_open(f, 0, 0, NULL);
    struct moor_holder *other = fixture_holder(f, LIMITS(0));
    fixture_set_capacity(f, UNITS(4));
    party_take(party, 4);
    static const uint64_t rests_ms[] = {10, 20, 40, 80, 160, 320, 640, 1000, 1000};
    for (size_t i = 0; i < sizeof rests_ms / sizeof rests_ms[0]; i++)
        expect_rest(f, other, rests_ms[i] * 1000000);
    /* evicts all requested bytes: the cool-down starts from its minimum again */
    atomic_store(&party->answer, evict_requested);
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    party_take(party, 1);
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    party_take(party, 1);
    atomic_store(&party->answer, NULL);
    expect_rest(f, other, MOOR_COOL_DOWN_NS);
    expect_rest(f, other, 2 * MOOR_COOL_DOWN_NS);
}

FIXTURE_TEST(pressure, a_hint_of_evictable_bytes_ends_the_cool_down)
{
    clock_stop(f);
    struct party *party = party_open(f, 0, 4, NULL);
    fixture_set_capacity(f, UNITS(4));
    EXPECT(MOOR_NO_VICTIM, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    EXPECT(MOOR_NO_VICTIM, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    cr_assert_eq(asked_count(), 1);
    EXPECT(MOOR_OK, moor_holder_set_evictable(party->holder, UNIT));
    EXPECT(MOOR_NO_VICTIM, try_reserve(f, f->holder, UNIT, MOOR_NO_WAIT));
    cr_assert_eq(asked_count(), 2);
    /* A ticket that waits already causes a request, too. */
    moor_ticket ticket = open_ticket(f->holder, UNIT);
    moor__pressure_settle(f->runtime);
    cr_assert_eq(asked_count(), 2);
    atomic_store(&party->answer, evict_requested);
    EXPECT(MOOR_OK, moor_holder_set_evictable(party->holder, UNITS(2)));
    fixture_await(&party->left, 3); /* caused by the hint alone */
    moor__pressure_settle(f->runtime);
    cr_assert_eq(asked_count(), 3);
    fixture_reap(f);
    return_ticket(f, ticket);
    cr_assert_eq(party_stats(party).evictable_bytes, UNITS(2), "the hint is reported");
}

/* ---- the withdrawn request ---- */

static _Atomic int leaps_left;

/* The still clock; while leaps are left, each call takes place a second after the one before. */
static uint64_t leaping_clock(void)
{
    if (atomic_load(&leaps_left) > 0) {
        atomic_fetch_sub(&leaps_left, 1);
        atomic_fetch_add(&still_ns, 1000000000);
    }
    return still_clock();
}

/* The withdrawal is an answer, after which the schedule runs. The cool-down is over at that time, and another
 * holder can be asked, so the plan comes as far as the holder that the ticket is for. */
FIXTURE_TEST(pressure, a_holder_whose_request_is_withdrawn_is_not_asked_meanwhile)
{
    struct moor__governor *governor = f->runtime->governor;
    clock_stop(f);
    governor->port.clock = leaping_clock;
    (void)party_open(f, 0, 0, NULL); /* can be asked, and has nothing */
    struct party *party = party_join(f, LIMITS(.limit_bytes = UNITS(4)), 4, NULL);
    moor_ticket ticket = open_ticket(party->holder, UNIT);
    moor__pressure_settle(f->runtime);
    cr_assert_eq(ticket_stats(f, ticket).asked, 1);
    moor__lock_acquire(&governor->queue.lock); /* no worker can take the next request */
    atomic_store(&leaps_left, 3);              /* to make the request, to end it, and to run the schedule */
    moor__queue_scan_locked(governor);
    cr_assert(party->holder->victim.request.is_waiting);
    moor_status status = moor__pressure_await(governor, party->holder);
    moor__lock_release(&governor->queue.lock);
    EXPECT(MOOR_OK, status);
    cr_assert_eq(atomic_load(&leaps_left), 0);
    cr_assert_eq(ticket_stats(f, ticket).asked, 2, "it was asked during the withdrawal");
    EXPECT_ASKED_IN_ALL(party, 1, UNIT);
    EXPECT(MOOR_OK, moor_holder_set_pressure(party->holder, NULL, NULL));
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, ticket));
}

/* ---- a device that is full ---- */

FIXTURE_TEST(pressure, a_full_device_asks_though_the_budget_has_room)
{
    moor_buffer buffer = 0;
    moor_range range = fixture_range(f, 1);
    struct party *low = party_open(f, 0, 8, evict_requested);
    struct party *high = party_open(f, 1, 1, evict_requested);
    fixture_fail_times(f, SCRIPTED_ALLOCATE, 1, MOOR_DEVICE_NOMEM);
    EXPECT(MOOR_OK, moor_buffer_allocate(f->binding, UNIT, NULL, &buffer));
    expect_asked(0, low, UNIT, MOOR_PRESSURE_DEVICE);
    fixture_fail_times(f, SCRIPTED_COMMIT, 1, MOOR_DEVICE_NOMEM);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, GRANULE, 0));
    expect_asked(1, low, GRANULE, MOOR_PRESSURE_DEVICE);
    EXPECT_ASKED_IN_ALL(high, 0, 0);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
}

FIXTURE_TEST(pressure, a_full_device_asks_once)
{
    moor_buffer buffer = 0;
    struct party *party = party_open(f, 0, 8, evict_requested);
    fixture_fail_times(f, SCRIPTED_ALLOCATE, UINT32_MAX, MOOR_DEVICE_NOMEM);
    EXPECT(MOOR_DEVICE_NOMEM, moor_buffer_allocate(f->binding, UNIT, NULL, &buffer));
    EXPECT_ASKED_IN_ALL(party, 1, UNIT);
    atomic_store(&party->answer, NULL);
    uint64_t allocations = scripted_count(f->script, SCRIPTED_ALLOCATE);
    EXPECT(MOOR_DEVICE_NOMEM, moor_buffer_allocate(f->binding, UNIT, NULL, &buffer));
    EXPECT_ASKED_IN_ALL(party, 2, UNITS(2));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_ALLOCATE), allocations + 1,
                 "no second attempt without an eviction");
    fixture_check_accounts(f);
    scripted_clear_faults(f->script);
}
