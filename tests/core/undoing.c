/* SPDX-License-Identifier: MIT */
/*
 * Pressure functions that change the governor under its own feet: they take themselves away, end holders and
 * change limits, look at everything; and what others do to a holder whose function is running.
 */
#include "asked.h"

TestSuite(undoing, .timeout = 120);

static void set_capacity(struct fixture *f, uint64_t bytes)
{
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, bytes, 0, NULL));
}

static moor_status request(struct fixture *f, uint64_t bytes)
{
    moor_grant grant = 0;
    moor_status status = moor_grant_reserve(f->holder, bytes, fixture_soon(LATE_MS), &grant);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    return status;
}

/* Gives up all that it has, and its binding, so that nothing but the pressure keeps its holder. */
static void leave(struct party *party)
{
    (void)party_give(party, UINT64_MAX);
    fixture_reap(party->f);
    EXPECT(MOOR_OK, moor_binding_close(party->binding));
    party->binding = NULL;
}

/* ---- itself ---- */

static uint64_t remove_and_give(struct party *party, const struct moor_pressure *pressure)
{
    EXPECT(MOOR_OK, moor_holder_set_pressure(party->holder, NULL, NULL));
    (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* it is still waited for */
    return party_give(party, pressure->bytes);
}

Test(undoing, one_may_remove_its_own_function)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    moor_grant grant = 0;
    clock_stop(&f);
    set_capacity(&f, UNITS(4));
    party_open(&party, &f, 0, remove_and_give);
    party_take(&party, 4);
    EXPECT(MOOR_OK, moor_grant_reserve(f.holder, UNIT, MOOR_NO_WAIT, &grant)); /* what it gave counts */
    cr_assert_eq(party_stats(&party).evicted_bytes, UNIT);
    SHORT(MOOR_OVER_BUDGET, UNIT, moor_grant_reserve(f.holder, UNIT, MOOR_NO_WAIT, &grant));
    cr_assert_eq(asked_count(), 1);
    EXPECT(MOOR_OK, moor_holder_set_pressure(party.holder, party_asked, &party));
    atomic_store(&party.answer, give_what_is_asked);
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
    EXPECT(MOOR_OK, moor_grant_reserve(f.holder, UNITS(2), MOOR_NO_WAIT, &grant));
    cr_assert_eq(asked_count(), 2);
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
    party_close(&party);
    fixture_close(&f);
}

static uint64_t replace_and_give(struct party *party, const struct moor_pressure *pressure)
{
    EXPECT(MOOR_OK, moor_holder_set_pressure(party->holder, party_asked, party->user));
    return party_give(party, pressure->bytes);
}

/* The one that comes in its place is called the next time, with what belongs to it. */
Test(undoing, one_may_replace_its_own_function)
{
    struct fixture f = fixture_open(NULL);
    struct party party, other = {0};
    set_capacity(&f, UNITS(4));
    party_open(&party, &f, 0, replace_and_give);
    party.user = &other;
    party_take(&party, 4);
    EXPECT(MOOR_OK, request(&f, UNIT));
    moor_lease lease = take_lease(&f, f.holder, UNIT);
    moor_grant grant = 0;
    EXPECT(MOOR_NO_VICTIM, moor_grant_reserve(f.holder, UNIT, MOOR_NO_WAIT, &grant));
    cr_assert(party.left == 1 && other.left == 1);
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    party_close(&party);
    fixture_close(&f);
}

static uint64_t destroy_itself(struct party *party, const struct moor_pressure *pressure)
{
    uint64_t had = party_has(party);
    (void)pressure;
    EXPECT(MOOR_BUSY, moor_holder_destroy(party->holder)); /* it still has what it has */
    leave(party);
    EXPECT(MOOR_OK, moor_holder_destroy(party->holder));
    struct moor_authority_stats stats = fixture_stats(party->f);
    cr_assert_eq(stats.holder_count, 1, "it is gone at once for all others");
    return had;
}

Test(undoing, one_may_destroy_its_own_holder)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    struct moor_holder_stats stats[4];
    struct moor_authority_stats pool;
    size_t count = 0;
    set_capacity(&f, UNITS(4));
    party_open(&party, &f, 0, destroy_itself);
    party_take(&party, 4);
    EXPECT(MOOR_OK, request(&f, UNITS(4)));
    moor__pressure_settle(f.runtime);
    EXPECT(MOOR_OK, moor_authority_get_stats(f.authority, &pool, stats, 4, &count));
    cr_assert(count == 1 && pool.holder_count == 1);
    fixture_close(&f);
}

/* ---- others ---- */

/* What one party does to the holder of another, and what it is answered. */
struct attack {
    struct party *victim;
    int inside; /* 1: the victim's function is to be running */
    moor_status destroyed;
    moor_status removed;
};

static uint64_t attack(struct party *party, const struct moor_pressure *pressure)
{
    struct attack *attack = party->user;
    fixture_await(&attack->victim->entered, attack->inside);
    attack->removed = moor_holder_set_pressure(attack->victim->holder, NULL, NULL);
    attack->destroyed = moor_holder_destroy(attack->victim->holder);
    return party_give(party, pressure->bytes);
}

