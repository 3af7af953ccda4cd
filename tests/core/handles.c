/* SPDX-License-Identifier: MIT */
/* I10: a handle never names another object than its own; a wrong handle gets a status and changes nothing. */
#include "fixture.h"
#include "services.h"

#include <stdlib.h>

TestSuite(handles, .timeout = 60);

#define REUSES 3000
#define RUNTIMES 2100
#define RANDOM_HANDLES 10000

struct zoo {
    moor_buffer buffer;
    moor_range range;
    moor_segment segment;
    moor_grant grant;
    moor_lease lease;
};

static struct zoo make_zoo(struct fixture *f)
{
    struct zoo zoo;
    zoo.buffer = fixture_allocate(f, 1000);
    zoo.range = fixture_range(f, 4);
    zoo.segment = fixture_open_segment(f, 1);
    zoo.grant = fixture_reserve(f, 1000);
    EXPECT(MOOR_OK, moor_lease_commit(f->runtime, zoo.grant, 100, &zoo.lease));
    return zoo;
}

static void free_zoo(struct fixture *f, const struct zoo *zoo)
{
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, zoo->buffer));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, zoo->range));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, zoo->segment));
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, zoo->lease));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, zoo->grant));
}

static bool is_refusal(moor_status status)
{
    return status == MOOR_STALE || status == MOOR_FOREIGN || status == MOOR_INVALID;
}

/* Every call that takes a handle of that kind refuses this one. */
static void refuse_as_buffer(struct moor_runtime *runtime, uint64_t handle)
{
    struct moor_view view;
    cr_assert(is_refusal(moor_buffer_get_view(runtime, handle, &view)));
    cr_assert(is_refusal(moor_buffer_release(runtime, handle)));
}

static void refuse_as_range(struct moor_runtime *runtime, uint64_t handle)
{
    struct moor_view view;
    uint64_t bytes;
    cr_assert(is_refusal(moor_range_get_view(runtime, handle, &view)));
    cr_assert(is_refusal(moor_range_get_granule(runtime, handle, &bytes)));
    cr_assert(is_refusal(moor_range_commit(runtime, handle, 0, GRANULE, 0)));
    cr_assert(is_refusal(moor_range_decommit(runtime, handle, 0, GRANULE)));
    cr_assert(is_refusal(moor_range_get_committed(runtime, handle, 0, GRANULE, &bytes)));
    cr_assert(is_refusal(moor_range_unmap(runtime, handle, 0, GRANULE)));
    cr_assert(is_refusal(moor_range_release(runtime, handle)));
}

static void refuse_as_segment(struct moor_runtime *runtime, uint64_t handle, moor_range range)
{
    cr_assert(is_refusal(moor_segment_map(runtime, handle, range, 0, MOOR_ACCESS_READ_WRITE)));
    cr_assert(is_refusal(moor_segment_seal(runtime, handle, MOOR_NO_WAIT)));
    cr_assert(is_refusal(moor_segment_release(runtime, handle)));
}

static void refuse_as_charge(struct moor_runtime *runtime, uint64_t handle)
{
    uint64_t bytes;
    moor_lease lease;
    cr_assert(is_refusal(moor_grant_get_remaining(runtime, handle, &bytes)));
    cr_assert(is_refusal(moor_lease_commit(runtime, handle, 1, &lease)));
    cr_assert(is_refusal(moor_grant_release(runtime, handle)));
}

/* Tries the handle as every kind. */
static void refuse(struct fixture *f, uint64_t handle, moor_range range)
{
    refuse_as_buffer(f->runtime, handle);
    refuse_as_range(f->runtime, handle);
    refuse_as_segment(f->runtime, handle, range);
    refuse_as_charge(f->runtime, handle);
    cr_assert(is_refusal(moor_lease_refund(f->runtime, handle)));
}

FIXTURE_TEST(handles, zero_is_none)
{
    struct moor_view view;
    uint64_t bytes;
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, 0));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, 0));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, 0));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, 0));
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, 0));
    cr_assert(is_refusal(moor_buffer_get_view(f->runtime, 0, &view)));
    cr_assert(is_refusal(moor_range_get_view(f->runtime, 0, &view)));
    cr_assert(is_refusal(moor_range_commit(f->runtime, 0, 0, GRANULE, 0)));
    cr_assert(is_refusal(moor_segment_seal(f->runtime, 0, MOOR_NO_WAIT)));
    cr_assert(is_refusal(moor_grant_get_remaining(f->runtime, 0, &bytes)));
}

FIXTURE_TEST(handles, released_ones_are_stale)
{
    struct zoo zoo = make_zoo(f);
    free_zoo(f, &zoo);
    struct moor_view view;
    uint64_t bytes;
    EXPECT(MOOR_STALE, moor_buffer_get_view(f->runtime, zoo.buffer, &view));
    EXPECT(MOOR_STALE, moor_buffer_release(f->runtime, zoo.buffer));
    EXPECT(MOOR_STALE, moor_range_get_view(f->runtime, zoo.range, &view));
    EXPECT(MOOR_STALE, moor_range_release(f->runtime, zoo.range));
    EXPECT(MOOR_STALE, moor_segment_seal(f->runtime, zoo.segment, MOOR_NO_WAIT));
    EXPECT(MOOR_STALE, moor_segment_release(f->runtime, zoo.segment));
    EXPECT(MOOR_STALE, moor_grant_get_remaining(f->runtime, zoo.grant, &bytes));
    EXPECT(MOOR_STALE, moor_grant_release(f->runtime, zoo.grant));
    EXPECT(MOOR_STALE, moor_lease_refund(f->runtime, zoo.lease));
}

