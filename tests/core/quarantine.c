/* SPDX-License-Identifier: MIT */
/*
 * I8: what cannot be freed is quarantined: still charged, listed, never handed out, tried again at unload.
 * And a provider that loses or repeats completions does not make the books wrong in the dangerous direction.
 */
#include "fixture.h"

TestSuite(quarantine, .timeout = 30);

/* Releases one buffer whose freeing fails. */
static void quarantine_one(struct fixture *f, uint32_t times)
{
    moor_buffer buffer = fixture_allocate(f, 4096);
    scripted_fail_free(f->script, MOOR_ABI_RELEASE_ALLOCATION, 1, times, MOOR_PROVIDER);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, fixture_soon(1000)));
}

Test(quarantine, keeps_the_charge)
{
    struct fixture f = fixture_open(NULL);
    quarantine_one(&f, UINT32_MAX);
    struct moor_authority_stats stats = fixture_stats(&f);
    cr_assert_eq(stats.quarantined_bytes, 4096);
    cr_assert_eq(stats.charged_bytes, 4096);
    cr_assert_eq(stats.pending_bytes, 0);
    cr_assert_eq(stats.live_bytes, 0);
    cr_assert_eq(fixture_counts(&f).quarantined, 1);
    cr_assert_eq(fixture_counts(&f).buffers, 1, "its memory has not gone");
    fixture_check_books(&f);
    EXPECT(MOOR_OK, moor_authority_set_capacity(f.authority, 8192));
    moor_buffer buffer = 0;
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(f.binding, 8192, NULL, &buffer));
    struct moor_holder_stats holder;
    EXPECT(MOOR_OK, moor_holder_get_stats(f.holder, &holder));
    cr_assert_eq(holder.quarantined_bytes, 4096);
    EXPECT(MOOR_BUSY, moor_holder_destroy(f.holder));
    fixture_close_quarantined(&f);
}

Test(quarantine, is_tried_again_at_unload)
{
    struct fixture f = fixture_open(NULL);
    quarantine_one(&f, 1);
    cr_assert_eq(fixture_stats(&f).quarantined_bytes, 4096);
    fixture_close_quarantined(&f);
}

Test(quarantine, that_stays_refuses_the_end)
{
    struct fixture f = fixture_open(NULL);
    quarantine_one(&f, UINT32_MAX);
    struct moor_stream *stream = f.stream;
    f.stream = NULL;
    EXPECT(MOOR_OK, moor_stream_destroy(stream));
    EXPECT(MOOR_PROVIDER, moor_binding_close(f.binding));
    EXPECT(MOOR_BUSY, moor_provider_unload(f.provider));
    cr_assert_eq(fixture_stats(&f).quarantined_bytes, 4096, "still charged, still listed");
    cr_assert_eq(fixture_counts(&f).quarantined, 1);
    cr_assert_eq(scripted_count(f.script, SCRIPTED_SHUTDOWN), 0);
    fixture_close_quarantined(&f);
}

/* A lost device: its fences are never reached, so nothing behind them is ever taken for free. */
Test(quarantine, takes_what_waits_for_a_lost_stream)
{
    struct fixture f = fixture_open(NULL);
    moor_buffer buffer = fixture_allocate(&f, 4096);
    struct moor_view view = fixture_buffer_view(&f, buffer);
    scripted_hold(f.script, f.queue);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    scripted_lose(f.script, f.queue);
    moor_status status = moor_runtime_reap(f.runtime, fixture_soon(200));
    cr_assert_neq(status, MOOR_PENDING, "nothing is on its way any more");
    struct moor_authority_stats stats = fixture_stats(&f);
    cr_assert_eq(stats.quarantined_bytes, 4096);
    cr_assert_eq(stats.charged_bytes, 4096);
    cr_assert_eq(scripted_objects(f.script).allocations, 1);
    scripted_abandon(f.script);
}

Test(quarantine, of_a_range_piece_is_never_committed_over)
{
    struct fixture f = fixture_open(NULL);
    moor_range range = fixture_range(&f, 4);
    EXPECT(MOOR_OK, moor_range_commit(f.runtime, range, 0, 2 * GRANULE, 0));
    scripted_fail_free(f.script, MOOR_ABI_RELEASE_DECOMMIT, 1, 1, MOOR_PROVIDER);
    EXPECT(MOOR_OK, moor_range_decommit(f.runtime, range, 0, GRANULE));
    EXPECT(MOOR_OK, moor_runtime_reap(f.runtime, fixture_soon(1000)));
    cr_assert_eq(fixture_stats(&f).quarantined_bytes, GRANULE);
    fixture_check_books(&f);
    /* The model ends the process if the core commits here. */
    cr_assert_neq(moor_range_commit(f.runtime, range, 0, GRANULE, 0), MOOR_OK);
    EXPECT(MOOR_OK, moor_range_commit(f.runtime, range, 2 * GRANULE, GRANULE, 0));
    EXPECT(MOOR_OK, moor_range_release(f.runtime, range));
    (void)moor_runtime_reap(f.runtime, fixture_soon(200)); /* the range itself cannot go before its piece */
    fixture_check_books(&f);
    fixture_close_quarantined(&f);
}

