/* SPDX-License-Identifier: MIT */
/* Segments: one physical memory at many addresses, charged once, read-only once it is shared, released with
 * its last mapping. */
#include "fixture.h"

#include <string.h>

TestSuite(segments, .timeout = 30);

FIXTURE_TEST(segments, are_charged_once_however_often_they_are_mapped)
{
    moor_segment segment = fixture_segment(f, 2, 0x42);
    moor_range ranges[3];
    for (size_t i = 0; i < 3; i++) {
        ranges[i] = fixture_range(f, 4);
        EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, ranges[i], GRANULE, MOOR_ACCESS_READ));
    }
    cr_assert_eq(fixture_stats(f).charged_bytes, 2 * GRANULE);
    fixture_check_accounts(f);
    for (size_t i = 0; i < 3; i++) {
        struct moor_view view = fixture_range_view(f, ranges[i], GRANULE, 2 * GRANULE);
        cr_assert(fixture_all_bytes(&view, 0x42));
        uint64_t bytes = 0;
        EXPECT(MOOR_OK, moor_range_get_committed(f->runtime, ranges[i], 0, 4 * GRANULE, &bytes));
        cr_assert_eq(bytes, 2 * GRANULE, "mapped segments count as committed");
    }
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
    fixture_reap(f);
    cr_assert_eq(fixture_stats(f).charged_bytes, 2 * GRANULE, "maps keep the memory alive");
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(scripted_objects(f->script).segments, 1);
        EXPECT(MOOR_OK, moor_range_unmap(f->runtime, ranges[i], GRANULE, 2 * GRANULE));
        fixture_reap(f);
    }
    cr_assert_eq(scripted_objects(f->script).segments, 0);
    cr_assert_eq(fixture_stats(f).charged_bytes, 0);
}

/* A segment is released as a whole, so it may take more than its size. */
FIXTURE_TEST(segments, that_take_more_than_their_size_are_charged_for_it)
{
    moor_segment segment = 0;
    scripted_knobs(f->script)->granule_extra_bytes = 256;
    fixture_set_capacity(f, 2 * GRANULE + 511);
    struct fixture_state before = fixture_state(f);
    moor_status status = moor_segment_create(f->binding, 2 * GRANULE, 0, 0, &segment);
    cr_assert(status == MOOR_OVER_BUDGET || status == MOOR_NEVER_FITS, "the status is %s",
              moor_status_name(status));
    fixture_reap(f);
    fixture_expect_state(f, &before);
    fixture_set_capacity(f, 2 * GRANULE + 512);
    segment = fixture_open_segment(f, 2);
    cr_assert_eq(fixture_stats(f).charged_bytes, 2 * (GRANULE + 256));
    fixture_check_accounts(f);
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
}

FIXTURE_TEST(segments, are_written_at_one_place_or_read_at_many)
{
    moor_segment segment = fixture_open_segment(f, 1);
    moor_range range = fixture_range(f, 4);
    EXPECT(MOOR_BUSY, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ));
    EXPECT(MOOR_INVALID, moor_segment_map(f->runtime, segment, range, 0, 2));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE));
    EXPECT(MOOR_BUSY, moor_segment_map(f->runtime, segment, range, GRANULE, MOOR_ACCESS_READ_WRITE));
    EXPECT(MOOR_BUSY, moor_segment_map(f->runtime, segment, range, GRANULE, MOOR_ACCESS_READ));
    struct moor_view view = fixture_range_view(f, range, 0, GRANULE);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0x11, 1));
    EXPECT(MOOR_OK, moor_segment_seal(f->runtime, segment, MOOR_FOREVER));
    EXPECT(MOOR_OK, moor_segment_seal(f->runtime, segment, MOOR_NO_WAIT));
    EXPECT(MOOR_BUSY, moor_segment_map(f->runtime, segment, range, GRANULE, MOOR_ACCESS_READ_WRITE));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, GRANULE, MOOR_ACCESS_READ));
    cr_assert_neq(moor_fill(f->stream, &view, 0, 1), MOOR_OK, "the map became read-only");
    struct moor_view second = fixture_range_view(f, range, GRANULE, GRANULE);
    cr_assert(fixture_all_bytes(&second, 0x11));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
}

