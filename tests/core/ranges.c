/* SPDX-License-Identifier: MIT */
/*
 * Ranges: addresses first, memory part by part, each part behind its own last uses. The scripted provider
 * asserts that no memory is committed over a leaving part, and that a range goes only when it is empty.
 */
#include "fixture.h"

#include <string.h>

TestSuite(ranges, .timeout = 30);

static uint64_t committed(struct fixture *f, moor_range range, uint64_t offset_bytes, uint64_t length_bytes)
{
    uint64_t bytes = UINT64_MAX;
    EXPECT(MOOR_OK, moor_range_get_committed(f->runtime, range, offset_bytes, length_bytes, &bytes));
    return bytes;
}

FIXTURE_TEST(ranges, take_no_memory_until_they_are_committed)
{
    moor_range range = 0;
    uint64_t granule = 0;
    EXPECT(MOOR_OK, moor_range_reserve(f->binding, MIB(1) + 1, NULL, &range));
    struct moor_view view;
    EXPECT(MOOR_OK, moor_range_get_view(f->runtime, range, &view));
    EXPECT(MOOR_OK, moor_range_get_granule(f->runtime, range, &granule));
    cr_assert_eq(granule, GRANULE);
    cr_assert_eq(view.size_bytes, MIB(1) + GRANULE, "rounded up to the granule");
    cr_assert_eq(view.owner, range);
    cr_assert_eq(fixture_stats(f).charged_bytes, 0);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 2 * GRANULE, 3 * GRANULE, 0));
    cr_assert_eq(fixture_stats(f).charged_bytes, 3 * GRANULE);
    cr_assert_eq(committed(f, range, 0, view.size_bytes), 3 * GRANULE);
    cr_assert_eq(committed(f, range, 0, 2 * GRANULE), 0);
    cr_assert_eq(committed(f, range, GRANULE, 2 * GRANULE), GRANULE, "committed bytes of the given part");
    struct moor_view part = fixture_range_view(f, range, 2 * GRANULE, 3 * GRANULE);
    cr_assert(fixture_all_bytes(&part, 0));
    fixture_check_accounts(f);
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
}

FIXTURE_TEST(ranges, options_choose_granule_and_alignment)
{
    moor_range range = 0;
    uint64_t granule = 0;
    struct moor_range_options options = {.granule_bytes = 4096, .alignment_bytes = MIB(2)};
    EXPECT(MOOR_OK, moor_range_reserve(f->binding, 3 * 4096, &options, &range));
    struct moor_view view;
    EXPECT(MOOR_OK, moor_range_get_view(f->runtime, range, &view));
    EXPECT(MOOR_OK, moor_range_get_granule(f->runtime, range, &granule));
    cr_assert_eq(granule, 4096);
    cr_assert_eq(view.address % MIB(2), 0);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 4096, 4096, 0));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    static const struct moor_range_options wrong[] = {
        {.granule_bytes = 2048}, {.granule_bytes = 12288}, {.alignment_bytes = 12288}};
    for (size_t i = 0; i < 3; i++)
        EXPECT(MOOR_INVALID, moor_range_reserve(f->binding, MIB(1), &wrong[i], &range));
}

