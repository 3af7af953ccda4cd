/* SPDX-License-Identifier: MIT */
/*
 * Copy on write (O20): the last owner of a segment writes in place; any other owner writes in a private copy
 * at the same address, charged to the range's holder. A failure at any step leaves both sides unchanged.
 */
#include "fixture.h"

#include <string.h>

TestSuite(writable, .timeout = 30);

struct shared {
    moor_segment segment;
    moor_range ranges[2];
};

/* One segment of 2 granules, all 0x5a, mapped read-only into two ranges at granule 1. */
static struct shared share(struct fixture *f)
{
    struct shared s = {.segment = fixture_segment(f, 2, 0x5a)};
    for (size_t i = 0; i < 2; i++) {
        s.ranges[i] = fixture_range(f, 4);
        EXPECT(MOOR_OK, moor_segment_map(f->runtime, s.segment, s.ranges[i], GRANULE, MOOR_ACCESS_READ));
    }
    return s;
}

static struct moor_view mapped(struct fixture *f, moor_range range)
{
    return fixture_range_view(f, range, GRANULE, 2 * GRANULE);
}

/* ret_segment: may be NULL. */
static moor_status make_writable_for(struct fixture *f, moor_range range, moor_grant grant,
                                     moor_segment *ret_segment)
{
    return moor_range_make_writable(f->runtime, range, GRANULE, f->stream, grant, MOOR_FOREVER, ret_segment);
}

static moor_status make_writable_until(struct fixture *f, moor_range range, uint64_t deadline_ns)
{
    return moor_range_make_writable(f->runtime, range, GRANULE, f->stream, 0, deadline_ns, NULL);
}

static moor_status make_writable(struct fixture *f, moor_range range)
{
    return make_writable_for(f, range, 0, NULL);
}

FIXTURE_TEST(writable, a_shared_map_becomes_a_private_copy)
{
    struct shared s = share(f);
    struct moor_view first = mapped(f, s.ranges[0]);
    struct moor_view second = mapped(f, s.ranges[1]);
    EXPECT(MOOR_OK, make_writable(f, s.ranges[0]));
    fixture_reap(f);
    struct moor_view again = mapped(f, s.ranges[0]);
    cr_assert_eq(again.address, first.address, "at the same address");
    cr_assert(fixture_all_bytes(&first, 0x5a));
    cr_assert_eq(fixture_stats(f).charged_bytes, 4 * GRANULE, "the copy is charged, and charged once");
    EXPECT(MOOR_OK, moor_fill(f->stream, &first, 0x77, 1));
    EXPECT(MOOR_OK, moor_memory_wait(&first, fixture_soon(5000)));
    cr_assert(fixture_all_bytes(&first, 0x77));
    cr_assert(fixture_all_bytes(&second, 0x5a), "the other mapping does not see the writes");
    cr_assert_neq(moor_fill(f->stream, &second, 0, 1), MOOR_OK);
    cr_assert_eq(scripted_objects(f->script).ranges, 2, "the copy's window is released");
    fixture_check_accounts(f);
}

FIXTURE_TEST(writable, the_last_owner_writes_in_place)
{
    struct shared s = share(f);
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, s.segment));
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, s.ranges[1], GRANULE, 2 * GRANULE));
    fixture_reap(f);
    uint64_t made = scripted_count(f->script, SCRIPTED_SEGMENT_CREATE);
    EXPECT(MOOR_OK, make_writable(f, s.ranges[0]));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_SEGMENT_CREATE), made, "no copy is made");
    cr_assert_eq(fixture_stats(f).charged_bytes, 2 * GRANULE);
    struct moor_view view = mapped(f, s.ranges[0]);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, s.ranges[0]));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, s.ranges[1]));
}

/* The handle's owner may map the segment again, so the mapping is not the last owner. */
FIXTURE_TEST(writable, the_handle_counts_as_an_owner)
{
    struct shared s = share(f);
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, s.ranges[1], GRANULE, 2 * GRANULE));
    fixture_reap(f);
    EXPECT(MOOR_OK, make_writable(f, s.ranges[0]));
    fixture_reap(f);
    struct moor_view view = mapped(f, s.ranges[0]);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, s.segment, s.ranges[1], GRANULE, MOOR_ACCESS_READ));
    struct moor_view second = mapped(f, s.ranges[1]);
    cr_assert(fixture_all_bytes(&second, 0x5a), "sealed bytes do not change");
}

