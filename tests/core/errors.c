/* SPDX-License-Identifier: MIT */
/*
 * moor_last_error describes the last failed call of the thread. A call that succeeds leaves it unchanged,
 * also if it tried and undid something; a call that fails sets its own reason, also if its clean-up failed.
 * providers.c tests code, text and statuses.
 */
#include "fixture.h"

#include <string.h>

TestSuite(errors, .timeout = 30);

/* Makes an error that no other call of this file makes. */
static struct moor_error set_error(void)
{
    EXPECT(MOOR_OVERFLOW, moor_view_slice(&(struct moor_view){0}, UINT64_MAX, 2, &(struct moor_view){0}));
    return *moor_last_error();
}

static void check_untouched(const struct moor_error *before, const char *what)
{
    const struct moor_error *after = moor_last_error();
    cr_assert(after->status == before->status && strcmp(after->text, before->text) == 0, "after %s: %s: %s",
              what, moor_status_name(after->status), after->text);
}

Test(errors, are_untouched_by_the_end_of_a_stream)
{
    for (uint32_t lost = 0; lost < 2; lost++) {
        struct fixture f = fixture_open(NULL);
        struct moor_view view = fixture_allocate_view(&f, 4096);
        struct moor_stream *stream = f.stream;
        scripted_hold(f.script, f.queue);
        EXPECT(MOOR_OK, moor_fill(f.stream, &view, 7, 1));
        if (lost) {
            scripted_lose(f.script, f.queue);
            fixture_fail(&f, SCRIPTED_RECORD, 1, MOOR_DEVICE_LOST);
        }
        struct moor_error before = set_error();
        f.stream = NULL;
        /* the stream's work is not done, or its device is lost */
        EXPECT(MOOR_OK, moor_stream_destroy(stream));
        check_untouched(&before, "destroying a stream");
        if (!lost)
            scripted_open(f.script, f.queue);
        EXPECT(MOOR_OK, moor_buffer_release(f.runtime, view.owner));
        /* the refused object is in quarantine, which is no failure of the call */
        check_untouched(&before, "releasing a view.owner");
        if (lost)
            fixture_close_quarantined(&f);
        else
            fixture_close(&f);
    }
}

/* A destroyed stream is lost: the reap that detects it has nothing to wait for and succeeds. */
QUARANTINE_TEST(errors, are_untouched_by_a_reap_that_meets_a_lost_stream)
{
    struct moor_abi_stream *queue;
    struct moor_stream *other = fixture_stream(f, &queue);
    struct moor_view view = fixture_allocate_view(f, 4096);
    scripted_hold(f->script, queue);
    EXPECT(MOOR_OK, moor_fill(other, &view, 7, 1));
    EXPECT(MOOR_OK, moor_stream_destroy(fixture_disown(other)));
    struct moor_error before = set_error();
    scripted_lose(f->script, queue);
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    check_untouched(&before, "reaping");
    cr_assert_eq(scripted_objects(f->script).streams, 1);
}

/* No memory, no addresses: the call reaps and tries again. */
FIXTURE_TEST(errors, are_untouched_by_a_second_attempt)
{
    moor_range range = fixture_range(f, 2);
    moor_segment segment = fixture_segment(f, 1, 4);
    fixture_set_capacity(f, 2 * GRANULE);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, GRANULE, 0));
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, 0, GRANULE));
    struct moor_error before = set_error();
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, GRANULE, 0));
    check_untouched(&before, "commit");
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, 0, GRANULE));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ));
    check_untouched(&before, "map");
    moor_buffer buffer = fixture_allocate(f, GRANULE);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    buffer = fixture_allocate(f, GRANULE);
    check_untouched(&before, "allocate");
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    (void)fixture_reserve(f, GRANULE);
    check_untouched(&before, "reserve");
}

/* The table of uses is full, and the streams prove to be further than recorded. */
FIXTURE_TEST(errors, are_untouched_by_a_mark_that_finds_room)
{
    enum { STREAMS = 129 };
    struct moor_abi_stream *queues[STREAMS];
    struct moor_stream *streams[STREAMS];
    struct moor_view view = fixture_allocate_view(f, 4096);
    for (uint32_t i = 0; i < STREAMS; i++) {
        streams[i] = fixture_stream(f, &queues[i]);
        scripted_hold(f->script, queues[i]);
    }
    for (uint32_t i = 0; i < STREAMS - 1; i++)
        EXPECT(MOOR_OK, moor_stream_used(streams[i], &view));
    struct moor_error before = set_error();
    scripted_open(f->script, queues[3]);
    EXPECT(MOOR_OK, moor_stream_used(streams[STREAMS - 1], &view));
    check_untouched(&before, "a mark");
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    for (uint32_t i = 0; i < STREAMS; i++) {
        scripted_open(f->script, queues[i]);
        EXPECT(MOOR_OK, moor_stream_destroy(fixture_disown(streams[i])));
    }
    check_untouched(&before, "destroying streams");
}

