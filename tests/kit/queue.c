/* SPDX-License-Identifier: MIT */
/* Nothing is freed before all its fence points (I4), and each accepted release yields exactly one completion.
 */
#include "fake.h"
#include <criterion/criterion.h>
#include <string.h>

static struct fake fake;

static void set_up(void)
{
    fake_init(&fake, 0);
}

static void tear_down(void)
{
    fake_finish(&fake);
}

TestSuite(queue, .init = set_up, .fini = tear_down, .timeout = 20);

Test(queue, frees_at_its_point_and_not_before)
{
    struct moor_abi_completion done[16];
    cr_assert_eq(fake_release_at(&fake, 3, 0, 5), MOOR_OK);
    cr_expect_eq(moor_kit_queue_length(fake.queue), 1);
    cr_expect_eq(fake.free_count, 0, "submit never frees");
    fake_reach(&fake, 0, 4);
    cr_expect_eq(fake_reap(&fake, NULL), 0);
    cr_expect_eq(fake.free_count, 0);

    fake_reach(&fake, 0, 5);
    memset(done, 0xff, sizeof done);
    cr_assert_eq(fake_reap(&fake, done), 1);
    cr_expect_eq(fake.free_count, 1);
    cr_expect_eq(fake.freed[0], 3);
    cr_expect_eq(done[0].cookie, 1003);
    cr_expect_eq(done[0].actual_bytes, 3 * FAKE_BYTES_PER_HANDLE);
    cr_expect_eq(done[0].status, MOOR_OK);
    cr_expect_eq(done[0].reserved, 0);
    cr_expect_eq(fake_reap(&fake, NULL), 0, "exactly one completion");
}

Test(queue, without_points_it_is_due_at_once)
{
    cr_assert_eq(fake_release(&fake, 1, NULL, 0), MOOR_OK);
    cr_expect_eq(fake.free_count, 0);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
}

Test(queue, value_zero_is_always_reached)
{
    cr_assert_eq(fake_release_at(&fake, 1, 0, 0), MOOR_OK);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
}

Test(queue, values_come_in_any_order)
{
    static const uint64_t values[] = {7, 2, 9, 4, 1, 8, 3, 6, 5};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        cr_assert_eq(fake_release_at(&fake, values[i], 0, values[i]), MOOR_OK);
    for (uint64_t value = 1; value <= 9; value++) {
        fake_reach(&fake, 0, value);
        cr_assert_eq(fake_reap(&fake, NULL), 1);
        cr_expect_eq(fake.freed[value - 1], value);
    }
}

Test(queue, due_entries_complete_in_the_order_of_values)
{
    static const uint64_t values[] = {3, 1, 4, 2};
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(fake_release_at(&fake, values[i], 0, values[i]), MOOR_OK);
    fake_reach(&fake, 0, 3);
    cr_expect_eq(fake_reap(&fake, NULL), 3);
    cr_expect_eq(fake.freed[0], 1);
    cr_expect_eq(fake.freed[1], 2);
    cr_expect_eq(fake.freed[2], 3);
    fake_reach(&fake, 0, 4);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
}

/* Every order of progress of three streams, one of them named twice. */
Test(queue, all_points_are_needed)
{
    static const uint32_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < 6; i++) {
        const struct moor_abi_fence_point points[] = {
            {&fake.streams[0], 2}, {&fake.streams[1], 1}, {&fake.streams[2], 3}, {&fake.streams[0], 1}};
        for (uint32_t stream = 0; stream < 3; stream++)
            fake_reach(&fake, stream, 0);
        cr_assert_eq(fake_release(&fake, 1, points, 4), MOOR_OK);
        for (size_t step = 0; step < 3; step++) {
            cr_expect_eq(fake_reap(&fake, NULL), 0);
            fake_reach(&fake, orders[i][step], 3);
        }
        cr_expect_eq(fake_reap(&fake, NULL), 1);
    }
    cr_expect_eq(fake.free_count, 6);
}