/* Every kind of release fails once, while everything goes. At the end the unload cleans up, in the right
 * order. */
Test(quarantine, of_every_kind_is_cleaned_up_at_the_end)
{
    for (uint32_t kind = MOOR_ABI_RELEASE_ALLOCATION; kind <= MOOR_ABI_RELEASE_PIN; kind++) {
        static _Alignas(4096) unsigned char memory[4096];
        struct fixture f = fixture_open(NULL);
        moor_buffer buffer = fixture_allocate(&f, 4096);
        moor_buffer wrapped = 0;
        EXPECT(MOOR_OK, moor_buffer_wrap(f.binding, memory, sizeof memory, MOOR_BUFFER_PIN, &wrapped));
        moor_range range = fixture_range(&f, 4);
        EXPECT(MOOR_OK, moor_range_commit(f.runtime, range, 0, GRANULE, 0));
        moor_segment segment = fixture_segment(&f, 1, 3);
        EXPECT(MOOR_OK, moor_segment_map(f.runtime, segment, range, 2 * GRANULE, MOOR_ACCESS_READ));
        scripted_fail_free(f.script, kind, 1, 1, MOOR_PROVIDER);
        EXPECT(MOOR_OK, moor_segment_release(f.runtime, segment));
        EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
        EXPECT(MOOR_OK, moor_buffer_release(f.runtime, wrapped));
        EXPECT(MOOR_OK, moor_range_release(f.runtime, range));
        (void)moor_runtime_reap(f.runtime, fixture_soon(200));
        fixture_check_books(&f);
        cr_assert_eq(scripted_faults_fired(f.script), 1, "kind %u was asked for", kind);
        cr_assert_geq(fixture_counts(&f).quarantined, 1, "kind %u", kind);
        fixture_close_quarantined(&f);
    }
}

/* The provider refuses to queue: the object is still the core's, and nothing is taken for freed. */
Test(quarantine, a_release_that_is_not_accepted_loses_nothing)
{
    struct fixture f = fixture_open(NULL);
    moor_buffer buffer = fixture_allocate(&f, 4096);
    scripted_fail(f.script,
                  (struct scripted_fault){.name = SCRIPTED_RELEASE, .nth = 1, .status = MOOR_LIMIT});
    moor_status status = moor_buffer_release(f.runtime, buffer);
    scripted_clear_faults(f.script);
    cr_assert_eq(fixture_stats(&f).charged_bytes, 4096);
    fixture_check_books(&f);
    if (status)
        EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer)); /* nothing had changed, so it works now */
    else
        EXPECT(MOOR_STALE, moor_buffer_release(f.runtime, buffer));
    fixture_close_quarantined(&f);
}

/* ---- completions that lie ---- */

Test(quarantine, a_repeated_completion_refunds_once)
{
    struct fixture f = fixture_open(NULL);
    moor_buffer kept = fixture_allocate(&f, 8192);
    moor_buffer buffer = fixture_allocate(&f, 4096);
    scripted_knobs(f.script)->double_completions = 1;
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    (void)moor_runtime_reap(f.runtime, fixture_soon(200)); /* it may report the provider */
    cr_assert_eq(fixture_stats(&f).charged_bytes, 8192);
    cr_assert_eq(fixture_counts(&f).releases, 0);
    fixture_check_books(&f);
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, kept));
    fixture_close(&f);
}

Test(quarantine, a_lost_completion_stays_charged)
{
    struct fixture f = fixture_open(NULL);
    moor_buffer buffer = fixture_allocate(&f, 4096);
    scripted_knobs(f.script)->lose_completions = 1;
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    (void)moor_runtime_reap(f.runtime, fixture_soon(50));
    cr_assert_eq(fixture_stats(&f).charged_bytes, 4096);
    cr_assert_eq(fixture_counts(&f).releases, 1);
    EXPECT(MOOR_BUSY, moor_binding_close(f.binding));
    EXPECT(MOOR_BUSY, moor_provider_unload(f.provider));
    scripted_abandon(f.script);
}

Test(quarantine, a_completion_of_too_many_bytes_refunds_what_was_charged)
{
    struct fixture f = fixture_open(NULL);
    moor_buffer kept = fixture_allocate(&f, 8192);
    moor_buffer buffer = fixture_allocate(&f, 4096);
    scripted_knobs(f.script)->freed_extra_bytes = UINT64_C(1) << 40;
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    (void)moor_runtime_reap(f.runtime, fixture_soon(200));
    cr_assert_eq(fixture_stats(&f).charged_bytes, 8192, "I14: never below what is there");
    scripted_knobs(f.script)->freed_extra_bytes = 0;
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, kept));
    fixture_close(&f);
}
