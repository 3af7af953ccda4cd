/* SPDX-License-Identifier: MIT */
/* The governor without eviction: requests of several parts, tickets, leases, limits. */
#include "scenarios.h"

#define CANNOT_FAIL (SWEEP_NO_CALLS | SWEEP_CANNOT)
#define FAR_AWAY_NS UINT64_C(10000000000)

static struct moor_authority *far_authority(struct world *world)
{
    struct moor_authority *authority;
    MUST(moor_device_get_authority(world->far_device, 0, &authority));
    return authority;
}

/* ---- requests of several parts ---- */

static moor_status reserve_both(struct world *world)
{
    const struct moor_request requests[] = {
        {world->holder, 3 * PAGE_BYTES}, {world->far_holder, PAGE_BYTES}, {world->holder, PAGE_BYTES}};
    return moor_grants_reserve(requests, 3, MOOR_NO_WAIT, world->grants);
}

static void release_grants(struct world *world)
{
    for (size_t i = 0; i < THINGS; i++) {
        MUST(moor_grant_release(world->runtime, world->grants[i]));
        world->grants[i] = 0;
    }
}

/* ---- tickets ---- */

static moor_status open_ticket(struct world *world)
{
    const struct moor_request requests[] = {{world->holder, 3 * PAGE_BYTES}, {world->holder, PAGE_BYTES}};
    return moor_ticket_open(requests, 2, moor_clock_ns() + FAR_AWAY_NS, &world->ticket);
}

static moor_status open_over_both(struct world *world)
{
    const struct moor_request requests[] = {{world->far_holder, 3 * PAGE_BYTES}, {world->holder, PAGE_BYTES}};
    return moor_ticket_open(requests, 2, MOOR_FOREVER, &world->ticket);
}

static moor_status cancel_ticket(struct world *world)
{
    moor_status status = moor_ticket_cancel(world->runtime, world->ticket);
    if (!status)
        world->ticket = 0;
    return status;
}

static void must_open(struct world *world)
{
    MUST(open_ticket(world));
}

static void must_cancel(struct world *world)
{
    MUST(cancel_ticket(world));
}

static moor_status wait_for_ticket(struct world *world)
{
    moor_status status = moor_ticket_wait(world->runtime, world->ticket, world->grants, 2);
    if (!status)
        world->ticket = 0;
    return status;
}

static void open_again(struct world *world)
{
    release_grants(world);
    must_open(world);
}

/* There is no room, and no release will make any. */
static void open_in_vain(struct world *world)
{
    struct moor_authority_stats stats;
    struct moor_ticket_stats ticket;
    MUST(moor_authority_get_stats(world->authority, &stats, NULL, 0, NULL));
    uint64_t capacity = stats.reserved_bytes + stats.charged_bytes + 4 * PAGE_BYTES;
    MUST(moor_authority_set_capacity(world->authority, capacity, 0, NULL));
    if (!world->grant)
        MUST(moor_grant_reserve(world->holder, PAGE_BYTES, MOOR_NO_WAIT, &world->grant));
    must_open(world);
    MUST(moor_ticket_get_stats(world->runtime, world->ticket, &ticket));
    CHECK(!ticket.served && ticket.bytes == 4 * PAGE_BYTES, "the ticket was served without room");
}

static void open_in_vain_again(struct world *world)
{
    must_open(world);
}

static moor_status look_at_ticket(struct world *world)
{
    struct moor_ticket_stats stats;
    return moor_ticket_get_stats(world->runtime, world->ticket, &stats);
}

/* ---- leases ---- */

static void reserve_for_lease(struct world *world)
{
    MUST(moor_grant_reserve(world->holder, 4 * PAGE_BYTES, MOOR_NO_WAIT, &world->grants[0]));
}

/* The rest of the grant does not stay reserved. */
static moor_status commit_grant(struct world *world)
{
    moor_status status = moor_grant_commit(world->runtime, world->grants[0], 3 * PAGE_BYTES, &world->lease);
    if (!status)
        world->grants[0] = 0;
    return status;
}

static void refund_lease(struct world *world)
{
    MUST(moor_lease_refund(world->runtime, world->lease));
    world->lease = 0;
    reserve_for_lease(world);
}

static void make_lease(struct world *world)
{
    reserve_for_lease(world);
    MUST(commit_grant(world));
}

static moor_status enlarge_lease(struct world *world)
{
    return moor_lease_adjust(world->runtime, world->lease, 7 * PAGE_BYTES, MOOR_NO_WAIT);
}

static void make_smaller(struct world *world)
{
    MUST(moor_lease_adjust(world->runtime, world->lease, 3 * PAGE_BYTES, MOOR_NO_WAIT));
}

