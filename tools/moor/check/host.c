/* SPDX-License-Identifier: MIT */
/*
 * The provider under the core: what the host API promises must hold with this provider beneath it. Each check
 * makes a runtime of its own, with one holder of a small budget, and takes it down again; at the end of each the
 * books must be empty, in the core and in the device.
 */
#include "check/check.h"

#include <stdlib.h>
#include <string.h>

#define BUDGET_BYTES (UINT64_C(64) << 20)
#define SMALL_BYTES UINT64_C(65536)

/* Everything that a host has open. */
struct host {
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    struct moor_device *device;
    uint32_t domain;
    struct moor_abi_domain_info info;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *stream;
};

static void expect(struct check_run *run, moor_status actual, moor_status expected, const char *what)
{
    check_that(run, actual == expected, "%s answered %s, not %s%s%s", what, moor_status_name(actual),
               moor_status_name(expected), actual != MOOR_OK ? ": " : "",
               actual != MOOR_OK ? moor_last_error()->text : "");
}

static void expect_ok(struct check_run *run, moor_status actual, const char *what)
{
    expect(run, actual, MOOR_OK, what);
}

/* ---- up and down ---- */

static struct moor_provider *load(struct check_run *run, struct moor_runtime *runtime)
{
    struct moor_provider *provider = NULL;
    expect_ok(run, moor_provider_load(runtime, run->path, run->options, &provider), "load");
    return provider;
}

/* The first domain with the capabilities. */
static bool find_domain(struct check_run *run, struct host *host, uint64_t capabilities)
{
    for (uint32_t i = 0; i < run->device_count; i++) {
        struct moor_abi_device_info device;
        if (moor_provider_get_device(host->provider, i, &host->device) != MOOR_OK)
            return false; /* the core has left some out */
        expect_ok(run, moor_device_get_info(host->device, &device), "device info");
        for (host->domain = 0; host->domain < device.domain_count; host->domain++) {
            expect_ok(run, moor_device_get_domain_info(host->device, host->domain, &host->info),
                      "domain info");
            if ((capabilities & ~host->info.capabilities) == 0)
                return true;
        }
    }
    return false;
}

static struct host set_up(struct check_run *run, uint64_t capabilities)
{
    struct host host = {0};
    expect_ok(run, moor_runtime_create(NULL, &host.runtime), "runtime create");
    host.provider = load(run, host.runtime);
    if (!find_domain(run, &host, capabilities))
        check_skip(run, "no domain has what this needs");
    expect_ok(run, moor_device_get_authority(host.device, host.domain, &host.authority), "authority");
    expect_ok(run, moor_authority_set_capacity(host.authority, BUDGET_BYTES), "set capacity");
    expect_ok(run, moor_holder_create(host.authority, NULL, &host.holder), "holder create");
    expect_ok(run, moor_binding_open(host.device, host.domain, host.holder, &host.binding), "binding open");
    expect_ok(run, moor_stream_create(host.device, NULL, &host.stream), "stream create");
    return host;
}

static void reap(struct check_run *run, const struct host *host)
{
    expect_ok(run, moor_runtime_reap(host->runtime, run->deadline_ns), "reap");
}

static struct moor_authority_stats accounts(struct check_run *run, const struct host *host)
{
    struct moor_authority_stats stats;
    expect_ok(run, moor_authority_get_stats(host->authority, &stats, NULL, 0, NULL), "authority stats");
    return stats;
}

/* At a quiet point: what is charged is `bytes`, and what the device holds besides wrapped memory. */
static void expect_charged(struct check_run *run, const struct host *host, uint64_t bytes, const char *when)
{
    struct moor_authority_stats stats = accounts(run, host);
    struct moor_device_stats device;
    check_that(run, stats.charged_bytes == bytes && stats.live_bytes == bytes && stats.reserved_bytes == 0,
               "%s: %llu bytes are charged, %llu of them live, %llu are reserved; not %llu charged and live",
               when, (unsigned long long)stats.charged_bytes, (unsigned long long)stats.live_bytes,
               (unsigned long long)stats.reserved_bytes, (unsigned long long)bytes);
    if ((host->info.capabilities & MOOR_ABI_CAP_STATS) == 0)
        return;
    expect_ok(run, moor_device_get_stats(host->device, host->domain, &device), "device stats");
    check_that(run, device.inconsistent == 0, "%s: the device's figures contradict each other", when);
    check_that(run,
               (device.valid & MOOR_ABI_STAT_HELD) == 0 || device.held_bytes == bytes - stats.external_bytes,
               "%s: %llu bytes are charged, and the device says it holds %llu", when,
               (unsigned long long)(bytes - stats.external_bytes), (unsigned long long)device.held_bytes);
}

