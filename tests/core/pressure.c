/* SPDX-License-Identifier: MIT */
/* Who is asked for memory, for how much, how often, and what is counted of it. */
#include "asked.h"
#include "util/limits.h"

#include <string.h>

TestSuite(pressure, .timeout = 120);

static void set_capacity(struct fixture *f, uint64_t bytes)
{
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, bytes, 0, NULL));
}

/* A request that does not wait; what it gets is returned. */
static moor_status ask_for(struct moor_holder *holder, struct fixture *f, uint64_t bytes)
{
    moor_grant grant = 0;
    moor_status status = moor_grant_reserve(holder, bytes, MOOR_NO_WAIT, &grant);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    return status;
}

/* The party was asked so often so far, for so many bytes in all. */
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
    cr_assert(times_asked == times && bytes_asked == bytes, "line %d: it was asked %zu times, for %llu bytes",
              line, times_asked, (unsigned long long)bytes_asked);
}
#define EXPECT_ASKED_IN_ALL(party_, times_, bytes_) check_asked_in_all((party_), (times_), (bytes_), __LINE__)

/* ---- who ---- */

Test(pressure, the_lowest_priority_is_asked_first_and_the_requester_last_of_its_own)
{
    struct fixture f = fixture_open(NULL);
    enum { REQUESTER, HIGH, FIRST, LOW, SECOND, COUNT };
    static const int32_t priorities[COUNT] = {0, 1, 0, -1, 0};
    struct party parties[COUNT];
    clock_stop(&f);
    set_capacity(&f, UNITS(COUNT));
    for (size_t i = 0; i < COUNT; i++) {
        party_open(&parties[i], &f, priorities[i], NULL);
        party_take(&parties[i], 1);
    }
    SHORT(MOOR_NO_VICTIM, UNIT, ask_for(parties[REQUESTER].holder, &f, UNIT));
    cr_assert_eq(asked_count(), 4, "%zu were asked", asked_count());
    expect_asked(0, &parties[LOW], UNIT, MOOR_PRESSURE_REQUEST);
    expect_asked(1, &parties[FIRST], UNIT, MOOR_PRESSURE_REQUEST);
    expect_asked(2, &parties[SECOND], UNIT, MOOR_PRESSURE_REQUEST);
    expect_asked(3, &parties[REQUESTER], UNIT, MOOR_PRESSURE_REQUEST);
    cr_assert_eq(asked.entry[0].pressure.priority, 0, "the requester's");
    for (size_t i = 0; i < COUNT; i++)
        party_close(&parties[i]);
    fixture_close(&f);
}

/* A priority that is set live counts from then on. */
Test(pressure, priorities_change_live)
{
    struct fixture f = fixture_open(NULL);
    struct party first, second;
    clock_stop(&f);
    set_capacity(&f, UNITS(2));
    party_open(&first, &f, 0, give_what_is_asked);
    party_open(&second, &f, 0, give_what_is_asked);
    party_take(&first, 1);
    party_take(&second, 1);
    EXPECT(MOOR_OK,
           moor_holder_set_limits(first.holder, &(struct moor_holder_limits){.priority = 1}, 0, NULL));
    EXPECT(MOOR_OK, ask_for(f.holder, &f, UNIT));
    expect_asked(0, &second, UNIT, MOOR_PRESSURE_REQUEST);
    EXPECT(MOOR_OK, moor_holder_set_pressure(second.holder, NULL, NULL));
    party_take(&second, 1);
    EXPECT(MOOR_OVER_BUDGET, ask_for(f.holder, &f, UNIT));
    EXPECT(MOOR_OK, moor_holder_set_limits(f.holder, &(struct moor_holder_limits){.priority = 1}, 0, NULL));
    EXPECT(MOOR_OK, ask_for(f.holder, &f, UNIT));
    expect_asked(1, &first, UNIT, MOOR_PRESSURE_REQUEST);
    party_close(&first);
    party_close(&second);
    fixture_close(&f);
}

