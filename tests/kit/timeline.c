/* SPDX-License-Identifier: MIT */
/* Values are recorded as 1, 2, 3 ... and never decrease; waits end at their value, their deadline or a
 * failure. */
#include "fake.h"
#include "malloc_fail.h"
#include <criterion/criterion.h>
#include <moorage/kit/timeline.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define MILLISECOND UINT64_C(1000000)

static const struct moor_abi_host host = {.clock_ns = service_clock_ns};
static struct moor_kit_timeline *timeline;

static void set_up(void)
{
    cr_assert_eq(moor_kit_timeline_create(&host, &timeline), MOOR_OK);
}

static void tear_down(void)
{
    moor_kit_timeline_destroy(timeline);
}

TestSuite(timeline, .init = set_up, .fini = tear_down, .timeout = 20);

static uint64_t watermark(void)
{
    uint64_t value = UINT64_MAX;
    cr_assert_eq(moor_kit_timeline_watermark(timeline, &value), MOOR_OK);
    return value;
}

static void record(uint64_t count)
{
    while (count-- > 0)
        (void)moor_kit_timeline_record(timeline);
}

Test(timeline, values_count_from_one)
{
    cr_expect_eq(watermark(), 0);
    for (uint64_t value = 1; value <= 5; value++)
        cr_expect_eq(moor_kit_timeline_record(timeline), value);
    cr_expect_eq(watermark(), 0, "recording reaches nothing");
}

Test(timeline, values_that_were_never_recorded_are_refused)
{
    struct moor_abi_error error = {.struct_size = sizeof error};
    cr_expect_eq(moor_kit_timeline_check_recorded(timeline, 0, &error), MOOR_OK,
                 "every timeline starts at 0");
    cr_expect_eq(moor_kit_timeline_check_recorded(timeline, 1, &error), MOOR_INVALID);
    record(2);
    cr_expect_eq(moor_kit_timeline_check_recorded(timeline, 2, &error), MOOR_OK, "recorded, not reached");
    cr_expect_eq(moor_kit_timeline_check_recorded(timeline, 3, &error), MOOR_INVALID);
    cr_expect_not_null(strstr(error.text, "value 3 was never recorded; the last one is 2"), "%s", error.text);
}

Test(timeline, the_watermark_never_goes_back)
{
    record(9);
    moor_kit_timeline_signal(timeline, 5);
    cr_expect_eq(watermark(), 5);
    moor_kit_timeline_signal(timeline, 3);
    cr_expect_eq(watermark(), 5);
    moor_kit_timeline_signal(timeline, 9);
    cr_expect_eq(watermark(), 9);
}

Test(timeline, a_reached_value_is_not_waited_for)
{
    record(3);
    moor_kit_timeline_signal(timeline, 2);
    cr_expect_eq(moor_kit_timeline_wait(timeline, 0, UINT64_MAX), MOOR_OK);
    cr_expect_eq(moor_kit_timeline_wait(timeline, 1, UINT64_MAX), MOOR_OK);
    cr_expect_eq(moor_kit_timeline_wait(timeline, 2, 0), MOOR_OK);
    cr_expect_eq(moor_kit_timeline_wait(timeline, 3, 0), MOOR_TIMEOUT);
}

Test(timeline, a_value_that_was_never_recorded_is_invalid)
{
    record(2);
    cr_expect_eq(moor_kit_timeline_wait(timeline, 3, UINT64_MAX), MOOR_INVALID);
    cr_expect_eq(moor_kit_timeline_wait(timeline, UINT64_MAX, UINT64_MAX), MOOR_INVALID);
}

Test(timeline, a_deadline_ends_the_wait)
{
    record(1);
    uint64_t deadline_ns = service_clock_ns(NULL) + 20 * MILLISECOND;
    cr_expect_eq(moor_kit_timeline_wait(timeline, 1, deadline_ns), MOOR_TIMEOUT);
    cr_expect_geq(service_clock_ns(NULL), deadline_ns);
    cr_expect_eq(moor_kit_timeline_wait(timeline, 1, 1), MOOR_TIMEOUT, "a deadline long past");
}

