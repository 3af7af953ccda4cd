/* SPDX-License-Identifier: MIT */
/* Requests that wait: how they end, in which order they are served, and by what. */
#include "asked.h"
#include "util/limits.h"

TestSuite(tickets, .timeout = 120);

static void set_capacity(struct fixture *f, uint64_t bytes)
{
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, bytes, 0, NULL));
}

static moor_status reserve(struct moor_holder *holder, uint64_t bytes, uint64_t deadline_ns)
{
    moor_grant grant = 0;
    moor_status status = moor_grant_reserve(holder, bytes, deadline_ns, &grant);
    cr_assert_eq(grant == 0, status != MOOR_OK, "a grant is written on success only");
    return status;
}

/* ---- how requests end ---- */

/* The most that could fit is what a request may be, whether it waits or not. */
Test(tickets, what_can_never_fit_is_told_at_once)
{
    struct fixture f = fixture_open(NULL);
    struct moor_holder *other = NULL;
    moor_ticket ticket = 0;
    set_capacity(&f, UNITS(10));
    SHORT(MOOR_NEVER_FITS, UNITS(10), reserve(f.holder, UNITS(10) + 1, MOOR_NO_WAIT));
    SHORT(MOOR_NEVER_FITS, UNITS(10), reserve(f.holder, UINT64_MAX, MOOR_FOREVER));
    const struct moor_holder_options guaranteed = {.limits.guarantee_bytes = UNITS(3)};
    EXPECT(MOOR_OK, moor_holder_create(f.authority, &guaranteed, &other));
    moor_lease lease = take_lease(&f, f.holder, UNITS(2)); /* what it has already does not count */
    SHORT(MOOR_NEVER_FITS, UNITS(7), reserve(f.holder, UNITS(7) + 1, MOOR_FOREVER));
    EXPECT(MOOR_OK, moor_authority_set_aside(f.authority, UNITS(1)));
    SHORT(MOOR_NEVER_FITS, UNITS(6), reserve(f.holder, UNITS(6) + 1, MOOR_FOREVER));
    SHORT(MOOR_NEVER_FITS, UNITS(9), reserve(other, UNITS(9) + 1, MOOR_FOREVER));
    EXPECT(MOOR_OK,
           moor_holder_set_limits(f.holder, &(struct moor_holder_limits){.limit_bytes = UNITS(5)}, 0, NULL));
    SHORT(MOOR_NEVER_FITS, UNITS(5), reserve(f.holder, UNITS(5) + 1, MOOR_FOREVER));
    const struct moor_request halves[] = {{f.holder, UNITS(3)}, {f.holder, UNITS(3)}};
    SHORT(MOOR_NEVER_FITS, UNITS(5), moor_ticket_open(halves, 2, MOOR_FOREVER, &ticket));
    cr_assert_eq(ticket, 0);
    SHORT(MOOR_OVER_BUDGET, UNITS(2), reserve(f.holder, UNITS(5), MOOR_NO_WAIT)); /* it could, one day */
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    EXPECT(MOOR_OK, moor_holder_destroy(other));
    fixture_close(&f);
}

/* Nobody to ask: over budget; short by what is missing of the tighter of its limit and the pool. */
Test(tickets, no_room_and_nobody_to_ask_is_over_budget)
{
    struct fixture f = fixture_open(NULL);
    set_capacity(&f, UNITS(10));
    moor_lease lease = take_lease(&f, f.holder, UNITS(6));
    SHORT(MOOR_OVER_BUDGET, UNITS(1), reserve(f.holder, UNITS(5), MOOR_NO_WAIT));
    EXPECT(MOOR_OK,
           moor_holder_set_limits(f.holder, &(struct moor_holder_limits){.limit_bytes = UNITS(8)}, 0, NULL));
    SHORT(MOOR_OVER_BUDGET, UNITS(3), reserve(f.holder, UNITS(5), MOOR_NO_WAIT));
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    fixture_close(&f);
}

Test(tickets, holders_that_give_too_little_are_no_victims)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    clock_stop(&f); /* it rests until the test says otherwise */
    party_open(&party, &f, 0, NULL);
    set_capacity(&f, UNITS(10));
    party_take(&party, 6);
    SHORT(MOOR_NO_VICTIM, UNITS(3), reserve(f.holder, UNITS(7), MOOR_NO_WAIT));
    cr_assert_eq(asked_count(), 1);
    SHORT(MOOR_NO_VICTIM, UNITS(3), reserve(f.holder, UNITS(7), MOOR_NO_WAIT)); /* it rests */
    cr_assert_eq(asked_count(), 1);
    EXPECT(MOOR_OK, moor_holder_set_pressure(party.holder, NULL, NULL));
    SHORT(MOOR_OVER_BUDGET, UNITS(3), reserve(f.holder, UNITS(7), MOOR_NO_WAIT));
    party_close(&party);
    fixture_close(&f);
}