Test(queue, many_points_all_reached_take_one_reap)
{
    struct moor_abi_fence_point points[FAKE_STREAMS];
    for (uint32_t i = 0; i < FAKE_STREAMS; i++)
        points[i] = (struct moor_abi_fence_point){&fake.streams[i], i + 1};
    cr_assert_eq(fake_release(&fake, 1, points, FAKE_STREAMS), MOOR_OK);
    for (uint32_t i = 0; i < FAKE_STREAMS; i++)
        fake_reach(&fake, i, i + 1);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
    for (uint32_t i = 0; i < FAKE_STREAMS; i++)
        cr_expect_eq(fake.streams[i].reads, 1);
}

Test(queue, a_watermark_is_read_once_per_reap_and_only_if_waited_for)
{
    for (uint64_t value = 1; value <= 10; value++) {
        cr_assert_eq(fake_release_at(&fake, value, 0, value), MOOR_OK);
        cr_assert_eq(fake_release_at(&fake, 100 + value, 1, value), MOOR_OK);
    }
    cr_expect_eq(fake.streams[0].reads, 0, "submit reads no watermark");
    fake_reach(&fake, 0, 9);
    cr_expect_eq(fake_reap(&fake, NULL), 9);
    cr_expect_eq(fake.streams[0].reads, 1);
    cr_expect_eq(fake.streams[1].reads, 1);
    cr_expect_eq(fake.streams[2].reads, 0);
    fake_reach(&fake, 0, 10);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
    cr_expect_eq(fake.streams[0].reads, 2);
    fake_reach(&fake, 1, 10);
    cr_expect_eq(fake_reap(&fake, NULL), 10);
    cr_expect_eq(fake.streams[0].reads, 2, "no entry waits for it any more");
}

Test(queue, a_watermark_that_goes_back_is_ignored)
{
    cr_assert_eq(fake_release_at(&fake, 1, 0, 5), MOOR_OK);
    cr_assert_eq(fake_release_at(&fake, 2, 0, 10), MOOR_OK);
    fake_reach(&fake, 0, 5);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
    fake_reach(&fake, 0, 3);
    cr_expect_eq(fake_reap(&fake, NULL), 0);
    cr_assert_eq(fake_release_at(&fake, 3, 0, 4), MOOR_OK);
    cr_expect_eq(fake_reap(&fake, NULL), 1, "4 was reached before");
    fake_reach(&fake, 0, 10);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
}

Test(queue, the_arguments_are_copied)
{
    struct moor_abi_fence_point points[] = {{&fake.streams[0], 1}};
    cr_assert_eq(fake_release(&fake, 1, points, 1), MOOR_OK);
    points[0] = (struct moor_abi_fence_point){&fake.streams[1], 99};
    fake_reach(&fake, 0, 1);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
}

/* ---- streams that fail, and streams that end ---- */

Test(queue, a_lost_stream_fails_its_waiters_alone)
{
    struct moor_abi_completion done[16];
    const struct moor_abi_fence_point both[] = {{&fake.streams[1], 1}, {&fake.streams[0], 2}};
    cr_assert_eq(fake_release_at(&fake, 1, 0, 1), MOOR_OK);
    cr_assert_eq(fake_release_at(&fake, 2, 0, 2), MOOR_OK);
    cr_assert_eq(fake_release(&fake, 3, both, 2), MOOR_OK);
    cr_assert_eq(fake_release_at(&fake, 4, 1, 2), MOOR_OK);
    fake_reach(&fake, 0, 1);
    cr_expect_eq(fake_reap(&fake, NULL), 1);

    fake.streams[0].status = MOOR_DEVICE_LOST;
    cr_assert_eq(fake_reap(&fake, done), 2, "also the one that waits for another stream as well");
    for (size_t i = 0; i < 2; i++) {
        cr_expect_eq(done[i].status, MOOR_DEVICE_LOST);
        cr_expect_eq(done[i].actual_bytes, 0);
    }
    cr_expect_eq(done[0].cookie + done[1].cookie, 1002 + 1003);
    cr_expect_eq(fake.free_count, 1, "memory that a lost stream may use is not freed");
    cr_expect_eq(fake.given_up_count, 2, "but may be released again");
    cr_expect_eq(fake.given_up_sum, 2 + 3);
    cr_expect_eq(fake.log_count, 1, "one line for a stream");
    cr_expect_not_null(strstr(fake.log_text, "fell off the bus"));

    fake_reach(&fake, 1, 2);
    cr_assert_eq(fake_reap(&fake, done), 1);
    cr_expect_eq(done[0].status, MOOR_OK);
}