/* Reaping at the end of a call fails; only the log shows it. */
FIXTURE_TEST(errors, of_a_reap_belong_to_no_call)
{
    moor_buffer buffer = fixture_allocate(f, 4096);
    fixture_fail(f, SCRIPTED_REAP, 1, MOOR_PROVIDER);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    cr_assert_eq(scripted_faults_fired(f->script), 1);
    cr_assert(strstr(moor_last_error()->text, "behind fences"), "%s", moor_last_error()->text);
}

static void refuse_decommits(void *user, const struct scripted_call *call)
{
    if (call->name == SCRIPTED_RELEASE && call->arguments[0] == MOOR_ABI_RELEASE_DECOMMIT)
        scripted_fail(user,
                      (struct scripted_fault){.name = SCRIPTED_RELEASE, .nth = 1, .status = MOOR_LIMIT});
}

/* Closing a binding retries the device's whole quarantine. An object that stays there is no failure of the
 * call. */
QUARANTINE_TEST(errors, of_a_retry_for_other_objects_belong_to_no_call)
{
    struct moor_binding *binding = fixture_binding(f, SCRIPTED_DOMAIN_DEVICE, f->holder);
    moor_range range = fixture_range(f, 2);
    moor_buffer buffer = 0;
    EXPECT(MOOR_OK, moor_buffer_allocate(binding, 4096, NULL, &buffer));
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, GRANULE, 0));
    scripted_fail_free(f->script, 0, 1, 2, MOOR_PROVIDER);
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, range, 0, GRANULE));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    fixture_reap(f);
    cr_assert_eq(fixture_counts(f).quarantined, 2);
    scripted_set_hook(f->script, refuse_decommits, f->script);
    struct moor_error before = set_error();
    EXPECT(MOOR_OK, moor_binding_close(fixture_disown(binding)));
    check_untouched(&before, "closing a binding");
    scripted_set_hook(f->script, NULL, NULL);
    cr_assert_eq(fixture_stats(f).quarantined_bytes, GRANULE);
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    fixture_reap(f);
}

/* The 64th submission makes a decommit reap. The decommit fails before that and keeps its own reason. */
FIXTURE_TEST(errors, of_a_failed_call_are_its_own)
{
    enum { BEFORE = 63 };
    moor_range range = fixture_range(f, 2);
    moor_buffer buffers[BEFORE];
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, GRANULE, 0));
    for (size_t i = 0; i < BEFORE; i++)
        buffers[i] = fixture_allocate(f, 256);
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    uint64_t reaps = scripted_count(f->script, SCRIPTED_REAP);
    for (size_t i = 0; i < BEFORE; i++)
        EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffers[i]));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_REAP), reaps);
    scripted_fail(
        f->script,
        (struct scripted_fault){.name = SCRIPTED_RELEASE, .nth = 1, .status = MOOR_LIMIT, .native_code = 12});
    fixture_fail(f, SCRIPTED_REAP, 1, MOOR_PROVIDER);
    EXPECT(MOOR_LIMIT, moor_range_decommit(f->runtime, range, 0, GRANULE));
    cr_assert_eq(scripted_faults_fired(f->script), 2, "the call reaped");
    cr_assert_eq(moor_last_error()->status, MOOR_LIMIT);
    cr_assert_eq(moor_last_error()->native_code, 12);
    cr_assert(strstr(moor_last_error()->text, "release"), "%s", moor_last_error()->text);
}

/* A copy between providers creates and destroys its own stream. */
FIXTURE_TEST(errors, of_a_copy_between_providers_are_its_own)
{
    struct fixture g = fixture_join(f->runtime, &(struct scripted_options){.name = "second"}, 0);
    struct moor_view near_view = fixture_allocate_view(f, 4096);
    struct moor_view far_view = fixture_allocate_view(&g, 4096);
    struct moor_error before = set_error();
    EXPECT(MOOR_OK, moor_copy(f->stream, &near_view, &far_view));
    check_untouched(&before, "a copy");
    scripted_fail(g.script, (struct scripted_fault){
                                .name = SCRIPTED_COPY, .nth = 1, .status = MOOR_LIMIT, .native_code = 5});
    EXPECT(MOOR_LIMIT, moor_copy(f->stream, &near_view, &far_view));
    cr_assert_eq(moor_last_error()->status, MOOR_LIMIT);
    cr_assert_eq(moor_last_error()->native_code, 5);
    fixture_part(&g);
}