static uint64_t give_one(struct party *party, const struct moor_pressure *pressure)
{
    (void)pressure;
    return party_give(party, UNIT);
}

/* What came back is counted before it is said how much is short; it stays free. */
Test(tickets, what_is_short_is_what_is_short_in_the_end)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    clock_stop(&f); /* nobody but the request takes back what is let go */
    party_open(&party, &f, 0, give_one);
    set_capacity(&f, UNITS(10));
    party_take(&party, 6);
    SHORT(MOOR_NO_VICTIM, UNITS(2), reserve(f.holder, UNITS(7), MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(&f).free_bytes, UNITS(5));
    party_close(&party);
    fixture_close(&f);
}

/* Puts the party's oldest unit behind the held stream. */
static void use_first(struct party *party)
{
    struct moor_view view = fixture_buffer_view(party->f, party->buffers[party->first]);
    EXPECT(MOOR_OK, moor_fill(party->f->stream, &view, 0, 1));
}

Test(tickets, bytes_on_their_way_are_pending_and_nobody_is_asked)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    clock_stop(&f);
    party_open(&party, &f, 0, give_what_is_asked);
    set_capacity(&f, UNITS(10));
    party_take(&party, 10);
    scripted_hold(f.script, f.queue);
    for (int i = 0; i < 2; i++) {
        use_first(&party);
        (void)party_give(&party, UNIT);
    }
    SHORT(MOOR_PENDING, UNITS(2), reserve(f.holder, UNITS(1), MOOR_NO_WAIT));
    SHORT(MOOR_PENDING, UNITS(2), reserve(f.holder, UNITS(2), MOOR_NO_WAIT));
    cr_assert_eq(asked_count(), 0);
    /* What is missing beyond that is asked for, and it is pending too. */
    use_first(&party);
    SHORT(MOOR_PENDING, UNITS(3), reserve(f.holder, UNITS(3), MOOR_NO_WAIT));
    cr_assert_eq(asked_count(), 1);
    expect_asked(0, &party, UNIT, MOOR_PRESSURE_REQUEST);
    scripted_open(f.script, f.queue);
    moor_grant grant = 0;
    EXPECT(MOOR_OK, moor_grant_reserve(f.holder, UNITS(3), MOOR_NO_WAIT, &grant));
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
    party_close(&party);
    fixture_close(&f);
}

Test(tickets, a_wait_ends_at_its_deadline)
{
    struct fixture f = fixture_open(NULL);
    set_capacity(&f, UNITS(10));
    moor_lease lease = take_lease(&f, f.holder, UNITS(6));
    uint64_t deadline_ns = fixture_soon(50);
    SHORT(MOOR_TIMEOUT, UNITS(1), reserve(f.holder, UNITS(5), deadline_ns));
    cr_assert_geq(moor_clock_ns(), deadline_ns, "it has not waited");
    SHORT(MOOR_TIMEOUT, UNITS(1), reserve(f.holder, UNITS(5), 1)); /* a deadline that is over */
    cr_assert_eq(fixture_stats(&f).tickets, 0);
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    cr_assert_eq(fixture_stats(&f).free_bytes, UNITS(10), "nothing is taken for what is over");
    fixture_close(&f);
}

