/* SPDX-License-Identifier: MIT */
/* reap waits for a due entry, until its deadline at most, and not at all if nothing is queued; several
 * threads may reap at once. */
#include "fake.h"
#include <criterion/criterion.h>
#include <pthread.h>
#include <unistd.h>

#define MILLISECOND UINT64_C(1000000)
#define FOREVER UINT64_MAX

static struct fake fake;

static void set_up(void)
{
    fake_init(&fake, FOREVER);
}

static void set_up_polling(void)
{
    fake_init(&fake, 0);
}

static void tear_down(void)
{
    fake_finish(&fake);
}

/* Without polling only a wake ends a wait for progress. */
TestSuite(queue_wait, .init = set_up, .fini = tear_down, .timeout = 20);
TestSuite(queue_poll, .init = set_up_polling, .fini = tear_down, .timeout = 20);

/* Reaps at most one completion; returns their number. */
static uint32_t reap_one(uint64_t deadline_ns)
{
    struct moor_abi_completion done;
    uint32_t count = 99;
    cr_assert_eq(moor_kit_queue_reap(fake.queue, &done, sizeof done, 1, deadline_ns, &count, NULL), MOOR_OK);
    return count;
}

/* One reap in a thread of its own. */
struct reaper {
    pthread_t thread;
    uint32_t capacity; /* at most 16 */
    uint32_t count;    /* completions that it returned */
    _Atomic bool returned;
};

static void *reaper_main(void *argument)
{
    struct reaper *reaper = argument;
    struct moor_abi_completion done[16];
    struct moor_abi_error error = {.struct_size = sizeof error};
    cr_expect_eq(moor_kit_queue_reap(fake.queue, done, sizeof done[0], reaper->capacity, FOREVER,
                                     &reaper->count, &error),
                 MOOR_OK);
    reaper->returned = true;
    return NULL;
}

/* Starts a reap that waits for ever. */
static void reaper_start(struct reaper *reaper, uint32_t capacity)
{
    *reaper = (struct reaper){.capacity = capacity, .count = 99};
    cr_assert_eq(pthread_create(&reaper->thread, NULL, reaper_main, reaper), 0);
}

static uint32_t reaper_join(struct reaper *reaper)
{
    cr_assert_eq(pthread_join(reaper->thread, NULL), 0);
    return reaper->count;
}

/* Long enough for a thread to fall asleep, or to show that it does not. */
static void pause_a_little(void)
{
    usleep(50 * 1000);
}

Test(queue_wait, an_empty_queue_is_not_waited_for)
{
    cr_expect_eq(reap_one(FOREVER), 0);
}

Test(queue_wait, a_deadline_ends_the_wait)
{
    cr_assert_eq(fake_release_at(&fake, 1, 0, 1), MOOR_OK);
    uint64_t start_ns = service_clock_ns(NULL);
    uint64_t deadline_ns = start_ns + 30 * MILLISECOND;
    cr_expect_eq(reap_one(deadline_ns), 0);
    cr_expect_geq(service_clock_ns(NULL), deadline_ns);
    cr_expect_eq(reap_one(start_ns), 0, "a deadline that has passed");
    fake_reach(&fake, 0, 1);
    cr_expect_eq(reap_one(start_ns), 1, "it looks even so");
}

static uint64_t far_clock_ns(void *user)
{
    return service_clock_ns(user) + (UINT64_C(1) << 62);
}

Test(queue_poll, the_deadline_is_on_the_hosts_clock)
{
    fake.host.clock_ns = far_clock_ns;
    cr_assert_eq(fake_release_at(&fake, 1, 0, 1), MOOR_OK);
    uint64_t deadline_ns = far_clock_ns(NULL) + 20 * MILLISECOND;
    cr_expect_eq(reap_one(deadline_ns), 0);
    cr_expect_geq(far_clock_ns(NULL), deadline_ns);
    fake_reach(&fake, 0, 1);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
}

Test(queue_poll, polling_sees_progress_without_a_wake)
{
    struct reaper reaper;
    cr_assert_eq(fake_release_at(&fake, 1, 0, 1), MOOR_OK);
    reaper_start(&reaper, 16);
    pause_a_little();
    cr_expect_not(reaper.returned);
    cr_expect_gt(fake.streams[0].reads, 5, "reap scans about every millisecond");
    fake_reach(&fake, 0, 1);
    cr_expect_eq(reaper_join(&reaper), 1);
}

