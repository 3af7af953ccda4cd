/* SPDX-License-Identifier: MIT */
/* Host memory and size: a submit without memory changes nothing, a warm queue allocates nothing, and a large
 * queue is exact. */
#include "fake.h"
#include "malloc_fail.h"
#include <criterion/criterion.h>

#define ENTRIES UINT64_C(100000)
#define VALUES (ENTRIES / FAKE_STREAMS + 1)

static struct fake fake;

TestSuite(queue_memory, .timeout = 60);

Test(queue_memory, create_fails_cleanly)
{
    const struct moor_abi_host host = {.clock_ns = service_clock_ns};
    const struct moor_kit_queue_callbacks callbacks = {0};
    struct moor_kit_queue *queue = NULL;
    malloc_fail_at(1);
    cr_expect_eq(moor_kit_queue_create(&callbacks, NULL, &host, 0, &queue), MOOR_HOST_NOMEM);
    malloc_fail_at(0);
    cr_expect_null(queue);
}

/* The n-th allocation fails, n = 1, 2, 3 ... until none does. */
Test(queue_memory, submit_is_all_or_nothing)
{
    const struct moor_abi_fence_point points[] = {
        {&fake.streams[0], 1}, {&fake.streams[1], 2}, {&fake.streams[2], 3}};
    uint64_t n = 1;
    for (int32_t status = MOOR_HOST_NOMEM; status != MOOR_OK; n++) {
        fake_init(&fake, 0);
        /* One stream that the queue knows and two that it does not know: the known record and its entries
         * stay. */
        cr_assert_eq(fake_release_at(&fake, 1, 0, 2), MOOR_OK);
        malloc_fail_at(n);
        status = fake_release(&fake, 2, points, 3);
        bool failed = malloc_fail_count() >= n;
        malloc_fail_at(0);
        cr_expect_eq(status, failed ? MOOR_HOST_NOMEM : MOOR_OK);
        cr_expect_eq(moor_kit_queue_length(fake.queue), failed ? 1 : 2);

        fake_reach(&fake, 0, 2);
        fake_reach(&fake, 1, 2);
        fake_reach(&fake, 2, 3);
        cr_expect_eq(fake_reap(&fake, NULL), failed ? 1 : 2);
        cr_expect_eq(fake.streams[1].reads, failed ? 0 : 1, "a refused release leaves no trace");
        cr_expect_eq(fake.streams[2].reads, failed ? 0 : 1);
        fake_finish(&fake);
    }
    cr_expect_gt(n, 6, "an entry, its points and its streams are more than %d allocations", (int)n);
}

static void submit_many(uint64_t first_value)
{
    for (uint64_t i = 0; i < 1000; i++) {
        const struct moor_abi_fence_point points[] = {{&fake.streams[i % 8], first_value + i / 8},
                                                      {&fake.streams[(i + 3) % 8], first_value + i / 16}};
        cr_assert_eq(fake_release(&fake, i + 1, points, 2), MOOR_OK);
    }
}

static void reap_all(uint64_t value)
{
    for (uint32_t stream = 0; stream < 8; stream++)
        fake_reach(&fake, stream, value);
    while (fake_reap(&fake, NULL) > 0)
        continue;
    cr_expect_eq(moor_kit_queue_length(fake.queue), 0);
}

Test(queue_memory, a_warm_queue_allocates_nothing)
{
    fake_init(&fake, 0);
    submit_many(1);
    reap_all(200);
    submit_many(201);
    reap_all(400);
    malloc_fail_at(0);
    submit_many(401);
    reap_all(600);
    cr_expect_eq(malloc_fail_count(), 0);
    fake_finish(&fake);
}

/* ---- 10^5 entries on 64 streams, two points each, in no order ---- */

static struct many {
    uint64_t values[2];
    uint32_t streams[2];
    bool gone;
} many[ENTRIES];

static void submit_random(uint64_t index)
{
    static uint64_t state = 88172645463325252;
    struct moor_abi_fence_point points[2];
    for (size_t i = 0; i < 2; i++) {
        many[index].streams[i] = (uint32_t)(service_random(&state) % FAKE_STREAMS);
        many[index].values[i] = 1 + service_random(&state) % VALUES;
        points[i] =
            (struct moor_abi_fence_point){&fake.streams[many[index].streams[i]], many[index].values[i]};
    }
    cr_assert_eq(fake_release(&fake, index + 1, points, 2), MOOR_OK);
}

static bool is_reached(uint64_t index)
{
    for (size_t i = 0; i < 2; i++) {
        if (fake.streams[many[index].streams[i]].reached < many[index].values[i])
            return false;
    }
    return true;
}

Test(queue_memory, a_hundred_thousand_entries_go_once_each_and_in_time)
{
    fake_init(&fake, 0);
    for (uint64_t i = 0; i < ENTRIES; i++)
        submit_random(i);
    uint64_t gone = 0;
    for (uint64_t step = 1; step <= 50; step++) {
        for (uint32_t stream = 0; stream < FAKE_STREAMS; stream++)
            fake_reach(&fake, stream, step == 50 ? VALUES : step * VALUES / 50 * (stream % 2 + 1) / 2);
        struct moor_abi_completion done[16];
        uint32_t count;
        while ((count = fake_reap(&fake, done)) > 0) {
            for (uint32_t i = 0; i < count; i++) {
                uint64_t index = done[i].cookie - 1001;
                cr_assert_lt(index, ENTRIES);
                cr_assert_not(many[index].gone, "entry %lu went twice", (unsigned long)index);
                cr_assert(is_reached(index), "entry %lu went too early", (unsigned long)index);
                many[index].gone = true;
            }
            gone += count;
        }
        uint64_t reached = 0;
        for (uint64_t i = 0; i < ENTRIES; i++)
            reached += is_reached(i);
        cr_assert_eq(gone, reached, "at step %lu", (unsigned long)step);
    }
    cr_expect_eq(gone, ENTRIES);
    fake_finish(&fake);
}
