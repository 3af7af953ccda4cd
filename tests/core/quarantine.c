/* SPDX-License-Identifier: MIT */
/*
 * I8: an object that cannot be freed is quarantined: it stays charged and listed, its memory is never reused,
 * and unload tries again. A provider that loses or repeats completions cannot make the accounts too low.
 */
#include "fixture.h"
#include "util/handles.h"

TestSuite(quarantine, .timeout = 30);

/* Releases one buffer and lets its free fail. */
static void quarantine_one(struct fixture *f, uint32_t times)
{
    moor_buffer buffer = fixture_allocate(f, 4096);
    scripted_fail_free(f->script, MOOR_ABI_RELEASE_ALLOCATION, 1, times, MOOR_PROVIDER);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, fixture_soon(1000)));
}

QUARANTINE_TEST(quarantine, keeps_the_charge)
{
    quarantine_one(f, UINT32_MAX);
    EXPECT_BYTES(f, .charged_bytes = 4096, .quarantined_bytes = 4096);
    cr_assert_eq(fixture_counts(f).quarantined, 1);
    cr_assert_eq(fixture_counts(f).buffers, 1, "its memory has not gone");
    fixture_check_accounts(f);
    fixture_set_capacity(f, 8192);
    moor_buffer buffer = 0;
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(f->binding, 8192, NULL, &buffer));
    struct moor_holder_stats holder;
    EXPECT(MOOR_OK, moor_holder_get_stats(f->holder, &holder));
    cr_assert_eq(holder.quarantined_bytes, 4096);
    EXPECT(MOOR_BUSY, moor_holder_destroy(f->holder));
}

QUARANTINE_TEST(quarantine, is_tried_again_at_unload)
{
    quarantine_one(f, 1);
    cr_assert_eq(fixture_stats(f).quarantined_bytes, 4096);
}

QUARANTINE_TEST(quarantine, that_stays_refuses_the_end)
{
    struct moor_stream *stream = f->stream;
    quarantine_one(f, UINT32_MAX);
    f->stream = NULL;
    EXPECT(MOOR_OK, moor_stream_destroy(stream));
    EXPECT(MOOR_PROVIDER, moor_binding_close(f->binding));
    EXPECT(MOOR_BUSY, moor_provider_unload(f->provider));
    EXPECT_BYTES(f, .charged_bytes = 4096, .quarantined_bytes = 4096); /* still charged, still listed */
    cr_assert_eq(fixture_counts(f).quarantined, 1);
    cr_assert_eq(scripted_count(f->script, SCRIPTED_SHUTDOWN), 0);
}

/* A lost device never reaches its fences, so memory behind them never counts as freed. */
FIXTURE_TEST(quarantine, takes_memory_behind_a_lost_stream)
{
    struct moor_view view = fixture_allocate_view(f, 4096);
    fixture_release_pending(f, &view);
    scripted_lose(f->script, f->queue);
    moor_status status = moor_runtime_reap(f->runtime, fixture_soon(200));
    cr_assert_neq(status, MOOR_PENDING, "nothing is on its way any more");
    EXPECT_BYTES(f, .charged_bytes = 4096, .quarantined_bytes = 4096);
    cr_assert_eq(scripted_objects(f->script).allocations, 1);
    EXPECT(MOOR_OK, moor_binding_close(f->binding)); /* tries again: no work runs there any more */
    f->binding = NULL;
    cr_assert_eq(scripted_objects(f->script).allocations, 0);
}

QUARANTINE_TEST(quarantine, of_a_range_part_is_never_committed_over)
{
    moor_range range = fixture_range(f, 4);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 2 * GRANULE, 0));
    scripted_fail_free(f->script, MOOR_ABI_RELEASE_DECOMMIT, 1, 1, MOOR_PROVIDER);
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, 0, GRANULE));
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, fixture_soon(1000)));
    cr_assert_eq(fixture_stats(f).quarantined_bytes, GRANULE);
    fixture_check_accounts(f);
    /* The model ends the process if the core commits here. */
    cr_assert_neq(moor_range_commit(f->runtime, range, 0, GRANULE, 0), MOOR_OK);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 2 * GRANULE, GRANULE, 0));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    (void)moor_runtime_reap(f->runtime, fixture_soon(200)); /* the range cannot go before its part */
    fixture_check_accounts(f);
}