FIXTURE_TEST(ranges, bad_parts_are_refused_and_change_nothing)
{
    moor_range range = fixture_range(f, 8);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, GRANULE, 2 * GRANULE, 0));
    struct fixture_state before = fixture_state(f);
    static const uint64_t bad[][2] = {{0, 0},
                                      {1, GRANULE},
                                      {0, GRANULE - 1},
                                      {8 * GRANULE, GRANULE},
                                      {0, 9 * GRANULE},
                                      {UINT64_MAX, 1},
                                      {0, UINT64_MAX},
                                      {7 * GRANULE, 2 * GRANULE},
                                      {GRANULE, UINT64_MAX},
                                      {UINT64_MAX - GRANULE + 1, GRANULE},
                                      {GRANULE, UINT64_MAX - GRANULE + 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        moor_status commit = moor_range_commit(f->runtime, range, bad[i][0], bad[i][1], 0);
        moor_status decommit = moor_range_decommit(f->runtime, range, bad[i][0], bad[i][1]);
        cr_assert(commit == MOOR_INVALID || commit == MOOR_OVERFLOW, "%zu: %s", i, moor_status_name(commit));
        cr_assert(decommit == MOOR_INVALID || decommit == MOOR_OVERFLOW, "%zu: %s", i,
                  moor_status_name(decommit));
    }
    cr_assert_neq(moor_range_commit(f->runtime, range, 0, 2 * GRANULE, 0), MOOR_OK,
                  "part of the memory is committed");
    cr_assert_neq(moor_range_commit(f->runtime, range, 2 * GRANULE, 2 * GRANULE, 0), MOOR_OK);
    cr_assert_neq(moor_range_decommit(f->runtime, range, 0, GRANULE), MOOR_OK, "nothing is there");
    cr_assert_neq(moor_range_decommit(f->runtime, range, 2 * GRANULE, 2 * GRANULE), MOOR_OK);
    cr_assert_neq(moor_range_unmap(f->runtime, range, GRANULE, 2 * GRANULE), MOOR_OK,
                  "committed memory is not a mapping");
    fixture_expect_state(f, &before);
}

FIXTURE_TEST(ranges, decommit_any_whole_granules_of_several_commits)
{
    moor_range range = fixture_range(f, 8);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 3 * GRANULE, 0));
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 3 * GRANULE, 3 * GRANULE, 0));
    cr_assert_eq(fixture_stats(f).charged_bytes, 6 * GRANULE);
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, 2 * GRANULE, 2 * GRANULE)); /* across both */
    fixture_reap(f);
    cr_assert_eq(fixture_stats(f).charged_bytes, 4 * GRANULE, "the actual bytes come back");
    cr_assert_eq(committed(f, range, 0, 8 * GRANULE), 4 * GRANULE);
    fixture_check_accounts(f);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 2 * GRANULE, 2 * GRANULE, 0));
    struct moor_view part = fixture_range_view(f, range, 2 * GRANULE, 2 * GRANULE);
    cr_assert(fixture_all_bytes(&part, 0), "new memory reads as zero");
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, 0, 6 * GRANULE));
    fixture_reap(f);
    cr_assert_eq(fixture_stats(f).charged_bytes, 0);
}

FIXTURE_TEST(ranges, addresses_behind_fences_are_pending)
{
    moor_range range = fixture_range(f, 4);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 2 * GRANULE, 0));
    struct moor_view view = fixture_range_view(f, range, 0, GRANULE);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 5, 1));
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, 0, 2 * GRANULE));
    cr_assert_eq(fixture_stats(f).pending_bytes, 2 * GRANULE);
    cr_assert_eq(committed(f, range, 0, 4 * GRANULE), 0, "decommitted memory does not count as committed");
    EXPECT(MOOR_PENDING, moor_range_commit(f->runtime, range, 0, GRANULE, 0));
    EXPECT(MOOR_PENDING, moor_range_commit(f->runtime, range, GRANULE, 2 * GRANULE, 0));
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 2 * GRANULE, GRANULE, 0));
    cr_assert_neq(moor_range_decommit(f->runtime, range, 0, GRANULE), MOOR_OK, "a second decommit");
    cr_assert_neq(moor_fill(f->stream, &view, 5, 1), MOOR_OK, "work on decommitted memory");
    fixture_open_and_reap(f);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 2 * GRANULE, 0));
    cr_assert(fixture_all_bytes(&view, 0));
}

