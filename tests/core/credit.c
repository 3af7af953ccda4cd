/* SPDX-License-Identifier: MIT */
/*
 * Credit of threads is exact: no limit is exceeded by one byte, no request is refused while there is room,
 * and the credit of idle threads does not count as use. Each test makes sure that there is credit, because
 * otherwise it would show nothing.
 */
#include "crew.h"

#include <linux/membarrier.h>
#include <stdarg.h>
#include <sys/syscall.h>

TestSuite(credit, .timeout = 120);

/* ---- to the last byte ---- */

/* Only a request that does not fit is refused: its bytes and the attempted bytes of all threads are then more
 * than the capacity. No thread releases anything meanwhile, so the sum is still valid after the refusal. */
static void *take_to_the_end(void *user)
{
    struct hand *hand = user;
    struct crew *crew = hand->crew;
    for (uint64_t bytes = 1 + hand_random(hand) % KIB(200); bytes;) {
        atomic_fetch_add(&crew->attempted, bytes);
        moor_status status = hand_take(hand, bytes);
        if (status == MOOR_OK) {
            bytes = 1 + hand_random(hand) % KIB(200);
            continue;
        }
        cr_assert_eq(status, MOOR_OVER_BUDGET, "%s: %s", moor_status_name(status), moor_last_error()->text);
        cr_assert_gt(atomic_load(&crew->attempted), crew->most_bytes, "refused although there was room");
        atomic_fetch_sub(&crew->attempted, bytes);
        bytes /= 2;
    }
    return NULL;
}

static void check_to_the_end(struct crew *crew)
{
    for (int turn = 0; turn < 12; turn++) {
        atomic_store(&crew->attempted, 0);
        crew_run(crew, take_to_the_end);
        uint64_t sum = 0;
        for (size_t i = 0; i < HANDS; i++)
            sum += crew->hands[i].bytes;
        cr_assert_eq(sum, crew->most_bytes, "%llu bytes of %llu are reserved", (unsigned long long)sum,
                     (unsigned long long)crew->most_bytes);
        cr_assert_eq(fixture_stats(&crew->f).reserved_bytes, sum);
        crew_run(crew, hand_give_all); /* other threads release the grants */
        cr_assert_eq(fixture_stats(&crew->f).reserved_bytes, 0);
    }
}

CREW_TEST_BOTH(credit, a_capacity_is_used_to_the_last_byte)
{
    crew->most_bytes = MIB(7) + 12345;
    fixture_set_capacity(&crew->f, crew->most_bytes);
    check_to_the_end(crew);
    for (size_t i = 0; i < HANDS; i++)
        crew->hands[i].holder = fixture_holder(&crew->f, LIMITS(0));
    check_to_the_end(crew);
}

CREW_TEST_BOTH(credit, a_limit_is_used_to_the_last_byte)
{
    crew->most_bytes = MIB(5) + 1;
    const struct moor_holder_limits limits = {.limit_bytes = crew->most_bytes};
    EXPECT(MOOR_OK, moor_holder_set_limits(crew->f.holder, &limits, 0, NULL));
    check_to_the_end(crew);
}

/* Threads take and release. The granted bytes never exceed the capacity. */
static void *take_and_give(void *user)
{
    struct hand *hand = user;
    struct crew *crew = hand->crew;
    for (int i = 0; i < 4000; i++) {
        uint64_t bytes = 1 + hand_random(hand) % KIB(150);
        if (hand_take(hand, bytes) == MOOR_OK)
            cr_assert_leq(atomic_fetch_add(&crew->held, bytes) + bytes, crew->most_bytes,
                          "more than the capacity");
        else
            cr_assert_eq(moor_last_error()->status, MOOR_OVER_BUDGET);
        if (hand->count == 0 || hand_random(hand) % 16)
            continue;
        atomic_fetch_sub(&crew->held, hand->bytes);
        (void)hand_give_all(hand);
    }
    atomic_fetch_sub(&crew->held, hand->bytes);
    return hand_give_all(hand);
}

CREW_TEST_BOTH(credit, no_more_is_ever_reserved_than_there_is)
{
    crew->most_bytes = MIB(9) + 7;
    fixture_set_capacity(&crew->f, crew->most_bytes);
    crew_run(crew, take_and_give);
    cr_assert_eq(fixture_stats(&crew->f).reserved_bytes, 0);
}

/* ---- while threads are inside ---- */

