/* SPDX-License-Identifier: MIT */
/*
 * Small and large requests do not starve each other. A request that was passed 16 times gets an exclusive
 * turn, which lasts half of the time that it has waited, from 100 ms to 10 s; then it gets no turn for as
 * long (core/README.md, "Under pressure"). The tests use a clock that stands still, and one uses threads.
 */
#include "asked.h"

TestSuite(turns, .timeout = 120);

#define PASSED 16 /* core/README.md states this figure and the next one */
#define TURN_NS UINT64_C(100000000)
#define SMALLS 64

/* Small requests are served and released, and pass the waiting one. */
static void pass(struct fixture *f, struct moor_holder *holder, int times)
{
    for (int i = 0; i < times; i++)
        EXPECT(MOOR_OK, try_reserve(f, holder, UNIT, MOOR_NO_WAIT));
}

/* A pool of four units, two of them leased, and one request for three. */
struct turn {
    struct fixture f;
    moor_lease lease;
    moor_ticket big;
};

static struct turn open_turn(void)
{
    struct turn turn = {.f = fixture_open(NULL)};
    clock_stop(&turn.f);
    fixture_set_capacity(&turn.f, UNITS(4));
    turn.lease = fixture_lease(&turn.f, turn.f.holder, UNITS(2));
    turn.big = open_ticket(turn.f.holder, UNITS(3));
    cr_assert_not(is_served(&turn.f, turn.big));
    return turn;
}

static void close_turn(struct turn *turn)
{
    EXPECT(MOOR_OK, moor_lease_refund(turn->f.runtime, turn->lease));
    return_ticket(&turn->f, turn->big);
    fixture_close(&turn->f);
}

/* A test with an open turn, which is closed after the body. */
#define TURN_TEST(name_)                                                                                     \
    static void name_(struct turn *turn);                                                                    \
    Test(turns, name_)                                                                                       \
    {                                                                                                        \
        struct turn turn = open_turn();                                                                      \
        name_(&turn);                                                                                        \
        close_turn(&turn);                                                                                   \
    }                                                                                                        \
    static void name_(struct turn *turn)

/* A small request gets that status. */
static void expect_small(struct turn *turn, moor_status expected, const char *when)
{
    moor_status status = try_reserve(&turn->f, turn->f.holder, UNIT, MOOR_NO_WAIT);
    cr_assert_eq(status, expected, "%s a small one gets %s", when, moor_status_name(status));
}

TURN_TEST(a_big_one_that_cannot_be_served_lets_small_ones_pass)
{
    for (int i = 0; i < PASSED; i++) {
        cr_assert_eq(ticket_stats(&turn->f, turn->big).passed, (uint64_t)i);
        pass(&turn->f, turn->f.holder, 1);
    }
    expect_small(turn, MOOR_OVER_BUDGET, "after 16 passes");
    cr_assert_eq(ticket_stats(&turn->f, turn->big).passed, PASSED);
}

TURN_TEST(a_turn_lasts_a_tenth_of_a_second_and_then_others_are_served)
{
    pass(&turn->f, turn->f.holder, PASSED);
    moor_ticket small = open_ticket(turn->f.holder, UNIT);
    clock_advance(&turn->f, TURN_NS - 1);
    cr_assert_not(is_served(&turn->f, small));
    expect_small(turn, MOOR_OVER_BUDGET, "within the turn");
    clock_advance(&turn->f, 1);
    cr_assert(is_served(&turn->f, small), "the end of the turn alone serves it");
    cr_assert_eq(ticket_stats(&turn->f, turn->big).passed, 1, "the count starts again");
    return_ticket(&turn->f, small);
}

/* A request gets no second turn for as long as its turn lasted, however often it is passed. */
TURN_TEST(between_turns_others_have_as_much_time)
{
    pass(&turn->f, turn->f.holder, PASSED);
    clock_advance(&turn->f, TURN_NS);
    pass(&turn->f, turn->f.holder, 2 * PASSED);
    clock_advance(&turn->f, TURN_NS - 1);
    expect_small(turn, MOOR_OK, "a tenth of a second after the turn");
    clock_advance(&turn->f, 1);
    expect_small(turn, MOOR_OVER_BUDGET, "in the second turn");
    clock_advance(&turn->f, TURN_NS);
    /* A request that is not passed often enough gets none either. */
    pass(&turn->f, turn->f.holder, PASSED - 1);
    clock_advance(&turn->f, 100 * TURN_NS);
    expect_small(turn, MOOR_OK, "after 15 passes");
    expect_small(turn, MOOR_OVER_BUDGET, "after 16 passes");
}

/* A longer wait gives a longer turn, so that holders which keep memory for longer than a turn cannot starve a
 * request for ever. */