FIXTURE_TEST(segments, seal_waits_for_writers)
{
    moor_segment segment = fixture_open_segment(f, 1);
    moor_range range = fixture_range(f, 2);
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE));
    struct moor_view view = fixture_range_view(f, range, 0, GRANULE);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0x22, 1));
    EXPECT(MOOR_PENDING, moor_segment_seal(f->runtime, segment, MOOR_NO_WAIT));
    EXPECT(MOOR_TIMEOUT, moor_segment_seal(f->runtime, segment, fixture_soon(30)));
    EXPECT(MOOR_BUSY, moor_segment_map(f->runtime, segment, range, GRANULE, MOOR_ACCESS_READ));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_PROTECT), 0);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0x23, 1)); /* still writable: the seal has not happened */
    scripted_open(f->script, f->queue);
    EXPECT(MOOR_OK, moor_segment_seal(f->runtime, segment, fixture_soon(5000)));
    cr_assert(fixture_all_bytes(&view, 0x23));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
}

/* The writable mapping is leaving: the seal reaps a completed unmap at once and waits for a fenced one. */
FIXTURE_TEST(segments, seal_waits_for_a_map_that_leaves)
{
    moor_segment segment = fixture_open_segment(f, 1);
    moor_range range = fixture_range(f, 2);
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE));
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, range, 0, GRANULE));
    EXPECT(MOOR_OK, moor_segment_seal(f->runtime, segment, MOOR_NO_WAIT));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));

    segment = fixture_open_segment(f, 1);
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE));
    struct moor_view view = fixture_range_view(f, range, 0, GRANULE);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0x24, 1));
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, range, 0, GRANULE));
    EXPECT(MOOR_PENDING, moor_segment_seal(f->runtime, segment, MOOR_NO_WAIT));
    EXPECT(MOOR_TIMEOUT, moor_segment_seal(f->runtime, segment, fixture_soon(30)));
    scripted_open(f->script, f->queue);
    EXPECT(MOOR_OK, moor_segment_seal(f->runtime, segment, fixture_soon(5000)));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, GRANULE, MOOR_ACCESS_READ));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
}

FIXTURE_TEST(segments, unmap_takes_exactly_one_map)
{
    moor_segment segment = fixture_segment(f, 2, 1);
    moor_range range = fixture_range(f, 8);
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 2 * GRANULE, MOOR_ACCESS_READ));
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 4 * GRANULE, 2 * GRANULE, 0));
    static const uint64_t wrong[][2] = {
        {0, GRANULE},           {GRANULE, GRANULE},         {0, 4 * GRANULE},
        {GRANULE, 2 * GRANULE}, {4 * GRANULE, 2 * GRANULE}, {6 * GRANULE, 2 * GRANULE}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert_neq(moor_range_unmap(f->runtime, range, wrong[i][0], wrong[i][1]), MOOR_OK, "%zu", i);
    cr_assert_neq(moor_range_decommit(f->runtime, range, 0, 2 * GRANULE), MOOR_OK,
                  "a map is not decommitted");
    cr_assert_neq(moor_range_decommit(f->runtime, range, 2 * GRANULE, 4 * GRANULE), MOOR_OK);
    cr_assert_neq(moor_range_commit(f->runtime, range, GRANULE, GRANULE, 0), MOOR_OK,
                  "a segment is mapped there");
    cr_assert_neq(moor_segment_map(f->runtime, segment, range, 3 * GRANULE, MOOR_ACCESS_READ), MOOR_OK);
    cr_assert_neq(moor_segment_map(f->runtime, segment, range, 7 * GRANULE, MOOR_ACCESS_READ), MOOR_OK);
    cr_assert_neq(moor_segment_map(f->runtime, segment, range, 6 * GRANULE + 1, MOOR_ACCESS_READ), MOOR_OK);
    cr_assert_neq(moor_segment_map(f->runtime, segment, range, UINT64_MAX - GRANULE + 1, MOOR_ACCESS_READ),
                  MOOR_OK);
    cr_assert_eq(scripted_objects(f->script).mappings, 2);
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, range, 2 * GRANULE, 2 * GRANULE));
    fixture_reap(f);
    cr_assert_eq(scripted_objects(f->script).mappings, 1);
}

