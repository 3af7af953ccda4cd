/* SPDX-License-Identifier: MIT */
/* A device that lacks memory although the budget has room: the core reaps completed releases before it
 * reports the shortage to the host. */
#include "fixture.h"

TestSuite(shortage);

/* One completed release that no thread has reaped yet. */
static void release_one(struct fixture *fixture)
{
    cr_assert_eq(moor_buffer_release(fixture->runtime, fixture_allocate(fixture, KIB(64))), MOOR_OK);
    cr_assert_eq(fixture_counts(fixture).releases, 1);
}

FIXTURE_TEST(shortage, an_allocation_reaps)
{
    release_one(f);
    fixture_fail_times(f, SCRIPTED_ALLOCATE, 1, MOOR_DEVICE_NOMEM);
    const struct moor_error before = *moor_last_error();
    moor_buffer buffer = 0;
    cr_assert_eq(moor_buffer_allocate(f->binding, KIB(64), NULL, &buffer), MOOR_OK);
    cr_assert_eq(fixture_counts(f).releases, 0);
    cr_assert_arr_eq(&before, moor_last_error(), sizeof before); /* success leaves the last error alone */
    cr_assert_eq(moor_buffer_release(f->runtime, buffer), MOOR_OK);
}

FIXTURE_TEST(shortage, a_commit_reaps)
{
    moor_range range = fixture_range(f, 4);
    release_one(f);
    fixture_fail_times(f, SCRIPTED_COMMIT, 1, MOOR_DEVICE_NOMEM);
    cr_assert_eq(moor_range_commit(f->runtime, range, 0, GRANULE, 0), MOOR_OK);
    cr_assert_eq(fixture_counts(f).releases, 0);
    cr_assert_eq(moor_range_release(f->runtime, range), MOOR_OK);
}

/* A later step reaps, too: an undo of the earlier steps would reap as well and hide it. */
FIXTURE_TEST(shortage, each_step_of_a_transaction_reaps)
{
    moor_range range = fixture_range(f, 4);
    struct moor_step steps[] = {
        {.kind = MOOR_STEP_COMMIT, .range = range, .length_bytes = GRANULE},
        {.kind = MOOR_STEP_CREATE,
         .binding = f->binding,
         .range = range,
         .offset_bytes = GRANULE,
         .length_bytes = GRANULE},
    };
    release_one(f);
    fixture_fail_times(f, SCRIPTED_SEGMENT_CREATE, 1, MOOR_DEVICE_NOMEM);
    cr_assert_eq(moor_transact(f->runtime, steps, 2, NULL), MOOR_OK);
    cr_assert_eq(fixture_counts(f).releases, 0);
    cr_assert_eq(moor_segment_release(f->runtime, steps[1].segment), MOOR_OK);
    cr_assert_eq(moor_range_release(f->runtime, range), MOOR_OK);
}

FIXTURE_TEST(shortage, is_reported_at_once_without_pending_releases)
{
    uint64_t asked = scripted_count(f->script, SCRIPTED_ALLOCATE);
    fixture_fail_times(f, SCRIPTED_ALLOCATE, 1, MOOR_DEVICE_NOMEM);
    moor_buffer buffer = 0;
    cr_assert_eq(moor_buffer_allocate(f->binding, KIB(64), NULL, &buffer), MOOR_DEVICE_NOMEM);
    cr_assert_eq(scripted_count(f->script, SCRIPTED_ALLOCATE), asked + 1);
}

FIXTURE_TEST(shortage, is_reported_if_the_reaped_bytes_are_not_enough)
{
    release_one(f);
    fixture_fail_times(f, SCRIPTED_ALLOCATE, 2, MOOR_DEVICE_NOMEM);
    moor_buffer buffer = 0;
    cr_assert_eq(moor_buffer_allocate(f->binding, KIB(64), NULL, &buffer), MOOR_DEVICE_NOMEM);
    cr_assert_eq(buffer, 0);
    fixture_check_accounts(f);
    scripted_clear_faults(f->script);
}
