/* SPDX-License-Identifier: MIT */
/* Copies and fills: four directions, bounds, permitted destinations, and sources that are freed during the
 * copy. */
#include "fixture.h"

#include <pthread.h>
#include <string.h>

TestSuite(copies, .timeout = 30);

#define BYTES 40000u

static void paint(void *memory, uint32_t seed)
{
    unsigned char *bytes = memory;
    for (uint32_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 31 + seed + i / 256);
}

/* Returns the number of copies and fills that have reached the provider. */
static uint64_t transfers(struct fixture *f)
{
    return scripted_count(f->script, SCRIPTED_COPY) + scripted_count(f->script, SCRIPTED_FILL);
}

static uint64_t direction(struct fixture *f)
{
    struct scripted_call call = {0};
    cr_assert(scripted_last_call(f->script, SCRIPTED_COPY, &call));
    return call.arguments[0];
}

FIXTURE_TEST(copies, find_their_direction)
{
    static unsigned char source[BYTES];
    static unsigned char target[BYTES];
    struct moor_view first_view = fixture_allocate_view(f, BYTES);
    struct moor_view second_view = fixture_allocate_view(f, BYTES);
    struct moor_view from = moor_view_host(source, BYTES);
    struct moor_view to = moor_view_host(target, BYTES);
    paint(source, 1);
    EXPECT(MOOR_OK, moor_copy(f->stream, &first_view, &from));
    cr_assert_eq(direction(f), MOOR_ABI_COPY_H2D);
    EXPECT(MOOR_OK, moor_copy(f->stream, &second_view, &first_view));
    cr_assert_eq(direction(f), MOOR_ABI_COPY_D2D);
    EXPECT(MOOR_OK, moor_copy(f->stream, &to, &second_view));
    cr_assert_eq(direction(f), MOOR_ABI_COPY_D2H);
    cr_assert_arr_eq(source, target, BYTES);
    paint(source, 2);
    EXPECT(MOOR_OK, moor_copy(f->stream, &to, &from));
    cr_assert_eq(direction(f), MOOR_ABI_COPY_H2H);
    cr_assert_arr_eq(source, target, BYTES);
}

FIXTURE_TEST(copies, parts_land_where_they_belong)
{
    static unsigned char source[BYTES];
    struct moor_view view = fixture_allocate_view(f, 4096);
    struct moor_view part;
    memset(fixture_bytes(&view), 0, 4096);
    memset(source, 1, sizeof source);
    EXPECT(MOOR_OK, moor_view_slice(&view, 1000, 500, &part));
    struct moor_view from = moor_view_host(source, 300);
    EXPECT(MOOR_OK, moor_copy(f->stream, &part, &from)); /* to the start of the destination */
    for (uint32_t i = 0; i < 4096; i++)
        cr_assert_eq(fixture_bytes(&view)[i], i >= 1000 && i < 1300, "byte %u", i);
}