/* ---- lost streams ---- */

/* The host got the stream's DEVICE_LOST and has destroyed the stream. The model ends the process if the core
 * names it again. */
Test(quarantine, takes_memory_used_by_a_lost_and_destroyed_stream)
{
    for (uint32_t record_fails = 0; record_fails < 2; record_fails++) {
        struct fixture f = fixture_open(NULL);
        struct moor_abi_stream *queue;
        struct moor_stream *other = fixture_stream(&f, &queue);
        struct moor_view view = fixture_allocate_view(&f, 4096);
        scripted_hold(f.script, queue);
        EXPECT(MOOR_OK, moor_fill(other, &view, 7, 1));
        scripted_lose(f.script, queue);
        if (record_fails)
            fixture_fail(&f, SCRIPTED_RECORD, 1, MOOR_DEVICE_LOST);
        EXPECT(MOOR_OK, moor_stream_destroy(fixture_disown(other)));
        cr_assert_eq(scripted_objects(f.script).streams, 1, "a lost stream is not waited for");
        EXPECT(MOOR_DEVICE_LOST, moor_memory_wait(&view, MOOR_FOREVER));
        EXPECT(MOOR_OK, moor_buffer_release(f.runtime, view.owner));
        cr_assert_eq(fixture_stats(&f).quarantined_bytes, 4096);
        cr_assert_eq(fixture_counts(&f).quarantined, 1);
        cr_assert_eq(scripted_objects(f.script).allocations, 1);
        fixture_check_accounts(&f);
        EXPECT(MOOR_OK, moor_binding_close(f.binding)); /* tries again: no work runs there any more */
        f.binding = NULL;
        cr_assert_eq(scripted_objects(f.script).allocations, 0);
        fixture_close(&f);
    }
}

/* The memory is released behind the remaining streams. The model asserts that none of their work is
 * queued. */
Test(quarantine, is_retried_behind_the_streams_that_are_not_lost)
{
    for (uint32_t lost_is_second = 0; lost_is_second < 2; lost_is_second++) {
        struct fixture f = fixture_open(NULL);
        struct moor_abi_stream *queues[2];
        struct moor_stream *streams[2];
        struct moor_view view = fixture_allocate_view(&f, 4096);
        for (uint32_t i = 0; i < 2; i++) {
            streams[i] = fixture_stream(&f, &queues[i]);
            scripted_hold(f.script, queues[i]);
            EXPECT(MOOR_OK, moor_fill(streams[i], &view, i, 1));
        }
        scripted_lose(f.script, queues[lost_is_second]);
        /* The lost stream's record fails at the release and at the retry. */
        scripted_fail(f.script, (struct scripted_fault){.name = SCRIPTED_RECORD,
                                                        .nth = 1 + lost_is_second,
                                                        .times = 2,
                                                        .status = MOOR_DEVICE_LOST});
        EXPECT(MOOR_OK, moor_buffer_release(f.runtime, view.owner));
        cr_assert_eq(fixture_stats(&f).quarantined_bytes, 4096);
        EXPECT(MOOR_BUSY, moor_binding_close(f.binding));
        cr_assert_eq(scripted_faults_fired(f.script), 2);
        cr_assert_eq(scripted_recorded(f.script, queues[!lost_is_second]), 1, "the other one was recorded");
        EXPECT_BYTES(&f, .charged_bytes = 4096, .pending_bytes = 4096); /* waits for the remaining stream */
        EXPECT(MOOR_PENDING, moor_runtime_reap(f.runtime, MOOR_NO_WAIT));
        scripted_open(f.script, queues[!lost_is_second]);
        fixture_reap(&f);
        fixture_close(&f);
    }
}

/* ---- mappings ---- */

