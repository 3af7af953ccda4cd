/* SPDX-License-Identifier: MIT */
/*
 * Requests that an eviction serves. The pool is full, and half of it belongs to a victim, which evicts its
 * two buffers on request. The fault may hit the request, the pressure request, or the eviction, on any
 * thread; then the request gets nothing, and after the victim has allocated its memory again the state is
 * unchanged.
 */
#include "scenarios.h"

#include <stdatomic.h>
#include <time.h>

#define VICTIM_BYTES 20000u
#define LARGE_BYTES (UINT64_C(6) << 20) /* on a small device; the victim has two such buffers */

/* A served request is served at once, except on a busy machine, and a request that cannot be served must cost
 * the sweep little time. Deadlines are therefore early and are repeated, unless the state shows that no room
 * will come. */
#define WAIT_NS UINT64_C(250000000)
#define WAITS_MAX 8

static uint64_t soon(void)
{
    return moor_clock_ns() + WAIT_NS;
}

static void rest(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* ---- the victim ---- */

/* Releases buffers[1] and [2] and opens the gate, so that fenced memory returns, too. */
static uint64_t let_go(void *user, const struct moor_pressure *pressure)
{
    struct world *world = user;
    uint64_t bytes = 0;
    (void)pressure;
    for (size_t i = 1; i < THINGS; i++) {
        if (!world->buffers[i] || moor_buffer_release(world->runtime, world->buffers[i]))
            continue;
        world->buffers[i] = 0;
        bytes += world->unit;
        atomic_fetch_add(&world->given, 1);
    }
    if (world->given_lease && !moor_lease_refund(world->runtime, world->given_lease)) {
        world->given_lease = 0;
        bytes += 2 * world->unit;
    }
    world_open_gate(world);
    return bytes;
}

static void set_capacity(struct world *world, uint64_t bytes)
{
    MUST(moor_authority_set_capacity(world->authority, bytes, 0, NULL));
}

/* Allocates the victim's memory again. */
static void feed_victim(struct world *world)
{
    for (size_t i = 1; i < THINGS; i++)
        if (!world->buffers[i])
            MUST(moor_buffer_allocate(world->second_binding, world->victim_bytes, NULL, &world->buffers[i]));
    atomic_store(&world->given, 0);
    atomic_store(&world->unasked, 0);
}

static void make_holder(struct world *world)
{
    const struct moor_holder_options options = {.name = "victim", .pressure = let_go, .pressure_user = world};
    MUST(moor_holder_create(world->authority, &options, &world->second_holder));
}

static void make_victim(struct world *world, uint64_t size_bytes)
{
    make_holder(world);
    world->victim_bytes = size_bytes;
    MUST(moor_binding_open(world->device, 0, world->second_holder, &world->second_binding));
    MUST(moor_binding_get_footprint(world->second_binding, size_bytes, NULL, &world->unit));
    feed_victim(world);
    world_settle(world);
}

static uint64_t bytes_in_use(struct world *world)
{
    struct moor_authority_stats stats;
    MUST(moor_authority_get_stats(world->authority, &stats, NULL, 0, NULL));
    return stats.reserved_bytes + stats.charged_bytes;
}

static void make_full(struct world *world)
{
    make_victim(world, VICTIM_BYTES);
    set_capacity(world, bytes_in_use(world));
}

/* Waits until the pressure function has ended and the evicted bytes, including quarantined ones, are back. */
static void calm_down(struct world *world)
{
    struct moor_object_counts counts;
    MUST(moor_holder_set_pressure(world->second_holder, NULL, NULL));
    world_settle(world);
    MUST(moor_runtime_get_counts(world->runtime, &counts));
    if (counts.quarantined == 0)
        return;
    world_empty_quarantine(world);
    world_settle(world);
}

static void restore_victim(struct world *world)
{
    calm_down(world);
    feed_victim(world);
    MUST(moor_holder_set_pressure(world->second_holder, let_go, world));
}

/* ---- requests that do not wait ---- */

static moor_status reserve(struct world *world)
{
    return moor_grant_reserve(world->holder, 2 * world->unit, MOOR_NO_WAIT, &world->grant);
}

static void unreserve(struct world *world)
{
    MUST(moor_grant_release(world->runtime, world->grant));
    world->grant = 0;
    restore_victim(world);
}

static moor_status reserve_both(struct world *world)
{
    const struct moor_request requests[] = {{world->far_holder, PAGE_BYTES}, {world->holder, world->unit}};
    return moor_grants_reserve(requests, 2, MOOR_NO_WAIT, world->grants);
}

static void unreserve_both(struct world *world)
{
    for (size_t i = 0; i < THINGS; i++) {
        MUST(moor_grant_release(world->runtime, world->grants[i]));
        world->grants[i] = 0;
    }
    restore_victim(world);
}

static moor_status allocate(struct world *world)
{
    return moor_buffer_allocate(world->binding, VICTIM_BYTES, NULL, &world->buffers[0]);
}

static void release_buffer(struct world *world)
{
    MUST(moor_buffer_release(world->runtime, world->buffers[0]));
    world->buffers[0] = 0;
}

static void unallocate(struct world *world)
{
    release_buffer(world);
    restore_victim(world);
}

static void make_full_with_lease(struct world *world)
{
    MUST(moor_grant_reserve(world->holder, world->domain.alignment_bytes, MOOR_NO_WAIT, &world->grant));
    MUST(moor_grant_commit(world->runtime, world->grant, world->domain.alignment_bytes, &world->lease));
    world->grant = 0;
    make_full(world);
}

static moor_status enlarge_lease(struct world *world)
{
    return moor_lease_adjust(world->runtime, world->lease, 2 * world->unit, MOOR_NO_WAIT);
}

static void reduce_lease(struct world *world)
{
    MUST(moor_lease_adjust(world->runtime, world->lease, world->domain.alignment_bytes, MOOR_NO_WAIT));
    restore_victim(world);
}

/* ---- steps with one reservation ---- */

static void make_full_with_ranges(struct world *world)
{
    for (size_t i = 0; i < 2; i++)
        world->ranges[i] = world_reserve(world, 1);
    make_victim(world, world->granule);
    set_capacity(world, bytes_in_use(world));
}

static moor_status grow_both(struct world *world)
{
    struct moor_step steps[2] = {0};
    for (size_t i = 0; i < 2; i++)
        steps[i] = (struct moor_step){
            .kind = MOOR_STEP_COMMIT, .range = world->ranges[i], .length_bytes = world->granule};
    return moor_transact(world->runtime, steps, 2, NULL);
}

static void shrink_both(struct world *world)
{
    for (size_t i = 0; i < 2; i++)
        MUST(moor_range_decommit(world->runtime, world->ranges[i], 0, world->granule));
    restore_victim(world);
}

/* ---- a victim with a lease ---- */

static void take_lease(struct world *world)
{
    moor_grant grant;
    MUST(moor_grant_reserve(world->second_holder, 2 * world->unit, MOOR_NO_WAIT, &grant));
    MUST(moor_grant_commit(world->runtime, grant, 2 * world->unit, &world->given_lease));
}

static void make_full_of_lease(struct world *world)
{
    make_holder(world);
    world->unit = PAGE_BYTES;
    take_lease(world);
    set_capacity(world, bytes_in_use(world));
}

static void restore_lease(struct world *world)
{
    calm_down(world);
    if (!world->given_lease)
        take_lease(world);
    MUST(moor_holder_set_pressure(world->second_holder, let_go, world));
}

static void unreserve_lease(struct world *world)
{
    MUST(moor_grant_release(world->runtime, world->grant));
    world->grant = 0;
    restore_lease(world);
}

/* ---- requests that wait ---- */

/* Returns true if the victim has evicted everything and the bytes are in quarantine. */
static bool is_in_vain(struct world *world)
{
    struct moor_authority_stats stats;
    bool has_given = atomic_load(&world->given) == THINGS - 1;
    MUST(moor_authority_get_stats(world->authority, &stats, NULL, 0, NULL));
    return has_given && stats.quarantined_bytes && stats.pending_bytes == 0;
}

static moor_status reserve_waiting(struct world *world)
{
    moor_status status = MOOR_TIMEOUT;
    for (int i = 0; status == MOOR_TIMEOUT && i < WAITS_MAX && !is_in_vain(world); i++)
        status = moor_grant_reserve(world->holder, 2 * world->unit, soon(), &world->grant);
    return status;
}

/* The work on the victim's buffer goes on until the pressure request. */
static void make_full_and_busy(struct world *world)
{
    make_full(world);
    struct moor_view view = world_buffer_view(world, world->buffers[1]);
    world_hold(world, world->stream);
    world_fill(world, &view, 1);
}

static moor_status allocate_waiting(struct world *world)
{
    moor_status status = MOOR_TIMEOUT;
    for (int i = 0; status == MOOR_TIMEOUT && i < WAITS_MAX && !is_in_vain(world); i++) {
        const struct moor_buffer_options options = {.deadline_ns = soon()};
        status = moor_buffer_allocate(world->binding, VICTIM_BYTES, &options, &world->buffers[0]);
    }
    return status;
}

/* Waits after the ticket is served. */
static moor_status open_and_wait(struct world *world)
{
    const struct moor_request requests[] = {{world->holder, world->unit}, {world->holder, world->unit}};
    moor_status status = moor_ticket_open(requests, 2, MOOR_FOREVER, &world->ticket);
    if (status)
        return status;
    struct moor_ticket_stats stats = {0};
    for (uint64_t give_up = moor_clock_ns() + WAITS_MAX * WAIT_NS; !stats.served; rest()) {
        if (is_in_vain(world) || moor_clock_ns() > give_up)
            return MOOR_TIMEOUT;
        MUST(moor_ticket_get_stats(world->runtime, world->ticket, &stats));
    }
    status = moor_ticket_wait(world->runtime, world->ticket, world->grants, 2);
    if (!status)
        world->ticket = 0;
    return status;
}

static void cancel_and_restore(struct world *world)
{
    MUST(moor_ticket_cancel(world->runtime, world->ticket));
    world->ticket = 0;
    restore_victim(world);
}

/* ---- limits that shrink ---- */

/* Waits until no holder and no pool is over its limit, or the victim's eviction was not enough. */
static moor_status await_relief(struct world *world)
{
    uint64_t give_up = moor_clock_ns() + WAITS_MAX * WAIT_NS;
    for (;; rest()) {
        struct moor_authority_stats stats;
        struct moor_holder_stats victim;
        bool in_vain = is_in_vain(world) || atomic_load(&world->unasked);
        MUST(moor_holder_get_stats(world->second_holder, &victim));
        MUST(moor_authority_get_stats(world->authority, &stats, NULL, 0, NULL));
        uint64_t has = victim.reserved_bytes + victim.charged_bytes;
        bool is_over = stats.over_bytes || (victim.limit_bytes && has > victim.limit_bytes);
        if (!is_over && stats.tickets == 0)
            return MOOR_OK;
        if ((is_over && in_vain) || moor_clock_ns() > give_up)
            return MOOR_TIMEOUT;
    }
}

/* Shrinks the capacity by one of the victim's buffers. */
static moor_status shrink_capacity(struct world *world)
{
    struct moor_authority_stats stats;
    uint64_t over = 0;
    MUST(moor_authority_get_stats(world->authority, &stats, NULL, 0, NULL));
    MUST(moor_authority_set_capacity(world->authority, stats.capacity_bytes - world->unit, 0, &over));
    CHECK(over == world->unit, "%llu bytes are over", (unsigned long long)over);
    return await_relief(world);
}

static void regrow_capacity(struct world *world)
{
    struct moor_authority_stats stats;
    MUST(moor_authority_get_stats(world->authority, &stats, NULL, 0, NULL));
    MUST(moor_authority_set_capacity(world->authority, stats.capacity_bytes + world->unit, 0, NULL));
    restore_victim(world);
}

static moor_status shrink_limit(struct world *world)
{
    const struct moor_holder_limits limits = {.limit_bytes = world->unit};
    uint64_t over = 0;
    MUST(moor_holder_set_limits(world->second_holder, &limits, 0, &over));
    CHECK(over == world->unit, "%llu bytes are over", (unsigned long long)over);
    return await_relief(world);
}

static void regrow_limit(struct world *world)
{
    MUST(moor_holder_set_limits(world->second_holder, &(struct moor_holder_limits){0}, 0, NULL));
    restore_victim(world);
}

/* Guarantees the victim's borrowed bytes to another holder. */
static moor_status raise_guarantee(struct world *world)
{
    struct moor_holder_stats stats;
    MUST(moor_holder_get_stats(world->holder, &stats));
    const struct moor_holder_limits limits = {.guarantee_bytes =
                                                  stats.reserved_bytes + stats.charged_bytes + world->unit};
    MUST(moor_holder_set_limits(world->holder, &limits, 0, NULL));
    return await_relief(world);
}

static void lower_guarantee(struct world *world)
{
    MUST(moor_holder_set_limits(world->holder, &(struct moor_holder_limits){0}, 0, NULL));
    restore_victim(world);
}

static moor_status set_aside(struct world *world)
{
    MUST(moor_authority_set_aside(world->authority, world->unit));
    return await_relief(world);
}

static void unset_aside(struct world *world)
{
    MUST(moor_authority_set_aside(world->authority, 0));
    restore_victim(world);
}

/* ---- a device that is full ---- */

/* The budget exceeds the device's memory. */
static void fill_device(struct world *world)
{
    set_capacity(world, UINT64_C(1) << 30);
    make_victim(world, LARGE_BYTES);
}

static moor_status allocate_large(struct world *world)
{
    return moor_buffer_allocate(world->binding, LARGE_BYTES, NULL, &world->buffers[0]);
}

static void fill_device_and_reserve(struct world *world)
{
    fill_device(world);
    MUST(moor_range_reserve(world->binding, LARGE_BYTES,
                            &(struct moor_range_options){.granule_bytes = world->granule},
                            &world->ranges[0]));
}

static moor_status commit_large(struct world *world)
{
    return moor_range_commit(world->runtime, world->ranges[0], 0, LARGE_BYTES, 0);
}

static void decommit_large(struct world *world)
{
    MUST(moor_range_decommit(world->runtime, world->ranges[0], 0, LARGE_BYTES));
    restore_victim(world);
}

static moor_status create_large(struct world *world)
{
    return moor_segment_create(world->binding, LARGE_BYTES, world->granule, 0, &world->segments[0]);
}

static void release_large(struct world *world)
{
    MUST(moor_segment_release(world->runtime, world->segments[0]));
    world->segments[0] = 0;
    restore_victim(world);
}

static const struct scenario list[] = {
    {"grant, pressed", 0, 0, 0, make_full, reserve, unreserve, restore_victim},
    {"grants of 2 authorities, pressed", 0, 0, SWEEP_FAR, make_full, reserve_both, unreserve_both,
     restore_victim},
    {"allocate, pressed", 0, 0, 0, make_full, allocate, unallocate, restore_victim},
    {"larger lease, pressed", 0, 0, 0, make_full_with_lease, enlarge_lease, reduce_lease, restore_victim},
    {"transaction, pressed", MOOR_ABI_CAP_VIRTUAL, 0, 0, make_full_with_ranges, grow_both, shrink_both,
     restore_victim},
    {"grant, pressed out of a lease", 0, 0, SWEEP_NO_CALLS, make_full_of_lease, reserve, unreserve_lease,
     restore_lease},
    {"grant, waited for behind work", MOOR_ABI_CAP_COPY, 0, SWEEP_WAITS, make_full_and_busy, reserve_waiting,
     unreserve, restore_victim},
    {"allocate, waited for behind work", MOOR_ABI_CAP_COPY, 0, SWEEP_WAITS, make_full_and_busy,
     allocate_waiting, unallocate, restore_victim},
    {"ticket, pressed", 0, 0, 0, make_full, open_and_wait, unreserve_both, cancel_and_restore},
    {"smaller capacity", 0, 0, 0, make_full, shrink_capacity, regrow_capacity, regrow_capacity},
    {"smaller limit", 0, 0, 0, make_full, shrink_limit, regrow_limit, regrow_limit},
    {"larger guarantee", 0, 0, 0, make_full, raise_guarantee, lower_guarantee, lower_guarantee},
    {"larger set-aside", 0, 0, 0, make_full, set_aside, unset_aside, unset_aside},
    {"allocate, full device", 0, 0, SWEEP_SMALL, fill_device, allocate_large, unallocate, restore_victim},
    {"grow, full device", MOOR_ABI_CAP_VIRTUAL, 0, SWEEP_SMALL, fill_device_and_reserve, commit_large,
     decommit_large, restore_victim},
    {"segment, full device", MOOR_ABI_CAP_SHARED, 0, SWEEP_SMALL, fill_device, create_large, release_large,
     restore_victim},
};

const struct scenarios pressure_scenarios = {list, sizeof list / sizeof list[0]};