FIXTURE_TEST(copies, out_of_bounds_are_refused)
{
    static unsigned char memory[8192];
    struct moor_view view = fixture_allocate_view(f, 4096);
    struct moor_view out;
    EXPECT(MOOR_OK, moor_view_slice(&view, 4095, 1, &out));
    static const uint64_t bad[][2] = {
        {4096, 1}, {0, 4097}, {UINT64_MAX, 2}, {2, UINT64_MAX}, {UINT64_MAX, UINT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        moor_status status = moor_view_slice(&view, bad[i][0], bad[i][1], &out);
        cr_assert(status == MOOR_INVALID || status == MOOR_OVERFLOW, "%zu: %s", i, moor_status_name(status));
    }
    struct moor_view large = moor_view_host(memory, sizeof memory);
    struct moor_view empty = moor_view_host(memory, 0);
    struct moor_view wrapping = moor_view_host(memory, UINT64_MAX - 5);
    struct moor_view forged = view; /* views are plain data: each call checks them */
    forged.size_bytes = 5000;
    struct moor_view below = view;
    below.address -= 256;
    EXPECT(MOOR_INVALID, moor_copy(f->stream, &view, &large));
    cr_assert_neq(moor_copy(f->stream, &view, &wrapping), MOOR_OK);
    cr_assert_neq(moor_copy(f->stream, &forged, &large), MOOR_OK);
    cr_assert_neq(moor_copy(f->stream, &large, &forged), MOOR_OK);
    cr_assert_neq(moor_copy(f->stream, &large, &below), MOOR_OK);
    cr_assert_neq(moor_fill(f->stream, &forged, 0, 1), MOOR_OK);
    cr_assert_neq(moor_fill(f->stream, &below, 0, 1), MOOR_OK);
    (void)moor_copy(f->stream, &view, &empty); /* OK or INVALID, but no empty copy reaches the provider */
    struct moor_view first, second;
    EXPECT(MOOR_OK, moor_view_slice(&view, 0, 200, &first));
    EXPECT(MOOR_OK, moor_view_slice(&view, 100, 200, &second));
    cr_assert_neq(moor_copy(f->stream, &first, &second), MOOR_OK, "the two sides overlap");
    cr_assert_neq(moor_copy(f->stream, &view, &view), MOOR_OK);
    cr_assert_eq(transfers(f), 0);
}

FIXTURE_TEST(copies, touch_only_backed_and_writable_memory)
{
    static unsigned char memory[3 * 16384];
    moor_range range = fixture_range(f, 6);
    moor_segment segment = fixture_segment(f, 1, 0x31);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 2 * GRANULE, 0));
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 2 * GRANULE, MOOR_ACCESS_READ));
    struct moor_view host = moor_view_host(memory, 3 * GRANULE);
    struct moor_view backed = fixture_range_view(f, range, 0, 2 * GRANULE);
    struct moor_view mixed = fixture_range_view(f, range, 0, 3 * GRANULE);
    struct moor_view holed = fixture_range_view(f, range, GRANULE, 3 * GRANULE);
    struct moor_view hole = fixture_range_view(f, range, 4 * GRANULE, GRANULE);
    EXPECT(MOOR_OK, moor_fill(f->stream, &backed, 0x30, 1));
    EXPECT(MOOR_OK, moor_copy(f->stream, &host, &mixed)); /* read-only maps are a permitted source */
    cr_assert_eq(memory[2 * GRANULE - 1], 0x30);
    cr_assert_eq(memory[2 * GRANULE], 0x31);
    uint64_t before = transfers(f);
    cr_assert_neq(moor_copy(f->stream, &mixed, &host), MOOR_OK, "and no destination");
    cr_assert_neq(moor_fill(f->stream, &mixed, 0, 1), MOOR_OK);
    cr_assert_neq(moor_copy(f->stream, &host, &holed), MOOR_OK);
    cr_assert_neq(moor_fill(f->stream, &hole, 0, 1), MOOR_OK);
    cr_assert_eq(transfers(f), before);
}

/* Each side alone, with no other work on it. */
Test(copies, keep_the_side_that_is_released)
{
    for (uint32_t side = 0; side < 2; side++) {
        struct fixture f = fixture_open(NULL);
        struct moor_view views[2] = {fixture_allocate_view(&f, BYTES), fixture_allocate_view(&f, BYTES)};
        scripted_hold(f.script, f.queue);
        EXPECT(MOOR_OK, moor_copy(f.stream, &views[0], &views[1]));
        EXPECT(MOOR_OK, moor_buffer_release(f.runtime, views[side].owner));
        EXPECT(MOOR_PENDING, moor_runtime_reap(f.runtime, MOOR_NO_WAIT));
        cr_assert_eq(scripted_objects(f.script).allocations, 2, "side %u", side);
        fixture_open_and_reap(&f);
        cr_assert_eq(scripted_objects(f.script).allocations, 1);
        fixture_close(&f);
    }
}