/* An unmap has no bytes of its own, and the segment's bytes do not return while its mapping is stuck. */
QUARANTINE_TEST(quarantine, of_a_mapping_is_not_pending)
{
    moor_grant grant = 0;
    moor_range range = fixture_range(f, 4);
    fixture_set_capacity(f, 4 * GRANULE);
    moor_segment segment = fixture_open_segment(f, 2);
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE));
    scripted_fail_free(f->script, MOOR_ABI_RELEASE_UNMAP, 1, UINT32_MAX, MOOR_PROVIDER);
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, range, 0, 2 * GRANULE));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
    cr_assert_eq(fixture_stats(f).pending_bytes, 2 * GRANULE, "the unmap is pending");
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, MOOR_FOREVER));
    EXPECT_BYTES(f, .charged_bytes = 2 * GRANULE, .quarantined_bytes = 2 * GRANULE); /* not pending */
    cr_assert_eq(fixture_counts(f).releases, 0);
    cr_assert_eq(fixture_counts(f).quarantined, 1);
    EXPECT(MOOR_OVER_BUDGET, moor_grant_reserve(f->holder, 3 * GRANULE, MOOR_NO_WAIT, &grant));
    fixture_check_accounts(f);
}

/* A release of every kind fails once while all objects are released. The unload cleans up at the end, in the
 * right order. */
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
        fixture_check_accounts(&f);
        cr_assert_eq(scripted_faults_fired(f.script), 1, "kind %u was released", kind);
        cr_assert_geq(fixture_counts(&f).quarantined, 1, "kind %u", kind);
        fixture_close_quarantined(&f);
    }
}

/* The provider refuses to queue a release: the object stays with the core and does not count as freed. */
QUARANTINE_TEST(quarantine, a_release_that_is_not_accepted_loses_nothing)
{
    moor_buffer buffer = fixture_allocate(f, 4096);
    fixture_fail(f, SCRIPTED_RELEASE, 1, MOOR_LIMIT);
    moor_status status = moor_buffer_release(f->runtime, buffer);
    scripted_clear_faults(f->script);
    cr_assert_eq(fixture_stats(f).charged_bytes, 4096);
    fixture_check_accounts(f);
    /* after a failure the state is unchanged, so the call succeeds now */
    EXPECT(status ? MOOR_OK : MOOR_STALE, moor_buffer_release(f->runtime, buffer));
}

/* The same for a part of a range: the call returns the failure, and the range is unchanged and usable. */
Test(quarantine, a_part_whose_release_is_not_accepted_is_put_back)
{
    static const uint32_t accesses[] = {0, MOOR_ACCESS_READ, MOOR_ACCESS_READ_WRITE}; /* 0: committed */
    for (size_t i = 0; i < sizeof accesses / sizeof *accesses; i++) {
        struct fixture f = fixture_open(NULL);
        moor_range range = fixture_range(&f, 4);
        moor_segment segment = 0;
        if (accesses[i] == 0) {
            EXPECT(MOOR_OK, moor_range_commit(f.runtime, range, GRANULE, 2 * GRANULE, 0));
        } else {
            EXPECT(MOOR_OK, moor_segment_create(f.binding, 2 * GRANULE, 0, 0, &segment));
            if (accesses[i] == MOOR_ACCESS_READ)
                EXPECT(MOOR_OK, moor_segment_seal(f.runtime, segment, MOOR_NO_WAIT));
            EXPECT(MOOR_OK, moor_segment_map(f.runtime, segment, range, GRANULE, accesses[i]));
        }
        struct fixture_state before = fixture_state(&f);
        moor_status (*const take_away)(struct moor_runtime *, moor_range, uint64_t, uint64_t) =
            accesses[i] ? moor_range_unmap : moor_range_decommit;
        fixture_fail(&f, SCRIPTED_RELEASE, 1, MOOR_LIMIT);
        EXPECT(MOOR_LIMIT, take_away(f.runtime, range, GRANULE, 2 * GRANULE));
        fixture_reap(&f);
        fixture_expect_state(&f, &before);
        uint64_t backed = 0;
        EXPECT(MOOR_OK, moor_range_get_committed(f.runtime, range, 0, 4 * GRANULE, &backed));
        cr_assert_eq(backed, 2 * GRANULE);
        struct moor_view view = fixture_range_view(&f, range, GRANULE, 2 * GRANULE);
        EXPECT(accesses[i] == MOOR_ACCESS_READ ? MOOR_INVALID : MOOR_OK, moor_fill(f.stream, &view, 5, 1));
        if (accesses[i])
            /* the seal finds its mapping */
            EXPECT(MOOR_OK, moor_segment_seal(f.runtime, segment, MOOR_FOREVER));
        EXPECT(MOOR_OK, take_away(f.runtime, range, GRANULE, 2 * GRANULE));
        EXPECT(MOOR_OK, moor_segment_release(f.runtime, segment));
        fixture_reap(&f);
        cr_assert_eq(fixture_stats(&f).charged_bytes, 0);
        fixture_close(&f);
    }
}

