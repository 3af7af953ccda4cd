/* SPDX-License-Identifier: MIT */
/*
 * Allocation step by step (I1, I8, I12): the core reserves the footprint, allocates, and charges the actual
 * bytes. A failure at any step leaves the accounts and the provider unchanged.
 */
#include "fixture.h"

#include <string.h>

TestSuite(allocate, .timeout = 30);

static moor_status allocate_one(struct fixture *f, void *user)
{
    return moor_buffer_allocate(f->binding, 5000, NULL, user);
}

static void release_one(struct fixture *f, void *user)
{
    moor_buffer *buffer = user;
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, *buffer));
}

struct witness {
    struct fixture *fixture;
    uint64_t accounted_bytes; /* the reserved and the charged bytes while allocate ran */
    uint32_t seen;
};

static void look_at_the_books(void *user, const struct scripted_call *call)
{
    struct witness *witness = user;
    if (call->name != SCRIPTED_ALLOCATE && call->name != SCRIPTED_COMMIT &&
        call->name != SCRIPTED_SEGMENT_CREATE)
        return;
    struct moor_authority_stats stats;
    moor_status status = moor_authority_get_stats(witness->fixture->authority, &stats, NULL, 0, NULL);
    cr_assert_eq(status, MOOR_OK);
    witness->accounted_bytes = stats.reserved_bytes + stats.charged_bytes;
    witness->seen++;
}

FIXTURE_TEST(allocate, is_accounted_before_it_exists)
{
    struct witness witness = {.fixture = f};
    scripted_knobs(f->script)->footprint_round_bytes = 4096;
    moor_range range = fixture_range(f, 4);
    scripted_set_hook(f->script, look_at_the_books, &witness);
    (void)fixture_allocate(f, 5000);
    cr_assert_eq(witness.seen, 1);
    cr_assert_eq(witness.accounted_bytes, 8192, "the footprint is reserved before allocate");
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 2 * GRANULE, 0));
    cr_assert_eq(witness.seen, 2);
    cr_assert_eq(witness.accounted_bytes, 8192 + 2 * GRANULE);
    (void)fixture_open_segment(f, 1);
    cr_assert_eq(witness.seen, 3);
    cr_assert_eq(witness.accounted_bytes, 8192 + 3 * GRANULE);
    scripted_set_hook(f->script, NULL, NULL);
    EXPECT_BYTES(f, .charged_bytes = 8192 + 3 * GRANULE);
    fixture_check_accounts(f);
}

FIXTURE_TEST(allocate, fails_at_every_step_without_a_trace)
{
    moor_buffer buffer = 0;
    uint32_t failures = fixture_fail_each(f, MOOR_DEVICE_NOMEM, allocate_one, release_one, &buffer);
    cr_assert_geq(failures, 2, "footprint and allocate can fail");
}

FIXTURE_TEST(allocate, forwards_the_providers_status)
{
    static const moor_status statuses[] = {MOOR_DEVICE_NOMEM, MOOR_HOST_NOMEM, MOOR_NO_VA, MOOR_LIMIT,
                                           MOOR_DEVICE_LOST};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        fixture_fail(f, SCRIPTED_ALLOCATE, 1, statuses[i]);
        moor_buffer buffer = 77;
        EXPECT(statuses[i], moor_buffer_allocate(f->binding, 100, NULL, &buffer));
        cr_assert_eq(buffer, 77, "out-parameters are written on success only");
        scripted_clear_faults(f->script);
    }
}

FIXTURE_TEST(allocate, more_than_announced_is_charged_if_it_fits)
{
    scripted_knobs(f->script)->actual_extra_bytes = 1024;
    fixture_set_capacity(f, 4096 + 1024);
    moor_buffer buffer = fixture_allocate(f, 4096);
    cr_assert_eq(fixture_stats(f).charged_bytes, 4096 + 1024);
    cr_assert_eq(fixture_stats(f).free_bytes, 0);
    fixture_check_accounts(f);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    fixture_reap(f);
    cr_assert_eq(fixture_stats(f).charged_bytes, 0, "the actual bytes come back");
}

FIXTURE_TEST(allocate, more_than_announced_is_undone_if_it_does_not_fit)
{
    scripted_knobs(f->script)->actual_extra_bytes = 1024;
    fixture_set_capacity(f, 4096 + 1023);
    struct fixture_state before = fixture_state(f);
    moor_buffer buffer = 77;
    moor_status status = moor_buffer_allocate(f->binding, 4096, NULL, &buffer);
    cr_assert(status == MOOR_OVER_BUDGET || status == MOOR_NEVER_FITS, "the status is %s",
              moor_status_name(status));
    cr_assert_eq(buffer, 77);
    fixture_reap(f);
    fixture_expect_state(f, &before);
    cr_assert_eq(scripted_count(f->script, SCRIPTED_ALLOCATE), 1);
    cr_assert_eq(scripted_count(f->script, SCRIPTED_RELEASE), 1,
                 "undone through the queue, there is no bare free");
}