/* The model checks the memory again when the copy runs. */
FIXTURE_TEST(copies, both_sides_may_be_freed_meanwhile)
{
    static unsigned char out[BYTES];
    static unsigned char expected[BYTES];
    struct moor_view source = fixture_allocate_view(f, BYTES);
    struct moor_view middle = fixture_allocate_view(f, BYTES);
    struct moor_view out_view = moor_view_host(out, BYTES);
    paint(expected, 5);
    memcpy(fixture_bytes(&source), expected, BYTES);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_copy(f->stream, &middle, &source));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, source.owner));
    EXPECT(MOOR_OK, moor_copy(f->stream, &out_view, &middle));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, middle.owner));
    struct moor_view reuse = fixture_allocate_view(f, BYTES); /* the two sides must not be the same memory */
    memset(fixture_bytes(&reuse), 0xee, BYTES);
    fixture_open_and_reap(f);
    cr_assert_arr_eq(out, expected, BYTES);
}

/* A copy that the provider refuses marks nothing: the memory can go at once. */
FIXTURE_TEST(copies, that_fail_leave_nothing_behind)
{
    struct moor_view view = fixture_allocate_view(f, 4096);
    static unsigned char memory[4096];
    struct moor_view host = moor_view_host(memory, sizeof memory);
    scripted_hold(f->script, f->queue);
    fixture_fail(f, SCRIPTED_COPY, 1, MOOR_DEVICE_LOST);
    fixture_fail(f, SCRIPTED_FILL, 1, MOOR_LIMIT);
    EXPECT(MOOR_DEVICE_LOST, moor_copy(f->stream, &view, &host));
    EXPECT(MOOR_LIMIT, moor_fill(f->stream, &view, 0, 1));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    fixture_reap(f); /* although the stream is held */
}

/* The work is submitted and its fence cannot be recorded. The work runs, so the memory must stay;
 * afterwards the buffer is in quarantine or gone, but not pending for ever. */
QUARANTINE_TEST(copies, that_cannot_be_fenced_are_still_waited_for)
{
    struct moor_view view = fixture_allocate_view(f, 4096);
    scripted_hold(f->script, f->queue);
    fixture_fail(f, SCRIPTED_RECORD, 1, MOOR_LIMIT);
    (void)moor_fill(f->stream, &view, 3, 1);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    (void)moor_runtime_reap(f->runtime,
                            MOOR_NO_WAIT); /* the model asserts that the buffer is not freed now */
    cr_assert_eq(fixture_stats(f).charged_bytes, 4096);
    scripted_open(f->script, f->queue);
    (void)moor_runtime_reap(f->runtime, fixture_soon(1000));
    fixture_check_accounts(f);
}

FIXTURE_TEST(copies, fills_repeat_their_pattern)
{
    struct moor_view view = fixture_allocate_view(f, 4096);
    struct moor_view part;
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0x11223344, 4));
    cr_assert_eq(memcmp(fixture_bytes(&view), "\x44\x33\x22\x11\x44\x33\x22\x11", 8), 0);
    EXPECT(MOOR_OK, moor_view_slice(&view, 2, 4, &part));
    EXPECT(MOOR_OK, moor_fill(f->stream, &part, 0xaabb, 2));
    cr_assert_eq(memcmp(fixture_bytes(&view), "\x44\x33\xbb\xaa\xbb\xaa\x22\x11", 8), 0);
    EXPECT(MOOR_OK, moor_view_slice(&view, 1, 3, &part));
    EXPECT(MOOR_INVALID, moor_fill(f->stream, &part, 0, 2));
    EXPECT(MOOR_OK, moor_view_slice(&view, 2, 6, &part));
    EXPECT(MOOR_INVALID, moor_fill(f->stream, &part, 0, 4));
    EXPECT(MOOR_INVALID, moor_fill(f->stream, &view, 0, 3));
    EXPECT(MOOR_INVALID, moor_fill(f->stream, &view, 0, 8));
    EXPECT(MOOR_INVALID, moor_fill(f->stream, &view, 0, 0));
}

