/* SPDX-License-Identifier: MIT */
/* Requests that wait: their ends, their order of service, and the events that serve them. */
#include "asked.h"
#include "util/limits.h"

TestSuite(tickets, .timeout = 120);

/* ---- how requests end ---- */

/* NEVER_FITS bounds every request by the largest one that could ever fit, whether it waits or not. */
FIXTURE_TEST(tickets, a_request_that_can_never_fit_fails_at_once)
{
    moor_ticket ticket = 0;
    fixture_set_capacity(f, UNITS(10));
    SHORT(MOOR_NEVER_FITS, UNITS(10), try_reserve(f, f->holder, UNITS(10) + 1, MOOR_NO_WAIT));
    SHORT(MOOR_NEVER_FITS, UNITS(10), try_reserve(f, f->holder, UINT64_MAX, MOOR_FOREVER));
    struct moor_holder *other = fixture_holder(f, LIMITS(.guarantee_bytes = UNITS(3)));
    (void)fixture_lease(f, f->holder, UNITS(2)); /* the holder's present bytes do not count */
    SHORT(MOOR_NEVER_FITS, UNITS(7), try_reserve(f, f->holder, UNITS(7) + 1, MOOR_FOREVER));
    EXPECT(MOOR_OK, moor_authority_set_aside(f->authority, UNITS(1)));
    SHORT(MOOR_NEVER_FITS, UNITS(6), try_reserve(f, f->holder, UNITS(6) + 1, MOOR_FOREVER));
    SHORT(MOOR_NEVER_FITS, UNITS(9), try_reserve(f, other, UNITS(9) + 1, MOOR_FOREVER));
    set_limits(f->holder, LIMITS(.limit_bytes = UNITS(5)));
    SHORT(MOOR_NEVER_FITS, UNITS(5), try_reserve(f, f->holder, UNITS(5) + 1, MOOR_FOREVER));
    const struct moor_request halves[] = {{f->holder, UNITS(3)}, {f->holder, UNITS(3)}};
    SHORT(MOOR_NEVER_FITS, UNITS(5), moor_ticket_open(halves, 2, MOOR_FOREVER, &ticket));
    cr_assert_eq(ticket, 0);
    /* the request could fit later */
    SHORT(MOOR_OVER_BUDGET, UNITS(2), try_reserve(f, f->holder, UNITS(5), MOOR_NO_WAIT));
}

/* Without a victim the status is OVER_BUDGET. The missing bytes are those of the tighter bound, limit or
 * pool. */
FIXTURE_TEST(tickets, no_room_and_no_victim_is_over_budget)
{
    fixture_set_capacity(f, UNITS(10));
    (void)fixture_lease(f, f->holder, UNITS(6));
    SHORT(MOOR_OVER_BUDGET, UNITS(1), try_reserve(f, f->holder, UNITS(5), MOOR_NO_WAIT));
    set_limits(f->holder, LIMITS(.limit_bytes = UNITS(8)));
    SHORT(MOOR_OVER_BUDGET, UNITS(3), try_reserve(f, f->holder, UNITS(5), MOOR_NO_WAIT));
}

FIXTURE_TEST(tickets, holders_that_evict_too_little_are_no_victims)
{
    clock_stop(f); /* the party cools down until the test advances the clock */
    struct party *party = party_open(f, 0, 6, NULL);
    fixture_set_capacity(f, UNITS(10));
    SHORT(MOOR_NO_VICTIM, UNITS(3), try_reserve(f, f->holder, UNITS(7), MOOR_NO_WAIT));
    cr_assert_eq(asked_count(), 1);
    SHORT(MOOR_NO_VICTIM, UNITS(3),
          try_reserve(f, f->holder, UNITS(7), MOOR_NO_WAIT)); /* the party cools down */
    cr_assert_eq(asked_count(), 1);
    EXPECT(MOOR_OK, moor_holder_set_pressure(party->holder, NULL, NULL));
    SHORT(MOOR_OVER_BUDGET, UNITS(3), try_reserve(f, f->holder, UNITS(7), MOOR_NO_WAIT));
}

static uint64_t give_one(struct party *party, const struct moor_pressure *pressure)
{
    return party_evict(party, UNIT);
}