FIXTURE_TEST(writable, over_budget_leaves_both_sides)
{
    struct shared s = share(f);
    fixture_set_capacity(f, 3 * GRANULE);
    struct fixture_state before = fixture_state(f);
    EXPECT(MOOR_OVER_BUDGET, make_writable(f, s.ranges[0]));
    fixture_reap(f);
    fixture_expect_state(f, &before);
    struct moor_view first = mapped(f, s.ranges[0]);
    struct moor_view second = mapped(f, s.ranges[1]);
    cr_assert(fixture_all_bytes(&first, 0x5a) && fixture_all_bytes(&second, 0x5a));
    cr_assert_neq(moor_fill(f->stream, &first, 0, 1), MOOR_OK, "the mapping is still read-only");
    fixture_set_capacity(f, 4 * GRANULE);
    moor_grant grant = fixture_reserve(f, 2 * GRANULE);
    EXPECT(MOOR_OK, make_writable_for(f, s.ranges[0], grant, NULL));
}

/* The copy is made and exceeds the budget. */
FIXTURE_TEST(writable, a_copy_that_takes_too_much_is_undone)
{
    struct shared s = share(f);
    uint64_t left = 0;
    fixture_set_capacity(f, 4 * GRANULE);
    moor_grant grant = fixture_reserve(f, 2 * GRANULE);
    struct fixture_state before = fixture_state(f);
    scripted_knobs(f->script)->granule_extra_bytes = 4096;
    EXPECT(MOOR_OVER_BUDGET, make_writable_for(f, s.ranges[0], grant, NULL));
    scripted_knobs(f->script)->granule_extra_bytes = 0;
    fixture_reap(f);
    fixture_expect_state(f, &before);
    EXPECT(MOOR_OK, moor_grant_get_remaining(f->runtime, grant, &left));
    cr_assert_eq(left, 2 * GRANULE);
}

/* The exchange fails half-way, and the way back fails, too: the missing mapping is reported as not backed. */
FIXTURE_TEST(writable, whose_way_back_fails_is_not_backed)
{
    struct shared s = share(f);
    struct moor_view first = mapped(f, s.ranges[0]);
    struct moor_view second = mapped(f, s.ranges[1]);
    moor_segment copy = 77;
    /* The first mapping is the copy's window. The failures hit the new mapping and the restored old one. */
    scripted_fail(f->script, (struct scripted_fault){
                                 .name = SCRIPTED_MAP, .nth = 2, .times = 2, .status = MOOR_DEVICE_NOMEM});
    EXPECT(MOOR_DEVICE_NOMEM, make_writable_for(f, s.ranges[0], 0, &copy));
    cr_assert(strstr(moor_last_error()->text, "not backed"), "%s", moor_last_error()->text);
    cr_assert_eq(copy, 77);
    fixture_reap(f);
    fixture_check_accounts(f);
    cr_assert_eq(scripted_objects(f->script).mappings, 1);
    cr_assert_eq(fixture_stats(f).charged_bytes, 2 * GRANULE, "the copy has gone");
    EXPECT(MOOR_INVALID, moor_fill(f->stream, &first, 1, 1));
    cr_assert(fixture_all_bytes(&second, 0x5a));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, s.segment, s.ranges[0], GRANULE, MOOR_ACCESS_READ));
    cr_assert(fixture_all_bytes(&first, 0x5a));
}

FIXTURE_TEST(writable, pending_work_is_waited_for)
{
    struct moor_abi_stream *queue;
    struct moor_stream *reader = fixture_stream(f, &queue);
    struct shared s = share(f);
    struct moor_view view = mapped(f, s.ranges[0]);
    struct moor_view target = fixture_allocate_view(f, 2 * GRANULE);
    scripted_hold(f->script, queue);
    EXPECT(MOOR_OK, moor_copy(reader, &target, &view));
    struct fixture_state before = fixture_state(f);
    EXPECT(MOOR_PENDING, make_writable_until(f, s.ranges[0], MOOR_NO_WAIT));
    EXPECT(MOOR_TIMEOUT, make_writable_until(f, s.ranges[0], fixture_soon(30)));
    (void)moor_runtime_reap(f->runtime, fixture_soon(30));
    fixture_expect_state(f, &before);
    scripted_open(f->script, queue);
    EXPECT(MOOR_OK, make_writable_until(f, s.ranges[0], fixture_soon(5000)));
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 1, 1));
    cr_assert(fixture_all_bytes(&target, 0x5a));
}