/* The calls reap before they report a shortage. */
FIXTURE_TEST(ranges, with_nothing_in_flight_can_be_backed_again_at_once)
{
    moor_range range = fixture_range(f, 4);
    moor_segment segment = fixture_segment(f, 2, 0x51);
    /* no room for two copies of anything */
    fixture_set_capacity(f, 6 * GRANULE);
    moor_segment writable = fixture_open_segment(f, 2);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 2 * GRANULE, 0));
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, 0, 2 * GRANULE));
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, GRANULE, 2 * GRANULE, 0));
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, GRANULE, 2 * GRANULE));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ));
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, range, 0, 2 * GRANULE));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, GRANULE, MOOR_ACCESS_READ));
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, range, GRANULE, 2 * GRANULE));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, writable, range, 0, MOOR_ACCESS_READ_WRITE));
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, range, 0, 2 * GRANULE));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, writable, range, 2 * GRANULE, MOOR_ACCESS_READ_WRITE));
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, range, 2 * GRANULE, 2 * GRANULE));
    struct moor_step steps[2] = {
        {.kind = MOOR_STEP_COMMIT, .range = range, .length_bytes = 2 * GRANULE},
        {.kind = MOOR_STEP_MAP, .range = range, .segment = segment, .offset_bytes = 2 * GRANULE}};
    EXPECT(MOOR_OK, moor_transact(f->runtime, steps, 2, NULL));
}

/* Last uses are precise: an unused part does not wait for the work of its neighbour. */
FIXTURE_TEST(ranges, each_part_waits_for_its_own_uses)
{
    struct moor_abi_stream *queue;
    struct moor_stream *other = fixture_stream(f, &queue);
    moor_range range = fixture_range(f, 4);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 4 * GRANULE, 0));
    scripted_hold(f->script, f->queue);
    scripted_hold(f->script, queue);
    struct moor_view first = fixture_range_view(f, range, 0, GRANULE);
    struct moor_view second = fixture_range_view(f, range, GRANULE, GRANULE);
    EXPECT(MOOR_OK, moor_fill(f->stream, &first, 1, 1));
    EXPECT(MOOR_OK, moor_stream_used(other, &second));
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, 2 * GRANULE, 2 * GRANULE));
    (void)moor_runtime_reap(f->runtime, MOOR_NO_WAIT);
    cr_assert_eq(fixture_stats(f).charged_bytes, 2 * GRANULE, "the unused piece is free at once");
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, GRANULE, GRANULE));
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, 0, GRANULE));
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(f).charged_bytes, 2 * GRANULE);
    scripted_open(f->script, queue);
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    cr_assert_eq(fixture_stats(f).charged_bytes, GRANULE, "the second went, the first waits");
    fixture_open_and_reap(f);
    cr_assert_eq(fixture_stats(f).charged_bytes, 0);
}

/* The work may be anywhere in the part or overlap its ends. The model does not see the host's own work. */
Test(ranges, a_part_waits_for_work_on_any_of_its_bytes)
{
    static const uint64_t parts[][2] = {{0, GRANULE + 1},
                                        {GRANULE + 1, 1},
                                        {2 * GRANULE, GRANULE},
                                        {3 * GRANULE - 1, GRANULE},
                                        {0, 4 * GRANULE}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct fixture f = fixture_open(NULL);
        moor_range range = fixture_range(&f, 4);
        EXPECT(MOOR_OK, moor_range_commit(f.runtime, range, 0, 4 * GRANULE, 0));
        struct moor_view view = fixture_range_view(&f, range, parts[i][0], parts[i][1]);
        scripted_hold(f.script, f.queue);
        EXPECT(MOOR_OK, moor_stream_used(f.stream, &view));
        EXPECT(MOOR_OK, moor_range_decommit(f.runtime, range, GRANULE, 2 * GRANULE));
        EXPECT(MOOR_PENDING, moor_runtime_reap(f.runtime, MOOR_NO_WAIT));
        cr_assert_eq(fixture_stats(&f).charged_bytes, 4 * GRANULE, "part %zu", i);
        fixture_open_and_reap(&f);
        fixture_close(&f);
    }
}