/* Returned bytes count before the error reports the missing ones, and stay free. */
FIXTURE_TEST(tickets, the_error_reports_the_final_shortage)
{
    clock_stop(f); /* only the request itself reaps */
    (void)party_open(f, 0, 6, give_one);
    fixture_set_capacity(f, UNITS(10));
    SHORT(MOOR_NO_VICTIM, UNITS(2), try_reserve(f, f->holder, UNITS(7), MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(f).free_bytes, UNITS(5));
}

/* Puts the party's oldest unit behind the held stream. */
static void use_first(struct party *party)
{
    struct moor_view view = fixture_buffer_view(party->f, party->buffers[party->first]);
    EXPECT(MOOR_OK, moor_fill(party->f->stream, &view, 0, 1));
}

FIXTURE_TEST(tickets, pending_bytes_cause_no_pressure_request)
{
    clock_stop(f);
    struct party *party = party_open(f, 0, 10, evict_requested);
    fixture_set_capacity(f, UNITS(10));
    scripted_hold(f->script, f->queue);
    for (int i = 0; i < 2; i++) {
        use_first(party);
        (void)party_evict(party, UNIT);
    }
    SHORT(MOOR_PENDING, UNITS(2), try_reserve(f, f->holder, UNITS(1), MOOR_NO_WAIT));
    SHORT(MOOR_PENDING, UNITS(2), try_reserve(f, f->holder, UNITS(2), MOOR_NO_WAIT));
    cr_assert_eq(asked_count(), 0);
    /* A pressure request covers the remaining bytes, which become pending, too. */
    use_first(party);
    SHORT(MOOR_PENDING, UNITS(3), try_reserve(f, f->holder, UNITS(3), MOOR_NO_WAIT));
    cr_assert_eq(asked_count(), 1);
    expect_asked(0, party, UNIT, MOOR_PRESSURE_REQUEST);
    scripted_open(f->script, f->queue);
    (void)fixture_reserve(f, UNITS(3));
}

FIXTURE_TEST(tickets, a_wait_ends_at_its_deadline)
{
    fixture_set_capacity(f, UNITS(10));
    moor_lease lease = fixture_lease(f, f->holder, UNITS(6));
    uint64_t deadline_ns = fixture_soon(50);
    SHORT(MOOR_TIMEOUT, UNITS(1), try_reserve(f, f->holder, UNITS(5), deadline_ns));
    cr_assert_geq(moor_clock_ns(), deadline_ns, "the request has not waited");
    SHORT(MOOR_TIMEOUT, UNITS(1), try_reserve(f, f->holder, UNITS(5), 1)); /* an expired deadline */
    cr_assert_eq(fixture_stats(f).tickets, 0);
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
    cr_assert_eq(fixture_stats(f).free_bytes, UNITS(10), "an expired request reserves nothing");
}

FIXTURE_TEST(tickets, a_wait_is_served_by_any_thread_that_makes_room)
{
    struct waiter waiter;
    fixture_set_capacity(f, UNITS(10));
    moor_lease lease = fixture_lease(f, f->holder, UNITS(10));
    waiter_start(&waiter, f->holder, UNITS(4), fixture_soon(LATE_MS));
    await_tickets(f, 1);
    EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, lease, UNITS(7), MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(f).tickets, 1, "three units are not four");
    EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, lease, UNITS(6), MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(f).reserved_bytes, UNITS(4),
                 "the bytes are reserved before the thread wakes up");
    waiter_end(f, &waiter, MOOR_OK);
}

/* ---- tickets as handles ---- */

FIXTURE_TEST(tickets, cancelling_a_ticket_ends_its_wait_at_once)
{
    fixture_set_capacity(f, UNITS(10));
    moor_lease lease = fixture_lease(f, f->holder, UNITS(10));
    moor_ticket ticket = open_ticket(f->holder, UNITS(4));
    struct ticket_wait wait;
    ticket_wait_start(&wait, f, ticket);
    cr_assert(fixture_stats(f).tickets == 1 && fixture_counts(f).tickets == 1);
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, ticket));
    cr_assert(fixture_stats(f).tickets == 0 && fixture_counts(f).tickets == 0);
    EXPECT(MOOR_STALE, moor_ticket_cancel(f->runtime, ticket));
    join(wait.thread);
    cr_assert(wait.status == MOOR_CANCELLED || wait.status == MOOR_STALE, "%s",
              moor_status_name(wait.status));
    cr_assert_eq(wait.grant, 0);
    struct moor_ticket_stats stats;
    EXPECT(MOOR_STALE, moor_ticket_get_stats(f->runtime, ticket, &stats));
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, 0));
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
    cr_assert_eq(fixture_stats(f).reserved_bytes, 0);
}