Test(queue, a_status_outside_the_list_is_the_providers_failure)
{
    static const int32_t odd[] = {MOOR_PENDING, MOOR_CORRUPT - 1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct moor_abi_completion done[16];
        cr_assert_eq(fake_release_at(&fake, 1, 0, 1), MOOR_OK);
        fake.streams[0].status = odd[i];
        cr_assert_eq(fake_reap(&fake, done), 1);
        cr_expect_eq(done[0].status, MOOR_PROVIDER);

        cr_assert_eq(fake_release(&fake, 1, NULL, 0), MOOR_OK);
        fake.free_status = odd[i];
        cr_assert_eq(fake_reap(&fake, done), 1);
        cr_expect_eq(done[0].status, MOOR_PROVIDER);
        cr_expect_eq(fake.given_up_count, 2 * (i + 1), "whichever of the two it was");
        cr_expect_eq(done[0].actual_bytes, 0);
    }
}

Test(queue, a_failed_free_completes_as_failed_and_may_be_repeated)
{
    struct moor_abi_completion done[16];
    cr_assert_eq(fake_release_at(&fake, 5, 0, 0), MOOR_OK);
    fake.free_status = MOOR_CORRUPT;
    cr_assert_eq(fake_reap(&fake, done), 1);
    cr_expect_eq(done[0].status, MOOR_CORRUPT);
    cr_expect_eq(done[0].actual_bytes, 0);
    cr_expect_eq(done[0].cookie, 1005);
    cr_expect_eq(fake.log_count, 1);
    cr_expect_not_null(strstr(fake.log_text, "the device keeps it"));

    fake.free_status = MOOR_OK;
    cr_assert_eq(fake_release_at(&fake, 5, 0, 0), MOOR_OK);
    cr_assert_eq(fake_reap(&fake, done), 1);
    cr_expect_eq(done[0].status, MOOR_OK);
    cr_expect_eq(done[0].actual_bytes, 5 * FAKE_BYTES_PER_HANDLE);
}

/* A new stream may get the address of a destroyed one. */
Test(queue, a_stream_without_entries_is_forgotten)
{
    cr_assert_eq(fake_release_at(&fake, 1, 0, 5), MOOR_OK);
    cr_assert_eq(fake_release_at(&fake, 2, 1, 1), MOOR_OK);
    fake_reach(&fake, 0, 5);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
    fake.streams[0].gone = true;
    cr_expect_eq(fake_reap(&fake, NULL), 0);

    fake.streams[0] = (struct moor_abi_stream){.reached = 0};
    cr_assert_eq(fake_release_at(&fake, 3, 0, 1), MOOR_OK);
    cr_expect_eq(fake_reap(&fake, NULL), 0, "value 1 of the new stream is not reached");
    fake_reach(&fake, 0, 1);
    fake_reach(&fake, 1, 1);
    cr_expect_eq(fake_reap(&fake, NULL), 2);
}