Test(undoing, one_may_destroy_another_that_is_idle)
{
    struct fixture f = fixture_open(NULL);
    struct party party, idle;
    struct attack it = {.victim = &idle, .destroyed = MOOR_PROVIDER};
    set_capacity(&f, UNITS(4));
    party_open(&party, &f, 0, attack);
    party_open(&idle, &f, 0, give_all);
    party.user = &it;
    leave(&idle);
    party_take(&party, 4);
    EXPECT(MOOR_OK, request(&f, UNIT));
    cr_assert_eq(it.removed, MOOR_OK, "%s", moor_status_name(it.removed));
    cr_assert_eq(it.destroyed, MOOR_OK, "%s", moor_status_name(it.destroyed));
    cr_assert_eq(fixture_stats(&f).holder_count, 2);
    party_close(&party);
    fixture_close(&f);
}

static _Atomic int stays;

static uint64_t leave_and_stay(struct party *party, const struct moor_pressure *pressure)
{
    uint64_t had = party_has(party);
    (void)pressure;
    leave(party);
    atomic_fetch_add(&stays, 1);
    await_gate(party);
    return had;
}

/* The other one is inside its function: that is not waited for, in here. */
Test(undoing, one_that_is_being_asked_is_busy_for_others_that_are)
{
    struct fixture f = fixture_open(NULL);
    struct party party, busy;
    struct attack it = {.victim = &busy, .inside = 1};
    struct waiter waiter;
    set_capacity(&f, UNITS(4));
    party_open(&busy, &f, -1, leave_and_stay);
    party_open(&party, &f, 0, attack);
    party.user = &it;
    party_take(&busy, 1);
    party_take(&party, 3);
    waiter_start(&waiter, f.holder, UNITS(3), fixture_soon(LATE_MS));
    waiter_end(&f, &waiter, MOOR_OK);
    fixture_await(&party.left, 1);
    cr_assert(busy.entered == 1 && busy.left == 0);
    cr_assert_eq(it.removed, MOOR_BUSY, "%s", moor_status_name(it.removed));
    cr_assert_eq(it.destroyed, MOOR_BUSY, "%s", moor_status_name(it.destroyed));
    fixture_await(&stays, 1);
    atomic_store(&busy.gate, 1);
    EXPECT(MOOR_OK, moor_holder_destroy(busy.holder)); /* outside, it is waited for */
    cr_assert_eq(busy.left, 1);
    party_close(&party);
    fixture_close(&f);
}

static _Atomic int met;
static _Atomic int parted;

static uint64_t leave_and_attack(struct party *party, const struct moor_pressure *pressure)
{
    struct attack *attack = party->user;
    uint64_t had = party_has(party);
    (void)pressure;
    leave(party);
    atomic_fetch_add(&met, 1);
    fixture_await(&met, 2);
    attack->destroyed = moor_holder_destroy(attack->victim->holder);
    atomic_fetch_add(&parted, 1);
    fixture_await(&parted, 2);
    return had;
}

Test(undoing, two_that_destroy_each_other_are_both_busy)
{
    struct fixture f = fixture_open(NULL);
    struct party parties[2];
    struct attack attacks[2] = {{.victim = &parties[1]}, {.victim = &parties[0]}};
    set_capacity(&f, UNITS(4));
    for (size_t i = 0; i < 2; i++) {
        party_open(&parties[i], &f, 0, leave_and_attack);
        parties[i].user = &attacks[i];
        party_take(&parties[i], 2);
    }
    EXPECT(MOOR_OK, request(&f, UNITS(4)));
    for (size_t i = 0; i < 2; i++) {
        fixture_await(&parties[i].left, 1);
        cr_assert_eq(attacks[i].destroyed, MOOR_BUSY, "%s", moor_status_name(attacks[i].destroyed));
        EXPECT(MOOR_OK, moor_holder_destroy(parties[i].holder));
    }
    fixture_close(&f);
}

/* ---- by threads of the host's ---- */

struct ending {
    pthread_t thread;
    struct party *party;
    moor_status status;
    _Atomic int began;
    _Atomic int done;
};

static void *destroy(void *user)
{
    struct ending *ending = user;
    atomic_store(&ending->began, 1);
    ending->status = moor_holder_destroy(ending->party->holder);
    atomic_store(&ending->done, 1);
    return NULL;
}

static void *remove_function(void *user)
{
    struct ending *ending = user;
    atomic_store(&ending->began, 1);
    ending->status = moor_holder_set_pressure(ending->party->holder, NULL, NULL);
    atomic_store(&ending->done, 1);
    return NULL;
}

