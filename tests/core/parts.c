/* SPDX-License-Identifier: MIT */
/* Requests of several parts over several authorities: all parts are granted or none, and no part is held
 * while another one waits. */
#include "asked.h"

TestSuite(parts, .timeout = 120);

struct two_pools {
    struct fixture f;
    struct moor_authority *second;
    struct moor_holder *holder; /* on the second authority */
};

/* Each pool has one unit. */
static struct two_pools open_two_pools(void)
{
    struct two_pools two = {.f = fixture_open(NULL)};
    two.holder = fixture_host_holder(&two.f);
    EXPECT(MOOR_OK, moor_device_get_authority(two.f.device, SCRIPTED_DOMAIN_HOST, &two.second));
    fixture_set_capacity(&two.f, UNIT);
    EXPECT(MOOR_OK, moor_authority_set_capacity(two.second, UNIT, 0, NULL));
    return two;
}

static uint64_t second_reserved(struct two_pools *two)
{
    struct moor_holder_stats stats;
    EXPECT(MOOR_OK, moor_holder_get_stats(two->holder, &stats));
    return stats.reserved_bytes;
}

static void close_two_pools(struct two_pools *two)
{
    cr_assert_eq(second_reserved(two), 0);
    fixture_close(&two->f);
}

Test(parts, all_parts_are_taken_or_none)
{
    struct two_pools two = open_two_pools();
    struct fixture *f = &two.f;
    moor_grant grants[2] = {0}, grant = 0;
    const struct moor_request both[] = {{f->holder, UNIT}, {two.holder, UNIT}};
    moor_ticket blocker = open_ticket(two.holder, UNIT), ticket = 0;
    SHORT(MOOR_OVER_BUDGET, UNIT, moor_grants_reserve(both, 2, MOOR_NO_WAIT, grants));
    SHORT(MOOR_TIMEOUT, UNIT, moor_grants_reserve(both, 2, fixture_soon(20), grants));
    cr_assert(grants[0] == 0 && grants[1] == 0);
    cr_assert_eq(fixture_stats(f).reserved_bytes, 0, "no part is held after a failure");
    EXPECT(MOOR_OK, moor_ticket_open(both, 2, MOOR_FOREVER, &ticket));
    cr_assert_eq(fixture_stats(f).reserved_bytes, 0, "nor while another is waited for");
    EXPECT(MOOR_OK, moor_grant_reserve(f->holder, UNIT, MOOR_NO_WAIT, &grant));
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, blocker));
    cr_assert_eq(second_reserved(&two), 0);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    cr_assert(is_served(f, ticket));
    cr_assert_eq(fixture_stats(f).reserved_bytes, UNIT);
    cr_assert_eq(second_reserved(&two), UNIT);
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, ticket));
    close_two_pools(&two);
}

#define ROUNDS 300

struct grabber {
    pthread_t thread;
    struct fixture *f;
    struct moor_request requests[2];
    _Atomic int failed; /* a status */
};

static void *grab(void *user)
{
    struct grabber *grabber = user;
    for (int i = 0; i < ROUNDS; i++) {
        moor_grant grants[2] = {0};
        moor_status status = moor_grants_reserve(grabber->requests, 2, fixture_soon(LATE_MS), grants);
        if (status)
            atomic_store(&grabber->failed, status);
        for (size_t k = 0; k < 2; k++)
            EXPECT(MOOR_OK, moor_grant_release(grabber->f->runtime, grants[k]));
    }
    return NULL;
}

Test(parts, two_that_want_the_same_in_opposite_order_never_wait_for_ever)
{
    struct two_pools two = open_two_pools();
    struct grabber grabbers[4];
    for (size_t i = 0; i < 4; i++) {
        struct moor_request first = {two.f.holder, UNIT}, second = {two.holder, UNIT};
        grabbers[i] =
            (struct grabber){.f = &two.f, .requests = {i % 2 ? second : first, i % 2 ? first : second}};
        cr_assert_eq(pthread_create(&grabbers[i].thread, NULL, grab, &grabbers[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        join(grabbers[i].thread);
        cr_assert_eq(grabbers[i].failed, MOOR_OK, "%s", moor_status_name(grabbers[i].failed));
    }
    close_two_pools(&two);
}
