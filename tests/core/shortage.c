/* SPDX-License-Identifier: MIT */
/* A device that is short of memory although the budget has room: what has been released and is only waiting
 * to be taken back is taken back before a host hears of it. */
#include "fixture.h"

TestSuite(shortage);

/* One release that is due and that nobody has taken back yet. */
static void release_one(struct fixture *fixture)
{
    cr_assert_eq(moor_buffer_release(fixture->runtime, fixture_allocate(fixture, KIB(64))), MOOR_OK);
    cr_assert_eq(fixture_counts(fixture).releases, 1);
}

static void fail_next(struct fixture *fixture, enum scripted_name name, uint32_t times)
{
    scripted_fail(fixture->script, (struct scripted_fault){
                                       .name = name, .nth = 1, .times = times, .status = MOOR_DEVICE_NOMEM});
}

Test(shortage, an_allocation_looks_at_what_has_completed)
{
    struct fixture fixture = fixture_open(NULL);
    release_one(&fixture);
    fail_next(&fixture, SCRIPTED_ALLOCATE, 1);
    const struct moor_error before = *moor_last_error();
    moor_buffer buffer = 0;
    cr_assert_eq(moor_buffer_allocate(fixture.binding, KIB(64), NULL, &buffer), MOOR_OK);
    cr_assert_eq(fixture_counts(&fixture).releases, 0);
    cr_assert_arr_eq(&before, moor_last_error(), sizeof before); /* success leaves the last error alone */
    cr_assert_eq(moor_buffer_release(fixture.runtime, buffer), MOOR_OK);
    fixture_close(&fixture);
}

Test(shortage, a_commit_looks_at_what_has_completed)
{
    struct fixture fixture = fixture_open(NULL);
    moor_range range = fixture_range(&fixture, 4);
    release_one(&fixture);
    fail_next(&fixture, SCRIPTED_COMMIT, 1);
    cr_assert_eq(moor_range_commit(fixture.runtime, range, 0, GRANULE, 0), MOOR_OK);
    cr_assert_eq(fixture_counts(&fixture).releases, 0);
    cr_assert_eq(moor_range_release(fixture.runtime, range), MOOR_OK);
    fixture_close(&fixture);
}

/* Also in a step that is not the first: undoing the others would take back what has completed, and hide it. */
Test(shortage, each_step_of_a_transaction_looks_at_what_has_completed)
{
    struct fixture fixture = fixture_open(NULL);
    moor_range range = fixture_range(&fixture, 4);
    struct moor_step steps[] = {
        {.kind = MOOR_STEP_COMMIT, .range = range, .length_bytes = GRANULE},
        {.kind = MOOR_STEP_CREATE,
         .binding = fixture.binding,
         .range = range,
         .offset_bytes = GRANULE,
         .length_bytes = GRANULE},
    };
    release_one(&fixture);
    fail_next(&fixture, SCRIPTED_SEGMENT_CREATE, 1);
    cr_assert_eq(moor_transact(fixture.runtime, steps, 2, NULL), MOOR_OK);
    cr_assert_eq(fixture_counts(&fixture).releases, 0);
    cr_assert_eq(moor_segment_release(fixture.runtime, steps[1].segment), MOOR_OK);
    cr_assert_eq(moor_range_release(fixture.runtime, range), MOOR_OK);
    fixture_close(&fixture);
}

Test(shortage, it_is_told_at_once_where_nothing_comes_back)
{
    struct fixture fixture = fixture_open(NULL);
    uint64_t asked = scripted_count(fixture.script, SCRIPTED_ALLOCATE);
    fail_next(&fixture, SCRIPTED_ALLOCATE, 1);
    moor_buffer buffer = 0;
    cr_assert_eq(moor_buffer_allocate(fixture.binding, KIB(64), NULL, &buffer), MOOR_DEVICE_NOMEM);
    cr_assert_eq(scripted_count(fixture.script, SCRIPTED_ALLOCATE), asked + 1);
    fixture_close(&fixture);
}

Test(shortage, it_is_told_if_what_came_back_was_not_enough)
{
    struct fixture fixture = fixture_open(NULL);
    release_one(&fixture);
    fail_next(&fixture, SCRIPTED_ALLOCATE, 2);
    moor_buffer buffer = 0;
    cr_assert_eq(moor_buffer_allocate(fixture.binding, KIB(64), NULL, &buffer), MOOR_DEVICE_NOMEM);
    cr_assert_eq(buffer, 0);
    fixture_check_books(&fixture);
    scripted_clear_faults(fixture.script);
    fixture_close(&fixture);
}