FIXTURE_TEST(handles, of_another_kind_are_refused)
{
    struct zoo zoo = make_zoo(f);
    fixture_reap(f);
    struct fixture_state before = fixture_state(f);
    uint64_t others[] = {zoo.range, zoo.segment, zoo.grant, zoo.lease};
    for (size_t i = 0; i < 4; i++)
        refuse_as_buffer(f->runtime, others[i]);
    others[0] = zoo.buffer;
    for (size_t i = 0; i < 4; i++)
        refuse_as_range(f->runtime, others[i]);
    others[1] = zoo.range;
    for (size_t i = 0; i < 4; i++)
        refuse_as_segment(f->runtime, others[i], zoo.range);
    others[2] = zoo.segment;
    for (size_t i = 0; i < 4; i++)
        refuse_as_charge(f->runtime, others[i]);
    others[3] = zoo.grant;
    for (size_t i = 0; i < 4; i++)
        cr_assert(is_refusal(moor_lease_refund(f->runtime, others[i])));
    fixture_expect_state(f, &before);
    free_zoo(f, &zoo);
}

Test(handles, of_another_runtime_are_foreign)
{
    struct fixture f = fixture_open(NULL);
    struct fixture g = fixture_open(&(struct scripted_options){.name = "second"});
    struct zoo zoo = make_zoo(&f);
    struct zoo other = make_zoo(&g); /* the same slots and generations in the other runtime */
    struct fixture_state before = fixture_state(&g);
    struct moor_view view;
    uint64_t bytes;
    EXPECT(MOOR_FOREIGN, moor_buffer_get_view(g.runtime, zoo.buffer, &view));
    EXPECT(MOOR_FOREIGN, moor_buffer_release(g.runtime, zoo.buffer));
    EXPECT(MOOR_FOREIGN, moor_range_release(g.runtime, zoo.range));
    EXPECT(MOOR_FOREIGN, moor_range_commit(g.runtime, zoo.range, 0, GRANULE, 0));
    EXPECT(MOOR_FOREIGN, moor_segment_release(g.runtime, zoo.segment));
    EXPECT(MOOR_FOREIGN, moor_grant_get_remaining(g.runtime, zoo.grant, &bytes));
    EXPECT(MOOR_FOREIGN, moor_lease_refund(g.runtime, zoo.lease));
    EXPECT(MOOR_FOREIGN, moor_range_commit(g.runtime, other.range, 0, GRANULE, zoo.grant));
    EXPECT(MOOR_FOREIGN, moor_segment_map(g.runtime, zoo.segment, other.range, 0, MOOR_ACCESS_READ_WRITE));
    EXPECT(MOOR_FOREIGN, moor_segment_map(g.runtime, other.segment, zoo.range, 0, MOOR_ACCESS_READ_WRITE));
    view = fixture_buffer_view(&f, zoo.buffer);
    EXPECT(MOOR_FOREIGN, moor_stream_used(g.stream, &view));
    EXPECT(MOOR_FOREIGN, moor_fill(g.stream, &view, 0, 1));
    fixture_expect_state(&g, &before);
    free_zoo(&f, &zoo);
    free_zoo(&g, &other);
    fixture_close(&g);
    fixture_close(&f);
}

FIXTURE_TEST(handles, slots_are_reused_and_old_handles_stay_stale)
{
    moor_buffer *old = calloc(REUSES, sizeof *old);
    for (size_t i = 0; i < REUSES; i++) {
        old[i] = fixture_allocate(f, 512);
        EXPECT(MOOR_OK, moor_buffer_release(f->runtime, old[i]));
        fixture_reap(f);
    }
    moor_buffer live = fixture_allocate(f, 512);
    struct moor_view view;
    for (size_t i = 0; i < REUSES; i++) {
        cr_assert_neq(old[i], live);
        EXPECT(MOOR_STALE, moor_buffer_get_view(f->runtime, old[i], &view));
        EXPECT(MOOR_STALE, moor_buffer_release(f->runtime, old[i]));
    }
    view = fixture_buffer_view(f, live);
    cr_assert_eq(view.owner, live);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, live));
    free(old);
}

