/* SPDX-License-Identifier: MIT */
/* Guarantees, limits, capacity and the set-aside, which all change live: what they promise, and who is
 * asked for it. */
#include "asked.h"

TestSuite(limits, .timeout = 120);

static void set_capacity(struct fixture *f, uint64_t bytes, uint64_t expected_over)
{
    uint64_t over = UINT64_MAX;
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, bytes, 0, &over));
    cr_assert_eq(over, expected_over, "%llu bytes are over", (unsigned long long)over);
    cr_assert_eq(fixture_stats(f).over_bytes, expected_over);
}

static moor_status set_limits(struct moor_holder *holder, uint64_t limit, uint64_t guarantee,
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

Test(limits, a_guarantee_is_there_at_once_when_all_else_is_borrowed)
{
    struct fixture f = fixture_open(NULL);
    struct party borrower;
    struct moor_holder *guaranteed = NULL;
    moor_grant grant = 0;
    const struct moor_holder_options options = {.limits.guarantee_bytes = UNITS(4)};
    set_capacity(&f, UNITS(10), 0);
    EXPECT(MOOR_OK, moor_holder_create(f.authority, &options, &guaranteed));
    cr_assert_eq(fixture_stats(&f).guaranteed_bytes, UNITS(4));
    party_open(&borrower, &f, 0, NULL);
    party_take(&borrower, 6);
    cr_assert_eq(fixture_stats(&f).free_bytes, UNITS(4));
    SHORT(MOOR_NO_VICTIM, UNIT, reserve(f.holder, UNIT, &grant));
    EXPECT(MOOR_OK, reserve(guaranteed, UNITS(4), &grant));
    cr_assert_eq(fixture_stats(&f).guaranteed_bytes, 0);
    cr_assert_eq(asked_count(), 1, "nobody is asked for it");
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
    EXPECT(MOOR_OK, moor_holder_destroy(guaranteed));
    party_close(&borrower);
    fixture_close(&f);
}

/* Beyond its guarantee it borrows as everybody does, and what it has of the guarantee does not count
 * twice. */
Test(limits, beyond_its_guarantee_a_holder_borrows)
{
    struct fixture f = fixture_open(NULL);
    struct moor_holder *guaranteed = NULL;
    moor_grant grants[3] = {0};
    const struct moor_holder_options options = {.limits.guarantee_bytes = UNITS(4)};
    set_capacity(&f, UNITS(10), 0);
    EXPECT(MOOR_OK, moor_holder_create(f.authority, &options, &guaranteed));
    EXPECT(MOOR_OK, reserve(guaranteed, UNITS(3), &grants[0]));
    EXPECT(MOOR_OK, reserve(f.holder, UNITS(5), &grants[1]));
    SHORT(MOOR_OVER_BUDGET, UNIT, reserve(guaranteed, UNITS(3), &grants[2]));
    EXPECT(MOOR_OK, reserve(guaranteed, UNITS(2), &grants[2]));
    SHORT(MOOR_OVER_BUDGET, 1, reserve(f.holder, 1, &grants[2]));
    for (size_t i = 0; i < 3; i++)
        EXPECT(MOOR_OK, moor_grant_release(f.runtime, grants[i]));
    EXPECT(MOOR_OK, moor_holder_destroy(guaranteed));
    fixture_close(&f);
}

Test(limits, a_guarantee_that_is_raised_presses_those_who_borrow)
{
    struct fixture f = fixture_open(NULL);
    struct party borrower, kept;
    struct moor_holder *guaranteed = NULL;
    moor_grant grant = 0;
    clock_stop(&f);
    EXPECT(MOOR_OK, moor_holder_create(f.authority, NULL, &guaranteed));
    set_capacity(&f, UNITS(10), 0);
    party_open(&borrower, &f, 7, give_what_is_asked); /* whatever its priority */
    party_join(&kept, &f, f.authority, SCRIPTED_DOMAIN_DEVICE,
               &(struct moor_holder_limits){.guarantee_bytes = UNITS(3)}, give_all);
    party_take(&borrower, 7);
    party_take(&kept, 3);
    EXPECT(MOOR_OK, set_limits(guaranteed, 0, UNITS(4), NULL));
    settle(&f);
    cr_assert_eq(asked_count(), 1);
    expect_asked(0, &borrower, UNITS(4), MOOR_PRESSURE_CAPACITY);
    cr_assert_eq(fixture_stats(&f).over_bytes, 0);
    cr_assert_eq(fixture_stats(&f).tickets, 0);
    EXPECT(MOOR_OK, reserve(guaranteed, UNITS(4), &grant));
    cr_assert_eq(asked_count(), 1);
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
    EXPECT(MOOR_OK, moor_holder_destroy(guaranteed));
    party_close(&borrower);
    party_close(&kept);
    fixture_close(&f);
}

/* What is lent is said to be over until it has come back. */
Test(limits, what_is_lent_out_of_guarantees_is_over)
{
    struct fixture f = fixture_open(NULL);
    struct moor_holder *guaranteed = NULL;
    EXPECT(MOOR_OK, moor_holder_create(f.authority, NULL, &guaranteed));
    set_capacity(&f, UNITS(10), 0);
    moor_lease lease = take_lease(&f, f.holder, UNITS(9));
    EXPECT(MOOR_OK, set_limits(guaranteed, 0, UNITS(4), NULL));
    cr_assert_eq(fixture_stats(&f).over_bytes, UNITS(3));
    EXPECT(MOOR_OK, moor_lease_adjust(f.runtime, lease, UNITS(7), MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(&f).over_bytes, UNITS(1));
    EXPECT(MOOR_OK, moor_lease_adjust(f.runtime, lease, UNITS(6), MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(&f).over_bytes, 0);
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    EXPECT(MOOR_OK, moor_holder_destroy(guaranteed));
    fixture_close(&f);
}

Test(limits, nobody_is_asked_below_its_guarantee)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    moor_grant grant = 0;
    clock_stop(&f);
    party_join(&party, &f, f.authority, SCRIPTED_DOMAIN_DEVICE,
               &(struct moor_holder_limits){.guarantee_bytes = UNITS(6)}, give_what_is_asked);
    set_capacity(&f, UNITS(10), 0);
    party_take(&party, 8);
    moor_lease lease = take_lease(&f, f.holder, UNITS(2));
    EXPECT(MOOR_OK, reserve(f.holder, UNITS(2), &grant));
    expect_asked(0, &party, UNITS(2), MOOR_PRESSURE_REQUEST);
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
    party_take(&party, 2); /* borrowed again */
    SHORT(MOOR_NO_VICTIM, UNIT, reserve(f.holder, UNITS(3), &grant));
    expect_asked(1, &party, UNITS(2), MOOR_PRESSURE_REQUEST);
    /* With no more than its guarantee it is no victim at all. */
    SHORT(MOOR_OVER_BUDGET, UNIT, reserve(f.holder, UNITS(3), &grant));
    cr_assert_eq(asked_count(), 2);
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    party_close(&party);
    fixture_close(&f);
}

Test(limits, guarantees_fit_into_the_capacity_together)
{
    struct fixture f = fixture_open(NULL);
    struct moor_holder *first = NULL, *second = NULL;
    struct moor_holder_options options = {.limits.guarantee_bytes = UNITS(6)};
    set_capacity(&f, UNITS(10), 0);
    EXPECT(MOOR_OK, moor_holder_create(f.authority, &options, &first));
    SHORT(MOOR_OVER_BUDGET, UNITS(2), moor_holder_create(f.authority, &options, &second));
    cr_assert_null(second);
    options.limits = (struct moor_holder_limits){.limit_bytes = UNITS(2), .guarantee_bytes = UNITS(3)};
    EXPECT(MOOR_INVALID, moor_holder_create(f.authority, &options, &second));
    EXPECT(MOOR_OVER_BUDGET, set_limits(f.holder, 0, UNITS(5), NULL));
    EXPECT(MOOR_INVALID, set_limits(f.holder, UNITS(3), UNITS(4), NULL));
    EXPECT(MOOR_OK, set_limits(f.holder, 0, UNITS(4), NULL));
    EXPECT(MOOR_OK, set_limits(first, 0, UNITS(5), NULL));
    EXPECT(MOOR_OK, set_limits(f.holder, 0, UNITS(5), NULL));
    EXPECT(MOOR_OVER_BUDGET, set_limits(first, 0, UNITS(6), NULL));
    cr_assert_eq(fixture_stats(&f).guaranteed_bytes, UNITS(10));
    EXPECT(MOOR_OK, moor_holder_destroy(first));
    EXPECT(MOOR_OK, set_limits(f.holder, 0, UNITS(10), NULL));
    EXPECT(MOOR_OK, set_limits(f.holder, 0, 0, NULL));
    fixture_close(&f);
}

/* ---- revisions ---- */

Test(limits, late_decisions_about_the_capacity_do_no_harm)
{
    struct fixture f = fixture_open(NULL);
    uint64_t over = 7;
    uint64_t first = fixture_stats(&f).revision;
    set_capacity(&f, UNITS(5), 0);
    cr_assert_eq(fixture_stats(&f).revision, first + 1);
    EXPECT(MOOR_OK, moor_authority_set_capacity(f.authority, UNITS(10), 50, &over));
    cr_assert_eq(over, 0);
    over = 7;
    EXPECT(MOOR_STALE, moor_authority_set_capacity(f.authority, UNITS(2), 49, &over));
    EXPECT(MOOR_REFUSED, moor_authority_set_capacity(f.authority, UNITS(2), 50, &over));
    cr_assert_eq(over, 7, "written on success only");
    cr_assert_eq(fixture_stats(&f).capacity_bytes, UNITS(10));
    cr_assert_eq(fixture_stats(&f).revision, 50);
    EXPECT(MOOR_OK, moor_authority_set_capacity(f.authority, UNITS(10), 50, &over)); /* told twice */
    moor_lease lease = take_lease(&f, f.holder, UNITS(8));
    EXPECT(MOOR_OK, moor_authority_set_capacity(f.authority, UNITS(3), 60, &over));
    cr_assert_eq(over, UNITS(5));
    EXPECT(MOOR_OK, moor_authority_set_capacity(f.authority, UNITS(3), 60, &over)); /* is still over */
    cr_assert_eq(over, UNITS(5));
    EXPECT(MOOR_OK, moor_authority_set_capacity(f.authority, UNITS(20), 0, &over));
    cr_assert_eq(over, 0);
    cr_assert_eq(fixture_stats(&f).revision, 61);
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    fixture_close(&f);
}

Test(limits, late_decisions_about_a_holder_do_no_harm)
{
    struct fixture f = fixture_open(NULL);
    struct moor_holder_limits limits = {.limit_bytes = UNITS(8), .guarantee_bytes = UNITS(2), .priority = 3};
    struct moor_holder_stats stats;
    uint64_t over = 7;
    EXPECT(MOOR_OK, moor_holder_set_limits(f.holder, &limits, 50, NULL));
    EXPECT(MOOR_STALE, moor_holder_set_limits(f.holder, &(struct moor_holder_limits){0}, 49, &over));
    EXPECT(MOOR_REFUSED, moor_holder_set_limits(f.holder, &(struct moor_holder_limits){0}, 50, &over));
    cr_assert_eq(over, 7);
    EXPECT(MOOR_OK, moor_holder_set_limits(f.holder, &limits, 50, &over));
    limits.priority = 4; /* every part of it counts */
    EXPECT(MOOR_REFUSED, moor_holder_set_limits(f.holder, &limits, 50, &over));
    EXPECT(MOOR_OK, moor_holder_get_stats(f.holder, &stats));
    cr_assert(stats.revision == 50 && stats.priority == 3 && stats.limit_bytes == UNITS(8) &&
              stats.guarantee_bytes == UNITS(2));
    moor_lease lease = take_lease(&f, f.holder, UNITS(8));
    EXPECT(MOOR_OK,
           moor_holder_set_limits(f.holder, &(struct moor_holder_limits){.limit_bytes = UNITS(5)}, 0, &over));
    cr_assert_eq(over, UNITS(3));
    EXPECT(MOOR_OK, moor_holder_get_stats(f.holder, &stats));
    cr_assert_eq(stats.revision, 51);
    cr_assert_eq(stats.priority, 0);
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    EXPECT(MOOR_OK, moor_holder_set_limits(f.holder, &(struct moor_holder_limits){0}, 0, &over));
    cr_assert_eq(over, 0);
    fixture_close(&f);
}

/* ---- over ---- */

/* Nobody gives anything until it grows back: then all is as it was, and nobody is asked any more. */
Test(limits, growing_back_restores_everything)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    moor_grant grant = 0, open = 0;
    clock_stop(&f);
    party_open(&party, &f, 9, NULL);
    set_capacity(&f, UNITS(10), 0);
    party_take(&party, 7);
    EXPECT(MOOR_OK, reserve(f.holder, UNITS(2), &open));
    set_capacity(&f, UNITS(4), UNITS(5));
    settle(&f);
    cr_assert_eq(asked_count(), 1);
    expect_asked(0, &party, UNITS(5), MOOR_PRESSURE_CAPACITY);
    cr_assert_eq(fixture_stats(&f).tickets, 1);
    EXPECT(MOOR_OVER_BUDGET,
           reserve(f.holder, UNIT, &grant)); /* new ones wait; the party is not for it to ask */
    moor_buffer buffer = 0;
    const struct moor_buffer_options drawn = {.grant = open};
    EXPECT(MOOR_OK, moor_buffer_allocate(f.binding, UNIT, &drawn, &buffer)); /* what is granted stays */
    set_capacity(&f, UNITS(10), 0);
    settle(&f);
    cr_assert_eq(fixture_stats(&f).tickets, 0);
    clock_advance(&f, UINT64_C(5000000000));
    settle(&f);
    cr_assert_eq(asked_count(), 1);
    EXPECT(MOOR_OK, reserve(f.holder, UNIT, &grant));
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, open));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    party_close(&party);
    fixture_close(&f);
}