FIXTURE_TEST_WITH(copies, without_the_capability_are_unsupported, fixture_close,
                  .capabilities = SCRIPTED_CAPS & ~MOOR_ABI_CAP_COPY)
{
    static unsigned char memory[4096];
    struct moor_view view = fixture_allocate_view(f, 4096);
    struct moor_view host = moor_view_host(memory, sizeof memory);
    EXPECT(MOOR_UNSUPPORTED, moor_copy(f->stream, &view, &host));
    EXPECT(MOOR_UNSUPPORTED, moor_fill(f->stream, &view, 0, 1));
}

/* One domain of the device has no copies in either direction; the other domain has them. */
FIXTURE_TEST_WITH(copies, need_the_capability_in_the_domains_they_touch, fixture_close,
                  .device_domain_lacks = MOOR_ABI_CAP_COPY)
{
    static unsigned char memory[4096];
    struct moor_holder *holder = fixture_host_holder(f);
    struct moor_binding *binding = fixture_binding(f, SCRIPTED_DOMAIN_HOST, holder);
    moor_buffer buffer = 0;
    EXPECT(MOOR_OK, moor_buffer_allocate(binding, 4096, NULL, &buffer));
    struct moor_view without = fixture_allocate_view(f, 4096);
    struct moor_view with = fixture_buffer_view(f, buffer);
    struct moor_view host = moor_view_host(memory, sizeof memory);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_UNSUPPORTED, moor_fill(f->stream, &without, 0, 1));
    EXPECT(MOOR_UNSUPPORTED, moor_copy(f->stream, &without, &host));
    EXPECT(MOOR_UNSUPPORTED, moor_copy(f->stream, &host, &without));
    EXPECT(MOOR_UNSUPPORTED, moor_copy(f->stream, &with, &without));
    EXPECT(MOOR_UNSUPPORTED, moor_copy(f->stream, &without, &with));
    cr_assert_eq(transfers(f), 0);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, without.owner));
    fixture_reap(f); /* no use was marked */
    cr_assert_eq(fixture_stats(f).charged_bytes, 0);
    scripted_open(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &with, 3, 1));
    EXPECT(MOOR_OK, moor_copy(f->stream, &host, &with));
    cr_assert_eq(memory[4095], 3);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
}

/* ---- between providers ---- */

/* more than one part of any staging buffer, and not a multiple of it */
#define STAGED_BYTES (MIB(2) + KIB(512) + 3)

static unsigned char staged_byte(uint64_t index)
{
    return (unsigned char)(index * 7 + index / 1000);
}

static void stage(const struct moor_view *view)
{
    for (uint64_t i = 0; i < STAGED_BYTES; i++)
        fixture_bytes(view)[i] = staged_byte(i);
}

static bool staged_all_right(const struct moor_view *view)
{
    const unsigned char *bytes = fixture_bytes(view);
    for (uint64_t i = 0; i < STAGED_BYTES; i++)
        if (bytes[i] != staged_byte(i))
            return false;
    return true;
}

FIXTURE_TEST(copies, between_providers_go_through_host_memory)
{
    struct fixture g = fixture_join(f->runtime, &(struct scripted_options){.name = "second"}, 0);
    struct moor_view source = fixture_allocate_view(&g, STAGED_BYTES);
    struct moor_view target = fixture_allocate_view(f, STAGED_BYTES);
    stage(&source);
    EXPECT(MOOR_OK, moor_copy(f->stream, &target, &source)); /* pull */
    EXPECT(MOOR_OK, moor_memory_wait(&target, fixture_soon(5000)));
    cr_assert(staged_all_right(&target));
    memset(fixture_bytes(&source), 0, STAGED_BYTES);
    EXPECT(MOOR_OK, moor_copy(f->stream, &source, &target)); /* push */
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, target.owner));
    EXPECT(MOOR_OK, moor_memory_wait(&source, fixture_soon(5000)));
    cr_assert(staged_all_right(&source));
    fixture_part(&g);
}