/* The copy reads the shared mapping, which stays until the copy is done. */
FIXTURE_TEST(writable, a_copy_under_way_keeps_its_source)
{
    struct shared s = share(f);
    struct moor_view view = mapped(f, s.ranges[0]);
    struct fixture_state before = fixture_state(f);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_TIMEOUT, make_writable_until(f, s.ranges[0], fixture_soon(30)));
    cr_assert(fixture_all_bytes(&view, 0x5a));
    fixture_open_and_reap(f);
    fixture_expect_state(f, &before);
    EXPECT(MOOR_OK, make_writable(f, s.ranges[0]));
    cr_assert(fixture_all_bytes(&view, 0x5a));
}

/* The last owner waits for no copy, but for all readers. */
FIXTURE_TEST(writable, in_place_waits_for_readers)
{
    struct moor_abi_stream *queue;
    struct moor_stream *reader = fixture_stream(f, &queue);
    struct shared s = share(f);
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, s.segment));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, s.ranges[1]));
    fixture_reap(f);
    struct moor_view view = mapped(f, s.ranges[0]);
    struct moor_view target = fixture_allocate_view(f, 2 * GRANULE);
    scripted_hold(f->script, queue);
    EXPECT(MOOR_OK, moor_copy(reader, &target, &view));
    struct fixture_state before = fixture_state(f);
    EXPECT(MOOR_PENDING, make_writable_until(f, s.ranges[0], MOOR_NO_WAIT));
    EXPECT(MOOR_TIMEOUT, make_writable_until(f, s.ranges[0], fixture_soon(30)));
    fixture_expect_state(f, &before);
    EXPECT(MOOR_INVALID, moor_fill(f->stream, &view, 1, 1)); /* still read-only */
    scripted_open(f->script, queue);
    EXPECT(MOOR_OK, make_writable_until(f, s.ranges[0], MOOR_NO_WAIT));
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 1, 1));
    cr_assert(fixture_all_bytes(&target, 0x5a), "the reader saw the old bytes");
    EXPECT(MOOR_OK, moor_range_release(f->runtime, s.ranges[0]));
}

/* ---- the handle of the present segment ---- */

/* Seals a writable segment, maps it at granule 1 of a new range, and returns that range. */
static moor_range share_again(struct fixture *f, moor_segment segment)
{
    moor_range range = fixture_range(f, 4);
    EXPECT(MOOR_OK, moor_segment_seal(f->runtime, segment, MOOR_FOREVER));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, GRANULE, MOOR_ACCESS_READ));
    return range;
}

/* A tail is forked, written, shared, and forked again. */
FIXTURE_TEST(writable, copies_have_a_handle_to_share_them_by)
{
    struct shared s = share(f);
    struct moor_view first = mapped(f, s.ranges[0]);
    struct moor_view second = mapped(f, s.ranges[1]);
    moor_segment copy = 0;
    moor_segment second_copy = 0;
    EXPECT(MOOR_OK, make_writable_for(f, s.ranges[0], 0, &copy));
    cr_assert(copy && copy != s.segment);
    EXPECT(MOOR_OK, moor_fill(f->stream, &first, 0x77, 1));
    moor_range third_range = share_again(f, copy);
    struct moor_view third = mapped(f, third_range);
    cr_assert(fixture_all_bytes(&third, 0x77));
    cr_assert_eq(fixture_stats(f).charged_bytes, 4 * GRANULE, "sharing costs nothing");
    EXPECT(MOOR_OK, make_writable_for(f, third_range, 0, &second_copy));
    cr_assert(second_copy && second_copy != copy);
    cr_assert(fixture_all_bytes(&third, 0x77), "the second fork starts with the first one's bytes");
    EXPECT(MOOR_OK, moor_fill(f->stream, &third, 0x78, 1));
    cr_assert(fixture_all_bytes(&first, 0x77) && fixture_all_bytes(&second, 0x5a), "each has its own");
    fixture_reap(f);
    cr_assert_eq(fixture_stats(f).charged_bytes, 6 * GRANULE);
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, copy));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, second_copy));
    EXPECT(MOOR_STALE, moor_segment_release(f->runtime, copy));
    fixture_reap(f);
    cr_assert_eq(fixture_stats(f).charged_bytes, 6 * GRANULE, "the mappings keep them");
    EXPECT(MOOR_OK, moor_range_release(f->runtime, third_range));
}