FIXTURE_TEST(tickets, cancelling_a_served_ticket_returns_its_bytes)
{
    fixture_set_capacity(f, UNITS(10));
    moor_ticket first = open_ticket(f->holder, UNITS(8)), second = open_ticket(f->holder, UNITS(8));
    cr_assert(is_served(f, first), "there was room at the opening");
    cr_assert_eq(fixture_stats(f).reserved_bytes, UNITS(8));
    cr_assert_not(is_served(f, second));
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, first));
    cr_assert_eq(fixture_stats(f).reserved_bytes, UNITS(8));
    return_ticket(f, second); /* the returned bytes have served the second ticket */
    cr_assert_eq(fixture_stats(f).reserved_bytes, 0);
}

FIXTURE_TEST(tickets, a_ticket_is_there_until_it_is_waited_for)
{
    moor_grant grants[2] = {0};
    moor_ticket ticket = 0;
    fixture_set_capacity(f, UNITS(10));
    struct moor_holder *other = fixture_holder(f, LIMITS(0));
    moor_lease lease = fixture_lease(f, f->holder, UNITS(10));
    const struct moor_request requests[] = {{other, UNITS(1)}, {f->holder, UNITS(2)}};
    EXPECT(MOOR_INVALID, moor_ticket_open(requests, 2, MOOR_NO_WAIT, &ticket));
    EXPECT(MOOR_INVALID, moor_ticket_open(requests, 0, MOOR_FOREVER, &ticket));
    EXPECT(MOOR_OK, moor_ticket_open(requests, 2, MOOR_FOREVER, &ticket));
    EXPECT(MOOR_BUSY, moor_holder_destroy(other));
    EXPECT(MOOR_INVALID, moor_ticket_wait(f->runtime, ticket, grants, 1));
    EXPECT(MOOR_INVALID, moor_ticket_wait(f->runtime, ticket, NULL, 2));
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
    struct moor_ticket_stats stats = ticket_stats(f, ticket);
    cr_assert(stats.served && stats.bytes == UNITS(3) && stats.deadline_ns == MOOR_FOREVER);
    EXPECT(MOOR_INVALID, moor_ticket_wait(f->runtime, ticket, grants, 1));
    EXPECT(MOOR_BUSY, moor_holder_destroy(other));
    EXPECT(MOOR_OK, moor_ticket_wait(f->runtime, ticket, grants, 2));
    EXPECT(MOOR_STALE, moor_ticket_wait(f->runtime, ticket, grants, 2));
    for (size_t i = 0; i < 2; i++) {
        uint64_t bytes = 0;
        EXPECT(MOOR_OK, moor_grant_get_remaining(f->runtime, grants[i], &bytes));
        cr_assert_eq(bytes, requests[i].bytes, "part %zu", i);
        EXPECT(MOOR_OK, moor_grant_release(f->runtime, grants[i]));
    }
}

FIXTURE_TEST(tickets, a_ticket_past_its_deadline_takes_nothing)
{
    moor_ticket ticket = 0;
    moor_grant grant = 0;
    clock_stop(f);
    fixture_set_capacity(f, UNITS(10));
    moor_lease lease = fixture_lease(f, f->holder, UNITS(10));
    const struct moor_request request = {f->holder, UNITS(1)};
    EXPECT(MOOR_OK, moor_ticket_open(&request, 1, still_clock() + 1000, &ticket));
    clock_advance(f, 999);
    cr_assert_eq(fixture_stats(f).tickets, 1);
    clock_advance(f, 1);
    cr_assert_eq(fixture_stats(f).tickets, 0, "the ticket does not wait any more");
    cr_assert_eq(fixture_counts(f).tickets, 1, "but its handle is valid");
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
    cr_assert_not(is_served(f, ticket));
    SHORT(MOOR_TIMEOUT, UNITS(1), moor_ticket_wait(f->runtime, ticket, &grant, 1));
    EXPECT(MOOR_STALE, moor_ticket_wait(f->runtime, ticket, &grant, 1));
    cr_assert_eq(fixture_stats(f).free_bytes, UNITS(10));
}

/* One thread gets the grant, and the other one gets nothing. */
FIXTURE_TEST(tickets, two_threads_may_wait_for_one)
{
    struct ticket_wait waits[2];
    fixture_set_capacity(f, UNITS(10));
    moor_lease lease = fixture_lease(f, f->holder, UNITS(10));
    moor_ticket ticket = open_ticket(f->holder, UNITS(4));
    for (int i = 0; i < 2; i++)
        ticket_wait_start(&waits[i], f, ticket);
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
    for (int i = 0; i < 2; i++)
        join(waits[i].thread);
    int winner = waits[0].status == MOOR_OK ? 0 : 1;
    cr_assert_eq(waits[winner].status, MOOR_OK);
    cr_assert_eq(waits[!winner].status, MOOR_STALE);
    cr_assert_eq(fixture_stats(f).reserved_bytes, UNITS(4));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, waits[winner].grant));
}