/* Polling is off: only the wake can end the wait. */
Test(queue_wait, wake_makes_reap_scan_again)
{
    struct reaper reaper;
    cr_assert_eq(fake_release_at(&fake, 1, 0, 2), MOOR_OK);
    reaper_start(&reaper, 16);
    pause_a_little();
    fake_reach(&fake, 0, 1);
    moor_kit_queue_wake(fake.queue);
    pause_a_little();
    cr_expect_not(reaper.returned, "its point is not reached");
    cr_expect_leq(fake.streams[0].reads, 3, "reap sleeps between scans");
    fake_reach(&fake, 0, 2);
    moor_kit_queue_wake(fake.queue);
    cr_expect_eq(reaper_join(&reaper), 1);
}

/* The wake comes at any moment of a reap that is about to sleep: none is lost. */
Test(queue_wait, no_wake_is_lost)
{
    for (uint64_t value = 1; value <= 3000; value++) {
        struct reaper reaper;
        cr_assert_eq(fake_release_at(&fake, value, 0, value), MOOR_OK);
        reaper_start(&reaper, 16);
        for (uint64_t spin = 0; spin < value % 300; spin++)
            (void)service_clock_ns(NULL);
        fake_reach(&fake, 0, value);
        moor_kit_queue_wake(fake.queue);
        cr_assert_eq(reaper_join(&reaper), 1);
    }
}

static void move_and_wake(struct fake *self)
{
    self->on_read = NULL;
    fake_reach(self, 0, 1);
    moor_kit_queue_wake(self->queue);
}

/* The worst moment for a wake: the watermark was read, and the reap does not sleep yet. */
Test(queue_wait, a_wake_between_scan_and_sleep_counts)
{
    fake.on_read = move_and_wake;
    struct reaper reaper;
    cr_assert_eq(fake_release_at(&fake, 1, 0, 1), MOOR_OK);
    reaper_start(&reaper, 16);
    cr_expect_eq(reaper_join(&reaper), 1);
}

/* A release with its points already reached gets no wake of its own. */
Test(queue_wait, submit_makes_reap_scan_again)
{
    struct reaper reaper;
    cr_assert_eq(fake_release_at(&fake, 1, 0, 9), MOOR_OK);
    fake_reach(&fake, 1, 1);
    reaper_start(&reaper, 16);
    pause_a_little();
    cr_assert_eq(fake_release_at(&fake, 2, 1, 1), MOOR_OK);
    cr_expect_eq(reaper_join(&reaper), 1);
    cr_expect_eq(fake.freed[0], 2);
    fake_reach(&fake, 0, 9);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
}

/* Only the reap that found more entries than it had room for wakes the sleepers. */
Test(queue_wait, one_reap_takes_entries_that_another_has_left)
{
    struct reaper reapers[2];
    for (uint64_t handle = 1; handle <= 3; handle++)
        cr_assert_eq(fake_release_at(&fake, handle, 0, 1), MOOR_OK);
    for (size_t i = 0; i < 2; i++)
        reaper_start(&reapers[i], 1);
    pause_a_little();
    fake_reach(&fake, 0, 1);
    cr_expect_eq(reap_one(0), 1);
    for (size_t i = 0; i < 2; i++)
        cr_expect_eq(reaper_join(&reapers[i]), 1);
}

static pthread_barrier_t both_free;

static void meet_the_other(struct fake *self)
{
    pthread_barrier_wait(&both_free);
}

/* Two frees wait for each other: they end only if they run at once. */
Test(queue_poll, several_free_at_once)
{
    cr_assert_eq(pthread_barrier_init(&both_free, NULL, 2), 0);
    fake.on_free = meet_the_other;
    struct reaper reapers[2];
    for (uint64_t handle = 1; handle <= 2; handle++)
        cr_assert_eq(fake_release(&fake, handle, NULL, 0), MOOR_OK);
    for (size_t i = 0; i < 2; i++)
        reaper_start(&reapers[i], 1);
    for (size_t i = 0; i < 2; i++)
        cr_expect_eq(reaper_join(&reapers[i]), 1);
    pthread_barrier_destroy(&both_free);
}

static _Atomic bool let_go;

static void wait_for_let_go(struct fake *self)
{
    while (!let_go)
        usleep(1000);
}

/* One reap is freeing the last entry. Another reap that waits is woken when that entry has completed, and has
 * nothing to wait for. */
Test(queue_wait, the_last_completion_ends_the_other_waits)
{
    fake.on_free = wait_for_let_go;
    struct reaper first;
    struct reaper second;
    cr_assert_eq(fake_release(&fake, 1, NULL, 0), MOOR_OK);
    reaper_start(&first, 16);
    while (fake.free_count == 0)
        usleep(1000);
    cr_expect_eq(moor_kit_queue_length(fake.queue), 1, "not reaped yet");
    reaper_start(&second, 16);
    pause_a_little();
    cr_expect_not(second.returned);
    let_go = true;
    cr_expect_eq(reaper_join(&first), 1);
    cr_expect_eq(reaper_join(&second), 0);
}