/* Of other pools nobody is asked. */
Test(pressure, only_holders_of_the_pool_are_asked)
{
    struct fixture f = fixture_open(NULL);
    struct party party, empty;
    struct moor_authority *other = NULL;
    EXPECT(MOOR_OK, moor_device_get_authority(f.device, SCRIPTED_DOMAIN_HOST, &other));
    party_join(&party, &f, other, SCRIPTED_DOMAIN_HOST, NULL, give_all);
    party_open(&empty, &f, 0, give_all); /* here is somebody, who has nothing */
    party_take(&party, 4);
    set_capacity(&f, UNITS(2));
    moor_lease lease = take_lease(&f, f.holder, UNITS(2));
    EXPECT(MOOR_OVER_BUDGET, ask_for(f.holder, &f, UNIT));
    cr_assert_eq(asked_count(), 0);
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    party_close(&party);
    party_close(&empty);
    fixture_close(&f);
}

/* ---- for how much ---- */

Test(pressure, each_is_asked_for_what_is_short_and_has_it)
{
    struct fixture f = fixture_open(NULL);
    struct party small, large, spare;
    clock_stop(&f);
    set_capacity(&f, UNITS(10));
    party_open(&small, &f, -1, give_what_is_asked);
    party_open(&large, &f, 0, give_what_is_asked);
    party_open(&spare, &f, 0, give_what_is_asked);
    party_take(&small, 1);
    party_take(&large, 5);
    party_take(&spare, 3);
    EXPECT(MOOR_OK, ask_for(f.holder, &f, UNITS(4))); /* one is free */
    EXPECT_ASKED_IN_ALL(&small, 1, UNIT);
    EXPECT_ASKED_IN_ALL(&large, 1, UNITS(2));
    EXPECT_ASKED_IN_ALL(&spare, 0, 0);
    cr_assert_eq(party_stats(&large).evicted_bytes, UNITS(2));
    cr_assert_eq(party_stats(&large).asked, 1);
    party_close(&small);
    party_close(&large);
    party_close(&spare);
    fixture_close(&f);
}

static uint64_t give_at_the_gate(struct party *party, const struct moor_pressure *pressure)
{
    await_gate(party);
    return party_give(party, pressure->bytes);
}

static uint64_t wait_at_the_gate(struct party *party, const struct moor_pressure *pressure)
{
    (void)pressure;
    await_gate(party);
    return 0;
}

/* What a holder has been asked for is not asked of others, until it has taken longer than the patience. */
Test(pressure, the_same_bytes_are_asked_for_once)
{
    struct fixture f = fixture_open(NULL);
    struct party slow, next;
    moor_ticket tickets[2];
    clock_stop(&f);
    set_capacity(&f, UNITS(6));
    party_open(&slow, &f, -1, wait_at_the_gate);
    party_open(&next, &f, 0, give_at_the_gate);
    party_take(&slow, 3);
    party_take(&next, 3);
    tickets[0] = open_ticket(f.holder, UNITS(2));
    fixture_await(&slow.entered, 1);
    EXPECT_ASKED_IN_ALL(&slow, 1, UNITS(2));
    clock_advance(&f, MOOR_PATIENCE_NS - 1);
    cr_assert_eq(ticket_stats(&f, tickets[0]).asked, 1);
    /* One that comes now is asked for beside it. */
    tickets[1] = open_ticket(f.holder, UNIT);
    fixture_await(&next.entered, 1);
    EXPECT_ASKED_IN_ALL(&next, 1, UNIT);
    clock_advance(&f, 1); /* the next is inside: it is asked for the rest when it comes back */
    EXPECT_ASKED_IN_ALL(&slow, 1, UNITS(2));
    atomic_store(&next.gate, 1);
    fixture_await(&next.left, 3);
    EXPECT_ASKED_IN_ALL(&next, 3, UNITS(3)); /* for one ticket at a time */
    cr_assert_eq(atomic_load(&slow.left), 0);
    fixture_reap(&f);
    cr_assert(is_served(&f, tickets[0]) && is_served(&f, tickets[1]));
    atomic_store(&slow.gate, 1);
    moor__pressure_settle(f.runtime);
    EXPECT_ASKED_IN_ALL(&slow, 1, UNITS(2)); /* it is not needed any more */
    return_ticket(&f, tickets[0]);
    return_ticket(&f, tickets[1]);
    party_close(&slow);
    party_close(&next);
    fixture_close(&f);
}

