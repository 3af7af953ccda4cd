/* SPDX-License-Identifier: MIT */
/*
 * Copy on write (O20): the last owner of a segment writes in place, anybody else in a private copy at the
 * same address, charged to the range's holder; and a failure, at any step, leaves both sides as they were.
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

static void unshare(struct fixture *f, const struct shared *s)
{
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, s->segment));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, s->ranges[0]));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, s->ranges[1]));
}

static struct moor_view mapped(struct fixture *f, moor_range range)
{
    return fixture_range_view(f, range, GRANULE, 2 * GRANULE);
}

Test(writable, a_shared_map_becomes_a_private_copy)
{
    struct fixture f = fixture_open(NULL);
    struct shared s = share(&f);
    struct moor_view first = mapped(&f, s.ranges[0]);
    struct moor_view second = mapped(&f, s.ranges[1]);
    EXPECT(MOOR_OK, moor_range_make_writable(f.runtime, s.ranges[0], GRANULE, f.stream, 0, MOOR_FOREVER, NULL));
    fixture_reap(&f);
    struct moor_view again = mapped(&f, s.ranges[0]);
    cr_assert_eq(again.address, first.address, "at the same address");
    cr_assert(fixture_all_bytes(&first, 0x5a));
    cr_assert_eq(fixture_stats(&f).charged_bytes, 4 * GRANULE, "the copy is charged, and charged once");
    EXPECT(MOOR_OK, moor_fill(f.stream, &first, 0x77, 1));
    EXPECT(MOOR_OK, moor_memory_wait(&first, fixture_soon(5000)));
    cr_assert(fixture_all_bytes(&first, 0x77));
    cr_assert(fixture_all_bytes(&second, 0x5a), "nobody else sees the writes");
    cr_assert_neq(moor_fill(f.stream, &second, 0, 1), MOOR_OK);
    cr_assert_eq(scripted_objects(f.script).ranges, 2, "what the copy needed on its way is given back");
    fixture_check_books(&f);
    unshare(&f, &s);
    fixture_close(&f);
}

Test(writable, the_last_owner_writes_in_place)
{
    struct fixture f = fixture_open(NULL);
    struct shared s = share(&f);
    EXPECT(MOOR_OK, moor_segment_release(f.runtime, s.segment));
    EXPECT(MOOR_OK, moor_range_unmap(f.runtime, s.ranges[1], GRANULE, 2 * GRANULE));
    fixture_reap(&f);
    uint64_t made = scripted_count(f.script, SCRIPTED_SEGMENT_CREATE);
    EXPECT(MOOR_OK, moor_range_make_writable(f.runtime, s.ranges[0], GRANULE, f.stream, 0, MOOR_FOREVER, NULL));
    cr_assert_eq(scripted_count(f.script, SCRIPTED_SEGMENT_CREATE), made, "no copy is made");
    cr_assert_eq(fixture_stats(&f).charged_bytes, 2 * GRANULE);
    struct moor_view view = mapped(&f, s.ranges[0]);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_range_release(f.runtime, s.ranges[0]));
    EXPECT(MOOR_OK, moor_range_release(f.runtime, s.ranges[1]));
    fixture_close(&f);
}

/* Whoever still has the handle may map it again: then this is not the last owner. */
Test(writable, the_handle_counts_as_an_owner)
{
    struct fixture f = fixture_open(NULL);
    struct shared s = share(&f);
    EXPECT(MOOR_OK, moor_range_unmap(f.runtime, s.ranges[1], GRANULE, 2 * GRANULE));
    fixture_reap(&f);
    EXPECT(MOOR_OK, moor_range_make_writable(f.runtime, s.ranges[0], GRANULE, f.stream, 0, MOOR_FOREVER, NULL));
    fixture_reap(&f);
    struct moor_view view = mapped(&f, s.ranges[0]);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_segment_map(f.runtime, s.segment, s.ranges[1], GRANULE, MOOR_ACCESS_READ));
    struct moor_view second = mapped(&f, s.ranges[1]);
    cr_assert(fixture_all_bytes(&second, 0x5a), "sealed contents do not change");
    unshare(&f, &s);
    fixture_close(&f);
}

Test(writable, over_budget_leaves_both_sides)
{
    struct fixture f = fixture_open(NULL);
    struct shared s = share(&f);
    EXPECT(MOOR_OK, moor_authority_set_capacity(f.authority, 3 * GRANULE));
    struct fixture_state before = fixture_state(&f);
    EXPECT(MOOR_OVER_BUDGET,
           moor_range_make_writable(f.runtime, s.ranges[0], GRANULE, f.stream, 0, MOOR_FOREVER, NULL));
    fixture_reap(&f);
    struct fixture_state after = fixture_state(&f);
    fixture_same_state(&before, &after);
    struct moor_view first = mapped(&f, s.ranges[0]);
    struct moor_view second = mapped(&f, s.ranges[1]);
    cr_assert(fixture_all_bytes(&first, 0x5a) && fixture_all_bytes(&second, 0x5a));
    cr_assert_neq(moor_fill(f.stream, &first, 0, 1), MOOR_OK, "it is still read-only");
    EXPECT(MOOR_OK, moor_authority_set_capacity(f.authority, 4 * GRANULE));
    moor_grant grant = 0;
    EXPECT(MOOR_OK, moor_grant_reserve(f.holder, 2 * GRANULE, &grant));
    EXPECT(MOOR_OK, moor_range_make_writable(f.runtime, s.ranges[0], GRANULE, f.stream, grant, MOOR_FOREVER, NULL));
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
    unshare(&f, &s);
    fixture_close(&f);
}