/* Reserves, charges and refunds from its thread account, without a pause. */
static void *be_inside(void *user)
{
    struct hand *hand = user;
    struct moor_runtime *runtime = hand->crew->f.runtime;
    moor_grant grant;
    moor_lease lease;
    while (!atomic_load_explicit(&hand->crew->go, memory_order_relaxed)) {
        EXPECT(MOOR_OK, moor_grant_reserve(hand->holder, KIB(3), MOOR_NO_WAIT, &grant));
        EXPECT(MOOR_OK, moor_grant_commit(runtime, grant, KIB(2), &lease));
        EXPECT(MOOR_OK, moor_lease_refund(runtime, lease));
    }
    return NULL;
}

/* A thread has three kilobytes at most at any moment, and a snapshot contains all of them. Few threads are
 * inside the governor during the snapshot; of many threads some are stopped there. */
static void check_snapshots(struct crew *crew, size_t hands)
{
    struct moor_holder_stats stats;
    atomic_store(&crew->go, 0);
    for (size_t i = 0; i < hands; i++)
        hand_start(&crew->hands[i], be_inside);
    for (uint64_t end_ns = fixture_soon(1000); moor_clock_ns() < end_ns;) {
        EXPECT(MOOR_OK, moor_holder_get_stats(crew->f.holder, &stats));
        cr_assert_leq(stats.reserved_bytes, hands * KIB(3));
        cr_assert_leq(stats.charged_bytes, hands * KIB(2));
        struct moor_authority_stats all = fixture_stats(&crew->f);
        cr_assert_eq(all.free_bytes, all.capacity_bytes - all.reserved_bytes - all.charged_bytes,
                     "%llu bytes are reserved, %llu charged, %llu free",
                     (unsigned long long)all.reserved_bytes, (unsigned long long)all.charged_bytes,
                     (unsigned long long)all.free_bytes);
    }
    atomic_store(&crew->go, 1);
    for (size_t i = 0; i < hands; i++)
        hand_join(&crew->hands[i]);
    EXPECT(MOOR_OK, moor_holder_get_stats(crew->f.holder, &stats));
    cr_assert_eq(stats.reserved_bytes + stats.charged_bytes + crew->f.holder->has, 0, "bytes are left");
}

CREW_TEST_BOTH(credit, snapshots_of_threads_that_do_not_stand_still)
{
    check_snapshots(crew, 1);
    check_snapshots(crew, HANDS);
}

/* ---- barriers ---- */

/* --wrap sends the core's system calls here. */
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static _Atomic int barriers;