/* Ends the party, or its function, while that is inside. */
static void end_while_inside(void *(*end)(void *))
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    struct ending ending = {.party = &party};
    set_capacity(&f, UNITS(4));
    party_open(&party, &f, 0, leave_and_stay);
    party_take(&party, 4);
    EXPECT(MOOR_OK, request(&f, UNIT));
    fixture_await(&stays, 1);
    cr_assert_eq(party.left, 0);
    cr_assert_eq(pthread_create(&ending.thread, NULL, end, &ending), 0);
    fixture_await(&ending.began, 1);
    (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* time to do it wrong */
    cr_assert_eq(ending.done, 0, "it has not waited for the function to return");
    EXPECT(MOOR_OK, request(&f, UNITS(4))); /* meanwhile all goes on */
    atomic_store(&party.gate, 1);
    join(ending.thread);
    cr_assert_eq(party.left, 1);
    cr_assert_eq(ending.status, MOOR_OK, "%s", moor_status_name(ending.status));
    if (end == remove_function)
        EXPECT(MOOR_OK, moor_holder_destroy(party.holder));
    fixture_close(&f);
}

Test(undoing, destroying_waits_for_the_function)
{
    end_while_inside(destroy);
}

Test(undoing, removing_waits_for_the_function)
{
    end_while_inside(remove_function);
}

/* ---- limits ---- */

static uint64_t raise_capacity(struct party *party, const struct moor_pressure *pressure)
{
    (void)pressure;
    set_capacity(party->f, UNITS(5));
    return 0;
}

static uint64_t lower_the_guarantee(struct party *party, const struct moor_pressure *pressure)
{
    (void)pressure;
    EXPECT(MOOR_OK, moor_holder_set_limits(party->user, &(struct moor_holder_limits){0}, 0, NULL));
    return 0;
}

static uint64_t lower_the_set_aside(struct party *party, const struct moor_pressure *pressure)
{
    (void)pressure;
    EXPECT(MOOR_OK, moor_authority_set_aside(party->f->authority, 0));
    return 0;
}

/* Of four units the party has two, and one is guaranteed to somebody, or set aside; two are wanted. */
static void change_limits(party_answer answer)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    struct moor_holder *guaranteed = NULL;
    bool aside = answer == lower_the_set_aside;
    const struct moor_holder_options options = {.limits.guarantee_bytes = aside ? 0 : UNIT};
    set_capacity(&f, UNITS(4));
    party_open(&party, &f, 0, answer);
    party_take(&party, 2);
    EXPECT(MOOR_OK, moor_authority_set_aside(f.authority, aside ? UNIT : 0));
    EXPECT(MOOR_OK, moor_holder_create(f.authority, &options, &guaranteed));
    party.user = guaranteed;
    EXPECT(MOOR_OK, request(&f, UNITS(2)));
    moor__pressure_settle(f.runtime);
    cr_assert_eq(asked_count(), 1);
    EXPECT(MOOR_OK, moor_holder_destroy(guaranteed));
    party_close(&party);
    fixture_close(&f);
}

Test(undoing, limits_may_be_changed_inside)
{
    change_limits(raise_capacity);
    asked.count = 0;
    change_limits(lower_the_guarantee);
    asked.count = 0;
    change_limits(lower_the_set_aside);
}

/* ---- looking ---- */

static uint64_t look_at_everything(struct party *party, const struct moor_pressure *pressure)
{
    struct moor_authority_stats pool;
    struct moor_holder_stats holders[4], own;
    struct moor_ticket_stats ticket;
    struct moor_object_counts counts;
    size_t count = 0;
    EXPECT(MOOR_OK, moor_authority_get_stats(party->f->authority, &pool, holders, 4, &count));
    EXPECT(MOOR_OK, moor_holder_get_stats(party->holder, &own));
    EXPECT(MOOR_OK, moor_runtime_get_counts(party->f->runtime, &counts));
    EXPECT(MOOR_OK, moor_ticket_get_stats(party->f->runtime, pressure->ticket, &ticket));
    EXPECT(MOOR_OK, moor_authority_refresh(party->f->authority));
    EXPECT(MOOR_OK, moor_holder_set_evictable(party->holder, UNITS(2)));
    EXPECT(MOOR_INVALID, moor_ticket_cancel(party->f->runtime, pressure->ticket)); /* not the host's own */
    cr_assert(count == 2 && pool.tickets == 1 && own.asked == 1);
    cr_assert_eq(pool.charged_bytes, own.charged_bytes);
    cr_assert_eq(ticket.bytes, UNITS(2));
    uint64_t given = party_give(party, pressure->bytes);
    EXPECT(MOOR_OK, moor_runtime_reap(party->f->runtime, fixture_soon(LATE_MS)));
    return given;
}

Test(undoing, everything_may_be_looked_at_inside)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    set_capacity(&f, UNITS(4));
    party_open(&party, &f, 0, look_at_everything);
    party_take(&party, 4);
    EXPECT(MOOR_OK, request(&f, UNITS(2)));
    moor__pressure_settle(f.runtime);
    cr_assert_eq(asked_count(), 1);
    party_close(&party);
    fixture_close(&f);
}
