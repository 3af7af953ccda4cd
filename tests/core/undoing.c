/* SPDX-License-Identifier: MIT */
/*
 * Pressure functions that change the governor during their call: they remove themselves, destroy holders,
 * change limits and read all statistics; and calls of other threads on a holder during its pressure function.
 */
#include "asked.h"

TestSuite(undoing, .timeout = 120);

/* Releases all units and the binding, so that only the pressure request keeps the holder. */
static void leave(struct party *party)
{
    (void)party_evict(party, UINT64_MAX);
    fixture_reap(party->f);
    EXPECT(MOOR_OK, moor_binding_close(party->binding));
    party->binding = NULL;
}

/* ---- the function itself ---- */

static uint64_t remove_and_give(struct party *party, const struct moor_pressure *pressure)
{
    EXPECT(MOOR_OK, moor_holder_set_pressure(party->holder, NULL, NULL));
    (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* the requester still waits */
    return party_evict(party, pressure->bytes);
}

FIXTURE_TEST(undoing, a_pressure_function_may_remove_itself)
{
    clock_stop(f);
    fixture_set_capacity(f, UNITS(4));
    struct party *party = party_open(f, 0, 4, remove_and_give);
    moor_grant grant = fixture_reserve(f, UNIT); /* the evicted unit counts */
    cr_assert_eq(party_stats(party).evicted_bytes, UNIT);
    SHORT(MOOR_OVER_BUDGET, UNIT, moor_grant_reserve(f->holder, UNIT, MOOR_NO_WAIT, &grant));
    cr_assert_eq(asked_count(), 1);
    EXPECT(MOOR_OK, moor_holder_set_pressure(party->holder, party_asked, party));
    atomic_store(&party->answer, evict_requested);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    EXPECT(MOOR_OK, moor_grant_reserve(f->holder, UNITS(2), MOOR_NO_WAIT, &grant));
    cr_assert_eq(asked_count(), 2);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
}

static uint64_t replace_and_give(struct party *party, const struct moor_pressure *pressure)
{
    EXPECT(MOOR_OK, moor_holder_set_pressure(party->holder, party_asked, party->user));
    return party_evict(party, pressure->bytes);
}

/* The replacing function is called the next time, with its own user pointer. */
FIXTURE_TEST(undoing, a_pressure_function_may_replace_itself)
{
    struct party other = {0};
    fixture_set_capacity(f, UNITS(4));
    struct party *party = party_open(f, 0, 4, replace_and_give);
    party->user = &other;
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, fixture_soon(LATE_MS)));
    (void)fixture_lease(f, f->holder, UNIT);
    moor_grant grant = 0;
    EXPECT(MOOR_NO_VICTIM, moor_grant_reserve(f->holder, UNIT, MOOR_NO_WAIT, &grant));
    cr_assert(party->left == 1 && other.left == 1);
}

static uint64_t destroy_itself(struct party *party, const struct moor_pressure *pressure)
{
    uint64_t had = party_has(party);
    EXPECT(MOOR_BUSY, moor_holder_destroy(party->holder)); /* the holder still has its units */
    leave(party);
    EXPECT(MOOR_OK, moor_holder_destroy(party->holder));
    party->holder = NULL;
    struct moor_authority_stats stats = fixture_stats(party->f);
    cr_assert_eq(stats.holder_count, 1, "the holder is gone for all other threads");
    return had;
}

FIXTURE_TEST(undoing, a_pressure_function_may_destroy_its_own_holder)
{
    struct moor_holder_stats stats[4];
    struct moor_authority_stats pool;
    size_t count = 0;
    fixture_set_capacity(f, UNITS(4));
    (void)party_open(f, 0, 4, destroy_itself);
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNITS(4), fixture_soon(LATE_MS)));
    moor__pressure_settle(f->runtime);
    EXPECT(MOOR_OK, moor_authority_get_stats(f->authority, &pool, stats, 4, &count));
    cr_assert(count == 1 && pool.holder_count == 1);
}

/* ---- others ---- */

/* The calls of one party on another party's holder, and their statuses. */
struct attack {
    struct party *victim;
    int inside; /* 1: the victim's function must be running */
    moor_status destroyed;
    moor_status removed;
};