Test(queue, a_lost_stream_is_forgotten_too)
{
    cr_assert_eq(fake_release_at(&fake, 1, 0, 1), MOOR_OK);
    fake.streams[0].status = MOOR_DEVICE_LOST;
    cr_expect_eq(fake_reap(&fake, NULL), 1);
    fake.streams[0] = (struct moor_abi_stream){.reached = 1};
    struct moor_abi_completion done[16];
    cr_assert_eq(fake_release_at(&fake, 2, 0, 1), MOOR_OK);
    cr_assert_eq(fake_reap(&fake, done), 1);
    cr_expect_eq(done[0].status, MOOR_OK);
}

/* ---- reap's room ---- */

Test(queue, completions_without_room_wait_for_the_next_reap)
{
    for (uint64_t handle = 1; handle <= 5; handle++)
        cr_assert_eq(fake_release_at(&fake, handle, 0, handle), MOOR_OK);
    fake_reach(&fake, 0, 5);
    for (uint32_t expected = 2, left = 5; left > 0; left -= expected, expected = left < 2 ? left : 2) {
        struct moor_abi_completion done[2];
        struct moor_abi_error error = {.struct_size = sizeof error};
        uint32_t count = 0;
        cr_assert_eq(moor_kit_queue_reap(fake.queue, done, sizeof done[0], 2, UINT64_MAX, &count, &error),
                     MOOR_OK);
        cr_expect_eq(count, expected);
        cr_expect_eq(fake.free_count, 5 - left + expected, "and is not freed");
        cr_expect_eq(moor_kit_queue_length(fake.queue), left - expected);
    }
}

Test(queue, completions_are_a_stride_apart)
{
    unsigned char room[3 * 40];
    memset(room, 0xee, sizeof room);
    for (uint64_t handle = 1; handle <= 2; handle++)
        cr_assert_eq(fake_release(&fake, handle, NULL, 0), MOOR_OK);
    uint32_t count = 0;
    cr_assert_eq(moor_kit_queue_reap(fake.queue, (void *)room, 40, 3, 0, &count, NULL), MOOR_OK);
    cr_assert_eq(count, 2);
    for (uint64_t i = 0; i < 2; i++) {
        struct moor_abi_completion done;
        memcpy(&done, room + 40 * i, sizeof done);
        cr_expect_eq(done.cookie, 1001 + i);
    }
    for (size_t i = 0; i < sizeof room; i++) {
        if (i % 40 >= 24 || i >= 80)
            cr_expect_eq(room[i], 0xee, "byte %zu is not the queue's", i);
    }
}

Test(queue, reap_checks_its_arguments)
{
    struct moor_abi_completion done[2];
    struct moor_abi_error error = {.struct_size = sizeof error};
    uint32_t count = 77;
    cr_assert_eq(fake_release(&fake, 1, NULL, 0), MOOR_OK);
    cr_expect_eq(moor_kit_queue_reap(fake.queue, NULL, 24, 2, 0, &count, &error), MOOR_INVALID);
    cr_expect_eq(moor_kit_queue_reap(fake.queue, done, 24, 0, 0, &count, &error), MOOR_INVALID);
    cr_expect_eq(moor_kit_queue_reap(fake.queue, done, 16, 2, 0, &count, &error), MOOR_INVALID);
    cr_expect_eq(moor_kit_queue_reap(fake.queue, done, 25, 2, 0, &count, &error), MOOR_INVALID);
    cr_expect_eq(count, 77, "outputs are untouched on failure");
    cr_expect_eq(moor_kit_queue_length(fake.queue), 1);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
}

/* ---- submit's arguments ---- */

/* A release with one wrong field is refused, and nothing is queued. */
static void expect_refused(const void *release, int32_t expected, const char *word)
{
    struct moor_abi_error error = {.struct_size = sizeof error};
    cr_expect_eq(moor_kit_queue_submit(fake.queue, release, &error), expected, "%s", word);
    cr_expect_not_null(strstr(error.text, word), "'%s' does not name '%s'", error.text, word);
    cr_expect_eq(moor_kit_queue_length(fake.queue), 0);
}