FIXTURE_TEST(ranges, release_includes_all_contents)
{
    struct moor_abi_stream *queue;
    struct moor_stream *other = fixture_stream(f, &queue);
    moor_range range = fixture_range(f, 8);
    moor_segment segment = fixture_segment(f, 2, 9);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 2 * GRANULE, 0));
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 6 * GRANULE, GRANULE, 0));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 3 * GRANULE, MOOR_ACCESS_READ));
    struct moor_view first = fixture_range_view(f, range, 0, GRANULE);
    struct moor_view mapped = fixture_range_view(f, range, 3 * GRANULE, GRANULE);
    scripted_hold(f->script, f->queue);
    scripted_hold(f->script, queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &first, 1, 1));
    EXPECT(MOOR_OK, moor_stream_used(other, &mapped));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    EXPECT(MOOR_STALE, moor_range_release(f->runtime, range));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    cr_assert_eq(scripted_objects(f->script).ranges, 1, "the addresses stay while something is in them");
    cr_assert_eq(scripted_objects(f->script).mappings, 1);
    cr_assert_eq(fixture_stats(f).charged_bytes, 3 * GRANULE,
                 "unused memory does not wait for the other parts");
    scripted_open(f->script, queue);
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    cr_assert_eq(scripted_objects(f->script).ranges, 1);
    fixture_open_and_reap(f);
    struct scripted_objects objects = scripted_objects(f->script);
    cr_assert_eq(objects.ranges + objects.mappings + objects.segments, 0);
}

struct intruder {
    struct fixture *fixture;
    moor_range range;
    uint32_t tries;
};

static void decommit_from_inside(void *user, const struct scripted_call *call)
{
    struct intruder *intruder = user;
    if (call->name != SCRIPTED_FILL)
        return;
    intruder->tries++;
    EXPECT(MOOR_BUSY, moor_range_decommit(intruder->fixture->runtime, intruder->range, 0, 2 * GRANULE));
}

/* The view has been checked, and the provider has not accepted the work yet. */
FIXTURE_TEST(ranges, work_that_is_being_submitted_keeps_its_memory)
{
    struct intruder intruder = {.fixture = f, .range = fixture_range(f, 4)};
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, intruder.range, 0, 2 * GRANULE, 0));
    struct moor_view view = fixture_range_view(f, intruder.range, GRANULE, GRANULE);
    scripted_set_hook(f->script, decommit_from_inside, &intruder);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 1, 1));
    scripted_set_hook(f->script, NULL, NULL);
    cr_assert_eq(intruder.tries, 1);
    cr_assert_eq(committed(f, intruder.range, 0, 2 * GRANULE), 2 * GRANULE);
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, intruder.range, 0, 2 * GRANULE));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, intruder.range));
}

/* ---- failures ---- */

static moor_status reserve_one(struct fixture *f, void *user)
{
    return moor_range_reserve(f->binding, 4 * GRANULE, NULL, user);
}

static void release_range(struct fixture *f, void *user)
{
    moor_range *range = user;
    EXPECT(MOOR_OK, moor_range_release(f->runtime, *range));
}

static moor_status commit_two(struct fixture *f, void *user)
{
    moor_range *range = user;
    return moor_range_commit(f->runtime, *range, GRANULE, 2 * GRANULE, 0);
}

static void decommit_two(struct fixture *f, void *user)
{
    moor_range *range = user;
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, *range, GRANULE, 2 * GRANULE));
}

FIXTURE_TEST(ranges, fail_at_every_step_without_a_trace)
{
    moor_range range = 0;
    cr_assert_geq(fixture_fail_each(f, MOOR_HOST_NOMEM, reserve_one, release_range, &range), 1);
    range = fixture_range(f, 4);
    cr_assert_geq(fixture_fail_each(f, MOOR_DEVICE_NOMEM, commit_two, decommit_two, &range), 1);
    cr_assert_eq(committed(f, range, 0, 4 * GRANULE), 0);
}

/* Leaving addresses may have left meanwhile: the call reaps and asks the provider again. */
FIXTURE_TEST(ranges, are_asked_for_again_when_addresses_are_short)
{
    moor_range range = fixture_range(f, 4);
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    cr_assert_eq(scripted_objects(f->script).ranges, 1, "no call has reaped");
    for (uint32_t times = 1; times <= 2; times++) {
        moor_range next = 77;
        fixture_fail_times(f, SCRIPTED_RESERVE, times, MOOR_NO_VA);
        EXPECT(times == 1 ? MOOR_OK : MOOR_NO_VA, moor_range_reserve(f->binding, 4 * GRANULE, NULL, &next));
        if (times == 1)
            EXPECT(MOOR_OK, moor_range_release(f->runtime, next));
        else
            cr_assert_eq(next, 77);
        cr_assert_eq(scripted_objects(f->script).ranges, 2 - times);
        scripted_clear_faults(f->script);
    }
}