static void expect_nothing_left(struct check_run *run, const struct host *host)
{
    static const struct moor_object_counts none = {0};
    struct moor_object_counts counts;
    expect_ok(run, moor_runtime_get_counts(host->runtime, &counts), "counts");
    check_that(
        run, memcmp(&counts, &none, sizeof counts) == 0,
        "left: %llu buffers, %llu ranges, %llu segments, %llu streams, %llu bindings, %llu releases, %llu "
        "quarantined",
        (unsigned long long)counts.buffers, (unsigned long long)counts.ranges,
        (unsigned long long)counts.segments, (unsigned long long)counts.streams,
        (unsigned long long)counts.bindings, (unsigned long long)counts.releases,
        (unsigned long long)counts.quarantined);
}

static void tear_down(struct check_run *run, struct host *host)
{
    expect_ok(run, moor_stream_destroy(host->stream), "stream destroy");
    reap(run, host);
    expect_charged(run, host, 0, "at the end");
    expect_ok(run, moor_binding_close(host->binding), "binding close");
    expect_nothing_left(run, host);
    expect_ok(run, moor_holder_destroy(host->holder), "holder destroy");
    expect_ok(run, moor_runtime_destroy(host->runtime), "runtime destroy");
}

/* ---- memory ---- */

static uint64_t footprint(struct check_run *run, const struct host *host, uint64_t size_bytes)
{
    uint64_t bytes = 0;
    expect_ok(run, moor_binding_get_footprint(host->binding, size_bytes, NULL, &bytes), "footprint");
    return bytes;
}

static moor_buffer allocate(struct check_run *run, const struct host *host, uint64_t size_bytes)
{
    moor_buffer buffer = 0;
    expect_ok(run, moor_buffer_allocate(host->binding, size_bytes, NULL, &buffer), "allocate");
    return buffer;
}

static void expect_no_allocation(struct check_run *run, const struct host *host, uint64_t size_bytes,
                                 moor_status expected, const char *what)
{
    moor_buffer buffer = 0;
    expect(run, moor_buffer_allocate(host->binding, size_bytes, NULL, &buffer), expected, what);
    check_that(run, buffer == 0, "%s: a refused allocate wrote its output", what);
}

static void release(struct check_run *run, const struct host *host, moor_buffer buffer)
{
    expect_ok(run, moor_buffer_release(host->runtime, buffer), "buffer release");
}

static struct moor_view view_of(struct check_run *run, const struct host *host, moor_buffer buffer)
{
    struct moor_view view = {0};
    expect_ok(run, moor_buffer_get_view(host->runtime, buffer, &view), "buffer view");
    return view;
}

static struct moor_view slice(struct check_run *run, const struct moor_view *view, uint64_t offset_bytes,
                              uint64_t size_bytes)
{
    struct moor_view part = {0};
    expect_ok(run, moor_view_slice(view, offset_bytes, size_bytes, &part), "slice");
    return part;
}

static void finish(struct check_run *run, const struct host *host)
{
    struct moor_fence fence;
    expect_ok(run, moor_stream_record(host->stream, &fence), "record");
    expect_ok(run, moor_fence_wait(&fence, run->deadline_ns), "fence wait");
}

static void fill(struct check_run *run, const struct host *host, const struct moor_view *view, uint8_t value)
{
    expect_ok(run, moor_fill(host->stream, view, value, 1), "fill");
    finish(run, host);
}

static void expect_bytes(struct check_run *run, const struct host *host, const struct moor_view *view,
                         uint8_t value, const char *what)
{
    uint8_t *bytes = check_memory(run, view->size_bytes, 1);
    struct moor_view seen = moor_view_host(bytes, view->size_bytes);
    memset(bytes, ~value, view->size_bytes);
    expect_ok(run, moor_copy(host->stream, &seen, view), "copy to the host");
    finish(run, host);
    for (uint64_t i = 0; i < view->size_bytes; i++)
        if (bytes[i] != value)
            check_that(run, false, "%s: byte %llu reads as 0x%02x, not 0x%02x", what, (unsigned long long)i,
                       bytes[i], value);
    free(bytes);
}