/* Over the capacity anybody is asked, lowest priority first, borrowed bytes before guaranteed ones. */
Test(limits, what_is_over_the_capacity_is_asked_of_everybody)
{
    struct fixture f = fixture_open(NULL);
    struct party low, high;
    clock_stop(&f);
    set_capacity(&f, UNITS(10), 0);
    party_join(&low, &f, f.authority, SCRIPTED_DOMAIN_DEVICE,
               &(struct moor_holder_limits){.guarantee_bytes = UNITS(2), .priority = 1}, give_what_is_asked);
    party_open(&high, &f, 2, give_what_is_asked);
    party_take(&low, 4);
    party_take(&high, 4);
    set_capacity(&f, UNITS(5), UNITS(3));
    settle(&f);
    cr_assert_eq(party_has(&low), UNITS(2));
    cr_assert_eq(party_has(&high), UNITS(3));
    cr_assert_eq(fixture_stats(&f).over_bytes, 0);
    set_capacity(&f, UNITS(1), UNITS(4));
    settle(&f);
    cr_assert_eq(party_has(&low) + party_has(&high), UNITS(1));
    cr_assert_eq(fixture_stats(&f).over_bytes, fixture_stats(&f).charged_bytes > UNIT ? UNIT : 0);
    party_close(&low);
    party_close(&high);
    fixture_close(&f);
}