/* Grants and leases: threads cache their slots. */
FIXTURE_TEST(handles, slots_in_a_thread_cache_get_new_handles)
{
    moor_grant *grants = calloc(REUSES, sizeof *grants);
    moor_lease *leases = calloc(REUSES, sizeof *leases);
    for (size_t i = 0; i < REUSES; i++) {
        EXPECT(MOOR_OK, moor_grant_reserve(f->holder, 64, MOOR_NO_WAIT, &grants[i]));
        EXPECT(MOOR_OK, moor_grant_commit(f->runtime, grants[i], 64, &leases[i]));
        EXPECT(MOOR_OK, moor_lease_refund(f->runtime, leases[i]));
    }
    moor_grant grant;
    moor_lease lease, other;
    uint64_t bytes;
    EXPECT(MOOR_OK, moor_grant_reserve(f->holder, 128, MOOR_NO_WAIT, &grant));
    EXPECT(MOOR_OK, moor_lease_commit(f->runtime, grant, 64, &lease));
    for (size_t i = 0; i < REUSES; i++) {
        cr_assert(grants[i] != grant && leases[i] != lease);
        EXPECT(MOOR_STALE, moor_grant_get_remaining(f->runtime, grants[i], &bytes));
        EXPECT(MOOR_STALE, moor_grant_commit(f->runtime, grants[i], 64, &other));
        EXPECT(MOOR_STALE, moor_grant_release(f->runtime, grants[i]));
        EXPECT(MOOR_STALE, moor_lease_get_bytes(f->runtime, leases[i], &bytes));
        EXPECT(MOOR_STALE, moor_lease_refund(f->runtime, leases[i]));
    }
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    free(grants);
    free(leases);
}

/* The neighbours of valid handles are the likeliest mistakes; the other handles are random. */
FIXTURE_TEST(handles, random_ones_are_never_taken)
{
    struct zoo zoo = make_zoo(f);
    fixture_reap(f);
    struct fixture_state before = fixture_state(f);
    const uint64_t real[] = {zoo.buffer, zoo.range, zoo.segment, zoo.grant, zoo.lease};
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0; i < RANDOM_HANDLES; i++) {
        uint64_t handle = i % 2 ? service_random(&state) : real[i / 2 % 5] ^ (UINT64_C(1) << (i / 10 % 64));
        bool is_real = handle == 0;
        for (size_t k = 0; k < 5; k++)
            is_real = is_real || handle == real[k];
        if (!is_real)
            refuse(f, handle, zoo.range);
    }
    for (uint64_t handle = 1; handle < 2000; handle++)
        refuse(f, handle, zoo.range);
    fixture_expect_state(f, &before);
    free_zoo(f, &zoo);
}

/* A view of a released object is refused by every call that takes a view. */
FIXTURE_TEST(handles, views_of_released_memory_are_stale)
{
    struct moor_view view = fixture_allocate_view(f, 4096);
    struct moor_view live = fixture_allocate_view(f, 4096);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    uint64_t calls = scripted_count(f->script, SCRIPTED_COPY) + scripted_count(f->script, SCRIPTED_FILL);
    EXPECT(MOOR_STALE, moor_copy(f->stream, &view, &live));
    EXPECT(MOOR_STALE, moor_copy(f->stream, &live, &view));
    EXPECT(MOOR_STALE, moor_fill(f->stream, &view, 0, 1));
    EXPECT(MOOR_STALE, moor_stream_used(f->stream, &view));
    cr_assert(is_refusal(moor_memory_wait(&view, MOOR_NO_WAIT)));
    cr_assert_eq(calls, scripted_count(f->script, SCRIPTED_COPY) + scripted_count(f->script, SCRIPTED_FILL));
}

/* A provider that succeeds and makes nothing: the zero handle is not an object, and nothing stays charged. */
FIXTURE_TEST(handles, of_nothing_are_refused)
{
    static _Alignas(4096) char pages[4096];
    moor_range range = 0;
    moor_segment segment = 0;
    moor_buffer buffer = 0;
    struct fixture_state before = fixture_state(f);
    scripted_knobs(f->script)->make_nothing = 1;
    EXPECT(MOOR_PROVIDER, moor_range_reserve(f->binding, GRANULE, NULL, &range));
    EXPECT(MOOR_PROVIDER, moor_segment_create(f->binding, GRANULE, 0, 0, &segment));
    EXPECT(MOOR_PROVIDER, moor_buffer_wrap(f->binding, pages, sizeof pages, MOOR_BUFFER_PIN, &buffer));
    cr_assert(range == 0 && segment == 0 && buffer == 0);
    fixture_expect_state(f, &before);
}

/* A runtime's tag must not repeat while a handle of an older runtime may still be in use. */
Test(handles, of_a_runtime_long_ago_are_not_taken, .timeout = 300)
{
    struct fixture f = fixture_open(NULL);
    moor_buffer buffer = fixture_allocate(&f, 256);
    for (uint32_t i = 0; i < RUNTIMES; i++) {
        struct fixture g = fixture_open(&(struct scripted_options){.name = "second"});
        moor_buffer other = fixture_allocate(&g, 256); /* the same slot and generation */
        struct moor_view view;
        cr_assert(is_refusal(moor_buffer_get_view(g.runtime, buffer, &view)), "after %u runtimes", i + 1);
        EXPECT(MOOR_OK, moor_buffer_release(g.runtime, other));
        fixture_close(&g);
    }
    fixture_close(&f);
}