/* The host says how long the patience is. */
Test(pressure, patience_is_the_hosts)
{
    struct moor_runtime *runtime = NULL;
    const struct moor_runtime_options options = {.patience_ns = 5 * MOOR_PATIENCE_NS};
    EXPECT(MOOR_OK, moor_runtime_create(&options, &runtime));
    struct fixture f = fixture_join(runtime, NULL, 0);
    struct party slow, next;
    clock_stop(&f);
    set_capacity(&f, UNITS(2));
    party_open(&slow, &f, -1, wait_at_the_gate);
    party_open(&next, &f, 0, give_all);
    party_take(&slow, 1);
    party_take(&next, 1);
    moor_ticket ticket = open_ticket(f.holder, UNIT);
    fixture_await(&slow.entered, 1);
    clock_advance(&f, 5 * MOOR_PATIENCE_NS - 1);
    cr_assert_eq(ticket_stats(&f, ticket).asked, 1);
    clock_advance(&f, 1);
    cr_assert_eq(ticket_stats(&f, ticket).asked, 2);
    fixture_await(&next.left, 1);
    fixture_reap(&f);
    return_ticket(&f, ticket);
    atomic_store(&slow.gate, 1);
    party_close(&slow);
    party_close(&next);
    fixture_close(&f);
}

/* Short of its own limit, a holder is asked for what it has itself, and nobody else is. */
Test(pressure, its_own_limit_is_its_own_to_make_room_under)
{
    struct fixture f = fixture_open(NULL);
    struct party own, other;
    clock_stop(&f);
    party_join(
        &own, &f, f.authority, SCRIPTED_DOMAIN_DEVICE,
        &(struct moor_holder_limits){.limit_bytes = UNITS(4), .guarantee_bytes = UNITS(4), .priority = 5},
        give_what_is_asked);
    party_open(&other, &f, 0, give_all);
    set_capacity(&f, UNITS(10));
    party_take(&own, 3);
    party_take(&other, 3);
    EXPECT(MOOR_OK, ask_for(own.holder, &f, UNITS(3)));
    EXPECT_ASKED_IN_ALL(&own, 1, UNITS(2)); /* also of what is guaranteed to it */
    EXPECT_ASKED_IN_ALL(&other, 0, 0);
    party_close(&own);
    party_close(&other);
    fixture_close(&f);
}

/* ---- what comes back ---- */

/* Served, and all that was let go for it is back; the one may come a moment before the other. */
static struct moor_ticket_stats await_served(struct fixture *f, moor_ticket ticket)
{
    uint64_t deadline_ns = fixture_soon(LATE_MS);
    struct moor_ticket_stats stats;
    do {
        stats = ticket_stats(f, ticket);
        cr_assert_lt(moor_clock_ns(), deadline_ns, "it is not served");
    } while (!stats.served || stats.pending_bytes);
    return stats;
}

/* Of two units that are let go, one is behind a stream that is held. */
Test(pressure, a_ticket_counts_what_was_let_go_is_pending_and_is_back)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    party_open(&party, &f, 0, give_what_is_asked);
    set_capacity(&f, UNITS(2));
    party_take(&party, 2);
    struct moor_view view = fixture_buffer_view(&f, party.buffers[1]);
    scripted_hold(f.script, f.queue);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 0, 1));
    moor_ticket ticket = open_ticket(f.holder, UNITS(2));
    fixture_await(&party.left, 1);
    uint64_t deadline_ns = fixture_soon(LATE_MS);
    struct moor_ticket_stats stats;
    do {
        stats = ticket_stats(&f, ticket);
        cr_assert_eq(stats.evicted_bytes, UNITS(2));
        cr_assert_eq(stats.pending_bytes + stats.returned_bytes, UNITS(2));
        cr_assert_lt(moor_clock_ns(), deadline_ns, "what is not behind the stream does not come back");
    } while (stats.returned_bytes < UNIT);
    cr_assert_eq(stats.pending_bytes, UNIT);
    cr_assert_eq(stats.asked, 1);
    cr_assert_not(stats.served);
    cr_assert_eq(fixture_stats(&f).pending_bytes, UNIT);
    scripted_open(f.script, f.queue);
    stats = await_served(&f, ticket);
    cr_assert_eq(stats.returned_bytes, UNITS(2));
    cr_assert_eq(stats.evicted_bytes, UNITS(2));
    cr_assert_eq(asked_count(), 1, "nobody is asked again for what is on its way");
    return_ticket(&f, ticket);
    party_close(&party);
    fixture_close(&f);
}