static moor_status reduce_lease(struct world *world)
{
    return moor_lease_adjust(world->runtime, world->lease, PAGE_BYTES, MOOR_NO_WAIT);
}

/* ---- limits ---- */

static moor_status set_limits(struct world *world)
{
    const struct moor_holder_limits limits = {
        .limit_bytes = UINT64_C(1) << 20, .guarantee_bytes = UINT64_C(1) << 16, .priority = 3};
    return moor_holder_set_limits(world->holder, &limits, 0, NULL);
}

static void unset_limits(struct world *world)
{
    MUST(moor_holder_set_limits(world->holder, &(struct moor_holder_limits){0}, 0, NULL));
}

static moor_status create_guaranteed(struct world *world)
{
    const struct moor_holder_options options = {
        .name = "guaranteed", .limits = {.guarantee_bytes = UINT64_C(1) << 16, .priority = 1}};
    return moor_holder_create(world->authority, &options, &world->second_holder);
}

static void destroy_second(struct world *world)
{
    MUST(moor_holder_destroy(world->second_holder));
    world->second_holder = NULL;
}

static uint64_t give_nothing(void *user, const struct moor_pressure *pressure)
{
    (void)user;
    (void)pressure;
    return 0;
}

static moor_status set_pressure(struct world *world)
{
    return moor_holder_set_pressure(world->holder, give_nothing, world);
}

static void unset_pressure(struct world *world)
{
    MUST(moor_holder_set_pressure(world->holder, NULL, NULL));
}

static moor_status set_evictable(struct world *world)
{
    return moor_holder_set_evictable(world->holder, PAGE_BYTES);
}

static void unset_evictable(struct world *world)
{
    MUST(moor_holder_set_evictable(world->holder, 0));
}

static moor_status set_aside(struct world *world)
{
    return moor_authority_set_aside(world->authority, PAGE_BYTES);
}

static void unset_aside(struct world *world)
{
    MUST(moor_authority_set_aside(world->authority, 0));
}

static moor_status set_far_capacity(struct world *world)
{
    return moor_authority_set_capacity(far_authority(world), UINT64_C(1) << 28, 0, NULL);
}

static moor_status refresh(struct world *world)
{
    return moor_authority_refresh(world->authority);
}

static const struct scenario list[] = {
    {"grants of 2 authorities", 0, 0, SWEEP_FAR | SWEEP_NO_CALLS, NULL, reserve_both, release_grants, NULL},
    {"ticket", 0, 0, SWEEP_NO_CALLS, NULL, open_ticket, must_cancel, NULL},
    {"ticket of 2 authorities", 0, 0, SWEEP_FAR | SWEEP_NO_CALLS, NULL, open_over_both, must_cancel, NULL},
    {"wait for a ticket", 0, 0, SWEEP_NO_CALLS, must_open, wait_for_ticket, open_again, NULL},
    {"cancel a ticket that was served", 0, 0, CANNOT_FAIL, must_open, cancel_ticket, must_open, NULL},
    {"cancel a ticket that waits", 0, 0, CANNOT_FAIL, open_in_vain, cancel_ticket, open_in_vain_again, NULL},
    {"look at a ticket", 0, 0, CANNOT_FAIL, open_in_vain, look_at_ticket, NULL, NULL},
    {"commit a grant", 0, 0, SWEEP_NO_CALLS, reserve_for_lease, commit_grant, refund_lease, NULL},
    {"larger lease", 0, 0, CANNOT_FAIL, make_lease, enlarge_lease, make_smaller, NULL},
    {"smaller lease", 0, 0, CANNOT_FAIL, make_lease, reduce_lease, make_smaller, NULL},
    {"limits", 0, 0, CANNOT_FAIL, NULL, set_limits, unset_limits, NULL},
    {"holder with a guarantee", 0, 0, SWEEP_NO_CALLS, NULL, create_guaranteed, destroy_second, NULL},
    {"pressure function", 0, 0, CANNOT_FAIL, NULL, set_pressure, unset_pressure, NULL},
    {"evictable bytes", 0, 0, CANNOT_FAIL, NULL, set_evictable, unset_evictable, NULL},
    {"set-aside", 0, 0, CANNOT_FAIL, NULL, set_aside, unset_aside, NULL},
    {"capacity", 0, 0, SWEEP_FAR | CANNOT_FAIL, NULL, set_far_capacity, NULL, NULL},
    {"external use", MOOR_ABI_CAP_STATS, 0, 0, NULL, refresh, NULL, NULL},
};

const struct scenarios governor_scenarios = {list, sizeof list / sizeof list[0]};