FIXTURE_TEST(tickets, open_tickets_are_limited)
{
    static moor_ticket tickets[MOOR_LIMIT_TICKETS];
    moor_ticket one_more = 0;
    moor_grant grant = 0;
    fixture_set_capacity(f, UNITS(10));
    (void)fixture_lease(f, f->holder, UNITS(10));
    for (size_t i = 0; i < MOOR_LIMIT_TICKETS; i++)
        tickets[i] = open_ticket(f->holder, UNITS(1));
    const struct moor_request request = {f->holder, UNITS(1)};
    EXPECT(MOOR_LIMIT, moor_ticket_open(&request, 1, MOOR_FOREVER, &one_more));
    EXPECT(MOOR_LIMIT, moor_grant_reserve(f->holder, UNITS(1), MOOR_FOREVER, &grant));
    fixture_set_capacity(f, UNITS(10 + MOOR_LIMIT_TICKETS));
    for (size_t i = 0; i < MOOR_LIMIT_TICKETS; i++)
        EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, tickets[i]));
}

/* ---- the order of service ---- */

FIXTURE_TEST(tickets, are_served_by_priority_and_then_by_arrival)
{
    static const int32_t priorities[] = {-1, 5, 0, 5, -1, 0};
    static const size_t order[] = {1, 3, 2, 5, 0, 4};
    moor_ticket tickets[6];
    fixture_set_capacity(f, UNITS(6));
    moor_lease lease = fixture_lease(f, f->holder, UNITS(6));
    for (size_t i = 0; i < 6; i++) {
        struct moor_holder *holder = fixture_holder(f, LIMITS(.priority = priorities[i]));
        tickets[i] = open_ticket(holder, UNIT);
        cr_assert_eq(ticket_stats(f, tickets[i]).priority, priorities[i]);
    }
    for (size_t n = 0; n < 6; n++) {
        cr_assert_not(is_served(f, tickets[order[n]]));
        if (n < 5)
            EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, lease, UNITS(5 - n), MOOR_NO_WAIT));
        else
            EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
        for (size_t i = 0; i < 6; i++)
            cr_assert_eq(is_served(f, tickets[order[i]]), i <= n, "with %zu units ticket %zu is %sserved",
                         n + 1, order[i], i <= n ? "not " : "");
    }
    for (size_t i = 0; i < 6; i++)
        return_ticket(f, tickets[i]);
}

/* ---- the events that serve them ---- */

/* A pool of 10 units: 2 leased, 2 granted, 3 granted to a ticket, 1 guaranteed, 1 in the emergency
 * reserve or above the limit of 8; one is free, two are requested. */
struct rise {
    moor_lease lease;
    moor_grant grant;
    moor_ticket ticket;        /* served */
    struct moor_holder *other; /* with the guarantee */
};

enum way {
    RAISE_CAPACITY,
    LOWER_GUARANTEE,
    END_GUARANTEE,
    LOWER_RESERVE,
    RAISE_LIMIT,
    RELEASE_GRANT,
    COMMIT_LESS,
    SHRINK_LEASE,
    REFUND_LEASE,
    CANCEL_TICKET,
    WAYS
};

static void make_room(struct fixture *f, struct rise *rise, enum way way)
{
    moor_lease lease = 0;
    switch (way) {
    case RAISE_CAPACITY:
        fixture_set_capacity(f, UNITS(11));
        break;
    case LOWER_GUARANTEE:
        set_limits(rise->other, LIMITS(0));
        break;
    case END_GUARANTEE:
        EXPECT(MOOR_OK, moor_holder_destroy(fixture_disown(rise->other)));
        break;
    case LOWER_RESERVE:
        EXPECT(MOOR_OK, moor_authority_set_aside(f->authority, 0));
        break;
    case RAISE_LIMIT:
        set_limits(f->holder, LIMITS(0));
        break;
    case RELEASE_GRANT:
        EXPECT(MOOR_OK, moor_grant_release(f->runtime, rise->grant));
        break;
    case COMMIT_LESS:
        EXPECT(MOOR_OK, moor_grant_commit(f->runtime, rise->grant, 1, &lease));
        EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
        break;
    case SHRINK_LEASE:
        EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, rise->lease, UNIT, MOOR_NO_WAIT));
        break;
    case REFUND_LEASE:
        EXPECT(MOOR_OK, moor_lease_refund(f->runtime, rise->lease));
        break;
    case CANCEL_TICKET:
    case WAYS:
        EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, rise->ticket));
    }
}