static uint64_t attack(struct party *party, const struct moor_pressure *pressure)
{
    struct attack *attack = party->user;
    fixture_await(&attack->victim->entered, attack->inside);
    attack->removed = moor_holder_set_pressure(attack->victim->holder, NULL, NULL);
    attack->destroyed = moor_holder_destroy(attack->victim->holder);
    return party_evict(party, pressure->bytes);
}

FIXTURE_TEST(undoing, a_pressure_function_may_destroy_an_idle_holder)
{
    fixture_set_capacity(f, UNITS(4));
    struct party *party = party_open(f, 0, 4, attack);
    struct party *idle = party_open(f, 0, 0, evict_all);
    struct attack it = {.victim = idle, .destroyed = MOOR_PROVIDER};
    party->user = &it;
    leave(idle);
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, fixture_soon(LATE_MS)));
    cr_assert_eq(it.removed, MOOR_OK, "%s", moor_status_name(it.removed));
    cr_assert_eq(it.destroyed, MOOR_OK, "%s", moor_status_name(it.destroyed));
    cr_assert_eq(fixture_stats(f).holder_count, 2);
    idle->holder = NULL;
}

static _Atomic int stays;

static uint64_t leave_and_stay(struct party *party, const struct moor_pressure *pressure)
{
    uint64_t had = party_has(party);
    leave(party);
    atomic_fetch_add(&stays, 1);
    await_gate(party);
    return had;
}

/* The other party is inside its function: a call from inside a pressure function does not wait for it. */
FIXTURE_TEST(undoing, a_holder_in_its_function_is_busy_for_other_functions)
{
    struct waiter waiter;
    fixture_set_capacity(f, UNITS(4));
    struct party *busy = party_open(f, -1, 1, leave_and_stay);
    struct party *party = party_open(f, 0, 3, attack);
    struct attack it = {.victim = busy, .inside = 1};
    party->user = &it;
    waiter_start(&waiter, f->holder, UNITS(3), fixture_soon(LATE_MS));
    waiter_end(f, &waiter, MOOR_OK);
    fixture_await(&party->left, 1);
    cr_assert(busy->entered == 1 && busy->left == 0);
    cr_assert_eq(it.removed, MOOR_BUSY, "%s", moor_status_name(it.removed));
    cr_assert_eq(it.destroyed, MOOR_BUSY, "%s", moor_status_name(it.destroyed));
    fixture_await(&stays, 1);
    atomic_store(&busy->gate, 1);
    party_close(busy); /* a call from outside waits */
    cr_assert_eq(busy->left, 1);
}

static _Atomic int met;
static _Atomic int parted;

static uint64_t leave_and_attack(struct party *party, const struct moor_pressure *pressure)
{
    struct attack *attack = party->user;
    uint64_t had = party_has(party);
    leave(party);
    atomic_fetch_add(&met, 1);
    fixture_await(&met, 2);
    attack->destroyed = moor_holder_destroy(attack->victim->holder);
    atomic_fetch_add(&parted, 1);
    fixture_await(&parted, 2);
    return had;
}

FIXTURE_TEST(undoing, two_that_destroy_each_other_are_both_busy)
{
    struct party *parties[2];
    struct attack attacks[2] = {0};
    fixture_set_capacity(f, UNITS(4));
    for (size_t i = 0; i < 2; i++) {
        parties[i] = party_open(f, 0, 2, leave_and_attack);
        parties[i]->user = &attacks[i];
        attacks[1 - i].victim = parties[i];
    }
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNITS(4), fixture_soon(LATE_MS)));
    for (size_t i = 0; i < 2; i++) {
        fixture_await(&parties[i]->left, 1);
        cr_assert_eq(attacks[i].destroyed, MOOR_BUSY, "%s", moor_status_name(attacks[i].destroyed));
    }
}

/* ---- by the host's threads ---- */

struct ending {
    pthread_t thread;
    struct party *party;
    bool destroys; /* false: only the function is removed */
    moor_status status;
    _Atomic int began;
    _Atomic int done;
};

static void *end_party(void *user)
{
    struct ending *ending = user;
    atomic_store(&ending->began, 1);
    ending->status = ending->destroys ? moor_holder_destroy(ending->party->holder)
                                      : moor_holder_set_pressure(ending->party->holder, NULL, NULL);
    atomic_store(&ending->done, 1);
    return NULL;
}