/* ---- books ---- */

static void books_balance(struct check_run *run)
{
    static const uint64_t sizes[] = {1, 4097, SMALL_BYTES, (UINT64_C(3) << 20) + 1};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    struct host host = set_up(run, 0);
    moor_buffer buffers[COUNT];
    uint64_t charged = 0;
    for (size_t i = 0; i < COUNT; i++) {
        buffers[i] = allocate(run, &host, sizes[i]);
        charged += footprint(run, &host, sizes[i]);
        expect_charged(run, &host, charged, "after an allocation");
    }
    for (size_t i = 0; i < COUNT; i++) {
        release(run, &host, buffers[i]);
        reap(run, &host);
        charged -= footprint(run, &host, sizes[i]);
        expect_charged(run, &host, charged, "after a release");
    }
    tear_down(run, &host);
}

static void edge_of_budget(struct check_run *run)
{
    enum { COUNT = 4 };
    struct host host = set_up(run, 0);
    moor_buffer buffers[COUNT];
    const uint64_t each = footprint(run, &host, SMALL_BYTES);
    expect_ok(run, moor_authority_set_capacity(host.authority, COUNT * each), "set capacity");
    for (size_t i = 0; i < COUNT; i++)
        buffers[i] = allocate(run, &host, SMALL_BYTES);
    expect_no_allocation(run, &host, SMALL_BYTES, MOOR_OVER_BUDGET, "an allocation beyond the budget");
    expect_no_allocation(run, &host, COUNT * each + 1, MOOR_NEVER_FITS,
                         "an allocation larger than the budget");
    expect_charged(run, &host, COUNT * each, "with a full budget");
    release(run, &host, buffers[1]);
    reap(run, &host);
    buffers[1] = allocate(run, &host, SMALL_BYTES);
    expect_charged(run, &host, COUNT * each, "with a full budget again");
    for (size_t i = 0; i < COUNT; i++)
        release(run, &host, buffers[i]);
    tear_down(run, &host);
}

static void grants_have_room(struct check_run *run)
{
    struct host host = set_up(run, 0);
    const uint64_t each = footprint(run, &host, SMALL_BYTES);
    moor_grant grant = 0;
    uint64_t remaining = 0;
    expect_ok(run, moor_authority_set_capacity(host.authority, 3 * each), "set capacity");
    expect_ok(run, moor_grant_reserve(host.holder, 2 * each, &grant), "grant reserve");
    moor_buffer buffers[3] = {allocate(run, &host, SMALL_BYTES)};
    expect_no_allocation(run, &host, SMALL_BYTES, MOOR_OVER_BUDGET, "an allocation of what is reserved");
    const struct moor_buffer_options options = {.grant = grant};
    for (size_t i = 1; i < 3; i++)
        expect_ok(run, moor_buffer_allocate(host.binding, SMALL_BYTES, &options, &buffers[i]),
                  "an allocation from a grant");
    expect_ok(run, moor_grant_get_remaining(host.runtime, grant, &remaining), "grant remaining");
    check_that(run, remaining == 0, "%llu bytes are left of a grant that is used up",
               (unsigned long long)remaining);
    expect_ok(run, moor_grant_release(host.runtime, grant), "grant release");
    expect_charged(run, &host, 3 * each, "with a grant used up");
    for (size_t i = 0; i < 3; i++)
        release(run, &host, buffers[i]);
    tear_down(run, &host);
}

static void zeroed_buffers(struct check_run *run)
{
    struct host host = set_up(run, MOOR_ABI_CAP_COPY);
    const struct moor_buffer_options options = {.flags = MOOR_BUFFER_ZERO};
    for (unsigned int round = 0; round < 8; round++) {
        moor_buffer buffer = 0;
        expect_ok(run, moor_buffer_allocate(host.binding, SMALL_BYTES + 3, &options, &buffer), "allocate");
        struct moor_view view = view_of(run, &host, buffer);
        expect_bytes(run, &host, &view, 0, "a buffer that was asked to be zero");
        fill(run, &host, &view, 0xd1);
        release(run, &host, buffer);
        reap(run, &host);
    }
    tear_down(run, &host);
}

/* ---- work that is not done ---- */

