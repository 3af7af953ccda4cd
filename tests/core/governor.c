/* SPDX-License-Identifier: MIT */
/* Grants, leases, limits and capacity: I2, live changes, and the distinct statuses of a shortage. */
#include "fixture.h"

#include <string.h>

TestSuite(governor, .timeout = 30);

FIXTURE_TEST(governor, a_grant_always_has_room)
{
    moor_grant second = 0;
    fixture_set_capacity(f, 10000);
    moor_grant grant = fixture_reserve(f, 10000);
    cr_assert_eq(fixture_stats(f).reserved_bytes, 10000);
    cr_assert_eq(fixture_stats(f).free_bytes, 0);
    EXPECT(MOOR_OVER_BUDGET, moor_grant_reserve(f->holder, 1, MOOR_NO_WAIT, &second));
    EXPECT(MOOR_NEVER_FITS, moor_grant_reserve(f->holder, 10001, MOOR_NO_WAIT, &second));
    EXPECT(MOOR_INVALID, moor_grant_reserve(f->holder, 0, MOOR_NO_WAIT, &second));
    cr_assert_eq(second, 0);
    fixture_set_capacity(f, 1); /* a grant stays valid */
    struct moor_buffer_options options = {.grant = grant};
    moor_buffer buffer = 0;
    EXPECT(MOOR_OK, moor_buffer_allocate(f->binding, 8192, &options, &buffer));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    EXPECT(MOOR_STALE, moor_grant_release(f->runtime, grant));
    fixture_reap(f);
    cr_assert_eq(fixture_stats(f).reserved_bytes, 0);
}

FIXTURE_TEST(governor, leases_charge_and_refund)
{
    moor_lease lease = 0;
    moor_lease more = 0;
    uint64_t left = 0;
    moor_grant grant = fixture_reserve(f, 1000);
    EXPECT(MOOR_OK, moor_lease_commit(f->runtime, grant, 600, &lease));
    EXPECT_BYTES(f, .charged_bytes = 600, .leased_bytes = 600, .reserved_bytes = 400);
    EXPECT(MOOR_OVER_BUDGET, moor_lease_commit(f->runtime, grant, 401, &more));
    EXPECT(MOOR_INVALID, moor_lease_commit(f->runtime, grant, 0, &more));
    EXPECT(MOOR_OK, moor_grant_get_remaining(f->runtime, grant, &left));
    cr_assert_eq(left, 400);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    EXPECT(MOOR_STALE, moor_lease_commit(f->runtime, grant, 1, &more));
    EXPECT(MOOR_STALE, moor_grant_commit(f->runtime, grant, 1, &more));
    cr_assert_eq(fixture_stats(f).charged_bytes, 600, "a lease outlives its grant");
    EXPECT(MOOR_BUSY, moor_holder_destroy(f->holder));
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
    EXPECT(MOOR_STALE, moor_lease_refund(f->runtime, lease));
    cr_assert_eq(fixture_stats(f).charged_bytes, 0);
}

FIXTURE_TEST(governor, a_lease_alone_keeps_its_holder)
{
    struct moor_holder *holder = fixture_holder(f, LIMITS(0));
    moor_lease lease = fixture_lease(f, holder, 1000);
    EXPECT(MOOR_BUSY, moor_holder_destroy(holder));
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
    EXPECT(MOOR_OK, moor_holder_destroy(fixture_disown(holder)));
}

FIXTURE_TEST(governor, capacity_shrinks_below_use_and_grows_back)
{
    moor_buffer more = 0;
    fixture_set_capacity(f, 16384);
    (void)fixture_allocate(f, 8192);
    moor_buffer second = fixture_allocate(f, 4096);
    fixture_set_capacity(f, 10000);
    cr_assert_eq(fixture_stats(f).capacity_bytes, 10000);
    EXPECT_BYTES(f, .charged_bytes = 12288); /* existing memory stays */
    cr_assert_eq(fixture_stats(f).free_bytes, 0, "never negative");
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(f->binding, 256, NULL, &more));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, second));
    (void)fixture_allocate(f, 1024); /* 9216 of 10000 */
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(f->binding, 1024, NULL, &more));
    fixture_set_capacity(f, UINT64_MAX);
    (void)fixture_allocate(f, 1024);
    fixture_set_capacity(f, 0);
    cr_assert_eq(fixture_stats(f).free_bytes, 0);
    EXPECT(MOOR_NEVER_FITS, moor_buffer_allocate(f->binding, 256, NULL, &more));
}

FIXTURE_TEST(governor, limits_bind_one_holder)
{
    struct moor_holder *small = NULL;
    struct moor_binding *binding = NULL;
    struct moor_holder_options options = {.name = "small", .role = MOOR_ROLE_KV, .limits.limit_bytes = 8192};
    EXPECT(MOOR_OK, moor_holder_create(f->authority, &options, &small));
    EXPECT(MOOR_OK, moor_binding_open(f->device, SCRIPTED_DOMAIN_DEVICE, small, &binding));
    moor_buffer first = 0;
    moor_buffer second = 0;
    moor_grant grant = 0;
    EXPECT(MOOR_NEVER_FITS, moor_buffer_allocate(binding, 8193, NULL, &first));
    EXPECT(MOOR_OK, moor_buffer_allocate(binding, 4096, NULL, &first));
    EXPECT(MOOR_OK, moor_grant_reserve(small, 4096, MOOR_NO_WAIT, &grant)); /* reserved bytes count too */
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(binding, 256, NULL, &second));
    moor_buffer other = fixture_allocate(f, MIB(1)); /* the limit does not bind other holders */
    EXPECT(MOOR_OK,
           moor_holder_set_limits(small, &(struct moor_holder_limits){.limit_bytes = 1000}, 0, NULL));
    struct moor_holder_stats stats;
    EXPECT(MOOR_OK, moor_holder_get_stats(small, &stats));
    cr_assert_eq(stats.limit_bytes, 1000);
    cr_assert_eq(stats.charged_bytes, 4096, "existing memory stays");
    cr_assert_eq(stats.reserved_bytes, 4096);
    cr_assert_str_eq(stats.name, "small");
    cr_assert_eq(stats.role, MOOR_ROLE_KV);
    EXPECT(MOOR_OK, moor_holder_set_limits(small, &(struct moor_holder_limits){.limit_bytes = 0}, 0, NULL));
    EXPECT(MOOR_OK, moor_buffer_allocate(binding, MIB(1), NULL, &second));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, first));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, second));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, other));
    fixture_reap(f);
    EXPECT(MOOR_BUSY, moor_holder_destroy(small));
    EXPECT(MOOR_OK, moor_binding_close(binding));
    EXPECT(MOOR_OK, moor_holder_destroy(small));
}