/* A provider that knows of less than others did is one more who shrinks the pool. */
Test(limits, what_a_new_provider_leaves_no_room_for_is_asked_for)
{
    struct fixture f = fixture_open(&(struct scripted_options){.pool_key = "pool", .total_bytes = UNITS(10)});
    struct party party;
    clock_stop(&f);
    party_open(&party, &f, 0, give_what_is_asked);
    party_take(&party, 6);
    struct scripted *second = scripted_create(
        &(struct scripted_options){.name = "second", .pool_key = "pool", .total_bytes = UNITS(4)});
    (void)fixture_attach(f.runtime, second);
    for (int i = 0; i < 5000 && asked_count() == 0; i++) /* nothing else makes anybody look */
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    expect_asked(0, &party, UNITS(2), MOOR_PRESSURE_CAPACITY);
    settle(&f);
    cr_assert_eq(party_has(&party), UNITS(4));
    cr_assert_eq(fixture_stats(&f).over_bytes, 0);
    party_close(&party);
    fixture_close(&f);
    scripted_destroy(second);
}

Test(limits, what_is_over_a_holders_limit_is_asked_of_itself)
{
    struct fixture f = fixture_open(NULL);
    struct party over, other;
    uint64_t bytes = 0;
    clock_stop(&f);
    party_open(&over, &f, 5, give_what_is_asked);
    party_open(&other, &f, 0, give_all);
    set_capacity(&f, UNITS(20), 0);
    party_take(&over, 6);
    party_take(&other, 6);
    EXPECT(MOOR_OK, set_limits(over.holder, UNITS(4), 0, &bytes));
    cr_assert_eq(bytes, UNITS(2));
    settle(&f);
    cr_assert_eq(asked_count(), 1);
    expect_asked(0, &over, UNITS(2), MOOR_PRESSURE_LIMIT);
    cr_assert_eq(party_has(&over), UNITS(4));
    cr_assert_eq(fixture_stats(&f).tickets, 0);
    party_close(&over);
    party_close(&other);
    fixture_close(&f);
}

