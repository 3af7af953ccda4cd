/* SPDX-License-Identifier: MIT */
/*
 * Small and large requests do not starve each other: one that is passed 16 times gets a turn, which lasts
 * half of the time that it has waited, from 100 ms to 10 s, and then none for as long (core/README.md, "Under
 * pressure"). On a clock that stands still, and once with threads that do their worst.
 */
#include "asked.h"

TestSuite(turns, .timeout = 120);

#define PASSED 16 /* as core/README.md says, and the next */
#define TURN_NS UINT64_C(100000000)
#define SMALLS 64

static void set_capacity(struct fixture *f, uint64_t bytes)
{
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, bytes, 0, NULL));
}

static moor_status try_small(struct moor_holder *holder, moor_grant *ret_grant)
{
    return moor_grant_reserve(holder, UNIT, MOOR_NO_WAIT, ret_grant);
}

/* Small ones come and go, and pass the one that waits. */
static void pass(struct fixture *f, int times)
{
    for (int i = 0; i < times; i++) {
        moor_grant grant = 0;
        EXPECT(MOOR_OK, try_small(f->holder, &grant));
        EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    }
}

/* A pool of four with two units leased, and one request that wants three. */
struct turn {
    struct fixture f;
    moor_lease lease;
    moor_ticket big;
};