FIXTURE_TEST(writable, in_place_has_a_new_handle_and_the_old_one_stays_stale)
{
    moor_range range = fixture_range(f, 4);
    moor_segment handles[5] = {fixture_segment(f, 2, 0x5a)};
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, handles[0], range, GRANULE, MOOR_ACCESS_READ));
    struct moor_view view = mapped(f, range);
    for (uint8_t i = 1; i < 5; i++) {
        EXPECT(MOOR_OK, moor_segment_release(f->runtime, handles[i - 1]));
        EXPECT(MOOR_OK, make_writable_for(f, range, 0, &handles[i]));
        EXPECT(MOOR_OK, moor_fill(f->stream, &view, i, 1));
        moor_range other = share_again(f, handles[i]);
        struct moor_view other_view = mapped(f, other);
        cr_assert(fixture_all_bytes(&other_view, i));
        for (uint8_t old = 0; old < i; old++) {
            cr_assert_neq(handles[old], handles[i]);
            EXPECT(MOOR_STALE, moor_segment_release(f->runtime, handles[old]));
            EXPECT(MOOR_STALE, moor_segment_seal(f->runtime, handles[old], MOOR_NO_WAIT));
            EXPECT(MOOR_STALE,
                   moor_segment_map(f->runtime, handles[old], other, 3 * GRANULE, MOOR_ACCESS_READ));
        }
        EXPECT(MOOR_OK, moor_range_release(f->runtime, other));
        fixture_reap(f);
        cr_assert_eq(fixture_stats(f).charged_bytes, 2 * GRANULE, "no copy was made");
    }
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, handles[4]));
}

/* The provider refuses once: no handle results, and the next attempt returns one. */
FIXTURE_TEST(writable, in_place_that_fails_gives_no_handle)
{
    moor_range range = fixture_range(f, 4);
    moor_segment first = fixture_segment(f, 2, 0x5a);
    moor_segment again = 77;
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, first, range, GRANULE, MOOR_ACCESS_READ));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, first));
    struct moor_view view = mapped(f, range);
    struct fixture_state before = fixture_state(f);
    fixture_fail(f, SCRIPTED_PROTECT, 1, MOOR_LIMIT);
    EXPECT(MOOR_LIMIT, make_writable_for(f, range, 0, &again));
    cr_assert_eq(again, 77);
    fixture_expect_state(f, &before);
    EXPECT(MOOR_INVALID, moor_fill(f->stream, &view, 1, 1));
    EXPECT(MOOR_STALE, moor_segment_release(f->runtime, first));
    EXPECT(MOOR_OK, make_writable_for(f, range, 0, &again));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, again));
}

FIXTURE_TEST(writable, a_writable_mapping_stays_and_gets_no_new_handle)
{
    moor_range range = fixture_range(f, 4);
    moor_segment none = 77;
    moor_segment segment = fixture_open_segment(f, 2);
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, GRANULE, MOOR_ACCESS_READ_WRITE));
    struct fixture_state before = fixture_state(f);
    EXPECT(MOOR_OK, moor_range_make_writable(f->runtime, range, GRANULE, f->stream, 0, MOOR_NO_WAIT, &none));
    cr_assert_eq(none, 0);
    EXPECT(MOOR_OK, make_writable_until(f, range, MOOR_NO_WAIT));
    fixture_expect_state(f, &before);
}

FIXTURE_TEST(writable, only_mappings_can_be_made_writable)
{
    struct shared s = share(f);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, s.ranges[0], 0, GRANULE, 0));
    static const uint64_t wrong[] = {0, 2 * GRANULE, 3 * GRANULE, GRANULE + 1, 4 * GRANULE, UINT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert_neq(
            moor_range_make_writable(f->runtime, s.ranges[0], wrong[i], f->stream, 0, MOOR_FOREVER, NULL),
            MOOR_OK, "%zu", i);
    EXPECT(MOOR_INVALID,
           moor_range_make_writable(f->runtime, s.ranges[0], GRANULE, NULL, 0, MOOR_FOREVER, NULL));
}

/*
 * Every provider call fails once. Both sides then read as before, the other side is unchanged, and bytes that
 * could not be freed are charged in quarantine.
 */
