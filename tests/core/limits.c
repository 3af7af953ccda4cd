/* SPDX-License-Identifier: MIT */
/* Live changes of guarantees, limits, capacity and the emergency reserve: their promises, and the holders
 * that get a pressure request. */
#include "asked.h"

TestSuite(limits, .timeout = 120);

static void set_capacity_over(struct fixture *f, uint64_t bytes, uint64_t expected_over)
{
    uint64_t over = UINT64_MAX;
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, bytes, 0, &over));
    cr_assert_eq(over, expected_over, "%llu bytes are over the capacity", (unsigned long long)over);
    cr_assert_eq(fixture_stats(f).over_bytes, expected_over);
}

static moor_status try_limits(struct moor_holder *holder, uint64_t limit, uint64_t guarantee,
                              uint64_t *ret_over)
{
    const struct moor_holder_limits limits = {.limit_bytes = limit, .guarantee_bytes = guarantee};
    return moor_holder_set_limits(holder, &limits, 0, ret_over);
}

static moor_status reserve(struct moor_holder *holder, uint64_t bytes, moor_grant *ret_grant)
{
    return moor_grant_reserve(holder, bytes, MOOR_NO_WAIT, ret_grant);
}

static void settle(struct fixture *f)
{
    moor__pressure_settle(f->runtime);
    fixture_reap(f);
}

/* ---- guarantees ---- */

FIXTURE_TEST(limits, a_guarantee_is_there_at_once_when_all_else_is_borrowed)
{
    moor_grant grant = 0;
    fixture_set_capacity(f, UNITS(10));
    struct moor_holder *guaranteed = fixture_holder(f, LIMITS(.guarantee_bytes = UNITS(4)));
    cr_assert_eq(fixture_stats(f).guaranteed_bytes, UNITS(4));
    (void)party_open(f, 0, 6, NULL);
    cr_assert_eq(fixture_stats(f).free_bytes, UNITS(4));
    SHORT(MOOR_NO_VICTIM, UNIT, reserve(f->holder, UNIT, &grant));
    EXPECT(MOOR_OK, reserve(guaranteed, UNITS(4), &grant));
    cr_assert_eq(fixture_stats(f).guaranteed_bytes, 0);
    cr_assert_eq(asked_count(), 1, "no further pressure request");
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
}

/* Beyond its guarantee a holder borrows as every other one, and the bytes within the guarantee do not count
 * twice. */
FIXTURE_TEST(limits, beyond_its_guarantee_a_holder_borrows)
{
    moor_grant grants[3] = {0};
    fixture_set_capacity(f, UNITS(10));
    struct moor_holder *guaranteed = fixture_holder(f, LIMITS(.guarantee_bytes = UNITS(4)));
    EXPECT(MOOR_OK, reserve(guaranteed, UNITS(3), &grants[0]));
    EXPECT(MOOR_OK, reserve(f->holder, UNITS(5), &grants[1]));
    SHORT(MOOR_OVER_BUDGET, UNIT, reserve(guaranteed, UNITS(3), &grants[2]));
    EXPECT(MOOR_OK, reserve(guaranteed, UNITS(2), &grants[2]));
    SHORT(MOOR_OVER_BUDGET, 1, reserve(f->holder, 1, &grants[2]));
    for (size_t i = 0; i < 3; i++)
        EXPECT(MOOR_OK, moor_grant_release(f->runtime, grants[i]));
}

FIXTURE_TEST(limits, a_raised_guarantee_evicts_borrowed_bytes)
{
    moor_grant grant = 0;
    clock_stop(f);
    struct moor_holder *guaranteed = fixture_holder(f, LIMITS(0));
    fixture_set_capacity(f, UNITS(10));
    struct party *borrower = party_open(f, 7, 0, evict_requested); /* the priority makes no difference */
    (void)party_join(f, LIMITS(.guarantee_bytes = UNITS(3)), 3, evict_all);
    party_take(borrower, 7);
    set_limits(guaranteed, LIMITS(.guarantee_bytes = UNITS(4)));
    settle(f);
    cr_assert_eq(asked_count(), 1);
    expect_asked(0, borrower, UNITS(4), MOOR_PRESSURE_CAPACITY);
    cr_assert_eq(fixture_stats(f).over_bytes, 0);
    cr_assert_eq(fixture_stats(f).tickets, 0);
    EXPECT(MOOR_OK, reserve(guaranteed, UNITS(4), &grant));
    cr_assert_eq(asked_count(), 1);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
}

