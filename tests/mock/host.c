/* SPDX-License-Identifier: MIT */
/* The core on the simulated device, which checks it: cases from the field about the users of memory, and
 * about time. The clock is virtual, so the test decides when a fence passes. */
#include <criterion/criterion.h>
#include <moorage/mock.h>
#include <moorage/moorage.h>
#include <stdlib.h>
#include <string.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GRANULE (64 * KIB)
#define OK(call_) cr_assert_eq(call_, MOOR_OK, "%s: %s", #call_, moor_last_error()->text)

struct host {
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    const struct moor_mock_control *control;
    struct moor_device *device;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *stream;
};

static struct host host;

static void set_up(void)
{
    static const struct moor_setting settings[] = {
        {"clock", "virtual"}, {"total_bytes", "64MiB"}, {"strict", "1"}};
    const struct moor_load_options options = {.settings = settings, .setting_count = 3};
    const void *control = NULL;
    OK(moor_runtime_create(NULL, &host.runtime));
    OK(moor_provider_load(host.runtime, getenv("MOOR_MOCK_PROVIDER"), &options, &host.provider));
    OK(moor_provider_get_extension(host.provider, MOOR_MOCK_CONTROL, MOOR_MOCK_CONTROL_VERSION, &control));
    host.control = control;
    OK(moor_provider_get_device(host.provider, 0, &host.device));
    OK(moor_device_get_authority(host.device, 0, &host.authority));
    OK(moor_holder_create(host.authority, &(struct moor_holder_options){.name = "test"}, &host.holder));
    OK(moor_binding_open(host.device, 0, host.holder, &host.binding));
    OK(moor_stream_create(host.device, NULL, &host.stream));
}

static void advance(void)
{
    OK(host.control->advance(host.control->mock, 1000000));
}

static void reap(void)
{
    (void)moor_runtime_reap(host.runtime, MOOR_NO_WAIT); /* the caller checks the rest */
}

/* The core's charges equal the bytes that the device holds, and the device has seen no violation. */
static uint64_t check_books(void)
{
    struct moor_mock_violation first = {0};
    uint64_t total = 0, held_bytes = 0;
    uint32_t count = 0;
    size_t holders = 0;
    struct moor_authority_stats stats;
    OK(host.control->violations(host.control->mock, &total, &first, 1, &count));
    cr_assert_eq(total, 0, "%s\n%s", first.text, first.history);
    OK(host.control->held(host.control->mock, 0, &held_bytes));
    OK(moor_authority_get_stats(host.authority, &stats, NULL, 0, &holders));
    cr_assert_eq(stats.charged_bytes, held_bytes);
    return held_bytes;
}

static void expect_held(uint64_t bytes)
{
    uint64_t held_bytes = check_books();
    cr_assert_eq(held_bytes, bytes, "%llu bytes are held", (unsigned long long)held_bytes);
}

static void tear_down(void)
{
    OK(moor_stream_destroy(host.stream));
    for (int i = 0; i < 4; i++) { /* a closed stream is destroyed when no release names it any more */
        advance();
        reap();
    }
    expect_held(0);
    OK(moor_binding_close(host.binding));
    OK(moor_holder_destroy(host.holder));
    OK(moor_provider_unload(host.provider));
    OK(moor_runtime_destroy(host.runtime));
}

TestSuite(host, .init = set_up);

static moor_buffer allocate(uint64_t bytes)
{
    moor_buffer buffer = 0;
    OK(moor_buffer_allocate(host.binding, bytes, NULL, &buffer));
    return buffer;
}

static void fill_buffer(struct moor_stream *stream, moor_buffer buffer, uint8_t value)
{
    struct moor_view view;
    OK(moor_buffer_get_view(host.runtime, buffer, &view));
    OK(moor_fill(stream, &view, value, 1));
}

/* ---- many streams that end before their frees ---- */

#define STREAMS 64
#define FREES 4

static void defer_frees(void)
{
    for (int i = 0; i < STREAMS; i++) {
        struct moor_stream *stream = NULL;
        OK(moor_stream_create(host.device, NULL, &stream));
        for (int j = 0; j < FREES; j++) {
            moor_buffer buffer = allocate(4096);
            fill_buffer(stream, buffer, (uint8_t)i);
            OK(moor_buffer_release(host.runtime, buffer));
        }
        OK(moor_stream_destroy(stream));
    }
}