Test(turns, a_turn_lasts_half_of_the_waiting_up_to_ten_seconds)
{
    static const uint64_t waits_ns[][2] = {{10 * TURN_NS, 5 * TURN_NS},
                                           {2 * TURN_NS + 2, TURN_NS + 1},
                                           {200 * TURN_NS - 2, 100 * TURN_NS - 1},
                                           {1000 * TURN_NS, 100 * TURN_NS}};
    for (size_t i = 0; i < sizeof waits_ns / sizeof waits_ns[0]; i++) {
        struct turn turn = open_turn();
        clock_advance(&turn.f, waits_ns[i][0]);
        pass(&turn.f, turn.f.holder, PASSED);
        clock_advance(&turn.f, waits_ns[i][1] - 1);
        expect_small(&turn, MOOR_OVER_BUDGET, "within half of its waiting");
        clock_advance(&turn.f, 1);
        expect_small(&turn, MOOR_OK, "after half of its waiting");
        pass(&turn.f, turn.f.holder, PASSED);
        clock_advance(&turn.f, waits_ns[i][1] - 1);
        expect_small(&turn, MOOR_OK, "for as long after");
        clock_advance(&turn.f, 1);
        expect_small(&turn, MOOR_OVER_BUDGET, "in the next turn");
        close_turn(&turn);
    }
}

/* 16 units, all held by small requests, each followed by the next one as long as that is served. Without
 * turns the big request for all units would never be served. */
FIXTURE_TEST(turns, a_big_one_among_many_small_ones_is_served_within_the_bound)
{
    moor_ticket small[SMALLS];
    size_t first = 0, count = 0;
    clock_stop(f);
    fixture_set_capacity(f, UNITS(16));
    while (count < 16)
        small[count++] = open_ticket(f->holder, UNIT);
    moor_ticket big = open_ticket(f->holder, UNITS(16));
    while (!is_served(f, big)) {
        cr_assert_lt(count, SMALLS, "starved");
        small[count++] = open_ticket(f->holder, UNIT);
        while (first < count && !is_served(f, small[first]))
            first++; /* these now wait for the big request */
        cr_assert_lt(first, count, "no unit is held, and the big request is not served");
        return_ticket(f, small[first++]);
    }
    size_t came_first = 16, passed = 0;
    for (size_t i = came_first; i < count; i++)
        passed += i < first;
    cr_assert_leq(passed, PASSED, "%zu later requests were served first", passed);
    return_ticket(f, big);
    while (first < count)
        return_ticket(f, small[first++]);
}

TURN_TEST(a_small_one_behind_a_big_one_is_served_at_once)
{
    moor_ticket small = open_ticket(turn->f.holder, UNIT);
    cr_assert(is_served(&turn->f, small));
    return_ticket(&turn->f, small);
}

/* A guarantee is granted at once, also during another request's turn, and no more than the guarantee. */
TURN_TEST(guarantees_hold_in_turns_of_others)
{
    struct fixture *f = &turn->f;
    struct moor_holder *guaranteed = fixture_holder(f, LIMITS(.guarantee_bytes = UNIT));
    pass(f, f->holder, PASSED);
    moor_lease lease = fixture_lease(f, guaranteed, UNIT);
    EXPECT(MOOR_OVER_BUDGET, try_reserve(f, guaranteed, UNIT, MOOR_NO_WAIT));
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
}

/* A request that waits only for its own limit holds back no other request. */
TURN_TEST(a_request_that_waits_for_its_own_limit_gets_none)
{
    struct moor_holder *other = fixture_holder(&turn->f, LIMITS(0));
    set_limits(turn->f.holder, LIMITS(.limit_bytes = UNITS(4)));
    pass(&turn->f, other, 4 * PASSED);
    /* Once its limit has room, the request gets its turn. */
    set_limits(turn->f.holder, LIMITS(0));
    EXPECT(MOOR_OVER_BUDGET, try_reserve(&turn->f, other, UNIT, MOOR_NO_WAIT));
}

/* A request that can never fit, since the capacity has shrunk, holds back no other request. */
TURN_TEST(a_request_that_can_never_fit_gets_none)
{
    fixture_set_capacity(&turn->f, UNITS(3) - 1);
    EXPECT(MOOR_OK, moor_lease_adjust(turn->f.runtime, turn->lease, UNIT, MOOR_NO_WAIT));
    pass(&turn->f, turn->f.holder, 4 * PASSED);
    EXPECT(MOOR_OK, moor_lease_adjust(turn->f.runtime, turn->lease, UNITS(2), MOOR_NO_WAIT));
    fixture_set_capacity(&turn->f, UNITS(4)); /* the old capacity restores everything */
    expect_small(turn, MOOR_OVER_BUDGET, "in its turn");
}

/* Later requests of high priority pass one of low priority, which is still served in its turn. */
FIXTURE_TEST(turns, priorities_do_not_starve)
{
    moor_ticket tickets[SMALLS];
    size_t n = 0;
    clock_stop(f);
    fixture_set_capacity(f, UNITS(1));
    struct moor_holder *high = fixture_holder(f, LIMITS(.priority = 1));
    tickets[0] = open_ticket(high, UNIT);
    moor_ticket low = open_ticket(f->holder, UNIT);
    while (!is_served(f, low)) {
        cr_assert_lt(n + 1, SMALLS, "starved");
        tickets[n + 1] = open_ticket(high, UNIT); /* waits, and would be served first */
        return_ticket(f, tickets[n++]);
    }
    cr_assert_eq(n, PASSED + 1, "%zu of high priority were served before it", n);
    return_ticket(f, low);
    return_ticket(f, tickets[n]);
}