/* A footprint is an upper bound: an allocation may take less. */
FIXTURE_TEST(allocate, less_than_announced_is_charged_and_the_rest_returned)
{
    scripted_knobs(f->script)->footprint_round_bytes = 4096;
    scripted_knobs(f->script)->actual_extra_bytes = 0 - UINT64_C(1024);
    (void)fixture_allocate(f, 1000);
    EXPECT_BYTES(f, .charged_bytes = 3072);
}

FIXTURE_TEST(allocate, over_budget_makes_no_provider_object)
{
    fixture_set_capacity(f, 8192);
    moor_buffer first = fixture_allocate(f, 8192), second = 0;
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(f->binding, 256, NULL, &second));
    EXPECT(MOOR_NEVER_FITS, moor_buffer_allocate(f->binding, 8193, NULL, &second));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_ALLOCATE), 1);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, first));
    (void)fixture_allocate(f, 8192);
}

/* O15: no size wraps into a small one. */
FIXTURE_TEST(allocate, sizes_never_wrap)
{
    static const uint64_t sizes[] = {0,
                                     UINT64_MAX,
                                     UINT64_MAX - 1,
                                     UINT64_MAX - 254,
                                     UINT64_MAX - 255,
                                     UINT64_MAX - 256,
                                     UINT64_MAX - 510,
                                     UINT64_MAX - 511,
                                     UINT64_MAX - 4095,
                                     UINT64_MAX - 4096,
                                     UINT64_MAX - GRANULE + 1,
                                     UINT64_MAX - GRANULE,
                                     (UINT64_C(1) << 63) - 1,
                                     UINT64_C(1) << 63,
                                     (UINT64_C(1) << 63) + 1,
                                     (UINT64_C(1) << 32) - 1,
                                     (UINT64_C(1) << 32) + 1};
    struct fixture_state before = fixture_state(f);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t handle = 77;
        struct moor_buffer_options aligned = {.alignment_bytes = UINT64_C(1) << 62};
        cr_assert_neq(moor_buffer_allocate(f->binding, sizes[i], NULL, &handle), MOOR_OK);
        cr_assert_neq(moor_buffer_allocate(f->binding, sizes[i], &aligned, &handle), MOOR_OK);
        cr_assert_neq(moor_segment_create(f->binding, sizes[i], 0, 0, &handle), MOOR_OK);
        cr_assert_neq(moor_grant_reserve(f->holder, sizes[i], MOOR_NO_WAIT, &handle), MOOR_OK);
        cr_assert_neq(moor_buffer_wrap(f->binding, f, sizes[i], MOOR_BUFFER_CHARGE, &handle), MOOR_OK);
        cr_assert_eq(handle, 77);
        /* Address space is plentiful, so reserving 4 GiB may succeed. */
        moor_range range = 0;
        if (moor_range_reserve(f->binding, sizes[i], NULL, &range) == MOOR_OK) {
            struct moor_view view;
            EXPECT(MOOR_OK, moor_range_get_view(f->runtime, range, &view));
            cr_assert_geq(view.size_bytes, sizes[i]);
            EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
        }
    }
    fixture_reap(f);
    fixture_expect_state(f, &before);
    cr_assert_eq(scripted_count(f->script, SCRIPTED_ALLOCATE), 0);
}

/* A provider need not distinguish wrapped sizes from small ones: the core refuses them. */
FIXTURE_TEST(allocate, sizes_that_wrap_reach_no_provider)
{
    moor_buffer buffer = 0;
    moor_range range = 0;
    uint64_t bytes = 0;
    uint64_t calls = scripted_count(f->script, SCRIPTED_ANY);
    for (uint64_t less = 0; less < 256; less++) {
        EXPECT(MOOR_OVERFLOW, moor_buffer_allocate(f->binding, UINT64_MAX - less, NULL, &buffer));
        EXPECT(MOOR_OVERFLOW, moor_binding_get_footprint(f->binding, UINT64_MAX - less, NULL, &bytes));
        EXPECT(MOOR_OVERFLOW, moor_range_reserve(f->binding, UINT64_MAX - less, NULL, &range));
    }
    cr_assert_eq(scripted_count(f->script, SCRIPTED_ANY), calls);
}