/* What one lets go for a ticket of another's counts for that; what it lets go unasked counts for none. */
Test(pressure, only_what_was_asked_for_counts)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    clock_stop(&f);
    party_open(&party, &f, 0, NULL);
    set_capacity(&f, UNITS(4));
    party_take(&party, 4);
    moor_ticket ticket = open_ticket(f.holder, UNITS(3));
    moor__pressure_settle(f.runtime);
    cr_assert_eq(party_give(&party, UNIT), UNIT);
    fixture_reap(&f);
    struct moor_ticket_stats stats = ticket_stats(&f, ticket);
    cr_assert(stats.asked == 1 && stats.evicted_bytes == 0 && stats.returned_bytes == 0);
    cr_assert_eq(party_stats(&party).evicted_bytes, 0);
    atomic_store(&party.answer, give_what_is_asked);
    clock_advance(&f, MOOR_COOL_DOWN_NS);
    moor__pressure_settle(f.runtime);
    fixture_reap(&f);
    stats = ticket_stats(&f, ticket);
    cr_assert(stats.asked == 2 && stats.evicted_bytes == UNITS(2) && stats.returned_bytes == UNITS(2));
    cr_assert_eq(party_stats(&party).evicted_bytes, UNITS(2));
    return_ticket(&f, ticket);
    party_close(&party);
    fixture_close(&f);
}

/* What cannot be freed is not on its way any more. */
Test(pressure, what_comes_into_quarantine_is_asked_of_the_next)
{
    struct fixture f = fixture_open(NULL);
    struct party stuck, next;
    struct waiter waiter;
    party_open(&stuck, &f, -1, give_what_is_asked);
    party_open(&next, &f, 0, give_what_is_asked);
    set_capacity(&f, UNITS(4));
    party_take(&stuck, 1);
    party_take(&next, 3);
    scripted_fail_free(f.script, MOOR_ABI_RELEASE_ALLOCATION, 1, 1, MOOR_PROVIDER);
    moor_ticket ticket = open_ticket(f.holder, UNIT);
    fixture_await(&next.left, 1);
    struct moor_ticket_stats stats = await_served(&f, ticket);
    cr_assert_eq(stats.evicted_bytes, UNITS(2));
    cr_assert_eq(stats.returned_bytes, UNIT);
    cr_assert_eq(stats.asked, 2);
    EXPECT_ASKED_IN_ALL(&next, 1, UNIT);
    cr_assert_eq(party_stats(&stuck).quarantined_bytes, UNIT);
    return_ticket(&f, ticket);
    /* It is not asked for what is stuck. */
    waiter_start(&waiter, f.holder, UNITS(3), fixture_soon(LATE_MS));
    waiter_end(&f, &waiter, MOOR_OK);
    EXPECT_ASKED_IN_ALL(&stuck, 1, UNIT);
    party_close(&next);
    party_close(&stuck); /* closing its binding tries again */
    fixture_close(&f);
}

/* ---- rest ---- */

/* Asks by turns for two holders, so that it is seen that the rest is the victim's. */
static void expect_rest(struct fixture *f, struct moor_holder *other, uint64_t cool_down_ns)
{
    size_t before = asked_count();
    EXPECT(MOOR_NO_VICTIM, ask_for(f->holder, f, UNIT));
    cr_assert_eq(asked_count(), before + 1, "it is awake");
    clock_advance(f, cool_down_ns - 1);
    EXPECT(MOOR_NO_VICTIM, ask_for(other, f, UNIT));
    cr_assert_eq(asked_count(), before + 1, "it rests for %llu ns", (unsigned long long)cool_down_ns);
    clock_advance(f, 1);
}

Test(pressure, one_that_gives_too_little_rests_twice_as_long_each_time)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    struct moor_holder *other = NULL;
    clock_stop(&f);
    party_open(&party, &f, 0, NULL);
    EXPECT(MOOR_OK, moor_holder_create(f.authority, NULL, &other));
    set_capacity(&f, UNITS(4));
    party_take(&party, 4);
    static const uint64_t rests_ms[] = {10, 20, 40, 80, 160, 320, 640, 1000, 1000};
    for (size_t i = 0; i < sizeof rests_ms / sizeof rests_ms[0]; i++)
        expect_rest(&f, other, rests_ms[i] * 1000000);
    atomic_store(&party.answer, give_what_is_asked); /* all that it is asked for: then it starts anew */
    EXPECT(MOOR_OK, ask_for(f.holder, &f, UNIT));
    party_take(&party, 1);
    EXPECT(MOOR_OK, ask_for(f.holder, &f, UNIT));
    party_take(&party, 1);
    atomic_store(&party.answer, NULL);
    expect_rest(&f, other, MOOR_COOL_DOWN_NS);
    expect_rest(&f, other, 2 * MOOR_COOL_DOWN_NS);
    party_close(&party);
    EXPECT(MOOR_OK, moor_holder_destroy(other));
    fixture_close(&f);
}