static struct turn open_turn(void)
{
    struct turn turn = {.f = fixture_open(NULL)};
    clock_stop(&turn.f);
    set_capacity(&turn.f, UNITS(4));
    turn.lease = take_lease(&turn.f, turn.f.holder, UNITS(2));
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

static void expect_barred(struct turn *turn, const char *when)
{
    moor_grant grant = 0;
    moor_status status = try_small(turn->f.holder, &grant);
    cr_assert_eq(status, MOOR_OVER_BUDGET, "%s a small one gets %s", when, moor_status_name(status));
}

static void expect_free(struct turn *turn, const char *when)
{
    moor_grant grant = 0;
    moor_status status = try_small(turn->f.holder, &grant);
    cr_assert_eq(status, MOOR_OK, "%s a small one gets %s", when, moor_status_name(status));
    EXPECT(MOOR_OK, moor_grant_release(turn->f.runtime, grant));
}

Test(turns, a_big_one_that_cannot_be_served_lets_small_ones_pass)
{
    struct turn turn = open_turn();
    for (int i = 0; i < PASSED; i++) {
        cr_assert_eq(ticket_stats(&turn.f, turn.big).passed, (uint64_t)i);
        pass(&turn.f, 1);
    }
    expect_barred(&turn, "passed 16 times");
    cr_assert_eq(ticket_stats(&turn.f, turn.big).passed, PASSED);
    close_turn(&turn);
}

Test(turns, a_turn_lasts_a_tenth_of_a_second_and_then_others_are_served)
{
    struct turn turn = open_turn();
    pass(&turn.f, PASSED);
    moor_ticket small = open_ticket(turn.f.holder, UNIT);
    clock_advance(&turn.f, TURN_NS - 1);
    cr_assert_not(is_served(&turn.f, small));
    expect_barred(&turn, "within the turn");
    clock_advance(&turn.f, 1);
    cr_assert(is_served(&turn.f, small), "served when the turn is over, by nothing but that");
    cr_assert_eq(ticket_stats(&turn.f, turn.big).passed, 1, "counted anew");
    return_ticket(&turn.f, small);
    close_turn(&turn);
}

/* However often it is passed meanwhile, for as long as its turn was it has no other. */
Test(turns, between_turns_others_have_as_much_time)
{
    struct turn turn = open_turn();
    pass(&turn.f, PASSED);
    clock_advance(&turn.f, TURN_NS);
    pass(&turn.f, 2 * PASSED);
    clock_advance(&turn.f, TURN_NS - 1);
    expect_free(&turn, "a tenth of a second after the turn");
    clock_advance(&turn.f, 1);
    expect_barred(&turn, "in the second turn");
    clock_advance(&turn.f, TURN_NS);
    /* Not passed often enough, it has none either. */
    pass(&turn.f, PASSED - 1);
    clock_advance(&turn.f, 100 * TURN_NS);
    expect_free(&turn, "passed 15 times");
    expect_barred(&turn, "passed 16 times");
    close_turn(&turn);
}

/* The longer it has waited, the longer its turn; so those that hold their memory for longer than a turn do
 * not keep it away for ever. */
Test(turns, a_turn_lasts_half_of_the_waiting_up_to_ten_seconds)
{
    static const uint64_t waits_ns[][2] = {{10 * TURN_NS, 5 * TURN_NS},
                                           {2 * TURN_NS + 2, TURN_NS + 1},
                                           {200 * TURN_NS - 2, 100 * TURN_NS - 1},
                                           {1000 * TURN_NS, 100 * TURN_NS}};
    for (size_t i = 0; i < sizeof waits_ns / sizeof waits_ns[0]; i++) {
        struct turn turn = open_turn();
        clock_advance(&turn.f, waits_ns[i][0]);
        pass(&turn.f, PASSED);
        clock_advance(&turn.f, waits_ns[i][1] - 1);
        expect_barred(&turn, "within half of its waiting");
        clock_advance(&turn.f, 1);
        expect_free(&turn, "after half of its waiting");
        pass(&turn.f, PASSED);
        clock_advance(&turn.f, waits_ns[i][1] - 1);
        expect_free(&turn, "for as long after");
        clock_advance(&turn.f, 1);
        expect_barred(&turn, "in the next turn");
        close_turn(&turn);
    }
}

/* 16 units, all with small ones, each of which is followed by the next as long as that can be had. Without
 * turns the big one, which wants them all, would never be served. */
Test(turns, a_big_one_among_many_small_ones_is_served_within_the_bound)
{
    struct fixture f = fixture_open(NULL);
    moor_ticket small[SMALLS];
    size_t first = 0, count = 0;
    clock_stop(&f);
    set_capacity(&f, UNITS(16));
    while (count < 16)
        small[count++] = open_ticket(f.holder, UNIT);
    moor_ticket big = open_ticket(f.holder, UNITS(16));
    while (!is_served(&f, big)) {
        cr_assert_lt(count, SMALLS, "starved");
        small[count++] = open_ticket(f.holder, UNIT);
        while (first < count && !is_served(&f, small[first]))
            first++; /* these wait for the big one, now */
        cr_assert_lt(first, count, "nobody holds anything, and the big one is not served");
        return_ticket(&f, small[first++]);
    }
    size_t came_first = 16, passed = 0;
    for (size_t i = came_first; i < count; i++)
        passed += i < first;
    cr_assert_leq(passed, PASSED, "%zu that came later were served before it", passed);
    return_ticket(&f, big);
    while (first < count)
        return_ticket(&f, small[first++]);
    fixture_close(&f);
}

Test(turns, a_small_one_behind_a_big_one_is_served_at_once)
{
    struct turn turn = open_turn();
    moor_ticket small = open_ticket(turn.f.holder, UNIT);
    cr_assert(is_served(&turn.f, small));
    return_ticket(&turn.f, small);
    close_turn(&turn);
}

/* Whoever has a guarantee gets it at once, also in another's turn; and no more than that. */
Test(turns, guarantees_hold_in_turns_of_others)
{
    struct turn turn = open_turn();
    struct moor_holder *guaranteed = NULL;
    moor_grant grants[2] = {0};
    const struct moor_holder_options options = {.limits.guarantee_bytes = UNIT};
    EXPECT(MOOR_OK, moor_holder_create(turn.f.authority, &options, &guaranteed));
    pass(&turn.f, PASSED);
    EXPECT(MOOR_OK, try_small(guaranteed, &grants[0]));
    EXPECT(MOOR_OVER_BUDGET, try_small(guaranteed, &grants[1]));
    EXPECT(MOOR_OK, moor_grant_release(turn.f.runtime, grants[0]));
    EXPECT(MOOR_OK, moor_holder_destroy(guaranteed));
    close_turn(&turn);
}

/* Who waits for its own limit alone keeps nobody from anything. */
Test(turns, one_that_waits_for_its_own_limit_gets_none)
{
    struct turn turn = open_turn();
    struct moor_holder *other = NULL;
    moor_grant grant = 0;
    EXPECT(MOOR_OK, moor_holder_create(turn.f.authority, NULL, &other));
    EXPECT(MOOR_OK, moor_holder_set_limits(turn.f.holder,
                                           &(struct moor_holder_limits){.limit_bytes = UNITS(4)}, 0, NULL));
    for (int i = 0; i < 4 * PASSED; i++) {
        EXPECT(MOOR_OK, try_small(other, &grant));
        EXPECT(MOOR_OK, moor_grant_release(turn.f.runtime, grant));
    }
    /* When its limit leaves it room, its turn comes. */
    EXPECT(MOOR_OK, moor_holder_set_limits(turn.f.holder, &(struct moor_holder_limits){0}, 0, NULL));
    EXPECT(MOOR_OVER_BUDGET, try_small(other, &grant));
    EXPECT(MOOR_OK, moor_holder_destroy(other));
    close_turn(&turn);
}

/* Nor does one that can never be served, since the capacity has shrunk. */
Test(turns, one_that_can_never_fit_any_more_gets_none)
{
    struct turn turn = open_turn();
    set_capacity(&turn.f, UNITS(3) - 1);
    EXPECT(MOOR_OK, moor_lease_adjust(turn.f.runtime, turn.lease, UNIT, MOOR_NO_WAIT));
    pass(&turn.f, 4 * PASSED);
    EXPECT(MOOR_OK, moor_lease_adjust(turn.f.runtime, turn.lease, UNITS(2), MOOR_NO_WAIT));
    set_capacity(&turn.f, UNITS(4)); /* and growing back restores everything */
    expect_barred(&turn, "in its turn");
    close_turn(&turn);
}

/* One of low priority is passed by those of high priority that come later, and is served in its turn all
 * the same. */
Test(turns, priorities_do_not_starve)
{
    struct fixture f = fixture_open(NULL);
    struct moor_holder *high = NULL;
    const struct moor_holder_options options = {.limits.priority = 1};
    moor_ticket tickets[SMALLS];
    size_t n = 0;
    clock_stop(&f);
    set_capacity(&f, UNITS(1));
    EXPECT(MOOR_OK, moor_holder_create(f.authority, &options, &high));
    tickets[0] = open_ticket(high, UNIT);
    moor_ticket low = open_ticket(f.holder, UNIT);
    while (!is_served(&f, low)) {
        cr_assert_lt(n + 1, SMALLS, "starved");
        tickets[n + 1] = open_ticket(high, UNIT); /* waits, and would be served first */
        return_ticket(&f, tickets[n++]);
    }
    cr_assert_eq(n, PASSED + 1, "%zu of high priority were served before it", n);
    return_ticket(&f, low);
    return_ticket(&f, tickets[n]);
    EXPECT(MOOR_OK, moor_holder_destroy(high));
    fixture_close(&f);
}

/* Two that were passed: one turn at a time, that of the one that came first, and then the other's. */
Test(turns, one_request_of_a_pool_has_a_turn_at_a_time)
{
    struct turn turn = open_turn();
    moor_ticket second = open_ticket(turn.f.holder, UNITS(3));
    pass(&turn.f, PASSED);
    EXPECT(MOOR_OK, moor_lease_adjust(turn.f.runtime, turn.lease, UNITS(1), MOOR_NO_WAIT));
    cr_assert(is_served(&turn.f, turn.big));
    cr_assert_not(is_served(&turn.f, second));
    EXPECT(MOOR_OK, moor_lease_refund(turn.f.runtime, turn.lease));
    expect_barred(&turn, "in the turn of the second");
    turn.lease = 0;
    moor_grant grant = 0;
    EXPECT(MOOR_OK, moor_ticket_wait(turn.f.runtime, turn.big, &grant, 1));
    EXPECT(MOOR_OK, moor_grant_release(turn.f.runtime, grant));
    turn.big = second;
    close_turn(&turn);
}

/* A turn is of the pools that the request waits on, and of no others. */
Test(turns, other_pools_go_on)
{
    struct turn turn = open_turn();
    struct moor_authority *other = NULL;
    struct moor_holder *holder = NULL;
    moor_grant grant = 0;
    EXPECT(MOOR_OK, moor_device_get_authority(turn.f.device, SCRIPTED_DOMAIN_HOST, &other));
    EXPECT(MOOR_OK, moor_holder_create(other, NULL, &holder));
    pass(&turn.f, PASSED);
    expect_barred(&turn, "in this pool");
    EXPECT(MOOR_OK, try_small(holder, &grant));
    EXPECT(MOOR_OK, moor_grant_release(turn.f.runtime, grant));
    EXPECT(MOOR_OK, moor_holder_destroy(holder));
    close_turn(&turn);
}

/* A turn ends with its ticket. */
Test(turns, a_turn_ends_when_its_ticket_is_cancelled)
{
    struct turn turn = open_turn();
    pass(&turn.f, PASSED);
    moor_ticket small = open_ticket(turn.f.holder, UNIT);
    cr_assert_not(is_served(&turn.f, small));
    EXPECT(MOOR_OK, moor_ticket_cancel(turn.f.runtime, turn.big));
    cr_assert(is_served(&turn.f, small));
    turn.big = small;
    close_turn(&turn);
}

struct taking {
    moor_lease lease; /* of a unit */
    moor_status status;
    moor_grant grant;
};

static uint64_t take_in_a_turn(struct party *party, const struct moor_pressure *pressure)
{
    struct taking *taking = party->user;
    (void)pressure;
    EXPECT(MOOR_OK, moor_lease_adjust(party->f->runtime, taking->lease, UNIT - 1, MOOR_NO_WAIT));
    taking->status = try_small(party->holder, &taking->grant);
    return 1;
}

/* Who is asked may take what it needs in order to let go; and what it gives up serves nobody out of turn. */
Test(turns, those_who_are_asked_may_take_in_turns_of_others)
{
    struct turn turn = open_turn();
    struct party party;
    struct taking taking = {.status = MOOR_PROVIDER};
    party_open(&party, &turn.f, 0, NULL);
    party.user = &taking;
    taking.lease = take_lease(&turn.f, party.holder, UNIT); /* which has passed it once */
    pass(&turn.f, PASSED - 1);
    moor__pressure_settle(turn.f.runtime); /* it was asked, and rests */
    moor_ticket small = open_ticket(turn.f.holder, UNIT);
    atomic_store(&party.answer, take_in_a_turn);
    clock_advance(&turn.f, TURN_NS / 2);
    moor__pressure_settle(turn.f.runtime);
    cr_assert_eq(asked_count(), 2);
    cr_assert_eq(taking.status, MOOR_OK, "%s", moor_status_name(taking.status));
    EXPECT(MOOR_OK, moor_grant_release(turn.f.runtime, taking.grant));
    cr_assert_not(is_served(&turn.f, small));
    EXPECT(MOOR_OK, moor_holder_set_pressure(party.holder, NULL, NULL));
    clock_advance(&turn.f, TURN_NS / 2);
    return_ticket(&turn.f, small);
    EXPECT(MOOR_OK, moor_lease_refund(turn.f.runtime, taking.lease));
    party_close(&party);
    close_turn(&turn);
}

/* ---- on threads ---- */

static _Atomic int stop;

static void *keep_busy(void *user)
{
    const struct fixture *f = user;
    while (!atomic_load(&stop)) {
        moor_grant grant = 0;
        EXPECT(MOOR_OK, moor_grant_reserve(f->holder, UNITS(3), fixture_soon(LATE_MS), &grant));
        EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    }
    return NULL;
}

/* Four threads that take three of eight units each, over and over, and one that wants them all, time and
 * again. */
Test(turns, a_big_one_is_served_while_threads_do_their_worst)
{
    struct fixture f = fixture_open(NULL);
    pthread_t threads[4];
    set_capacity(&f, UNITS(8));
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, keep_busy, &f), 0);
    for (int i = 0; i < 20; i++) {
        moor_grant grant = 0;
        EXPECT(MOOR_OK, moor_grant_reserve(f.holder, UNITS(8), fixture_soon(LATE_MS), &grant));
        EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
    }
    atomic_store(&stop, 1);
    for (size_t i = 0; i < 4; i++)
        join(threads[i]);
    fixture_close(&f);
}
