/* SPDX-License-Identifier: MIT */
/* The promises, as far as a host and the device's owner can see them. */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sim_fail(struct sim_world *world, const char *format, ...)
{
    if (world->failure[0] != '\0')
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(world->failure, sizeof world->failure, format, arguments); /* cut short is good enough */
    va_end(arguments);
}

/* ---- answers ---- */

/* "OK or PENDING" */
static void name_statuses(uint32_t set, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int status = -15; status <= 8; status++) {
        if (!(set & sim_bit(status)) || used >= text_bytes)
            continue;
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", used ? " or " : "",
                                 moor_status_name(status));
    }
}

static uint32_t allowed(const struct sim_verdict *verdict)
{
    return verdict->must ? verdict->must | verdict->may : verdict->may | sim_bit(MOOR_OK);
}

/* Outputs are written on success only; and success leaves the last error alone. */
static void check_traces(struct sim_world *world, moor_status status)
{
    if (world->now.output)
        sim_check(world, (status == MOOR_OK) == (*world->now.output != SIM_UNTOUCHED),
                  "whether an output was written", status == MOOR_OK, status != MOOR_OK);
    world->now.output = NULL;
    if (status == MOOR_OK)
        sim_check(world,
                  memcmp(&world->now.error_before, moor_last_error(), sizeof world->now.error_before) == 0,
                  "whether a success left an error behind", 0, 1);
}

void sim_begin_with(struct sim_world *world, const struct sim_op *op, const struct sim_verdict *verdict,
                    const uint64_t *output)
{
    sim_begin(world, op, verdict);
    world->now.output = output;
}

void sim_begin(struct sim_world *world, const struct sim_op *op, const struct sim_verdict *verdict)
{
    world->now.fault_hit = false;
    world->now.output = NULL;
    world->now.error_before = *moor_last_error();
    world->now.calls_before = UINT64_MAX;
    /* A call that is refused anyway may not come to the fault, and something else would. */
    if (!op->fault.function || verdict->must || sim_inside || sim_someone_waits(world))
        return;
    const struct moor_mock_control *control = world->control;
    struct moor_mock_fault fault = {.function = sim_functions[op->fault.function - 1],
                                    .nth = op->fault.nth,
                                    .times = 1,
                                    .status = op->fault.status};
    world->now.calls_before = control->calls(control->mock, fault.function);
    (void)sim_expect_ok(world, "a fault", control->fault(control->mock, &fault));
}

/* Whether the fault was met; it is no more. */
static void end_fault(struct sim_world *world, const struct sim_op *op)
{
    const struct moor_mock_control *control = world->control;
    if (world->now.calls_before == UINT64_MAX)
        return;
    uint64_t now = control->calls(control->mock, sim_functions[op->fault.function - 1]);
    world->now.fault_hit = now - world->now.calls_before >= op->fault.nth;
    (void)sim_expect_ok(world, "no faults", control->clear_faults(control->mock));
}

static bool knows_others(const struct sim_world *world)
{
    for (int i = 0; i < SIM_DEVICES; i++)
        if (world->authorities[i].seen.external_known)
            return true;
    return false;
}

bool sim_end(struct sim_world *world, const struct sim_op *op, moor_status status,
             const struct sim_verdict *verdict)
{
    struct sim_verdict told = *verdict;
    check_traces(world, status);
    end_fault(world, op);
    if (world->now.fault_hit) {
        sim_may(&told, op->fault.status);
        sim_may(&told, MOOR_PENDING); /* it could not look at what has completed */
        sim_may(&told, MOOR_DEVICE_NOMEM);
        if (knows_others(world)) /* what it sees of them with that still there is more */
            sim_may(&told, MOOR_OVER_BUDGET);
    }
    world->now.status = status;
    world->checks++;
    if (status < -15 || status > 8 || !(allowed(&told) & sim_bit(status))) {
        char expected[256];
        name_statuses(allowed(&told), expected, sizeof expected);
        sim_fail(world, "%s: expected %s, saw %s", sim_kinds[op->kind]->name, expected,
                 moor_status_name(status));
    }
    world->now.effective |= status == MOOR_OK;
    return status == MOOR_OK;
}

bool sim_expect_ok(struct sim_world *world, const char *what, moor_status status)
{
    world->checks++;
    if (status != MOOR_OK)
        sim_fail(world, "%s: expected OK, saw %s", what, moor_status_name(status));
    return status == MOOR_OK;
}

uint64_t sim_deadline(const struct sim_world *world, uint64_t arg)
{
    return arg != 0 && world->held_streams == 0 ? MOOR_FOREVER : MOOR_NO_WAIT;
}

/* ---- the books ---- */

void sim_check_span(struct sim_world *world, const char *what, uint64_t least, uint64_t most, uint64_t seen)
{
    world->checks++;
    if (seen < least || seen > most)
        sim_fail(world, "%s: expected %llu to %llu, saw %llu", what, (unsigned long long)least,
                 (unsigned long long)most, (unsigned long long)seen);
}

void sim_check_equal(struct sim_world *world, const char *what, uint64_t expected, uint64_t seen)
{
    sim_check(world, expected == seen, what, expected, seen);
}

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
                                        "bytes without memory were used",
                                        "a read-only map was written",
                                        "work of two streams races",
                                        "memory left under work that uses it",
                                        "a kernel read another value than was written",
                                        "a release does not match what was made"};
    (void)control->violations(control->mock, &total, &first, 1,
                              &count); /* it has just said that there is one */
    sim_fail(world, "the device saw a violation: %s",
             first.kind < sizeof names / sizeof *names ? names[first.kind] : names[0]);
}

void sim_check_books(struct sim_world *world)
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

/* ---- everything ---- */

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
        (void)sim_expect_ok(world, "the rest of a grant",
                            moor_grant_get_remaining(world->runtime, world->grants[i].handle, &remaining));
        sim_check_equal(world, "the rest of a grant", world->grants[i].remaining, remaining);
    }
}