/* Destroys the party, or removes its function, while the function runs. */
static void end_while_inside(struct fixture *f, bool destroys)
{
    fixture_set_capacity(f, UNITS(4));
    struct party *party = party_open(f, 0, 4, leave_and_stay);
    struct ending ending = {.party = party, .destroys = destroys};
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNIT, fixture_soon(LATE_MS)));
    fixture_await(&stays, 1);
    cr_assert_eq(party->left, 0);
    cr_assert_eq(pthread_create(&ending.thread, NULL, end_party, &ending), 0);
    fixture_await(&ending.began, 1);
    (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* time for an early return */
    cr_assert_eq(ending.done, 0, "the call has not waited for the function");
    EXPECT(MOOR_OK,
           try_reserve(f, f->holder, UNITS(4), fixture_soon(LATE_MS))); /* meanwhile requests are served */
    atomic_store(&party->gate, 1);
    join(ending.thread);
    cr_assert_eq(party->left, 1);
    cr_assert_eq(ending.status, MOOR_OK, "%s", moor_status_name(ending.status));
    if (destroys)
        party->holder = NULL;
}

FIXTURE_TEST(undoing, destroying_waits_for_the_function)
{
    end_while_inside(f, true);
}

FIXTURE_TEST(undoing, removing_waits_for_the_function)
{
    end_while_inside(f, false);
}

/* ---- limits ---- */

static uint64_t raise_capacity(struct party *party, const struct moor_pressure *pressure)
{
    fixture_set_capacity(party->f, UNITS(5));
    return 0;
}

static uint64_t lower_the_guarantee(struct party *party, const struct moor_pressure *pressure)
{
    set_limits(party->user, LIMITS(0));
    return 0;
}

static uint64_t lower_the_reserve(struct party *party, const struct moor_pressure *pressure)
{
    EXPECT(MOOR_OK, moor_authority_set_aside(party->f->authority, 0));
    return 0;
}

/* The party has two of four units, and one is guaranteed to another holder or in the emergency reserve; two
 * are requested. */
static void change_limits(struct fixture *f, party_answer answer, uint64_t guarantee, uint64_t reserve)
{
    fixture_set_capacity(f, UNITS(4));
    struct party *party = party_open(f, 0, 2, answer);
    EXPECT(MOOR_OK, moor_authority_set_aside(f->authority, reserve));
    party->user = fixture_holder(f, LIMITS(.guarantee_bytes = guarantee));
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNITS(2), fixture_soon(LATE_MS)));
    moor__pressure_settle(f->runtime);
    cr_assert_eq(asked_count(), 1);
}

FIXTURE_TEST(undoing, a_pressure_function_may_raise_the_capacity)
{
    change_limits(f, raise_capacity, UNIT, 0);
}

FIXTURE_TEST(undoing, a_pressure_function_may_lower_a_guarantee)
{
    change_limits(f, lower_the_guarantee, UNIT, 0);
}

FIXTURE_TEST(undoing, a_pressure_function_may_lower_the_emergency_reserve)
{
    change_limits(f, lower_the_reserve, 0, UNIT);
}

/* ---- reading statistics ---- */

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
    EXPECT(MOOR_INVALID, moor_ticket_cancel(party->f->runtime, pressure->ticket)); /* the core's own ticket */
    cr_assert(count == 2 && pool.tickets == 1 && own.asked == 1);
    cr_assert_eq(pool.charged_bytes, own.charged_bytes);
    cr_assert_eq(ticket.bytes, UNITS(2));
    uint64_t given = party_evict(party, pressure->bytes);
    EXPECT(MOOR_OK, moor_runtime_reap(party->f->runtime, fixture_soon(LATE_MS)));
    return given;
}

FIXTURE_TEST(undoing, all_statistics_may_be_read_inside)
{
    fixture_set_capacity(f, UNITS(4));
    (void)party_open(f, 0, 4, look_at_everything);
    EXPECT(MOOR_OK, try_reserve(f, f->holder, UNITS(2), fixture_soon(LATE_MS)));
    moor__pressure_settle(f->runtime);
    cr_assert_eq(asked_count(), 1);
}