Test(host, frees_outlive_their_streams)
{
    defer_frees();
    expect_held(STREAMS * FREES * 4096);
    moor_buffer buffer = allocate(4096);
    fill_buffer(host.stream, buffer, 1);
    reap();
    expect_held(STREAMS * FREES * 4096 + 4096); /* nothing was executed yet */
    advance();
    reap();
    expect_held(4096);
    defer_frees(); /* on streams with the native names of ended streams */
    expect_held(STREAMS * FREES * 4096 + 4096);
    OK(moor_buffer_release(host.runtime, buffer));
    advance();
    reap();
    expect_held(0);
    tear_down();
}

/* A fence of a lost stream: the memory behind it is quarantined, and never granted again. */
Test(lost_host, memory_behind_a_lost_stream_is_quarantined, .init = set_up)
{
    moor_buffer buffer = allocate(4096);
    fill_buffer(host.stream, buffer, 1);
    OK(moor_buffer_release(host.runtime, buffer));
    OK(host.control->lose(host.control->mock, 0));
    reap();
    struct moor_authority_stats stats;
    size_t holders = 0;
    OK(moor_authority_get_stats(host.authority, &stats, NULL, 0, &holders));
    cr_assert_eq(stats.quarantined_bytes, 4096);
    expect_held(4096);
    moor_buffer refused = 0;
    cr_assert_eq(moor_buffer_allocate(host.binding, 4096, NULL, &refused), MOOR_DEVICE_LOST);
}

/* ---- a shared tail ---- */

#define PAGES 4
#define HALF (GRANULE / 2)

static moor_range reserve_sequence(void)
{
    moor_range range = 0;
    const struct moor_range_options options = {.granule_bytes = GRANULE};
    OK(moor_range_reserve(host.binding, PAGES * GRANULE, &options, &range));
    return range;
}

static struct moor_view part_of(moor_range range, uint64_t offset, uint64_t bytes)
{
    struct moor_view whole, part;
    OK(moor_range_get_view(host.runtime, range, &whole));
    OK(moor_view_slice(&whole, offset, bytes, &part));
    return part;
}

static void fill_part(moor_range range, uint64_t offset, uint64_t bytes, uint8_t value)
{
    struct moor_view part = part_of(range, offset, bytes);
    OK(moor_fill(host.stream, &part, value, 1));
}

/* The device reads in stream order; a race would be a violation. */
static void expect_part(moor_range range, uint64_t offset, uint64_t bytes, uint8_t value)
{
    uint64_t native = 0;
    struct moor_view part = part_of(range, offset, bytes);
    const struct moor_mock_access access = {part.address, bytes, MOOR_MOCK_READ | MOOR_MOCK_EXPECT, value};
    OK(moor_stream_get_native(host.stream, &native));
    OK(host.control->kernel(host.control->mock, native, &access, 1, 0));
    OK(moor_stream_used(host.stream, &part));
}

/* A prompt of 3.5 pages, each one a sealed segment that is mapped read-only. */
static void make_prompt(moor_range first, moor_segment *segments)
{
    for (int i = 0; i < PAGES; i++) {
        OK(moor_segment_create(host.binding, GRANULE, GRANULE, 0, &segments[i]));
        OK(moor_segment_map(host.runtime, segments[i], first, (uint64_t)i * GRANULE, MOOR_ACCESS_READ_WRITE));
        fill_part(first, (uint64_t)i * GRANULE, i == PAGES - 1 ? HALF : GRANULE, (uint8_t)(10 + i));
        OK(moor_segment_seal(host.runtime, segments[i], MOOR_FOREVER));
    }
}

static moor_range share_prompt(const moor_segment *segments)
{
    moor_range range = reserve_sequence();
    for (int i = 0; i < PAGES; i++)
        OK(moor_segment_map(host.runtime, segments[i], range, (uint64_t)i * GRANULE, MOOR_ACCESS_READ));
    return range;
}

static void drop_handles(moor_segment *segments)
{
    for (int i = 0; i < PAGES; i++)
        OK(moor_segment_release(host.runtime, segments[i]));
}

static moor_status append(moor_range range, uint8_t value)
{
    moor_status status = moor_range_make_writable(host.runtime, range, (PAGES - 1) * GRANULE, host.stream, 0,
                                                  MOOR_FOREVER, NULL);
    if (status == MOOR_OK)
        fill_part(range, (PAGES - 1) * GRANULE + HALF, HALF, value);
    return status;
}

static void expect_tail(moor_range range, uint8_t value)
{
    for (int i = 0; i < PAGES - 1; i++)
        expect_part(range, (uint64_t)i * GRANULE, GRANULE, (uint8_t)(10 + i));
    expect_part(range, (PAGES - 1) * GRANULE, HALF, 10 + PAGES - 1);
    expect_part(range, (PAGES - 1) * GRANULE + HALF, HALF, value);
}