/* The far side's work runs on the device that owns the memory. */
FIXTURE_TEST(copies, between_providers_work_on_the_right_device)
{
    enum { BYTES_THERE = 5000 };
    struct fixture g =
        fixture_join(f->runtime, &(struct scripted_options){.name = "second", .device_count = 2}, 1);
    EXPECT(MOOR_OK, moor_stream_destroy(g.stream)); /* the copy makes its own stream */
    g.stream = NULL;
    struct moor_view near_view = fixture_allocate_view(f, BYTES_THERE);
    struct moor_view far_view = fixture_allocate_view(&g, BYTES_THERE);
    memset(fixture_bytes(&far_view), 0x65, BYTES_THERE);
    EXPECT(MOOR_OK, moor_copy(f->stream, &near_view, &far_view));
    EXPECT(MOOR_OK, moor_memory_wait(&near_view, fixture_soon(5000)));
    cr_assert(fixture_all_bytes(&near_view, 0x65));
    memset(fixture_bytes(&near_view), 0x66, BYTES_THERE);
    EXPECT(MOOR_OK, moor_copy(f->stream, &far_view, &near_view));
    EXPECT(MOOR_OK, moor_memory_wait(&far_view, fixture_soon(5000)));
    cr_assert(fixture_all_bytes(&far_view, 0x66));
    cr_assert_eq(scripted_objects(g.script).contexts, 1, "no other device was opened for it");
    fixture_part(&g);
}

/* Two providers do not share an address space: equal addresses need not be equal memory. */
FIXTURE_TEST(copies, overlap_only_within_one_provider)
{
    struct fixture g = fixture_join(f->runtime, &(struct scripted_options){.name = "second"}, 0);
    static unsigned char memory[4096];
    moor_buffer near = 0;
    moor_buffer far = 0;
    memset(memory, 0x3c, sizeof memory);
    scripted_declare(f->script, memory, sizeof memory);
    scripted_declare(g.script, memory, sizeof memory);
    EXPECT(MOOR_OK, moor_buffer_wrap(f->binding, memory, sizeof memory, 0, &near));
    EXPECT(MOOR_OK, moor_buffer_wrap(g.binding, memory, sizeof memory, 0, &far));
    struct moor_view near_view = fixture_buffer_view(f, near);
    struct moor_view far_view = fixture_buffer_view(&g, far);
    EXPECT(MOOR_OK, moor_copy(f->stream, &near_view, &far_view));
    EXPECT(MOOR_OK, moor_memory_wait(&near_view, fixture_soon(5000)));
    cr_assert(fixture_all_bytes(&near_view, 0x3c));
    EXPECT(MOOR_INVALID, moor_copy(f->stream, &near_view, &near_view));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, near));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, far));
    fixture_part(&g);
}

/* At the n-th provider call of a copy, another thread releases one side or both and tries to unload the
 * provider. */
struct meddler {
    struct fixture *from;
    struct fixture *to;
    moor_buffer source;
    moor_buffer target;
    struct moor_view target_view;
    bool release_source;
    bool release_target;
    uint32_t nth;
    uint32_t seen;
    bool target_was_right; /* when the target was released */
};

static _Thread_local bool is_copying;

static void release_and_try_to_end(struct fixture *f, moor_buffer buffer)
{
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    (void)moor_runtime_reap(f->runtime, MOOR_NO_WAIT); /* the buffer must not go now; the model asserts it */
    EXPECT(MOOR_BUSY, moor_binding_close(f->binding));
    EXPECT(MOOR_BUSY, moor_provider_unload(f->provider));
}

static void *meddle(void *user)
{
    struct meddler *meddler = user;
    if (meddler->release_source)
        release_and_try_to_end(meddler->from, meddler->source);
    if (meddler->release_target)
        release_and_try_to_end(meddler->to, meddler->target);
    return NULL;
}

static void meddle_once(void *user, const struct scripted_call *call)
{
    struct meddler *meddler = user;
    pthread_t thread;
    if (call->name == SCRIPTED_RELEASE && meddler->release_target && is_copying)
        meddler->target_was_right = staged_all_right(&meddler->target_view);
    if (!is_copying || ++meddler->seen != meddler->nth)
        return;
    cr_assert_eq(pthread_create(&thread, NULL, meddle, meddler), 0);
    (void)pthread_join(thread, NULL);
}