/* 32 granules, an eighth less after each failed attempt; the first size is tried twice. */
FIXTURE_TEST(ranges, are_smaller_where_addresses_are_short)
{
    static const struct {
        uint64_t least;
        uint32_t failing;
        uint64_t granules; /* 0: NO_VA */
    } cases[] = {{1, 0, 32},  {1, 1, 32}, {1, 2, 27}, {1, 3, 23},
                 {30, 2, 30}, {30, 3, 0}, {32, 2, 0}, {1, UINT32_MAX, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct moor_range_options options = {.least_bytes = cases[i].least * GRANULE};
        moor_range range = 0;
        if (cases[i].failing)
            fixture_fail_times(f, SCRIPTED_RESERVE, cases[i].failing, MOOR_NO_VA);
        EXPECT(cases[i].granules ? MOOR_OK : MOOR_NO_VA,
               moor_range_reserve(f->binding, 32 * GRANULE, &options, &range));
        scripted_clear_faults(f->script);
        struct moor_view view = {0};
        if (range)
            EXPECT(MOOR_OK, moor_range_get_view(f->runtime, range, &view));
        cr_assert_eq(view.size_bytes, cases[i].granules * GRANULE, "case %zu", i);
        EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    }
    moor_range range = 0;
    const struct moor_range_options options = {.least_bytes = GRANULE + 1};
    EXPECT(MOOR_INVALID, moor_range_reserve(f->binding, GRANULE, &options, &range));
}

FIXTURE_TEST(ranges, commit_beyond_the_budget_leaves_the_range_alone)
{
    moor_range range = fixture_range(f, 8);
    fixture_set_capacity(f, 3 * GRANULE);
    EXPECT(MOOR_NEVER_FITS, moor_range_commit(f->runtime, range, 0, 4 * GRANULE, 0));
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 2 * GRANULE, 0));
    EXPECT(MOOR_OVER_BUDGET, moor_range_commit(f->runtime, range, 2 * GRANULE, 2 * GRANULE, 0));
    moor_grant grant = fixture_reserve(f, GRANULE);
    EXPECT(MOOR_OVER_BUDGET, moor_range_commit(f->runtime, range, 2 * GRANULE, GRANULE, 0));
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 2 * GRANULE, GRANULE, grant)); /* I2 */
    cr_assert_eq(committed(f, range, 0, 8 * GRANULE), 3 * GRANULE);
}

/* A commit that takes more than its granules could not be released in parts: it is undone and reported. */
FIXTURE_TEST(ranges, commit_that_takes_too_much_is_undone)
{
    moor_range range = fixture_range(f, 8);
    struct fixture_state before = fixture_state(f);
    scripted_knobs(f->script)->granule_extra_bytes = 256;
    EXPECT(MOOR_PROVIDER, moor_range_commit(f->runtime, range, 0, 2 * GRANULE, 0));
    (void)moor_runtime_reap(f->runtime, fixture_soon(1000));
    scripted_knobs(f->script)->granule_extra_bytes = 0;
    fixture_expect_state(f, &before);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 2 * GRANULE, 0));
}

FIXTURE_TEST_WITH(ranges, without_the_capability_are_unsupported, fixture_close,
                  .capabilities = SCRIPTED_CAPS & ~(MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED))
{
    moor_range range = 0;
    moor_segment segment = 0;
    EXPECT(MOOR_UNSUPPORTED, moor_range_reserve(f->binding, GRANULE, NULL, &range));
    EXPECT(MOOR_UNSUPPORTED, moor_segment_create(f->binding, GRANULE, GRANULE, 0, &segment));
}