/* Two passed requests: one turn at a time, the older request's first. */
TURN_TEST(one_request_of_a_pool_has_a_turn_at_a_time)
{
    moor_ticket second = open_ticket(turn->f.holder, UNITS(3));
    pass(&turn->f, turn->f.holder, PASSED);
    EXPECT(MOOR_OK, moor_lease_adjust(turn->f.runtime, turn->lease, UNITS(1), MOOR_NO_WAIT));
    cr_assert(is_served(&turn->f, turn->big));
    cr_assert_not(is_served(&turn->f, second));
    EXPECT(MOOR_OK, moor_lease_refund(turn->f.runtime, turn->lease));
    expect_small(turn, MOOR_OVER_BUDGET, "in the turn of the second");
    turn->lease = 0;
    moor_grant grant = 0;
    EXPECT(MOOR_OK, moor_ticket_wait(turn->f.runtime, turn->big, &grant, 1));
    EXPECT(MOOR_OK, moor_grant_release(turn->f.runtime, grant));
    turn->big = second;
}

/* A turn covers the pools of its request and no other pools. */
TURN_TEST(other_pools_go_on)
{
    struct moor_holder *holder = fixture_host_holder(&turn->f);
    pass(&turn->f, turn->f.holder, PASSED);
    expect_small(turn, MOOR_OVER_BUDGET, "in this pool");
    pass(&turn->f, holder, 1);
}

/* A turn ends with its ticket. */
TURN_TEST(a_turn_ends_when_its_ticket_is_cancelled)
{
    pass(&turn->f, turn->f.holder, PASSED);
    moor_ticket small = open_ticket(turn->f.holder, UNIT);
    cr_assert_not(is_served(&turn->f, small));
    EXPECT(MOOR_OK, moor_ticket_cancel(turn->f.runtime, turn->big));
    cr_assert(is_served(&turn->f, small));
    turn->big = small;
}

struct taking {
    moor_lease lease; /* one unit */
    moor_status status;
    moor_grant grant;
};

static uint64_t take_in_a_turn(struct party *party, const struct moor_pressure *pressure)
{
    struct taking *taking = party->user;
    EXPECT(MOOR_OK, moor_lease_adjust(party->f->runtime, taking->lease, UNIT - 1, MOOR_NO_WAIT));
    taking->status = moor_grant_reserve(party->holder, UNIT, MOOR_NO_WAIT, &taking->grant);
    return 1;
}

/* A pressure function may reserve the memory that its eviction needs. Its evicted bytes serve no request out
 * of turn. */
TURN_TEST(a_pressure_function_may_reserve_in_another_requests_turn)
{
    struct taking taking = {.status = MOOR_PROVIDER};
    struct party *party = party_open(&turn->f, 0, 0, NULL);
    party->user = &taking;
    taking.lease =
        fixture_lease(&turn->f, party->holder, UNIT); /* the lease has passed the big request once */
    pass(&turn->f, turn->f.holder, PASSED - 1);
    moor__pressure_settle(turn->f.runtime); /* the party has had a pressure request and cools down */
    moor_ticket small = open_ticket(turn->f.holder, UNIT);
    atomic_store(&party->answer, take_in_a_turn);
    clock_advance(&turn->f, TURN_NS / 2);
    moor__pressure_settle(turn->f.runtime);
    cr_assert_eq(asked_count(), 2);
    cr_assert_eq(taking.status, MOOR_OK, "%s", moor_status_name(taking.status));
    EXPECT(MOOR_OK, moor_grant_release(turn->f.runtime, taking.grant));
    cr_assert_not(is_served(&turn->f, small));
    EXPECT(MOOR_OK, moor_holder_set_pressure(party->holder, NULL, NULL));
    clock_advance(&turn->f, TURN_NS / 2);
    return_ticket(&turn->f, small);
}

/* ---- on threads ---- */

static _Atomic int stop;

static void *keep_busy(void *user)
{
    struct fixture *f = user;
    while (!atomic_load(&stop))
        EXPECT(MOOR_OK, try_reserve(f, f->holder, UNITS(3), fixture_soon(LATE_MS)));
    return NULL;
}

/* Four threads repeatedly take three of eight units each, and one thread repeatedly requests all eight. */
FIXTURE_TEST(turns, a_big_request_is_served_among_competing_threads)
{
    pthread_t threads[4];
    fixture_set_capacity(f, UNITS(8));
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, keep_busy, f), 0);
    for (int i = 0; i < 20; i++)
        EXPECT(MOOR_OK, try_reserve(f, f->holder, UNITS(8), fixture_soon(LATE_MS)));
    atomic_store(&stop, 1);
    for (size_t i = 0; i < 4; i++)
        join(threads[i]);
}