static void expect_release_waits(struct check_run *run, struct host *host, moor_buffer buffer,
                                 struct check_gate *gate)
{
    static uint8_t seen[SMALL_BYTES];
    const uint64_t each = footprint(run, host, SMALL_BYTES);
    struct moor_view view = view_of(run, host, buffer);
    struct moor_view to = moor_view_host(seen, sizeof seen);
    expect_ok(run, moor_authority_set_capacity(host->authority, each), "set capacity");
    expect_ok(run, moor_fill(host->stream, &view, 0x5e, 1), "fill behind work");
    expect_ok(run, moor_copy(host->stream, &to, &view), "copy behind work");
    release(run, host, buffer);
    expect(run, moor_runtime_reap(host->runtime, MOOR_NO_WAIT), MOOR_PENDING, "reap behind work");
    struct moor_authority_stats stats = accounts(run, host);
    check_that(run, stats.pending_bytes == each && stats.charged_bytes == each,
               "behind work that is not done, %llu bytes are charged and %llu pending, not %llu",
               (unsigned long long)stats.charged_bytes, (unsigned long long)stats.pending_bytes,
               (unsigned long long)each);
    expect_no_allocation(run, host, SMALL_BYTES, MOOR_PENDING,
                         "an allocation while the budget is on its way back");
    check_gate_open(gate);
    reap(run, host);
    for (size_t i = 0; i < sizeof seen; i++)
        check_that(run, seen[i] == 0x5e,
                   "work on memory that was released before it ran went wrong at byte %zu", i);
    release(run, host, allocate(run, host, SMALL_BYTES));
}

static void release_waits(struct check_run *run)
{
    struct host host = set_up(run, MOOR_ABI_CAP_COPY);
    moor_buffer buffer = allocate(run, &host, SMALL_BYTES);
    struct check_gate *gate = check_gate_create(run);
    expect_ok(run, moor_stream_host_function(host.stream, check_gate_stand, gate, NULL, 0), "host function");
    if (!check_gate_holds(gate))
        check_skip(run, "the device is synchronous: nothing of it can be held");
    expect_release_waits(run, &host, buffer, gate);
    tear_down(run, &host);
    check_gate_free(gate);
}

/* ---- ranges ---- */

static moor_range reserve(struct check_run *run, const struct host *host, uint64_t granule_count,
                          struct moor_view *ret_view)
{
    const struct moor_range_options options = {.granule_bytes = host->info.granule_min_bytes};
    moor_range range = 0;
    expect_ok(run, moor_range_reserve(host->binding, granule_count * options.granule_bytes, &options, &range),
              "range reserve");
    expect_ok(run, moor_range_get_view(host->runtime, range, ret_view), "range view");
    return range;
}

static void expect_committed(struct check_run *run, const struct host *host, moor_range range,
                             uint64_t length, uint64_t expected, const char *when)
{
    uint64_t bytes = 0;
    expect_ok(run, moor_range_get_committed(host->runtime, range, 0, length, &bytes), "committed");
    check_that(run, bytes == expected, "%s: %llu bytes are committed, not %llu", when,
               (unsigned long long)bytes, (unsigned long long)expected);
}

static void ranges_grow(struct check_run *run)
{
    enum { STEPS = 8 };
    struct host host = set_up(run, MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_COPY);
    const uint64_t granule = host.info.granule_min_bytes;
    struct moor_view view;
    struct moor_view again;
    moor_range range = reserve(run, &host, 2 * STEPS, &view);
    expect_ok(run, moor_authority_set_capacity(host.authority, STEPS * granule), "set capacity");
    for (uint64_t i = 0; i < STEPS; i++) {
        expect_ok(run, moor_range_commit(host.runtime, range, i * granule, granule, 0), "range commit");
        struct moor_view part = slice(run, &view, i * granule, granule);
        expect_bytes(run, &host, &part, 0, "a range that has grown");
        fill(run, &host, &part, (uint8_t)(i + 1));
        expect_charged(run, &host, (i + 1) * granule, "after a step of growth");
        expect_ok(run, moor_range_get_view(host.runtime, range, &again), "range view");
        check_that(run, again.address == view.address, "a range has moved from 0x%llx to 0x%llx",
                   (unsigned long long)view.address, (unsigned long long)again.address);
    }
    moor_status status = moor_range_commit(host.runtime, range, STEPS * granule, granule, 0);
    expect(run, status, MOOR_OVER_BUDGET, "growth beyond the budget");
    expect_committed(run, &host, range, view.size_bytes, STEPS * granule, "after growth beyond the budget");
    for (uint64_t i = 0; i < STEPS; i++) {
        struct moor_view part = slice(run, &view, i * granule, granule);
        expect_bytes(run, &host, &part, (uint8_t)(i + 1), "an earlier step of growth");
    }
    expect_ok(run, moor_range_release(host.runtime, range), "range release");
    tear_down(run, &host);
}

