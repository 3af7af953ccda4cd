/* SPDX-License-Identifier: MIT */
/* The promises, as far as a host and the device's owner can see them. */
#include "world.h"

/* ---- counts ---- */

static void add_releases(const struct sim_world *world, enum sim_release_kind kind, struct sim_pending *count)
{
    for (uint32_t i = 0; i < world->release_count; i++) {
        const struct sim_release *release = &world->releases[i];
        if (release->kind != kind)
            continue;
        count->least += !sim_release_may_be_done(world, release);
        count->most++;
    }
}

static void check_counts(struct sim_world *world)
{
    struct moor_object_counts counts;
    struct sim_pending buffers = {0}, ranges = {0}, segments = {0};
    uint64_t live[3] = {0}, bindings = 0, grants = 0, leases = 0, tickets = 0, quarantined = 0;
    if (!sim_expect_ok(world, "counts", moor_runtime_get_counts(world->runtime, &counts)))
        return;
    for (int i = 0; i < SIM_BUFFERS; i++)
        live[0] += world->buffers[i].handle != 0;
    for (int i = 0; i < SIM_RANGES; i++)
        live[1] += world->ranges[i].handle != 0;
    for (int i = 0; i < SIM_SEGMENTS; i++)
        live[2] += world->segments[i].used;
    for (int i = 0; i < SIM_BINDINGS; i++)
        bindings += world->bindings[i].binding != NULL;
    for (int i = 0; i < SIM_GRANTS; i++)
        grants += world->grants[i].handle != 0;
    for (int i = 0; i < SIM_LEASES; i++)
        leases += world->leases[i].handle != 0;
    for (int i = 0; i < SIM_TICKETS; i++)
        tickets += world->tickets[i].handle != 0;
    for (uint32_t i = 0; i < world->release_count; i++)
        quarantined += world->releases[i].stuck;
    add_releases(world, SIM_GONE_BUFFER, &buffers);
    add_releases(world, SIM_GONE_RANGE, &ranges);
    add_releases(world, SIM_GONE_SEGMENT, &segments);
    sim_check_span(world, "buffers", live[0] + buffers.least, live[0] + buffers.most, counts.buffers);
    sim_check_span(world, "ranges", live[1] + ranges.least, live[1] + ranges.most, counts.ranges);
    sim_check_span(world, "segments", live[2] + segments.least, live[2] + segments.most, counts.segments);
    sim_check_equal(world, "bindings", bindings, counts.bindings);
    sim_check_equal(world, "grants", grants, counts.grants);
    sim_check_equal(world, "leases", leases, counts.leases);
    sim_check_equal(world, "tickets", tickets, counts.tickets);
    sim_check_equal(world, "objects in quarantine", quarantined, counts.quarantined);
}

static void check_violations(struct sim_world *world)
{
    const struct moor_mock_control *control = world->control;
    struct moor_mock_violation first;
    uint64_t total = 0;
    uint32_t count = 0;
    if (!sim_expect_ok(world, "violations", control->violations(control->mock, &total, NULL, 0, &count)) ||
        total == 0)
        return;
    static const char *const names[] = {"?",
                                        "work used bytes without memory",
                                        "a read-only map was written",
                                        "work of two streams races",
                                        "memory was released under work that uses it",
                                        "a kernel read a wrong value",
                                        "a release does not match its object"};
    (void)control->violations(control->mock, &total, &first, 1, &count); /* one was just counted */
    sim_fail(world, "the device saw a violation: %s",
             first.kind < sizeof names / sizeof *names ? names[first.kind] : names[0]);
}

void sim_check_accounts(struct sim_world *world)
{
    const struct moor_mock_control *control = world->control;
    sim_tick(world);
    for (uint32_t i = 0; i < world->geometry.devices; i++)
        (void)sim_expect_ok(world, "held", control->held(control->mock, i, &world->held[i]));
    for (uint32_t i = 0; i < world->geometry.devices; i++)
        if (world->authorities[i].authority)
            sim_check_authority(world, (int)i);
    sim_check_tickets(world);
    check_counts(world);
    check_violations(world);
}

/* ---- all objects ---- */

static void check_range(struct sim_world *world, const struct sim_range *range)
{
    struct moor_view view = {0};
    uint64_t granule = 0, committed = 0;
    (void)sim_expect_ok(world, "a view", moor_range_get_view(world->runtime, range->handle, &view));
    sim_check(world, view.address == range->view.address, "an address that has not moved", 1, 0);
    (void)sim_expect_ok(world, "a granule", moor_range_get_granule(world->runtime, range->handle, &granule));
    sim_check_equal(world, "the granule of a range", range->granule_bytes, granule);
    for (uint32_t i = 0; i < range->count; i++) {
        enum sim_granule_state state = range->granules[i].state;
        moor_status status = moor_range_get_committed(world->runtime, range->handle, i * range->granule_bytes,
                                                      range->granule_bytes, &committed);
        (void)sim_expect_ok(world, "committed bytes", status);
        sim_check_equal(world, "committed bytes of a granule",
                        state == SIM_COMMITTED || state == SIM_MAPPED ? range->granule_bytes : 0, committed);
    }
}

void sim_check_all(struct sim_world *world)
{
    for (int i = 0; i < SIM_BUFFERS; i++) {
        struct moor_view view = {0};
        if (!world->buffers[i].handle)
            continue;
        (void)sim_expect_ok(world, "a view",
                            moor_buffer_get_view(world->runtime, world->buffers[i].handle, &view));
        sim_check(world, view.address == world->buffers[i].view.address, "an address that has not moved", 1,
                  0);
    }
    for (int i = 0; i < SIM_RANGES; i++)
        if (world->ranges[i].handle)
            check_range(world, &world->ranges[i]);
    for (int i = 0; i < SIM_GRANTS; i++) {
        uint64_t remaining = 0;
        if (!world->grants[i].handle)
            continue;
        (void)sim_expect_ok(world, "the remaining bytes of a grant",
                            moor_grant_get_remaining(world->runtime, world->grants[i].handle, &remaining));
        sim_check_equal(world, "the remaining bytes of a grant", world->grants[i].remaining, remaining);
    }
}