/* One that gets a function while the pool is over is asked, too. */
Test(limits, who_gets_a_function_later_is_asked_for_what_is_over)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    clock_stop(&f);
    party_open(&party, &f, 0, give_what_is_asked);
    EXPECT(MOOR_OK, moor_holder_set_pressure(party.holder, NULL, NULL));
    set_capacity(&f, UNITS(8), 0);
    party_take(&party, 6);
    set_capacity(&f, UNITS(4), UNITS(2));
    settle(&f);
    cr_assert_eq(asked_count(), 0);
    EXPECT(MOOR_OK, moor_holder_set_pressure(party.holder, party_asked, &party));
    settle(&f);
    expect_asked(0, &party, UNITS(2), MOOR_PRESSURE_CAPACITY);
    cr_assert_eq(fixture_stats(&f).over_bytes, 0);
    party_close(&party);
    fixture_close(&f);
}

/* ---- the set-aside ---- */

struct move {
    moor_grant grant;
    moor_status status;
    moor_status again;
};

/* Takes a unit for what it still needs, and then gives up what it has. */
static uint64_t move_and_give(struct party *party, const struct moor_pressure *pressure)
{
    struct move *move = party->user;
    moor_grant second = 0;
    (void)pressure;
    move->status = moor_grant_reserve(party->holder, UNITS(2), MOOR_NO_WAIT, &move->grant);
    move->again = moor_grant_reserve(party->holder, UNIT, MOOR_NO_WAIT, &second);
    return party_give(party, UNITS(4));
}