Test(pressure, one_that_says_that_it_has_something_is_asked_at_once)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    clock_stop(&f);
    party_open(&party, &f, 0, NULL);
    set_capacity(&f, UNITS(4));
    party_take(&party, 4);
    EXPECT(MOOR_NO_VICTIM, ask_for(f.holder, &f, UNIT));
    EXPECT(MOOR_NO_VICTIM, ask_for(f.holder, &f, UNIT));
    cr_assert_eq(asked_count(), 1);
    EXPECT(MOOR_OK, moor_holder_set_evictable(party.holder, UNIT));
    EXPECT(MOOR_NO_VICTIM, ask_for(f.holder, &f, UNIT));
    cr_assert_eq(asked_count(), 2);
    /* Also for one that waits already. */
    moor_ticket ticket = open_ticket(f.holder, UNIT);
    moor__pressure_settle(f.runtime);
    cr_assert_eq(asked_count(), 2);
    atomic_store(&party.answer, give_what_is_asked);
    EXPECT(MOOR_OK, moor_holder_set_evictable(party.holder, UNITS(2)));
    fixture_await(&party.left, 3); /* by that alone */
    moor__pressure_settle(f.runtime);
    cr_assert_eq(asked_count(), 3);
    fixture_reap(&f);
    return_ticket(&f, ticket);
    cr_assert_eq(party_stats(&party).evictable_bytes, UNITS(2), "a hint that is shown");
    party_close(&party);
    fixture_close(&f);
}

/* ---- a device that is full ---- */

static void fill_device(struct fixture *f, enum scripted_name name, uint32_t times)
{
    scripted_fail(f->script, (struct scripted_fault){
                                 .name = name, .nth = 1, .times = times, .status = MOOR_DEVICE_NOMEM});
}

Test(pressure, a_full_device_asks_though_the_budget_has_room)
{
    struct fixture f = fixture_open(NULL);
    struct party low, high;
    moor_buffer buffer = 0;
    moor_range range = fixture_range(&f, 1);
    party_open(&low, &f, 0, give_what_is_asked);
    party_open(&high, &f, 1, give_what_is_asked);
    party_take(&low, 8);
    party_take(&high, 1);
    fill_device(&f, SCRIPTED_ALLOCATE, 1);
    EXPECT(MOOR_OK, moor_buffer_allocate(f.binding, UNIT, NULL, &buffer));
    expect_asked(0, &low, UNIT, MOOR_PRESSURE_DEVICE);
    fill_device(&f, SCRIPTED_COMMIT, 1);
    EXPECT(MOOR_OK, moor_range_commit(f.runtime, range, 0, GRANULE, 0));
    expect_asked(1, &low, GRANULE, MOOR_PRESSURE_DEVICE);
    EXPECT_ASKED_IN_ALL(&high, 0, 0);
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    EXPECT(MOOR_OK, moor_range_release(f.runtime, range));
    party_close(&low);
    party_close(&high);
    fixture_close(&f);
}

Test(pressure, a_full_device_asks_once)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    moor_buffer buffer = 0;
    party_open(&party, &f, 0, give_what_is_asked);
    party_take(&party, 8);
    fill_device(&f, SCRIPTED_ALLOCATE, UINT32_MAX);
    EXPECT(MOOR_DEVICE_NOMEM, moor_buffer_allocate(f.binding, UNIT, NULL, &buffer));
    EXPECT_ASKED_IN_ALL(&party, 1, UNIT);
    atomic_store(&party.answer, NULL);
    uint64_t allocations = scripted_count(f.script, SCRIPTED_ALLOCATE);
    EXPECT(MOOR_DEVICE_NOMEM, moor_buffer_allocate(f.binding, UNIT, NULL, &buffer));
    EXPECT_ASKED_IN_ALL(&party, 2, UNITS(2));
    cr_assert_eq(scripted_count(f.script, SCRIPTED_ALLOCATE), allocations + 1, "nothing has come of it");
    fixture_check_books(&f);
    scripted_clear_faults(f.script);
    party_close(&party);
    fixture_close(&f);
}