Test(tickets, a_wait_is_served_by_whoever_makes_room)
{
    struct fixture f = fixture_open(NULL);
    struct waiter waiter;
    set_capacity(&f, UNITS(10));
    moor_lease lease = take_lease(&f, f.holder, UNITS(10));
    waiter_start(&waiter, f.holder, UNITS(4), fixture_soon(LATE_MS));
    await_tickets(&f, 1);
    EXPECT(MOOR_OK, moor_lease_adjust(f.runtime, lease, UNITS(7), MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(&f).tickets, 1, "three units are not four");
    EXPECT(MOOR_OK, moor_lease_adjust(f.runtime, lease, UNITS(6), MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(&f).reserved_bytes, UNITS(4), "it has them before it wakes up");
    waiter_end(&f, &waiter, MOOR_OK);
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    fixture_close(&f);
}

/* ---- tickets as handles ---- */

struct ticket_wait {
    pthread_t thread;
    struct fixture *f;
    moor_ticket ticket;
    moor_status status;
    moor_grant grant;
};

static void *wait_for_ticket(void *user)
{
    struct ticket_wait *wait = user;
    wait->status = moor_ticket_wait(wait->f->runtime, wait->ticket, &wait->grant, 1);
    return NULL;
}

static void start_ticket_wait(struct ticket_wait *wait, struct fixture *f, moor_ticket ticket)
{
    *wait = (struct ticket_wait){.f = f, .ticket = ticket};
    cr_assert_eq(pthread_create(&wait->thread, NULL, wait_for_ticket, wait), 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* most likely it waits by then */
}

Test(tickets, a_ticket_that_is_cancelled_ends_at_once_also_for_who_waits)
{
    struct fixture f = fixture_open(NULL);
    set_capacity(&f, UNITS(10));
    moor_lease lease = take_lease(&f, f.holder, UNITS(10));
    moor_ticket ticket = open_ticket(f.holder, UNITS(4));
    struct ticket_wait wait;
    start_ticket_wait(&wait, &f, ticket);
    cr_assert(fixture_stats(&f).tickets == 1 && fixture_counts(&f).tickets == 1);
    EXPECT(MOOR_OK, moor_ticket_cancel(f.runtime, ticket));
    cr_assert(fixture_stats(&f).tickets == 0 && fixture_counts(&f).tickets == 0);
    EXPECT(MOOR_STALE, moor_ticket_cancel(f.runtime, ticket));
    join(wait.thread);
    cr_assert(wait.status == MOOR_CANCELLED || wait.status == MOOR_STALE, "%s",
              moor_status_name(wait.status));
    cr_assert_eq(wait.grant, 0);
    struct moor_ticket_stats stats;
    EXPECT(MOOR_STALE, moor_ticket_get_stats(f.runtime, ticket, &stats));
    EXPECT(MOOR_OK, moor_ticket_cancel(f.runtime, 0));
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    cr_assert_eq(fixture_stats(&f).reserved_bytes, 0);
    fixture_close(&f);
}

Test(tickets, a_ticket_that_is_served_and_cancelled_gives_back)
{
    struct fixture f = fixture_open(NULL);
    set_capacity(&f, UNITS(10));
    moor_ticket first = open_ticket(f.holder, UNITS(8)), second = open_ticket(f.holder, UNITS(8));
    cr_assert(is_served(&f, first), "there was room when it was opened");
    cr_assert_eq(fixture_stats(&f).reserved_bytes, UNITS(8));
    cr_assert_not(is_served(&f, second));
    EXPECT(MOOR_OK, moor_ticket_cancel(f.runtime, first));
    cr_assert_eq(fixture_stats(&f).reserved_bytes, UNITS(8));
    return_ticket(&f, second); /* what came back has served the next */
    cr_assert_eq(fixture_stats(&f).reserved_bytes, 0);
    fixture_close(&f);
}

Test(tickets, a_ticket_is_there_until_it_is_waited_for)
{
    struct fixture f = fixture_open(NULL);
    struct moor_holder *other = NULL;
    moor_grant grants[2] = {0};
    moor_ticket ticket = 0;
    set_capacity(&f, UNITS(10));
    EXPECT(MOOR_OK, moor_holder_create(f.authority, NULL, &other));
    moor_lease lease = take_lease(&f, f.holder, UNITS(10));
    const struct moor_request requests[] = {{other, UNITS(1)}, {f.holder, UNITS(2)}};
    EXPECT(MOOR_INVALID, moor_ticket_open(requests, 2, MOOR_NO_WAIT, &ticket));
    EXPECT(MOOR_INVALID, moor_ticket_open(requests, 0, MOOR_FOREVER, &ticket));
    EXPECT(MOOR_OK, moor_ticket_open(requests, 2, MOOR_FOREVER, &ticket));
    EXPECT(MOOR_BUSY, moor_holder_destroy(other));
    EXPECT(MOOR_INVALID, moor_ticket_wait(f.runtime, ticket, grants, 1));
    EXPECT(MOOR_INVALID, moor_ticket_wait(f.runtime, ticket, NULL, 2));
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    struct moor_ticket_stats stats = ticket_stats(&f, ticket);
    cr_assert(stats.served && stats.bytes == UNITS(3) && stats.deadline_ns == MOOR_FOREVER);
    EXPECT(MOOR_INVALID, moor_ticket_wait(f.runtime, ticket, grants, 1));
    EXPECT(MOOR_BUSY, moor_holder_destroy(other));
    EXPECT(MOOR_OK, moor_ticket_wait(f.runtime, ticket, grants, 2));
    EXPECT(MOOR_STALE, moor_ticket_wait(f.runtime, ticket, grants, 2));
    for (size_t i = 0; i < 2; i++) {
        uint64_t bytes = 0;
        EXPECT(MOOR_OK, moor_grant_get_remaining(f.runtime, grants[i], &bytes));
        cr_assert_eq(bytes, requests[i].bytes, "part %zu", i);
        EXPECT(MOOR_OK, moor_grant_release(f.runtime, grants[i]));
    }
    EXPECT(MOOR_OK, moor_holder_destroy(other));
    fixture_close(&f);
}

Test(tickets, a_ticket_past_its_deadline_takes_nothing)
{
    struct fixture f = fixture_open(NULL);
    moor_ticket ticket = 0;
    moor_grant grant = 0;
    clock_stop(&f);
    set_capacity(&f, UNITS(10));
    moor_lease lease = take_lease(&f, f.holder, UNITS(10));
    const struct moor_request request = {f.holder, UNITS(1)};
    EXPECT(MOOR_OK, moor_ticket_open(&request, 1, still_clock() + 1000, &ticket));
    clock_advance(&f, 999);
    cr_assert_eq(fixture_stats(&f).tickets, 1);
    clock_advance(&f, 1);
    cr_assert_eq(fixture_stats(&f).tickets, 0, "it does not wait any more");
    cr_assert_eq(fixture_counts(&f).tickets, 1, "but it has not been waited for");
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    cr_assert_not(is_served(&f, ticket));
    SHORT(MOOR_TIMEOUT, UNITS(1), moor_ticket_wait(f.runtime, ticket, &grant, 1));
    EXPECT(MOOR_STALE, moor_ticket_wait(f.runtime, ticket, &grant, 1));
    cr_assert_eq(fixture_stats(&f).free_bytes, UNITS(10));
    fixture_close(&f);
}

/* One of them has it; the other never gets anything twice. */
Test(tickets, two_threads_may_wait_for_one)
{
    struct fixture f = fixture_open(NULL);
    struct ticket_wait waits[2];
    set_capacity(&f, UNITS(10));
    moor_lease lease = take_lease(&f, f.holder, UNITS(10));
    moor_ticket ticket = open_ticket(f.holder, UNITS(4));
    for (int i = 0; i < 2; i++)
        start_ticket_wait(&waits[i], &f, ticket);
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    for (int i = 0; i < 2; i++)
        join(waits[i].thread);
    int winner = waits[0].status == MOOR_OK ? 0 : 1;
    cr_assert_eq(waits[winner].status, MOOR_OK);
    cr_assert_eq(waits[!winner].status, MOOR_STALE);
    cr_assert_eq(fixture_stats(&f).reserved_bytes, UNITS(4));
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, waits[winner].grant));
    fixture_close(&f);
}

Test(tickets, there_is_a_most_that_can_be_open)
{
    struct fixture f = fixture_open(NULL);
    static moor_ticket tickets[MOOR_LIMIT_TICKETS];
    moor_ticket one_more = 0;
    moor_grant grant = 0;
    set_capacity(&f, UNITS(10));
    moor_lease lease = take_lease(&f, f.holder, UNITS(10));
    for (size_t i = 0; i < MOOR_LIMIT_TICKETS; i++)
        tickets[i] = open_ticket(f.holder, UNITS(1));
    const struct moor_request request = {f.holder, UNITS(1)};
    EXPECT(MOOR_LIMIT, moor_ticket_open(&request, 1, MOOR_FOREVER, &one_more));
    EXPECT(MOOR_LIMIT, moor_grant_reserve(f.holder, UNITS(1), MOOR_FOREVER, &grant));
    set_capacity(&f, UNITS(10 + MOOR_LIMIT_TICKETS));
    for (size_t i = 0; i < MOOR_LIMIT_TICKETS; i++)
        EXPECT(MOOR_OK, moor_ticket_cancel(f.runtime, tickets[i]));
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    fixture_close(&f);
}

/* ---- who is served ---- */

Test(tickets, are_served_by_priority_and_then_as_they_came)
{
    struct fixture f = fixture_open(NULL);
    static const int32_t priorities[] = {-1, 5, 0, 5, -1, 0};
    static const size_t order[] = {1, 3, 2, 5, 0, 4};
    struct moor_holder *holders[6];
    moor_ticket tickets[6];
    set_capacity(&f, UNITS(6));
    moor_lease lease = take_lease(&f, f.holder, UNITS(6));
    for (size_t i = 0; i < 6; i++) {
        const struct moor_holder_options options = {.limits.priority = priorities[i]};
        EXPECT(MOOR_OK, moor_holder_create(f.authority, &options, &holders[i]));
        tickets[i] = open_ticket(holders[i], UNIT);
        cr_assert_eq(ticket_stats(&f, tickets[i]).priority, priorities[i]);
    }
    for (size_t n = 0; n < 6; n++) {
        cr_assert_not(is_served(&f, tickets[order[n]]));
        if (n < 5)
            EXPECT(MOOR_OK, moor_lease_adjust(f.runtime, lease, UNITS(5 - n), MOOR_NO_WAIT));
        else
            EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
        for (size_t i = 0; i < 6; i++)
            cr_assert_eq(is_served(&f, tickets[order[i]]), i <= n, "with %zu units ticket %zu is %sserved",
                         n + 1, order[i], i <= n ? "not " : "");
    }
    for (size_t i = 0; i < 6; i++) {
        return_ticket(&f, tickets[i]);
        EXPECT(MOOR_OK, moor_holder_destroy(holders[i]));
    }
    fixture_close(&f);
}

/* ---- what serves them ---- */

struct rise {
    struct fixture *f;
    struct moor_holder *other; /* with a guarantee of one unit */
    moor_lease lease;
    moor_grant grant;
    moor_ticket ticket; /* of four units, that has been served */
};

static moor_status raise_capacity(struct rise *rise)
{
    return moor_authority_set_capacity(rise->f->authority, UNITS(11), 0, NULL);
}

static moor_status lower_guarantee(struct rise *rise)
{
    return moor_holder_set_limits(rise->other, &(struct moor_holder_limits){0}, 0, NULL);
}

static moor_status end_guarantee(struct rise *rise)
{
    moor_status status = moor_holder_destroy(rise->other);
    rise->other = NULL;
    return status;
}

static moor_status lower_set_aside(struct rise *rise)
{
    return moor_authority_set_aside(rise->f->authority, 0);
}

static moor_status raise_limit(struct rise *rise)
{
    return moor_holder_set_limits(rise->f->holder, &(struct moor_holder_limits){0}, 0, NULL);
}

static moor_status release_grant(struct rise *rise)
{
    return moor_grant_release(rise->f->runtime, rise->grant);
}

static moor_status commit_less(struct rise *rise)
{
    moor_lease lease = 0;
    moor_status status = moor_grant_commit(rise->f->runtime, rise->grant, 1, &lease);
    return status ? status : moor_lease_refund(rise->f->runtime, lease);
}

static moor_status shrink_lease(struct rise *rise)
{
    return moor_lease_adjust(rise->f->runtime, rise->lease, UNIT, MOOR_NO_WAIT);
}

static moor_status refund_lease(struct rise *rise)
{
    return moor_lease_refund(rise->f->runtime, rise->lease);
}

static moor_status cancel_ticket(struct rise *rise)
{
    return moor_ticket_cancel(rise->f->runtime, rise->ticket);
}

/* A pool of 10: leased 2, granted 2, given to a ticket 3, guaranteed 1, set aside 1; one is free, two are
 * wanted. */
static void rise(moor_status (*lift)(struct rise *), uint64_t limit_bytes)
{
    struct fixture f = fixture_open(NULL);
    struct rise rise = {.f = &f};
    const struct moor_holder_options guaranteed = {.limits.guarantee_bytes = UNIT};
    set_capacity(&f, UNITS(10));
    rise.lease = take_lease(&f, f.holder, UNITS(2));
    EXPECT(MOOR_OK, moor_grant_reserve(f.holder, UNITS(2), MOOR_NO_WAIT, &rise.grant));
    rise.ticket = open_ticket(f.holder, UNITS(3));
    EXPECT(MOOR_OK, moor_holder_create(f.authority, &guaranteed, &rise.other));
    if (limit_bytes)
        EXPECT(MOOR_OK, moor_holder_set_limits(
                            f.holder, &(struct moor_holder_limits){.limit_bytes = limit_bytes}, 0, NULL));
    else
        EXPECT(MOOR_OK, moor_authority_set_aside(f.authority, UNIT));
    moor_ticket ticket = open_ticket(f.holder, UNITS(2));
    cr_assert_not(is_served(&f, ticket));
    EXPECT(MOOR_OK, lift(&rise));
    return_ticket(&f, ticket);
    (void)moor_grant_release(f.runtime, rise.grant); /* some of these are what made room */
    (void)moor_lease_refund(f.runtime, rise.lease);
    (void)moor_ticket_cancel(f.runtime, rise.ticket);
    EXPECT(MOOR_OK, moor_holder_destroy(rise.other));
    fixture_close(&f);
}

Test(tickets, whatever_makes_room_serves_them)
{
    rise(raise_capacity, 0);
    rise(lower_guarantee, 0);
    rise(end_guarantee, 0);
    rise(lower_set_aside, 0);
    rise(release_grant, 0);
    rise(commit_less, 0);
    rise(shrink_lease, 0);
    rise(refund_lease, 0);
    rise(cancel_ticket, 0);
    rise(raise_limit, UNITS(8));
    rise(shrink_lease, UNITS(8));
}

/* Also what comes back by itself, from behind a fence, while no thread calls anything. */
Test(tickets, are_served_when_a_fence_passes)
{
    struct fixture f = fixture_open(NULL);
    struct waiter waiter;
    set_capacity(&f, UNITS(1));
    moor_buffer buffer = fixture_allocate(&f, UNIT);
    struct moor_view view = fixture_buffer_view(&f, buffer);
    scripted_hold(f.script, f.queue);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 0, 1));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    waiter_start(&waiter, f.holder, UNIT, fixture_soon(LATE_MS));
    await_tickets(&f, 1);
    scripted_open(f.script, f.queue);
    waiter_end(&f, &waiter, MOOR_OK);
    fixture_close(&f);
}