static void drop_sequence(moor_range range)
{
    OK(moor_range_release(host.runtime, range));
    advance();
    reap();
}

Test(host, two_sequences_append_to_one_tail)
{
    moor_segment segments[PAGES];
    moor_range first = reserve_sequence();
    make_prompt(first, segments);
    moor_range second = share_prompt(segments);
    drop_handles(segments);
    expect_held(PAGES * GRANULE);
    OK(append(first, 1));
    expect_held((PAGES + 1) * GRANULE); /* a copy of one page */
    expect_tail(first, 1);
    expect_tail(second, 0);
    OK(append(second, 2)); /* the last owner needs no copy */
    expect_held((PAGES + 1) * GRANULE);
    expect_tail(first, 1);
    expect_tail(second, 2);
    drop_sequence(first);
    expect_held(PAGES * GRANULE);
    expect_tail(second, 2);
    drop_sequence(second);
    expect_held(0);
    tear_down();
}

Test(host, no_room_for_a_private_tail)
{
    moor_segment segments[PAGES];
    moor_range first = reserve_sequence();
    make_prompt(first, segments);
    moor_range second = share_prompt(segments);
    drop_handles(segments);
    OK(moor_authority_set_capacity(host.authority, PAGES * GRANULE, 0, NULL));
    cr_assert_eq(append(first, 1), MOOR_OVER_BUDGET);
    expect_held(PAGES * GRANULE);
    expect_tail(first, 0);
    expect_tail(second, 0);
    OK(moor_authority_set_capacity(host.authority, 64 * MIB, 0, NULL));
    OK(append(first, 1));
    expect_tail(first, 1);
    expect_tail(second, 0);
    drop_sequence(first);
    drop_sequence(second);
    tear_down();
}

/* The device reports a write through a shared map. */
Test(host, a_write_through_a_shared_map)
{
    moor_segment segments[PAGES];
    moor_range first = reserve_sequence();
    make_prompt(first, segments);
    drop_handles(segments);
    struct moor_view view = part_of(first, 0, GRANULE);
    cr_assert_neq(moor_fill(host.stream, &view, 1, 1), MOOR_OK);
    uint64_t native = 0;
    const struct moor_mock_access access = {view.address, 16, MOOR_MOCK_WRITE, 1};
    OK(moor_stream_get_native(host.stream, &native));
    OK(host.control->kernel(host.control->mock, native, &access, 1, 0));
    struct moor_mock_violation seen;
    uint64_t total = 0;
    uint32_t count = 0;
    OK(host.control->violations(host.control->mock, &total, &seen, 1, &count));
    cr_assert_eq(total, 1);
    cr_assert_eq(seen.kind, MOOR_MOCK_READ_ONLY);
    OK(host.control->clear_violations(host.control->mock));
    expect_part(first, 0, GRANULE, 10); /* and the write has changed nothing */
    drop_sequence(first);
    tear_down();
}

#define CHILDREN 1000

Test(host, a_thousand_children_of_one_prompt)
{
    static moor_range children[CHILDREN];
    moor_segment segments[PAGES];
    uint64_t random = 7;
    moor_range parent = reserve_sequence();
    make_prompt(parent, segments);
    for (int i = 0; i < CHILDREN; i++)
        children[i] = share_prompt(segments);
    drop_handles(segments);
    expect_held(PAGES * GRANULE);
    drop_sequence(parent);
    for (int left = CHILDREN; left > 0; left--) {
        random = random * UINT64_C(6364136223846793005) + 1;
        int picked = (int)((random >> 33) % (unsigned int)left);
        expect_held(PAGES * GRANULE);
        expect_part(children[picked], (PAGES - 1) * GRANULE, HALF, 10 + PAGES - 1);
        drop_sequence(children[picked]);
        children[picked] = children[left - 1];
    }
    expect_held(0);
    tear_down();
}

/* ---- wrong sizes at the device ---- */

/* Every release of the core names exactly its object: with strict=1 all tests above would have shown a wrong
 * one. */
Test(host, ranges_are_freed_in_parts)
{
    moor_range range = reserve_sequence();
    OK(moor_range_commit(host.runtime, range, 0, 2 * GRANULE, 0));
    OK(moor_range_commit(host.runtime, range, 2 * GRANULE, 2 * GRANULE, 0));
    fill_part(range, 0, PAGES * GRANULE, 3);
    OK(moor_range_decommit(host.runtime, range, GRANULE, 2 * GRANULE));
    expect_held(PAGES * GRANULE);
    advance();
    reap();
    expect_held(2 * GRANULE);
    drop_sequence(range);
    expect_held(0);
    tear_down();
}