FIXTURE_TEST(allocate, footprints_equal_the_later_charge)
{
    struct moor_buffer_options odd = {.alignment_bytes = 3};
    uint64_t bytes = 77;
    static const uint64_t sizes[][2] = {
        {1, 4096}, {4095, 4096}, {4096, 4096}, {4097, 8192}, {MIB(3), MIB(3)}};
    scripted_knobs(f->script)->footprint_round_bytes = 4096;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        moor_buffer buffer = 0;
        EXPECT(MOOR_OK, moor_binding_get_footprint(f->binding, sizes[i][0], NULL, &bytes));
        cr_assert_eq(bytes, sizes[i][1]);
        cr_assert_eq(fixture_stats(f).reserved_bytes, 0, "a footprint query reserves nothing");
        moor_grant grant = 0;
        EXPECT(MOOR_OK, moor_grant_reserve(f->holder, bytes, MOOR_NO_WAIT, &grant));
        struct moor_buffer_options options = {.grant = grant};
        EXPECT(MOOR_OK, moor_buffer_allocate(f->binding, sizes[i][0], &options, &buffer));
        cr_assert_eq(fixture_stats(f).charged_bytes, bytes);
        cr_assert_eq(fixture_stats(f).reserved_bytes, 0, "the grant was of the right size");
        EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
        EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
        fixture_reap(f);
    }
    bytes = 77;
    EXPECT(MOOR_INVALID, moor_binding_get_footprint(NULL, 1, NULL, &bytes));
    EXPECT(MOOR_INVALID, moor_binding_get_footprint(f->binding, 0, NULL, &bytes));
    EXPECT(MOOR_INVALID, moor_binding_get_footprint(f->binding, 1, NULL, NULL));
    EXPECT(MOOR_INVALID, moor_binding_get_footprint(f->binding, 1, &odd, &bytes));
    odd = (struct moor_buffer_options){.flags = MOOR_BUFFER_PIN};
    EXPECT(MOOR_INVALID, moor_binding_get_footprint(f->binding, 1, &odd, &bytes));
    EXPECT(MOOR_OVERFLOW, moor_binding_get_footprint(f->binding, UINT64_MAX, NULL, &bytes));
    /* the provider refuses this one */
    EXPECT(MOOR_OVERFLOW, moor_binding_get_footprint(f->binding, UINT64_MAX - 4094, NULL, &bytes));
    fixture_fail(f, SCRIPTED_FOOTPRINT, 1, MOOR_DEVICE_LOST);
    EXPECT(MOOR_DEVICE_LOST, moor_binding_get_footprint(f->binding, 1, NULL, &bytes));
    cr_assert_eq(bytes, 77);
}

FIXTURE_TEST(allocate, bad_arguments_are_invalid)
{
    static const struct moor_buffer_options wrong[] = {
        {.alignment_bytes = 3000}, {.flags = UINT64_C(1) << 40}, {.flags = MOOR_BUFFER_PIN}};
    moor_buffer buffer = 0;
    EXPECT(MOOR_INVALID, moor_buffer_allocate(f->binding, 0, NULL, &buffer));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        EXPECT(MOOR_INVALID, moor_buffer_allocate(f->binding, 100, &wrong[i], &buffer));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_ALLOCATE), 0);
}

FIXTURE_TEST(allocate, alignment_and_zero_reach_the_provider)
{
    moor_buffer buffer = 0;
    struct moor_buffer_options options = {.alignment_bytes = MIB(2), .flags = MOOR_BUFFER_ZERO};
    EXPECT(MOOR_OK, moor_buffer_allocate(f->binding, 5000, &options, &buffer));
    struct moor_view view = fixture_buffer_view(f, buffer);
    cr_assert_eq(view.address % MIB(2), 0);
    cr_assert_eq(view.size_bytes, 5000, "a view has the requested size, not the rounded one");
    cr_assert_eq(view.owner, buffer);
    cr_assert_eq(view.runtime, f->runtime);
    cr_assert(fixture_all_bytes(&view, 0));
    moor_buffer small = 0;
    struct moor_buffer_options below = {.alignment_bytes = 16};
    EXPECT(MOOR_OK, moor_buffer_allocate(f->binding, 10, &below, &small));
    struct moor_view small_view = fixture_buffer_view(f, small);
    cr_assert_eq(small_view.address % 256, 0, "never below the domain's alignment");
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, small));
}

FIXTURE_TEST(allocate, draws_from_a_grant)
{
    moor_buffer buffer = 0;
    uint64_t left = 0;
    fixture_set_capacity(f, 8192);
    moor_grant grant = fixture_reserve(f, 8192);
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(f->binding, 256, NULL, &buffer));
    struct moor_buffer_options options = {.grant = grant};
    EXPECT(MOOR_OK, moor_buffer_allocate(f->binding, 4096, &options, &buffer));
    EXPECT(MOOR_OK, moor_grant_get_remaining(f->runtime, grant, &left));
    cr_assert_eq(left, 4096);
    moor_buffer more = 0;
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(f->binding, 4097, &options, &more));
    EXPECT(MOOR_OK, moor_grant_get_remaining(f->runtime, grant, &left));
    cr_assert_eq(left, 4096, "a failed draw takes nothing");
    fixture_fail(f, SCRIPTED_ALLOCATE, 1, MOOR_DEVICE_NOMEM);
    EXPECT(MOOR_DEVICE_NOMEM, moor_buffer_allocate(f->binding, 4096, &options, &more));
    EXPECT(MOOR_OK, moor_grant_get_remaining(f->runtime, grant, &left));
    cr_assert_eq(left, 4096, "a failed allocation returns its bytes to the grant");
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    cr_assert_eq(fixture_stats(f).reserved_bytes, 0);
    cr_assert_eq(fixture_stats(f).charged_bytes, 4096, "drawn bytes stay charged");
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
}