Test(writable, fails_at_every_step_with_nothing_lost)
{
    uint32_t failures = 0;
    for (uint32_t n = 1;; n++) {
        struct fixture f = fixture_open(NULL);
        struct shared s = share(&f);
        struct moor_view first = mapped(&f, s.ranges[0]);
        struct moor_view second = mapped(&f, s.ranges[1]);
        uint64_t charged = fixture_stats(&f).charged_bytes;
        fixture_fail(&f, SCRIPTED_ANY, n, MOOR_DEVICE_NOMEM);
        moor_status status =
            moor_range_make_writable(f.runtime, s.ranges[0], GRANULE, f.stream, 0, fixture_soon(5000), NULL);
        uint32_t fired = scripted_faults_fired(f.script);
        scripted_clear_faults(f.script);
        (void)moor_runtime_reap(f.runtime, fixture_soon(2000));
        fixture_check_accounts(&f);
        cr_assert(fixture_all_bytes(&first, 0x5a), "call %u: %s", n, moor_status_name(status));
        cr_assert(fixture_all_bytes(&second, 0x5a), "call %u", n);
        moor_status writing = moor_fill(f.stream, &first, 0x5a, 1);
        struct moor_authority_stats stats = fixture_stats(&f);
        if (status) {
            failures++;
            cr_assert_neq(writing, MOOR_OK, "call %u: the mapping is still read-only", n);
            cr_assert_eq(stats.charged_bytes - stats.quarantined_bytes, charged, "call %u", n);
        } else {
            EXPECT(MOOR_OK, writing);
            cr_assert_geq(stats.charged_bytes, charged + 2 * GRANULE, "call %u", n);
        }
        fixture_close_quarantined(&f); /* the quarantined objects go now */
        if (!fired)
            break;
    }
    cr_assert_geq(failures, 3);
}

/* The same with a grant: after any failure the grant has its bytes again once all releases have completed. */
Test(writable, that_fails_gives_its_grant_back)
{
    uint32_t failures = 0;
    for (uint32_t n = 1, fired = 1; fired; n++) {
        struct fixture f = fixture_open(NULL);
        struct shared s = share(&f);
        moor_grant grant = 0;
        uint64_t left = 0;
        EXPECT(MOOR_OK, moor_grant_reserve(f.holder, 5 * GRANULE, MOOR_NO_WAIT, &grant));
        fixture_fail(&f, SCRIPTED_ANY, n, MOOR_DEVICE_NOMEM);
        moor_status status = moor_range_make_writable(f.runtime, s.ranges[0], GRANULE, f.stream, grant,
                                                      fixture_soon(5000), NULL);
        fired = scripted_faults_fired(f.script);
        scripted_clear_faults(f.script);
        fixture_reap(&f);
        EXPECT(MOOR_OK, moor_grant_get_remaining(f.runtime, grant, &left));
        cr_assert_eq(left, status ? 5 * GRANULE : 3 * GRANULE, "call %u: %s, and %llu bytes are left", n,
                     moor_status_name(status), (unsigned long long)left);
        failures += status != MOOR_OK;
        EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
        fixture_close_quarantined(&f);
    }
    cr_assert_geq(failures, 5);
}

/* The provider accepted the unmap of the old mapping and failed to do it: the mapping's state is unknown. */
FIXTURE_TEST(writable, whose_unmap_fails_is_quarantined_with_nothing_lost)
{
    struct shared s = share(f);
    struct moor_view first = mapped(f, s.ranges[0]);
    struct moor_view second = mapped(f, s.ranges[1]);
    moor_segment copy = 77;
    uint64_t left = 0;
    moor_grant grant = fixture_reserve(f, 2 * GRANULE);
    scripted_fail_free(f->script, MOOR_ABI_RELEASE_UNMAP, 1, 1, MOOR_DEVICE_LOST);
    EXPECT(MOOR_PROVIDER, make_writable_for(f, s.ranges[0], grant, &copy));
    cr_assert_eq(copy, 77);
    fixture_reap(f);
    fixture_check_accounts(f);
    cr_assert_eq(fixture_counts(f).quarantined, 1, "the mapping");
    cr_assert_eq(fixture_stats(f).charged_bytes, 2 * GRANULE, "the copy has gone");
    EXPECT(MOOR_OK, moor_grant_get_remaining(f->runtime, grant, &left));
    cr_assert_eq(left, 2 * GRANULE);
    cr_assert_eq(fixture_stats(f).pending_bytes, 0);
    EXPECT(MOOR_PENDING, moor_fill(f->stream, &first, 1, 1));
    cr_assert_neq(moor_range_commit(f->runtime, s.ranges[0], GRANULE, 2 * GRANULE, grant), MOOR_OK);
    cr_assert(fixture_all_bytes(&second, 0x5a));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, s.segment));
    for (size_t i = 0; i < 2; i++)
        EXPECT(MOOR_OK, moor_range_release(f->runtime, s.ranges[i]));
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, fixture_soon(1000)));
    cr_assert_eq(fixture_stats(f).charged_bytes, 2 * GRANULE, "the stuck mapping keeps the segment");
    EXPECT(MOOR_OK, moor_binding_close(f->binding)); /* tries again */
    f->binding = NULL;
}