/* ---- completions that lie ---- */

FIXTURE_TEST(quarantine, a_repeated_completion_refunds_once)
{
    (void)fixture_allocate(f, 8192);
    moor_buffer buffer = fixture_allocate(f, 4096);
    scripted_knobs(f->script)->double_completions = 1;
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    (void)moor_runtime_reap(f->runtime, fixture_soon(200)); /* the reap may report the provider */
    cr_assert_eq(fixture_stats(f).charged_bytes, 8192);
    cr_assert_eq(fixture_counts(f).releases, 0);
    fixture_check_accounts(f);
}

QUARANTINE_TEST(quarantine, a_repeated_failure_is_one)
{
    scripted_knobs(f->script)->double_completions = 1;
    quarantine_one(f, 1);
    cr_assert_eq(fixture_stats(f).quarantined_bytes, 4096);
    cr_assert_eq(fixture_counts(f).quarantined, 1);
    fixture_check_accounts(f);
}

/* A completion arrives after its object is gone and another object, which is leaving, has the slot. */
Test(quarantine, a_late_completion_finds_no_object)
{
    struct moor__handles handles;
    struct moor__slot *slots[2];
    uint64_t names[2];
    moor__handles_init(&handles, MOOR__KIND_BUFFER, 1, sizeof(struct moor__slot));
    for (size_t i = 0; i < 2; i++) {
        EXPECT(MOOR_OK, moor__handles_take(&handles, &slots[i]));
        names[i] = moor__handle_of(&handles, slots[i]);
        moor__handles_publish(slots[i]);
        cr_assert_null(moor__handles_find_retired(&handles, names[i]), "the slot is not leaving");
        EXPECT(MOOR_OK, moor__handles_retire(slots[i]));
        cr_assert_eq(moor__handles_find_retired(&handles, names[i]), slots[i]);
        if (i == 0)
            moor__handles_free(&handles, slots[i]);
    }
    cr_assert_eq(slots[0], slots[1]);
    cr_assert_null(moor__handles_find_retired(&handles, names[0]));
    moor__handles_finish(&handles);
}

/* The missing bytes stay charged until the binding closes, because no completion can refund them. */
FIXTURE_TEST(quarantine, a_completion_of_too_few_bytes_keeps_the_rest)
{
    moor_buffer buffer = fixture_allocate(f, 4096);
    scripted_knobs(f->script)->freed_extra_bytes = 0 - UINT64_C(1024);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, fixture_soon(1000)));
    EXPECT_BYTES(f, .charged_bytes = 1024, .quarantined_bytes = 1024);
    EXPECT(MOOR_OK, moor_binding_close(f->binding));
    f->binding = NULL;
    cr_assert_eq(fixture_stats(f).charged_bytes, 0);
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

FIXTURE_TEST(quarantine, a_completion_of_too_many_bytes_refunds_the_charge)
{
    (void)fixture_allocate(f, 8192);
    moor_buffer buffer = fixture_allocate(f, 4096);
    scripted_knobs(f->script)->freed_extra_bytes = UINT64_C(1) << 40;
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    (void)moor_runtime_reap(f->runtime, fixture_soon(200));
    cr_assert_eq(fixture_stats(f).charged_bytes, 8192, "I14: never below the live bytes");
    scripted_knobs(f->script)->freed_extra_bytes = 0;
}