Test(queue, submit_checks_its_arguments)
{
    const struct moor_abi_fence_point points[] = {{&fake.streams[0], 1}, {NULL, 1}};
    const struct moor_abi_release good = {
        .struct_size = 56, .kind = MOOR_ABI_RELEASE_ALLOCATION, .handle = 1, .cookie = 1};
    struct moor_abi_release bad;
    expect_refused(NULL, MOOR_INVALID, "NULL");
#define WITH(field_, value_) (bad = good, bad.field_ = (value_), &bad)
    expect_refused(WITH(struct_size, 48), MOOR_INVALID, "struct_size");
    expect_refused(WITH(struct_size, 57), MOOR_INVALID, "struct_size");
    expect_refused(WITH(kind, 0), MOOR_INVALID, "kind");
    expect_refused(WITH(kind, 7), MOOR_INVALID, "kind");
    expect_refused(WITH(handle, 0), MOOR_INVALID, "handle");
    expect_refused(WITH(offset_bytes, 4096), MOOR_INVALID, "offset");
    expect_refused(WITH(length_bytes, 4096), MOOR_INVALID, "length");
    expect_refused(WITH(kind, MOOR_ABI_RELEASE_DECOMMIT), MOOR_INVALID, "length");
    expect_refused(WITH(kind, MOOR_ABI_RELEASE_UNMAP), MOOR_INVALID, "length");
    expect_refused(WITH(point_count, 1), MOOR_INVALID, "array");
    expect_refused(WITH(points, points), MOOR_INVALID, "array");
#undef WITH
    bad = good;
    bad.kind = MOOR_ABI_RELEASE_DECOMMIT;
    bad.offset_bytes = UINT64_MAX - 4095;
    bad.length_bytes = 4096;
    expect_refused(&bad, MOOR_OVERFLOW, "offset");
    bad = good;
    bad.points = points;
    bad.point_count = 1;
    bad.point_stride = 8;
    expect_refused(&bad, MOOR_INVALID, "stride");
    bad.point_count = 2;
    bad.point_stride = 16;
    expect_refused(&bad, MOOR_INVALID, "stream");
}

Test(queue, a_longer_release_may_end_in_zeros_only)
{
    struct {
        struct moor_abi_release release;
        uint64_t later;
    } longer = {
        .release = {.struct_size = 64, .kind = MOOR_ABI_RELEASE_DECOMMIT, .handle = 1, .length_bytes = 1}};
    longer.later = 1;
    expect_refused(&longer, MOOR_INVALID, "not zero");
    longer.later = 0;
    struct moor_abi_error error = {.struct_size = sizeof error};
    cr_assert_eq(moor_kit_queue_submit(fake.queue, &longer.release, &error), MOOR_OK);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
}

Test(queue, points_may_be_a_wider_stride_apart)
{
    struct {
        struct moor_abi_fence_point point;
        uint64_t later;
    } wide[] = {{{&fake.streams[0], 1}, 9}, {{&fake.streams[1], 1}, 9}};
    const struct moor_abi_release release = {.struct_size = 56,
                                             .kind = MOOR_ABI_RELEASE_ALLOCATION,
                                             .handle = 1,
                                             .points = &wide[0].point,
                                             .point_count = 2,
                                             .point_stride = sizeof wide[0]};
    struct moor_abi_error error = {.struct_size = sizeof error};
    cr_assert_eq(moor_kit_queue_submit(fake.queue, &release, &error), MOOR_OK);
    fake_reach(&fake, 0, 1);
    cr_expect_eq(fake_reap(&fake, NULL), 0);
    fake_reach(&fake, 1, 1);
    cr_expect_eq(fake_reap(&fake, NULL), 1);
}

Test(queue, destroying_NULL_is_a_no_op)
{
    moor_kit_queue_destroy(NULL);
}