long __wrap_syscall(long number, ...)
{
    va_list list;
    va_start(list, number);
    long first = va_arg(list, long), second = va_arg(list, long), third = va_arg(list, long);
    va_end(list);
    if (number == SYS_membarrier && (int)first == MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        atomic_fetch_add(&barriers, 1);
    return __real_syscall(number, first, second, third);
}

static void expect_barrier(struct crew *crew, const char *when)
{
    cr_assert_gt(atomic_exchange(&barriers, 0), 0, "no barrier %s", when);
    hand_get_credit(&crew->hands[0]);
    cr_assert_eq(atomic_exchange(&barriers, 0), 0, "a barrier for a small request");
}

/* A thread that empties the thread accounts makes all threads pass a barrier. Few runs would show a missing
 * one. */
CREW_TEST(credit, is_taken_back_behind_a_barrier)
{
    moor_grant grant;
    moor_ticket ticket;
    if (!moor__has_membarrier)
        cr_skip("the system has no membarrier");
    (void)fixture_stats(&crew->f);
    hand_get_credit(&crew->hands[0]);
    atomic_store(&barriers, 0);
    (void)fixture_stats(&crew->f);
    expect_barrier(crew, "for a snapshot");
    const struct moor_holder_limits limits = {.limit_bytes = MIB(40)};
    EXPECT(MOOR_OK, moor_holder_set_limits(crew->f.holder, &limits, 0, NULL));
    expect_barrier(crew, "for other limits");
    fixture_set_capacity(&crew->f, MIB(60));
    expect_barrier(crew, "for another capacity");
    EXPECT(MOOR_OK, moor_grant_reserve(crew->f.holder, MIB(40), MOOR_NO_WAIT, &grant));
    EXPECT(MOOR_OK, moor_grant_release(crew->f.runtime, grant));
    expect_barrier(crew, "for a request that would have been refused");
    const struct moor_request request = {crew->f.holder, 1};
    EXPECT(MOOR_OK, moor_ticket_open(&request, 1, MOOR_FOREVER, &ticket));
    EXPECT(MOOR_OK, moor_ticket_cancel(crew->f.runtime, ticket));
    expect_barrier(crew, "for a ticket");
}

/* ---- idle credit ---- */

CREW_TEST(credit, the_credit_of_idle_threads_is_available_to_others)
{
    const uint64_t capacity = MIB(20) + 3;
    moor_grant more;
    fixture_set_capacity(&crew->f, capacity);
    crew_sit(crew);
    cr_assert_gt(crew->f.holder->has, 0, "the threads hold no credit, so this shows nothing");
    (void)fixture_reserve(&crew->f, capacity);
    EXPECT(MOOR_OVER_BUDGET, moor_grant_reserve(crew->f.holder, 1, MOOR_NO_WAIT, &more));
    crew_stand_up(crew);
}

/* Credit counts neither as use nor against a new limit. */
CREW_TEST(credit, limits_do_not_count_the_credit_of_idle_threads)
{
    uint64_t over = 99;
    (void)fixture_reserve(&crew->f, MIB(3));
    crew_sit(crew);
    cr_assert_gt(crew->f.holder->has, MIB(3));
    struct moor_holder_limits limits = {.limit_bytes = MIB(3)};
    EXPECT(MOOR_OK, moor_holder_set_limits(crew->f.holder, &limits, 0, &over));
    cr_assert_eq(over, 0);
    limits.limit_bytes--;
    EXPECT(MOOR_OK, moor_holder_set_limits(crew->f.holder, &limits, 0, &over));
    cr_assert_eq(over, 1);
    limits.limit_bytes = 0;
    EXPECT(MOOR_OK, moor_holder_set_limits(crew->f.holder, &limits, 0, NULL));
    crew_stand_up(crew);
    crew_sit(crew);
    cr_assert_gt(crew->f.holder->has, MIB(3));
    EXPECT(MOOR_OK, moor_authority_set_capacity(crew->f.authority, MIB(3), 0, &over));
    cr_assert_eq(over, 0);
    EXPECT(MOOR_OK, moor_authority_set_capacity(crew->f.authority, MIB(3) - 5, 0, &over));
    cr_assert_eq(over, 5);
    fixture_set_capacity(&crew->f, MIB(64));
    struct moor_holder *other = fixture_holder(&crew->f, LIMITS(.guarantee_bytes = MIB(61)));
    cr_assert_eq(fixture_stats(&crew->f).over_bytes, 0, "all guaranteed bytes are available");
    EXPECT(MOOR_OK, moor_holder_destroy(fixture_disown(other)));
    crew_stand_up(crew);
}

/* A holder is unused although threads have credit of it. */
CREW_TEST(credit, holders_end_although_threads_have_credit_of_them)
{
    struct moor_holder *holder = fixture_holder(&crew->f, LIMITS(0));
    for (size_t i = 0; i < HANDS; i++)
        crew->hands[i].holder = holder;
    crew_sit(crew);
    cr_assert_gt(holder->has, 0);
    EXPECT(MOOR_OK, moor_holder_destroy(fixture_disown(holder)));
    cr_assert_eq(crew->f.authority->sums.has, 0);
    crew_stand_up(crew);
}

CREW_TEST(credit, there_is_little_of_it)
{
    struct hand *hand = &crew->hands[0];
    for (int i = 0; i < 200; i++) /* 40 MiB, most of it from the account; this thread releases all of it */
        EXPECT(MOOR_OK, hand_take(hand, KIB(200)));
    (void)hand_give_all(hand);
    uint64_t credit = crew_credit_of(crew->f.holder);
    cr_assert(credit > 0 && credit <= MOOR_CREDIT_BYTES, "%llu bytes are credit", (unsigned long long)credit);
}

/* While a request waits, and immediately after the last one has ended. */
CREW_TEST(credit, no_thread_has_credit_while_a_request_waits)
{
    struct hand *hand = &crew->hands[0];
    moor_ticket ticket;
    fixture_set_capacity(&crew->f, MIB(20));
    (void)fixture_reserve(&crew->f, MIB(1));
    const struct moor_request request = {crew->f.holder, MIB(20)};
    EXPECT(MOOR_OK, moor_ticket_open(&request, 1, MOOR_FOREVER, &ticket));
    hand_get_credit(hand);
    cr_assert_eq(crew->f.holder->has, MIB(1));
    EXPECT(MOOR_OK, moor_ticket_cancel(crew->f.runtime, ticket));
    hand_get_credit(hand);
    cr_assert_gt(crew->f.holder->has, MIB(1));
}