Test(writable, pending_work_is_waited_for)
{
    struct fixture f = fixture_open(NULL);
    struct moor_abi_stream *queue;
    struct moor_stream *reader = fixture_stream(&f, &queue);
    struct shared s = share(&f);
    moor_buffer target = fixture_allocate(&f, 2 * GRANULE);
    struct moor_view view = mapped(&f, s.ranges[0]);
    struct moor_view target_view = fixture_buffer_view(&f, target);
    scripted_hold(f.script, queue);
    EXPECT(MOOR_OK, moor_copy(reader, &target_view, &view));
    struct fixture_state before = fixture_state(&f);
    EXPECT(MOOR_PENDING,
           moor_range_make_writable(f.runtime, s.ranges[0], GRANULE, f.stream, 0, MOOR_NO_WAIT, NULL));
    EXPECT(MOOR_TIMEOUT,
           moor_range_make_writable(f.runtime, s.ranges[0], GRANULE, f.stream, 0, fixture_soon(30), NULL));
    (void)moor_runtime_reap(f.runtime, fixture_soon(30));
    struct fixture_state after = fixture_state(&f);
    fixture_same_state(&before, &after);
    scripted_open(f.script, queue);
    EXPECT(MOOR_OK,
           moor_range_make_writable(f.runtime, s.ranges[0], GRANULE, f.stream, 0, fixture_soon(5000), NULL));
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 1, 1));
    cr_assert(fixture_all_bytes(&target_view, 0x5a));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, target));
    unshare(&f, &s);
    EXPECT(MOOR_OK, moor_stream_destroy(reader));
    fixture_close(&f);
}

Test(writable, only_maps_can_be_made_so)
{
    struct fixture f = fixture_open(NULL);
    struct shared s = share(&f);
    EXPECT(MOOR_OK, moor_range_commit(f.runtime, s.ranges[0], 0, GRANULE, 0));
    static const uint64_t wrong[] = {0, 2 * GRANULE, 3 * GRANULE, GRANULE + 1, 4 * GRANULE, UINT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert_neq(moor_range_make_writable(f.runtime, s.ranges[0], wrong[i], f.stream, 0, MOOR_FOREVER, NULL),
                      MOOR_OK, "%zu", i);
    EXPECT(MOOR_INVALID, moor_range_make_writable(f.runtime, s.ranges[0], GRANULE, NULL, 0, MOOR_FOREVER, NULL));
    unshare(&f, &s);
    fixture_close(&f);
}

/*
 * Every provider call fails once. Whatever the answer is, both sides read as before, the other side is not
 * touched, and bytes that could not be given back are in quarantine, charged.
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
        scripted_fail(f.script,
                      (struct scripted_fault){.name = SCRIPTED_ANY, .nth = n, .status = MOOR_DEVICE_NOMEM});
        moor_status status =
            moor_range_make_writable(f.runtime, s.ranges[0], GRANULE, f.stream, 0, fixture_soon(5000), NULL);
        uint32_t fired = scripted_faults_fired(f.script);
        scripted_clear_faults(f.script);
        (void)moor_runtime_reap(f.runtime, fixture_soon(2000));
        fixture_check_books(&f);
        cr_assert(fixture_all_bytes(&first, 0x5a), "call %u: %s", n, moor_status_name(status));
        cr_assert(fixture_all_bytes(&second, 0x5a), "call %u", n);
        moor_status writing = moor_fill(f.stream, &first, 0x5a, 1);
        struct moor_authority_stats stats = fixture_stats(&f);
        if (status) {
            failures++;
            cr_assert_neq(writing, MOOR_OK, "call %u: it is still read-only", n);
            cr_assert_eq(stats.charged_bytes - stats.quarantined_bytes, charged, "call %u", n);
        } else {
            EXPECT(MOOR_OK, writing);
            cr_assert_geq(stats.charged_bytes, charged + 2 * GRANULE, "call %u", n);
        }
        unshare(&f, &s);
        (void)moor_runtime_reap(f.runtime, fixture_soon(2000));
        fixture_close_quarantined(&f); /* what is in quarantine goes now */
        if (!fired)
            break;
    }
    cr_assert_geq(failures, 3);
}