static void transactions(struct check_run *run)
{
    enum { COUNT = 4 };
    struct host host = set_up(run, MOOR_ABI_CAP_VIRTUAL);
    const uint64_t granule = host.info.granule_min_bytes;
    struct moor_view view;
    moor_range ranges[2] = {reserve(run, &host, COUNT, &view), reserve(run, &host, COUNT, &view)};
    struct moor_step steps[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        steps[i] = (struct moor_step){.kind = MOOR_STEP_COMMIT,
                                      .range = ranges[i % 2],
                                      .offset_bytes = i * granule,
                                      .length_bytes = granule};
    expect_ok(run, moor_authority_set_capacity(host.authority, COUNT * granule - 1), "set capacity");
    moor_status status = moor_transact(host.runtime, steps, COUNT, NULL);
    check_that(run, status == MOOR_OVER_BUDGET || status == MOOR_NEVER_FITS,
               "a transaction beyond the budget answered %s", moor_status_name(status));
    for (size_t i = 0; i < 2; i++)
        expect_committed(run, &host, ranges[i], COUNT * granule, 0, "after a refused transaction");
    expect_charged(run, &host, 0, "after a refused transaction");
    expect_ok(run, moor_authority_set_capacity(host.authority, COUNT * granule), "set capacity");
    expect_ok(run, moor_transact(host.runtime, steps, COUNT, NULL), "a transaction that fits");
    for (size_t i = 0; i < 2; i++) {
        expect_committed(run, &host, ranges[i], COUNT * granule, COUNT / 2 * granule, "after a transaction");
        expect_ok(run, moor_range_release(host.runtime, ranges[i]), "range release");
    }
    tear_down(run, &host);
}

static void copy_on_write(struct check_run *run)
{
    struct host host = set_up(run, MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED | MOOR_ABI_CAP_COPY);
    const uint64_t granule = host.info.granule_min_bytes;
    struct moor_view views[2];
    moor_range ranges[2] = {reserve(run, &host, 1, &views[0]), reserve(run, &host, 1, &views[1])};
    moor_segment segment = 0;
    expect_ok(run, moor_segment_create(host.binding, granule, granule, 0, &segment), "segment create");
    expect_ok(run, moor_segment_map(host.runtime, segment, ranges[0], 0, MOOR_ACCESS_READ_WRITE), "map");
    fill(run, &host, &views[0], 0x31);
    expect_ok(run, moor_segment_seal(host.runtime, segment, run->deadline_ns), "seal");
    expect_ok(run, moor_segment_map(host.runtime, segment, ranges[1], 0, MOOR_ACCESS_READ), "second map");
    expect_bytes(run, &host, &views[1], 0x31, "a second map");
    expect_charged(run, &host, granule, "with a segment mapped twice");
    expect_ok(run,
              moor_range_make_writable(host.runtime, ranges[1], 0, host.stream, 0, run->deadline_ns, NULL),
              "make writable");
    expect_charged(run, &host, 2 * granule, "with a private copy");
    expect_bytes(run, &host, &views[1], 0x31, "a private copy");
    fill(run, &host, &views[1], 0x32);
    expect_bytes(run, &host, &views[0], 0x31, "the other map of a segment that was copied on write");
    expect_ok(run, moor_segment_release(host.runtime, segment), "segment release");
    for (size_t i = 0; i < 2; i++)
        expect_ok(run, moor_range_release(host.runtime, ranges[i]), "range release");
    tear_down(run, &host);
}

/* ---- handles ---- */

/* No call takes it for something. */
static void expect_no_handle(struct check_run *run, const struct host *host, uint64_t handle)
{
    struct moor_view view;
    uint64_t bytes = 0;
    const moor_status answers[] = {moor_buffer_get_view(host->runtime, handle, &view),
                                   moor_buffer_release(host->runtime, handle),
                                   moor_range_get_view(host->runtime, handle, &view),
                                   moor_range_release(host->runtime, handle),
                                   moor_segment_release(host->runtime, handle),
                                   moor_grant_get_remaining(host->runtime, handle, &bytes),
                                   moor_grant_release(host->runtime, handle),
                                   moor_lease_refund(host->runtime, handle)};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        check_that(run, answers[i] == MOOR_INVALID || answers[i] == MOOR_STALE || answers[i] == MOOR_FOREIGN,
                   "call %zu on the invented handle 0x%llx answered %s", i, (unsigned long long)handle,
                   moor_status_name(answers[i]));
}

static void wrong_handles(struct check_run *run)
{
    struct host host = set_up(run, 0);
    struct host other = set_up(run, 0);
    moor_buffer buffer = allocate(run, &host, SMALL_BYTES);
    moor_buffer foreign = allocate(run, &other, SMALL_BYTES);
    moor_buffer stale = allocate(run, &host, SMALL_BYTES);
    struct moor_view view;
    release(run, &host, stale);
    expect(run, moor_buffer_get_view(host.runtime, stale, &view), MOOR_STALE,
           "the view of a released buffer");
    expect(run, moor_buffer_release(host.runtime, stale), MOOR_STALE, "a second release");
    expect(run, moor_buffer_get_view(host.runtime, foreign, &view), MOOR_FOREIGN,
           "the view of a foreign buffer");
    expect(run, moor_buffer_release(host.runtime, foreign), MOOR_FOREIGN, "the release of a foreign buffer");

    uint64_t random = 88172645463325252u;
    for (unsigned int i = 0; i < 10000; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if (random != buffer)
            expect_no_handle(run, &host, random);
        expect_no_handle(run, &host, (buffer ^ (UINT64_C(1) << i % 64)));
    }
    view = view_of(run, &host, buffer); /* it has survived all of them */
    release(run, &host, buffer);
    release(run, &other, foreign);
    tear_down(run, &other);
    tear_down(run, &host);
}

/* ---- wrapped memory and copies ---- */

static void wrapped_memory(struct check_run *run)
{
    struct host host = set_up(run, MOOR_ABI_CAP_COPY);
    uint8_t *memory = check_memory(run, SMALL_BYTES, 1);
    moor_buffer wrapped[2] = {0};
    memset(memory, 0x2a, SMALL_BYTES);
    expect_ok(run, moor_buffer_wrap(host.binding, memory, SMALL_BYTES, 0, &wrapped[0]), "wrap");
    expect_charged(run, &host, 0, "with wrapped memory");
    expect_ok(run, moor_buffer_wrap(host.binding, memory, SMALL_BYTES, MOOR_BUFFER_CHARGE, &wrapped[1]),
              "wrap with a charge");
    expect_charged(run, &host, SMALL_BYTES, "with charged wrapped memory");

    moor_buffer buffer = allocate(run, &host, SMALL_BYTES);
    struct moor_view from = view_of(run, &host, wrapped[0]);
    struct moor_view to = view_of(run, &host, buffer);
    expect_ok(run, moor_copy(host.stream, &to, &from), "copy from wrapped memory");
    finish(run, &host);
    expect_bytes(run, &host, &to, 0x2a, "a copy of wrapped memory");
    for (size_t i = 0; i < 2; i++)
        release(run, &host, wrapped[i]);
    release(run, &host, buffer);
    reap(run, &host);
    for (size_t i = 0; i < SMALL_BYTES; i++)
        check_that(run, memory[i] == 0x2a, "wrapped memory has changed at byte %zu", i);
    free(memory);
    tear_down(run, &host);
}

/* Plain host memory to a buffer, on to another at an odd place, and back. */
static void copies_with_the_host(struct check_run *run)
{
    struct host host = set_up(run, MOOR_ABI_CAP_COPY);
    uint8_t *sent = check_memory(run, SMALL_BYTES, 1);
    uint8_t *received = check_memory(run, SMALL_BYTES, 1);
    moor_buffer buffers[2] = {allocate(run, &host, SMALL_BYTES), allocate(run, &host, 2 * SMALL_BYTES)};
    struct moor_view first = view_of(run, &host, buffers[0]);
    struct moor_view second = view_of(run, &host, buffers[1]);
    struct moor_view part = slice(run, &second, 13, SMALL_BYTES);
    struct moor_view to = moor_view_host(received, SMALL_BYTES);
    struct moor_view from = moor_view_host(sent, SMALL_BYTES);
    for (size_t i = 0; i < SMALL_BYTES; i++)
        sent[i] = (uint8_t)(i * 2654435761u >> 13);
    expect_ok(run, moor_copy(host.stream, &first, &from), "copy to the device");
    expect_ok(run, moor_copy(host.stream, &part, &first), "copy within the device");
    expect_ok(run, moor_copy(host.stream, &to, &part), "copy to the host");
    finish(run, &host);
    check_that(run, memcmp(sent, received, SMALL_BYTES) == 0,
               "host memory went to the device and came back changed");
    check_that(run, moor_copy(host.stream, &first, &second) != MOOR_OK,
               "a copy larger than its destination was taken");
    for (size_t i = 0; i < 2; i++)
        release(run, &host, buffers[i]);
    tear_down(run, &host);
    free(sent);
    free(received);
}

/* ---- threads ---- */

static void churn(struct check_run *run, unsigned int index, void *user)
{
    enum { ROUNDS = 100, LIVE = 4 };
    const struct host *host = user;
    moor_buffer live[LIVE] = {0};
    for (unsigned int i = 0; i < ROUNDS; i++) {
        release(run, host, live[i % LIVE]); /* 0 at first: nothing happens */
        live[i % LIVE] = allocate(run, host, 1 + (index * 977 + i * 4099) % SMALL_BYTES);
    }
    for (unsigned int i = 0; i < LIVE; i++)
        release(run, host, live[i]);
}

static void many_threads(struct check_run *run)
{
    struct host host = set_up(run, 0);
    check_parallel(run, 16, churn, &host);
    tear_down(run, &host);
}

/* ---- loading and unloading ---- */

static void unload_waits_for_objects(struct check_run *run)
{
    struct host host = set_up(run, 0);
    moor_buffer buffer = allocate(run, &host, SMALL_BYTES);
    expect(run, moor_provider_unload(host.provider), MOOR_BUSY, "unload with a live buffer");
    struct moor_view view = view_of(run, &host, buffer); /* nothing has changed */
    check_that(run, view.size_bytes == SMALL_BYTES, "a buffer has become %llu bytes large",
               (unsigned long long)view.size_bytes);
    release(run, &host, buffer);
    expect_ok(run, moor_stream_destroy(host.stream), "stream destroy");
    reap(run, &host);
    expect_ok(run, moor_binding_close(host.binding), "binding close");
    expect_ok(run, moor_holder_destroy(host.holder), "holder destroy");
    expect_ok(run, moor_provider_unload(host.provider), "unload");
    expect_ok(run, moor_runtime_destroy(host.runtime), "runtime destroy");
}

static void loads_again(struct check_run *run)
{
    struct moor_abi_device_info first = {0};
    for (unsigned int round = 0; round < 4; round++) {
        struct moor_abi_device_info info;
        struct host host = set_up(run, 0);
        expect_ok(run, moor_device_get_info(host.device, &info), "device info");
        if (round == 0)
            first = info;
        check_that(run, strcmp(info.key, first.key) == 0,
                   "a device's key was '%s' and is '%s' after loading again", first.key, info.key);
        release(run, &host, allocate(run, &host, SMALL_BYTES));
        tear_down(run, &host);
    }
}

/* ---- what is not there ---- */

static moor_status try_virtual(const struct host *host)
{
    moor_range range = 0;
    return moor_range_reserve(host->binding, SMALL_BYTES, NULL, &range);
}

static moor_status try_shared(const struct host *host)
{
    moor_segment segment = 0;
    return moor_segment_create(host->binding, SMALL_BYTES, 0, 0, &segment);
}

static moor_status try_pinned(const struct host *host)
{
    static _Alignas(SMALL_BYTES) uint8_t memory[SMALL_BYTES]; /* whole pages of any size */
    moor_buffer buffer = 0;
    return moor_buffer_wrap(host->binding, memory, sizeof memory, MOOR_BUFFER_PIN, &buffer);
}

static moor_status try_stats(const struct host *host)
{
    struct moor_device_stats stats;
    return moor_device_get_stats(host->device, host->domain, &stats);
}

static const struct absent {
    uint64_t capability;
    moor_status (*call)(const struct host *host);
    const char *name;
} absents[] = {{MOOR_ABI_CAP_VIRTUAL, try_virtual, "a range without VIRTUAL"},
               {MOOR_ABI_CAP_SHARED, try_shared, "a segment without SHARED"},
               {MOOR_ABI_CAP_PINNED, try_pinned, "a pin without PINNED"},
               {MOOR_ABI_CAP_STATS, try_stats, "stats without STATS"}};

/* Tries what the domain of one's own does not have. Returns how much that was. */
static unsigned int try_absent(struct check_run *run, const struct host *host)
{
    unsigned int tried = 0;
    for (size_t i = 0; i < sizeof absents / sizeof *absents; i++) {
        if (host->info.capabilities & absents[i].capability)
            continue;
        expect(run, absents[i].call(host), MOOR_UNSUPPORTED, absents[i].name);
        tried++;
    }
    return tried;
}

static void absent_is_unsupported(struct check_run *run)
{
    struct host host = set_up(run, 0);
    struct moor_abi_device_info device;
    struct host at = host;
    unsigned int tried = 0;
    expect_ok(run, moor_device_get_info(host.device, &device), "device info");
    for (at.domain = 0; at.domain < device.domain_count; at.domain++) {
        expect_ok(run, moor_device_get_domain_info(at.device, at.domain, &at.info), "domain info");
        moor_status status = moor_binding_open(at.device, at.domain, host.holder, &at.binding);
        if (status == MOOR_FOREIGN)
            continue; /* of another pool than the holder's */
        expect_ok(run, status, "binding open");
        tried += try_absent(run, &at);
        expect_ok(run, moor_binding_close(at.binding), "binding close");
    }
    tear_down(run, &host);
    if (tried == 0)
        check_skip(run, "every domain has every capability");
}

const struct check check_host[] = {
    {.name = "host.books_balance",
     .rule = "What is charged is what the provider says it takes and holds, after every step.",
     .run = books_balance},
    {.name = "host.edge_of_budget",
     .rule = "The budget is used to the last byte and not beyond: OVER_BUDGET, NEVER_FITS.",
     .run = edge_of_budget},
    {.name = "host.grants_have_room",
     .rule = "What is drawn from a grant always has room.",
     .run = grants_have_room},
    {.name = "host.zeroed_buffers",
     .rule = "A buffer that was asked to be zero is, also where others have been.",
     .needs = MOOR_ABI_CAP_COPY,
     .run = zeroed_buffers},
    {.name = "host.release_waits",
     .rule = "Memory that is released under work stays until the work is done: PENDING, and then it is back.",
     .needs = MOOR_ABI_CAP_COPY,
     .run = release_waits},
    {.name = "host.ranges_grow",
     .rule = "A range grows in place: address and contents stay, fresh memory is zero, the budget holds.",
     .needs = MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_COPY,
     .run = ranges_grow},
    {.name = "host.transactions",
     .rule = "A transaction that does not fit changes nothing; one that fits is done as a whole.",
     .needs = MOOR_ABI_CAP_VIRTUAL,
     .run = transactions},
    {.name = "host.copy_on_write",
     .rule = "A shared segment that one side makes writable keeps the other side's bytes.",
     .needs = MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED | MOOR_ABI_CAP_COPY,
     .run = copy_on_write},
    {.name = "host.wrong_handles",
     .rule = "Invented, stale and foreign handles get a status, 20,000 of them, and touch nothing.",
     .run = wrong_handles},
    {.name = "host.wrapped_memory",
     .rule = "Wrapped memory is charged only if asked, can be copied from, and is left as it was.",
     .needs = MOOR_ABI_CAP_COPY,
     .run = wrapped_memory},
    {.name = "host.copies_with_the_host",
     .rule = "Plain host memory goes to the device, through it and back unchanged.",
     .needs = MOOR_ABI_CAP_COPY,
     .run = copies_with_the_host},
    {.name = "host.many_threads",
     .rule = "After 16 threads have allocated and released at once the books are exact.",
     .run = many_threads},
    {.name = "host.unload_waits_for_objects",
     .rule = "Unload is BUSY while anything is alive, changes nothing then, and works afterwards.",
     .run = unload_waits_for_objects},
    {.name = "host.loads_again",
     .rule = "The provider can be loaded and unloaded again and again, with the same devices.",
     .run = loads_again},
    {.name = "host.absent_is_unsupported",
     .rule = "What a domain cannot do is UNSUPPORTED.",
     .run = absent_is_unsupported},
    {0},
};