static void expect_room(enum way way, bool has_limit)
{
    struct fixture f = fixture_open(NULL);
    fixture_set_capacity(&f, UNITS(10));
    struct rise rise = {.lease = fixture_lease(&f, f.holder, UNITS(2)),
                        .grant = fixture_reserve(&f, UNITS(2))};
    rise.ticket = open_ticket(f.holder, UNITS(3));
    rise.other = fixture_holder(&f, LIMITS(.guarantee_bytes = UNIT));
    if (has_limit)
        set_limits(f.holder, LIMITS(.limit_bytes = UNITS(8)));
    else
        EXPECT(MOOR_OK, moor_authority_set_aside(f.authority, UNIT));
    moor_ticket ticket = open_ticket(f.holder, UNITS(2));
    cr_assert_not(is_served(&f, ticket));
    make_room(&f, &rise, way);
    cr_assert(is_served(&f, ticket), "way %u does not serve the request", way);
    return_ticket(&f, ticket);
    (void)moor_ticket_cancel(f.runtime, rise.ticket); /* STALE after CANCEL_TICKET */
    fixture_close(&f);
}

Test(tickets, every_way_to_make_room_serves_them)
{
    for (enum way way = RAISE_CAPACITY; way < WAYS; way++)
        expect_room(way, way == RAISE_LIMIT);
    expect_room(SHRINK_LEASE, true);
}

/* Memory behind a fence also serves them, while no thread makes a call. */
FIXTURE_TEST(tickets, are_served_when_a_fence_passes)
{
    struct waiter waiter;
    fixture_set_capacity(f, UNITS(1));
    struct moor_view view = fixture_allocate_view(f, UNIT);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0, 1));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    waiter_start(&waiter, f->holder, UNIT, fixture_soon(LATE_MS));
    await_tickets(f, 1);
    scripted_open(f->script, f->queue);
    waiter_end(f, &waiter, MOOR_OK);
}

/* ---- leases ---- */

FIXTURE_TEST(tickets, a_lease_grows_as_a_request_does)
{
    uint64_t bytes = 0;
    clock_stop(f);
    struct party *party = party_open(f, 0, 0, evict_requested);
    fixture_set_capacity(f, UNITS(10));
    moor_lease lease = fixture_lease(f, f->holder, UNITS(2));
    party_take(party, 4);
    EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, lease, UNITS(6), MOOR_NO_WAIT));
    /* causes a pressure request */
    EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, lease, UNITS(9), MOOR_NO_WAIT));
    expect_asked(0, party, UNITS(3), MOOR_PRESSURE_REQUEST);
    EXPECT(MOOR_OK, moor_holder_set_pressure(party->holder, NULL, NULL));
    SHORT(MOOR_OVER_BUDGET, UNITS(1), moor_lease_adjust(f->runtime, lease, UNITS(10), MOOR_NO_WAIT));
    SHORT(MOOR_TIMEOUT, UNITS(1), moor_lease_adjust(f->runtime, lease, UNITS(10), 1));
    SHORT(MOOR_NEVER_FITS, UNITS(10), moor_lease_adjust(f->runtime, lease, UNITS(20), MOOR_FOREVER));
    EXPECT(MOOR_INVALID, moor_lease_adjust(f->runtime, lease, 0, MOOR_NO_WAIT));
    EXPECT(MOOR_OK, moor_lease_get_bytes(f->runtime, lease, &bytes));
    cr_assert_eq(bytes, UNITS(9), "a failure leaves the lease unchanged");
    cr_assert_eq(fixture_stats(f).leased_bytes, UNITS(9));
    EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, lease, UNITS(1), MOOR_NO_WAIT));
    EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, lease, UNITS(1), MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(f).leased_bytes, UNITS(1));
    cr_assert_eq(fixture_stats(f).free_bytes, UNITS(8));
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
    EXPECT(MOOR_STALE, moor_lease_adjust(f->runtime, lease, UNITS(1), MOOR_NO_WAIT));
    EXPECT(MOOR_STALE, moor_lease_get_bytes(f->runtime, lease, &bytes));
}