Test(limits, the_set_aside_serves_those_who_are_asked_and_nobody_else)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    struct move move = {0};
    moor_grant grant = 0;
    clock_stop(&f);
    set_capacity(&f, UNITS(10), 0);
    EXPECT(MOOR_OK, moor_authority_set_aside(f.authority, UNITS(2)));
    party_open(&party, &f, 0, move_and_give);
    party.user = &move;
    party_take(&party, 8);
    cr_assert_eq(fixture_stats(&f).set_aside_bytes, UNITS(2));
    cr_assert_eq(fixture_stats(&f).free_bytes, UNITS(2));
    EXPECT(MOOR_OK,
           reserve(f.holder, UNITS(2), &grant)); /* four came back, two of which fill up the set-aside */
    cr_assert_eq(move.status, MOOR_OK, "the set-aside serves it");
    cr_assert_eq(move.again, MOOR_OVER_BUDGET, "and there is no more");
    cr_assert_eq(fixture_stats(&f).free_bytes, UNITS(2));
    moor_grant second = 0;
    EXPECT(MOOR_OK, moor_holder_set_pressure(party.holder, NULL, NULL));
    SHORT(MOOR_OVER_BUDGET, UNIT, reserve(f.holder, UNIT, &second));
    SHORT(MOOR_OVER_BUDGET, UNIT, reserve(party.holder, UNIT, &second));
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, move.grant));
    party_close(&party);
    fixture_close(&f);
}

static uint64_t refund_one(struct party *party, const struct moor_pressure *pressure)
{
    const moor_lease *lease = party->user;
    (void)pressure;
    EXPECT(MOOR_OK, moor_lease_adjust(party->f->runtime, *lease, UNITS(6), MOOR_NO_WAIT));
    return UNITS(2);
}

/* Who waits outside is not served of it, whoever makes the room. */
Test(limits, the_set_aside_does_not_serve_who_waits_for_those_who_are_asked)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    clock_stop(&f);
    set_capacity(&f, UNITS(10), 0);
    EXPECT(MOOR_OK, moor_authority_set_aside(f.authority, UNITS(2)));
    party_open(&party, &f, 0, refund_one);
    moor_lease lease = take_lease(&f, party.holder, UNITS(8));
    party.user = &lease;
    moor_ticket ticket = open_ticket(f.holder, UNITS(4));
    moor__pressure_settle(f.runtime);
    cr_assert_eq(asked_count(), 1);
    cr_assert_not(is_served(&f, ticket), "two units are free for it, and two set aside");
    cr_assert_eq(fixture_stats(&f).free_bytes, UNITS(4));
    EXPECT(MOOR_OK, moor_lease_adjust(f.runtime, lease, UNITS(4), MOOR_NO_WAIT));
    return_ticket(&f, ticket);
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    party_close(&party);
    fixture_close(&f);
}

/* A set-aside that is raised live is asked for as a guarantee is. */
Test(limits, a_set_aside_that_is_raised_presses_those_who_borrow)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    clock_stop(&f);
    set_capacity(&f, UNITS(10), 0);
    party_open(&party, &f, 0, give_what_is_asked);
    party_take(&party, 10);
    EXPECT(MOOR_OK, moor_authority_set_aside(f.authority, UNITS(3)));
    settle(&f);
    expect_asked(0, &party, UNITS(3), MOOR_PRESSURE_CAPACITY);
    cr_assert_eq(fixture_stats(&f).over_bytes, 0);
    cr_assert_eq(fixture_stats(&f).free_bytes, UNITS(3));
    party_close(&party);
    fixture_close(&f);
}