/* Returns true if the copy made that many calls. */
static bool copy_meddled(bool pulls, bool release_source, bool release_target, uint32_t nth)
{
    struct fixture f = fixture_open(NULL);
    struct fixture g = fixture_join(f.runtime, &(struct scripted_options){.name = "second"}, 0);
    struct meddler m = {.from = pulls ? &g : &f,
                        .to = pulls ? &f : &g,
                        .release_source = release_source,
                        .release_target = release_target,
                        .nth = nth};
    m.source = fixture_allocate(m.from, STAGED_BYTES);
    m.target = fixture_allocate(m.to, STAGED_BYTES);
    m.target_view = fixture_buffer_view(m.to, m.target);
    struct moor_view source_view = fixture_buffer_view(m.from, m.source);
    stage(&source_view);
    scripted_set_hook(f.script, meddle_once, &m);
    scripted_set_hook(g.script, meddle_once, &m);
    is_copying = true;
    moor_status status = moor_copy(f.stream, &m.target_view, &source_view);
    is_copying = false;
    scripted_set_hook(f.script, NULL, NULL);
    scripted_set_hook(g.script, NULL, NULL);
    bool meddled = m.seen >= nth;
    uint64_t pieces = scripted_count(f.script, SCRIPTED_COPY) + scripted_count(g.script, SCRIPTED_COPY);
    if (status)
        cr_assert(status == MOOR_STALE && meddled && pieces == 0, "call %u: %s after %llu pieces", nth,
                  moor_status_name(status), (unsigned long long)pieces);
    else if (!meddled || !release_target)
        cr_assert(staged_all_right(&m.target_view), "call %u", nth);
    else
        cr_assert(m.target_was_right, "call %u", nth);
    fixture_part(&g);
    fixture_close(&f);
    return meddled;
}

/* The copy may refuse a buffer that was released before the first part was read. Afterwards the copy is
 * carried out. */
Test(copies, between_providers_keep_both_sides_to_their_end, .timeout = 120)
{
    for (uint32_t victims = 1; victims < 4; victims++)
        for (uint32_t pulls = 0; pulls < 2; pulls++) {
            uint32_t nth = 1;
            while (copy_meddled(pulls, victims & 1, victims & 2, nth))
                nth++;
            cr_assert_gt(nth, 10, "three pieces are read and written");
        }
}

/* Returns true if the n-th call of that name, by the source's or the target's provider, was made and
 * failed. */
static bool copy_failing(bool far_fails, enum scripted_name name, uint32_t nth)
{
    struct fixture f = fixture_open(NULL);
    struct fixture g = fixture_join(f.runtime, &(struct scripted_options){.name = "second"}, 0);
    struct scripted *failing = far_fails ? g.script : f.script;
    struct moor_view source = fixture_allocate_view(&g, STAGED_BYTES);
    struct moor_view target = fixture_allocate_view(&f, STAGED_BYTES);
    scripted_fail(failing, (struct scripted_fault){.name = name, .nth = nth, .status = MOOR_LIMIT});
    (void)moor_copy(f.stream, &target, &source); /* OK if only the end of its stream failed */
    bool failed = scripted_faults_fired(failing) > 0;
    scripted_clear_faults(failing);
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, source.owner));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, target.owner));
    fixture_reap(&f);
    cr_assert_eq(scripted_objects(g.script).streams, 1, "%s %u: the copy's own stream has gone",
                 scripted_name_text(name), nth);
    fixture_part(&g);
    fixture_close(&f);
    return failed;
}

Test(copies, between_providers_that_fail_leave_nothing_behind, .timeout = 120)
{
    static const enum scripted_name names[] = {SCRIPTED_STREAM_CREATE, SCRIPTED_RECORD, SCRIPTED_WATERMARK,
                                               SCRIPTED_WAIT, SCRIPTED_COPY};
    uint32_t failures = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (uint32_t far_fails = 0; far_fails < 2; far_fails++)
            for (uint32_t nth = 1; copy_failing(far_fails, names[i], nth); nth++)
                failures++;
    cr_assert_gt(failures, 20);
}