/* Lent bytes count as over the capacity until they are returned. */
FIXTURE_TEST(limits, bytes_lent_out_of_guarantees_are_over_the_capacity)
{
    struct moor_holder *guaranteed = fixture_holder(f, LIMITS(0));
    fixture_set_capacity(f, UNITS(10));
    moor_lease lease = fixture_lease(f, f->holder, UNITS(9));
    set_limits(guaranteed, LIMITS(.guarantee_bytes = UNITS(4)));
    cr_assert_eq(fixture_stats(f).over_bytes, UNITS(3));
    EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, lease, UNITS(7), MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(f).over_bytes, UNITS(1));
    EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, lease, UNITS(6), MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(f).over_bytes, 0);
}

FIXTURE_TEST(limits, guaranteed_bytes_are_not_requested)
{
    moor_grant grant = 0;
    clock_stop(f);
    struct party *party = party_join(f, LIMITS(.guarantee_bytes = UNITS(6)), 8, evict_requested);
    fixture_set_capacity(f, UNITS(10));
    (void)fixture_lease(f, f->holder, UNITS(2));
    EXPECT(MOOR_OK, reserve(f->holder, UNITS(2), &grant));
    expect_asked(0, party, UNITS(2), MOOR_PRESSURE_REQUEST);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    party_take(party, 2); /* borrowed again */
    SHORT(MOOR_NO_VICTIM, UNIT, reserve(f->holder, UNITS(3), &grant));
    expect_asked(1, party, UNITS(2), MOOR_PRESSURE_REQUEST);
    /* A holder within its guarantee is no victim. */
    SHORT(MOOR_OVER_BUDGET, UNIT, reserve(f->holder, UNITS(3), &grant));
    cr_assert_eq(asked_count(), 2);
}

FIXTURE_TEST(limits, guarantees_fit_into_the_capacity_together)
{
    struct moor_holder *first = NULL, *second = NULL;
    struct moor_holder_options options = {.limits.guarantee_bytes = UNITS(6)};
    fixture_set_capacity(f, UNITS(10));
    EXPECT(MOOR_OK, moor_holder_create(f->authority, &options, &first));
    SHORT(MOOR_OVER_BUDGET, UNITS(2), moor_holder_create(f->authority, &options, &second));
    cr_assert_null(second);
    options.limits = (struct moor_holder_limits){.limit_bytes = UNITS(2), .guarantee_bytes = UNITS(3)};
    EXPECT(MOOR_INVALID, moor_holder_create(f->authority, &options, &second));
    EXPECT(MOOR_OVER_BUDGET, try_limits(f->holder, 0, UNITS(5), NULL));
    EXPECT(MOOR_INVALID, try_limits(f->holder, UNITS(3), UNITS(4), NULL));
    set_limits(f->holder, LIMITS(.guarantee_bytes = UNITS(4)));
    set_limits(first, LIMITS(.guarantee_bytes = UNITS(5)));
    set_limits(f->holder, LIMITS(.guarantee_bytes = UNITS(5)));
    EXPECT(MOOR_OVER_BUDGET, try_limits(first, 0, UNITS(6), NULL));
    cr_assert_eq(fixture_stats(f).guaranteed_bytes, UNITS(10));
    EXPECT(MOOR_OK, moor_holder_destroy(first));
    set_limits(f->holder, LIMITS(.guarantee_bytes = UNITS(10)));
    set_limits(f->holder, LIMITS(0));
}

/* ---- revisions ---- */