/* A buffer cannot draw from another holder's grant. */
FIXTURE_TEST(governor, grants_belong_to_their_holder)
{
    struct moor_holder *other = fixture_holder(f, LIMITS(0));
    struct moor_buffer_options options = {0};
    moor_buffer buffer = 0;
    EXPECT(MOOR_OK, moor_grant_reserve(other, 8192, MOOR_NO_WAIT, &options.grant));
    EXPECT(MOOR_FOREIGN, moor_buffer_allocate(f->binding, 4096, &options, &buffer));
    EXPECT(MOOR_BUSY, moor_holder_destroy(other));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, options.grant));
}

/* PENDING: the missing bytes are pending. OVER_BUDGET: they are not. NEVER_FITS: the request is larger than
 * the limit. */
FIXTURE_TEST(governor, shortages_have_distinct_statuses)
{
    moor_buffer buffer = 0;
    moor_grant grant = 0;
    fixture_set_capacity(f, 12288);
    (void)fixture_allocate(f, 4096);
    struct moor_view view = fixture_allocate_view(f, 4096);
    fixture_release_pending(f, &view);
    EXPECT(MOOR_PENDING, moor_buffer_allocate(f->binding, 8192, NULL, &buffer));
    EXPECT(MOOR_PENDING, moor_grant_reserve(f->holder, 8192, MOOR_NO_WAIT, &grant));
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(f->binding, 8193, NULL, &buffer));
    EXPECT(MOOR_OVER_BUDGET, moor_grant_reserve(f->holder, 12288, MOOR_NO_WAIT, &grant));
    EXPECT(MOOR_NEVER_FITS, moor_grant_reserve(f->holder, 12289, MOOR_NO_WAIT, &grant));
    (void)fixture_allocate(f, 4096);
    scripted_open(f->script, f->queue);
    (void)fixture_reserve(f, 4096);
}

/* Pending bytes of other holders make no room below a holder's own limit. */
FIXTURE_TEST(governor, pending_bytes_of_others_do_not_lift_a_limit)
{
    struct moor_holder *small = fixture_holder(f, LIMITS(.limit_bytes = 4096));
    struct moor_view view = fixture_allocate_view(f, 4096);
    moor_grant grant = 0;
    (void)fixture_lease(f, small, 4096);
    fixture_release_pending(f, &view);
    EXPECT(MOOR_OVER_BUDGET, moor_grant_reserve(small, 256, MOOR_NO_WAIT, &grant));
}

/* A failed call drew from the grant, and the object that it made is still pending behind a stream. */
FIXTURE_TEST(governor, a_released_grant_returns_its_rest_at_once)
{
    moor_segment segment = fixture_segment(f, 1, 0x11);
    moor_range ranges[2] = {fixture_range(f, 1), fixture_range(f, 1)};
    for (size_t i = 0; i < 2; i++)
        EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, ranges[i], 0, MOOR_ACCESS_READ));
    moor_grant grant = fixture_reserve(f, 100 * GRANULE);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_PENDING,
           moor_range_make_writable(f->runtime, ranges[0], 0, f->stream, grant, MOOR_NO_WAIT, NULL));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    /* the part that a call still holds follows */
    EXPECT_BYTES(f, .charged_bytes = 2 * GRANULE, .pending_bytes = GRANULE);
    fixture_open_and_reap(f);
    EXPECT_BYTES(f, .charged_bytes = GRANULE);
    cr_assert_eq(fixture_counts(f).grants, 0);
}

FIXTURE_TEST_WITH(governor, an_unknown_total_starts_at_nothing, fixture_close, .total_unknown = 1)
{
    moor_buffer buffer = 0;
    cr_assert_eq(fixture_stats(f).capacity_bytes, 0);
    EXPECT(MOOR_NEVER_FITS, moor_buffer_allocate(f->binding, 256, NULL, &buffer));
    fixture_set_capacity(f, 4096);
    (void)fixture_allocate(f, 256);
}

FIXTURE_TEST(governor, bindings_are_for_one_pool)
{
    struct moor_binding *binding = NULL;
    EXPECT(MOOR_FOREIGN, moor_binding_open(f->device, SCRIPTED_DOMAIN_HOST, f->holder, &binding));
    cr_assert_null(binding);
}

/* A binding with a live or pending object stays open. */
FIXTURE_TEST(governor, bindings_in_use_stay_open)
{
    moor_range range = fixture_range(f, 1);
    EXPECT(MOOR_BUSY, moor_binding_close(f->binding));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    fixture_reap(f);
    struct moor_view view = fixture_allocate_view(f, 4096);
    EXPECT(MOOR_BUSY, moor_binding_close(f->binding));
    fixture_release_pending(f, &view);
    EXPECT(MOOR_BUSY, moor_binding_close(f->binding));
}