struct waiter {
    pthread_t thread;
    uint64_t value;
    int32_t status;
    _Atomic bool returned;
};

static void *waiter_main(void *argument)
{
    struct waiter *waiter = argument;
    waiter->status = moor_kit_timeline_wait(timeline, waiter->value, UINT64_MAX);
    waiter->returned = true;
    return NULL;
}

static void waiter_start(struct waiter *waiter, uint64_t value)
{
    *waiter = (struct waiter){.value = value, .status = 99};
    cr_assert_eq(pthread_create(&waiter->thread, NULL, waiter_main, waiter), 0);
}

static int32_t waiter_join(struct waiter *waiter)
{
    cr_assert_eq(pthread_join(waiter->thread, NULL), 0);
    return waiter->status;
}

Test(timeline, signal_wakes_waiters_of_reached_values)
{
    struct waiter waiters[3];
    record(3);
    for (uint64_t i = 0; i < 3; i++)
        waiter_start(&waiters[i], i + 1);
    usleep(30 * 1000);
    moor_kit_timeline_signal(timeline, 2);
    cr_expect_eq(waiter_join(&waiters[0]), MOOR_OK);
    cr_expect_eq(waiter_join(&waiters[1]), MOOR_OK);
    cr_expect_not(waiters[2].returned);
    moor_kit_timeline_signal(timeline, 3);
    cr_expect_eq(waiter_join(&waiters[2]), MOOR_OK);
}

Test(timeline, a_failure_wakes_every_waiter_and_stays)
{
    struct waiter waiters[2];
    record(3);
    moor_kit_timeline_signal(timeline, 1);
    waiter_start(&waiters[0], 2);
    waiter_start(&waiters[1], 3);
    usleep(30 * 1000);
    moor_kit_timeline_fail(timeline, MOOR_DEVICE_LOST);
    cr_expect_eq(waiter_join(&waiters[0]), MOOR_DEVICE_LOST);
    cr_expect_eq(waiter_join(&waiters[1]), MOOR_DEVICE_LOST);

    moor_kit_timeline_signal(timeline, 3);
    moor_kit_timeline_fail(timeline, MOOR_OVERFLOW);
    uint64_t value = 77;
    cr_expect_eq(moor_kit_timeline_watermark(timeline, &value), MOOR_DEVICE_LOST);
    cr_expect_eq(value, 77, "outputs are untouched on failure");
    cr_expect_eq(moor_kit_timeline_wait(timeline, 1, 0), MOOR_DEVICE_LOST);
    cr_expect_eq(moor_kit_timeline_wait(timeline, 9, 0), MOOR_INVALID);
}

static pthread_barrier_t all_started;

static void *record_many(void *argument)
{
    uint64_t *sum = argument;
    pthread_barrier_wait(&all_started);
    for (int i = 0; i < 100000; i++)
        *sum += moor_kit_timeline_record(timeline);
    return NULL;
}

Test(timeline, each_value_is_returned_once)
{
    pthread_t threads[4];
    uint64_t sums[4] = {0};
    cr_assert_eq(pthread_barrier_init(&all_started, NULL, 4), 0);
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, record_many, &sums[i]), 0);
    uint64_t sum = 0;
    for (size_t i = 0; i < 4; i++) {
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
        sum += sums[i];
    }
    pthread_barrier_destroy(&all_started);
    cr_expect_eq(sum, UINT64_C(400000) * 400001 / 2);
}

Test(timeline, signalling_a_value_that_was_never_recorded_aborts, .signal = SIGABRT)
{
    record(1);
    moor_kit_timeline_signal(timeline, 2);
}

Test(timeline, create_fails_cleanly)
{
    struct moor_kit_timeline *none = NULL;
    malloc_fail_at(1);
    cr_expect_eq(moor_kit_timeline_create(&host, &none), MOOR_HOST_NOMEM);
    malloc_fail_at(0);
    cr_expect_null(none);
    moor_kit_timeline_destroy(NULL);
}