FIXTURE_TEST(limits, late_decisions_about_the_capacity_do_no_harm)
{
    uint64_t over = 7;
    uint64_t first = fixture_stats(f).revision;
    fixture_set_capacity(f, UNITS(5));
    cr_assert_eq(fixture_stats(f).revision, first + 1);
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, UNITS(10), 50, &over));
    cr_assert_eq(over, 0);
    over = 7;
    EXPECT(MOOR_STALE, moor_authority_set_capacity(f->authority, UNITS(2), 49, &over));
    EXPECT(MOOR_REFUSED, moor_authority_set_capacity(f->authority, UNITS(2), 50, &over));
    cr_assert_eq(over, 7, "written on success only");
    cr_assert_eq(fixture_stats(f).capacity_bytes, UNITS(10));
    cr_assert_eq(fixture_stats(f).revision, 50);
    /* the same decision twice */
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, UNITS(10), 50, &over));
    (void)fixture_lease(f, f->holder, UNITS(8));
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, UNITS(3), 60, &over));
    cr_assert_eq(over, UNITS(5));
    /* the pool is still over */
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, UNITS(3), 60, &over));
    cr_assert_eq(over, UNITS(5));
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, UNITS(20), 0, &over));
    cr_assert_eq(over, 0);
    cr_assert_eq(fixture_stats(f).revision, 61);
}

FIXTURE_TEST(limits, late_decisions_about_a_holder_do_no_harm)
{
    struct moor_holder_limits limits = {.limit_bytes = UNITS(8), .guarantee_bytes = UNITS(2), .priority = 3};
    struct moor_holder_stats stats;
    uint64_t over = 7;
    EXPECT(MOOR_OK, moor_holder_set_limits(f->holder, &limits, 50, NULL));
    EXPECT(MOOR_STALE, moor_holder_set_limits(f->holder, &(struct moor_holder_limits){0}, 49, &over));
    EXPECT(MOOR_REFUSED, moor_holder_set_limits(f->holder, &(struct moor_holder_limits){0}, 50, &over));
    cr_assert_eq(over, 7);
    EXPECT(MOOR_OK, moor_holder_set_limits(f->holder, &limits, 50, &over));
    limits.priority = 4; /* every field counts */
    EXPECT(MOOR_REFUSED, moor_holder_set_limits(f->holder, &limits, 50, &over));
    EXPECT(MOOR_OK, moor_holder_get_stats(f->holder, &stats));
    cr_assert(stats.revision == 50 && stats.priority == 3 && stats.limit_bytes == UNITS(8) &&
              stats.guarantee_bytes == UNITS(2));
    moor_lease lease = fixture_lease(f, f->holder, UNITS(8));
    EXPECT(MOOR_OK, moor_holder_set_limits(f->holder, &(struct moor_holder_limits){.limit_bytes = UNITS(5)},
                                           0, &over));
    cr_assert_eq(over, UNITS(3));
    EXPECT(MOOR_OK, moor_holder_get_stats(f->holder, &stats));
    cr_assert_eq(stats.revision, 51);
    cr_assert_eq(stats.priority, 0);
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
    EXPECT(MOOR_OK, moor_holder_set_limits(f->holder, &(struct moor_holder_limits){0}, 0, &over));
    cr_assert_eq(over, 0);
}

/* ---- over ---- */

/* No party evicts before the capacity grows back. Then the state is the previous one and pressure requests
 * end. */
FIXTURE_TEST(limits, growing_back_restores_everything)
{
    moor_grant grant = 0, open = 0;
    clock_stop(f);
    struct party *party = party_open(f, 9, 7, NULL);
    fixture_set_capacity(f, UNITS(10));
    EXPECT(MOOR_OK, reserve(f->holder, UNITS(2), &open));
    set_capacity_over(f, UNITS(4), UNITS(5));
    settle(f);
    cr_assert_eq(asked_count(), 1);
    expect_asked(0, party, UNITS(5), MOOR_PRESSURE_CAPACITY);
    cr_assert_eq(fixture_stats(f).tickets, 1);
    EXPECT(MOOR_OVER_BUDGET,
           reserve(f->holder, UNIT, &grant)); /* new requests wait, and cannot evict the party's bytes */
    moor_buffer buffer = 0;
    const struct moor_buffer_options drawn = {.grant = open};
    EXPECT(MOOR_OK, moor_buffer_allocate(f->binding, UNIT, &drawn, &buffer)); /* a grant stays valid */
    fixture_set_capacity(f, UNITS(10));
    settle(f);
    cr_assert_eq(fixture_stats(f).tickets, 0);
    clock_advance(f, UINT64_C(5000000000));
    settle(f);
    cr_assert_eq(asked_count(), 1);
    EXPECT(MOOR_OK, reserve(f->holder, UNIT, &grant));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, open));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
}