/* ---- leases ---- */

Test(tickets, a_lease_grows_as_a_request_does)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    uint64_t bytes = 0;
    clock_stop(&f);
    party_open(&party, &f, 0, give_what_is_asked);
    set_capacity(&f, UNITS(10));
    moor_lease lease = take_lease(&f, f.holder, UNITS(2));
    party_take(&party, 4);
    EXPECT(MOOR_OK, moor_lease_adjust(f.runtime, lease, UNITS(6), MOOR_NO_WAIT));
    EXPECT(MOOR_OK, moor_lease_adjust(f.runtime, lease, UNITS(9), MOOR_NO_WAIT)); /* somebody is asked */
    expect_asked(0, &party, UNITS(3), MOOR_PRESSURE_REQUEST);
    EXPECT(MOOR_OK, moor_holder_set_pressure(party.holder, NULL, NULL));
    SHORT(MOOR_OVER_BUDGET, UNITS(1), moor_lease_adjust(f.runtime, lease, UNITS(10), MOOR_NO_WAIT));
    SHORT(MOOR_TIMEOUT, UNITS(1), moor_lease_adjust(f.runtime, lease, UNITS(10), 1));
    SHORT(MOOR_NEVER_FITS, UNITS(10), moor_lease_adjust(f.runtime, lease, UNITS(20), MOOR_FOREVER));
    EXPECT(MOOR_INVALID, moor_lease_adjust(f.runtime, lease, 0, MOOR_NO_WAIT));
    EXPECT(MOOR_OK, moor_lease_get_bytes(f.runtime, lease, &bytes));
    cr_assert_eq(bytes, UNITS(9), "a failure leaves it as it was");
    cr_assert_eq(fixture_stats(&f).leased_bytes, UNITS(9));
    EXPECT(MOOR_OK, moor_lease_adjust(f.runtime, lease, UNITS(1), MOOR_NO_WAIT));
    EXPECT(MOOR_OK, moor_lease_adjust(f.runtime, lease, UNITS(1), MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(&f).leased_bytes, UNITS(1));
    cr_assert_eq(fixture_stats(&f).free_bytes, UNITS(8));
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    EXPECT(MOOR_STALE, moor_lease_adjust(f.runtime, lease, UNITS(1), MOOR_NO_WAIT));
    EXPECT(MOOR_STALE, moor_lease_get_bytes(f.runtime, lease, &bytes));
    party_close(&party);
    fixture_close(&f);
}