FIXTURE_TEST(segments, unmap_waits_for_its_last_use)
{
    moor_segment segment = fixture_segment(f, 1, 0x33);
    moor_range range = fixture_range(f, 2);
    struct moor_view target = fixture_allocate_view(f, GRANULE);
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ));
    struct moor_view view = fixture_range_view(f, range, 0, GRANULE);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_copy(f->stream, &target, &view));
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, range, 0, GRANULE));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    EXPECT(MOOR_PENDING, moor_range_commit(f->runtime, range, 0, GRANULE, 0));
    fixture_open_and_reap(f);
    cr_assert(fixture_all_bytes(&target, 0x33));
    cr_assert_eq(scripted_objects(f->script).segments, 0);
}

FIXTURE_TEST(segments, fit_only_ranges_of_their_granule)
{
    moor_segment segment = 0;
    moor_range range = fixture_range(f, 4);
    /* part of a granule, one granule, two granules */
    for (uint64_t size = 8192; size <= 2 * GRANULE; size *= 2) {
        EXPECT(MOOR_OK, moor_segment_create(f->binding, size, 4096, 0, &segment));
        EXPECT(MOOR_INVALID, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE));
        EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
    }
    EXPECT(MOOR_INVALID, moor_segment_create(f->binding, GRANULE + 1, 0, 0, &segment));
    EXPECT(MOOR_INVALID, moor_segment_create(f->binding, 0, 0, 0, &segment));
    EXPECT(MOOR_INVALID, moor_segment_create(f->binding, GRANULE, 3000, 0, &segment));
    EXPECT(MOOR_INVALID, moor_segment_create(f->binding, 8192, 2048, 0, &segment));
}

/* ---- failures ---- */

struct placed {
    moor_segment segment;
    moor_range range;
};

static moor_status create_one(struct fixture *f, void *user)
{
    struct placed *placed = user;
    return moor_segment_create(f->binding, 2 * GRANULE, 0, 0, &placed->segment);
}

static void release_one(struct fixture *f, void *user)
{
    struct placed *placed = user;
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, placed->segment));
}

static moor_status map_one(struct fixture *f, void *user)
{
    struct placed *placed = user;
    return moor_segment_map(f->runtime, placed->segment, placed->range, GRANULE, MOOR_ACCESS_READ);
}

static void unmap_one(struct fixture *f, void *user)
{
    struct placed *placed = user;
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, placed->range, GRANULE, 2 * GRANULE));
}

FIXTURE_TEST(segments, fail_at_every_step_without_a_trace)
{
    struct placed placed = {0};
    cr_assert_geq(fixture_fail_each(f, MOOR_DEVICE_NOMEM, create_one, release_one, &placed), 1);
    placed.segment = fixture_segment(f, 2, 1);
    placed.range = fixture_range(f, 4);
    cr_assert_geq(fixture_fail_each(f, MOOR_LIMIT, map_one, unmap_one, &placed), 1);
}

FIXTURE_TEST(segments, seal_that_fails_leaves_it_open)
{
    moor_segment segment = fixture_open_segment(f, 1);
    moor_range range = fixture_range(f, 2);
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE));
    fixture_fail(f, SCRIPTED_PROTECT, 1, MOOR_LIMIT);
    EXPECT(MOOR_LIMIT, moor_segment_seal(f->runtime, segment, MOOR_FOREVER));
    EXPECT(MOOR_BUSY, moor_segment_map(f->runtime, segment, range, GRANULE, MOOR_ACCESS_READ));
    struct moor_view view = fixture_range_view(f, range, 0, GRANULE);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_segment_seal(f->runtime, segment, MOOR_FOREVER));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
}

/* A leaving mapping counts until it is gone: the memory must stay until then. */
FIXTURE_TEST(segments, release_before_unmap_and_after)
{
    for (uint32_t order = 0; order < 2; order++) {
        moor_segment segment = fixture_segment(f, 1, 1);
        moor_range range = fixture_range(f, 1);
        EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ));
        struct moor_view view = fixture_range_view(f, range, 0, GRANULE);
        scripted_hold(f->script, f->queue);
        EXPECT(MOOR_OK, moor_stream_used(f->stream, &view));
        if (order == 0)
            EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
        EXPECT(MOOR_OK, moor_range_unmap(f->runtime, range, 0, GRANULE));
        if (order == 1)
            EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
        EXPECT_BYTES(f, .charged_bytes = GRANULE, .pending_bytes = GRANULE); /* unusable memory is pending */
        scripted_open(f->script, f->queue);
        fixture_reap(f);
        cr_assert_eq(fixture_stats(f).charged_bytes, 0);
    }
}