/* Bytes over the capacity are requested from every holder, the lowest priority first, borrowed bytes before
 * guaranteed ones. */
FIXTURE_TEST(limits, bytes_over_the_capacity_are_requested_from_every_holder)
{
    clock_stop(f);
    fixture_set_capacity(f, UNITS(10));
    struct party *low = party_join(f, LIMITS(.guarantee_bytes = UNITS(2), .priority = 1), 4, evict_requested);
    struct party *high = party_open(f, 2, 4, evict_requested);
    set_capacity_over(f, UNITS(5), UNITS(3));
    settle(f);
    cr_assert_eq(party_has(low), UNITS(2));
    cr_assert_eq(party_has(high), UNITS(3));
    cr_assert_eq(fixture_stats(f).over_bytes, 0);
    set_capacity_over(f, UNITS(1), UNITS(4));
    settle(f);
    cr_assert_eq(party_has(low) + party_has(high), UNITS(1));
    cr_assert_eq(fixture_stats(f).over_bytes, fixture_stats(f).charged_bytes > UNIT ? UNIT : 0);
}

/* A provider that reports a smaller total than the other ones shrinks the pool. */
Test(limits, a_provider_that_shrinks_the_pool_causes_an_eviction)
{
    struct fixture f = fixture_open(&(struct scripted_options){.pool_key = "pool", .total_bytes = UNITS(10)});
    clock_stop(&f);
    struct party *party = party_open(&f, 0, 6, evict_requested);
    struct scripted *second = scripted_create(
        &(struct scripted_options){.name = "second", .pool_key = "pool", .total_bytes = UNITS(4)});
    (void)fixture_attach(f.runtime, second);
    for (int i = 0; i < 5000 && asked_count() == 0; i++) /* no other call starts the pressure */
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    expect_asked(0, party, UNITS(2), MOOR_PRESSURE_CAPACITY);
    settle(&f);
    cr_assert_eq(party_has(party), UNITS(4));
    cr_assert_eq(fixture_stats(&f).over_bytes, 0);
    party_close(party);
    fixture_close(&f);
    scripted_destroy(second);
}

FIXTURE_TEST(limits, bytes_over_a_limit_are_requested_from_that_holder)
{
    uint64_t bytes = 0;
    clock_stop(f);
    struct party *over = party_open(f, 5, 6, evict_requested);
    (void)party_open(f, 0, 6, evict_all);
    fixture_set_capacity(f, UNITS(20));
    EXPECT(MOOR_OK, try_limits(over->holder, UNITS(4), 0, &bytes));
    cr_assert_eq(bytes, UNITS(2));
    settle(f);
    cr_assert_eq(asked_count(), 1);
    expect_asked(0, over, UNITS(2), MOOR_PRESSURE_LIMIT);
    cr_assert_eq(party_has(over), UNITS(4));
    cr_assert_eq(fixture_stats(f).tickets, 0);
}

/* A holder that gets a pressure function while the pool is over its capacity gets a pressure request. */
FIXTURE_TEST(limits, a_later_pressure_function_is_called_for_bytes_over_the_capacity)
{
    clock_stop(f);
    struct party *party = party_open(f, 0, 0, evict_requested);
    EXPECT(MOOR_OK, moor_holder_set_pressure(party->holder, NULL, NULL));
    fixture_set_capacity(f, UNITS(8));
    party_take(party, 6);
    set_capacity_over(f, UNITS(4), UNITS(2));
    settle(f);
    cr_assert_eq(asked_count(), 0);
    EXPECT(MOOR_OK, moor_holder_set_pressure(party->holder, party_asked, party));
    settle(f);
    expect_asked(0, party, UNITS(2), MOOR_PRESSURE_CAPACITY);
    cr_assert_eq(fixture_stats(f).over_bytes, 0);
}

/* ---- the set-aside ---- */

struct move {
    moor_grant grant;
    moor_status status;
    moor_status again;
};

/* Takes two units that it needs for the eviction, and then evicts four. */
static uint64_t move_and_give(struct party *party, const struct moor_pressure *pressure)
{
    struct move *move = party->user;
    moor_grant second = 0;
    move->status = moor_grant_reserve(party->holder, UNITS(2), MOOR_NO_WAIT, &move->grant);
    move->again = moor_grant_reserve(party->holder, UNIT, MOOR_NO_WAIT, &second);
    return party_evict(party, UNITS(4));
}

FIXTURE_TEST(limits, the_emergency_reserve_serves_only_pressure_functions)
{
    struct move move = {0};
    moor_grant grant = 0;
    clock_stop(f);
    fixture_set_capacity(f, UNITS(10));
    EXPECT(MOOR_OK, moor_authority_set_aside(f->authority, UNITS(2)));
    struct party *party = party_open(f, 0, 0, move_and_give);
    party->user = &move;
    party_take(party, 8);
    cr_assert_eq(fixture_stats(f).set_aside_bytes, UNITS(2));
    cr_assert_eq(fixture_stats(f).free_bytes, UNITS(2));
    /* four units came back, two of which refill the emergency reserve */
    EXPECT(MOOR_OK, reserve(f->holder, UNITS(2), &grant));
    cr_assert_eq(move.status, MOOR_OK, "the emergency reserve serves the first request");
    cr_assert_eq(move.again, MOOR_OVER_BUDGET, "and not the second one");
    cr_assert_eq(fixture_stats(f).free_bytes, UNITS(2));
    moor_grant second = 0;
    EXPECT(MOOR_OK, moor_holder_set_pressure(party->holder, NULL, NULL));
    SHORT(MOOR_OVER_BUDGET, UNIT, reserve(f->holder, UNIT, &second));
    SHORT(MOOR_OVER_BUDGET, UNIT, reserve(party->holder, UNIT, &second));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, move.grant));
}

static uint64_t refund_one(struct party *party, const struct moor_pressure *pressure)
{
    const moor_lease *lease = party->user;
    EXPECT(MOOR_OK, moor_lease_adjust(party->f->runtime, *lease, UNITS(6), MOOR_NO_WAIT));
    return UNITS(2);
}

/* A request from outside is not served from the emergency reserve, whichever thread made the room. */
FIXTURE_TEST(limits, the_emergency_reserve_does_not_serve_the_waiting_requester)
{
    clock_stop(f);
    fixture_set_capacity(f, UNITS(10));
    EXPECT(MOOR_OK, moor_authority_set_aside(f->authority, UNITS(2)));
    struct party *party = party_open(f, 0, 0, refund_one);
    moor_lease lease = fixture_lease(f, party->holder, UNITS(8));
    party->user = &lease;
    moor_ticket ticket = open_ticket(f->holder, UNITS(4));
    moor__pressure_settle(f->runtime);
    cr_assert_eq(asked_count(), 1);
    cr_assert_not(is_served(f, ticket), "two units are free, and two are in the emergency reserve");
    cr_assert_eq(fixture_stats(f).free_bytes, UNITS(4));
    EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, lease, UNITS(4), MOOR_NO_WAIT));
    return_ticket(f, ticket);
}

/* A live increase of the emergency reserve causes the same pressure requests as a guarantee. */
FIXTURE_TEST(limits, a_raised_reserve_evicts_borrowed_bytes)
{
    clock_stop(f);
    fixture_set_capacity(f, UNITS(10));
    struct party *party = party_open(f, 0, 10, evict_requested);
    EXPECT(MOOR_OK, moor_authority_set_aside(f->authority, UNITS(3)));
    settle(f);
    expect_asked(0, party, UNITS(3), MOOR_PRESSURE_CAPACITY);
    cr_assert_eq(fixture_stats(f).over_bytes, 0);
    cr_assert_eq(fixture_stats(f).free_bytes, UNITS(3));
}
