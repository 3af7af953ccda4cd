/* SPDX-License-Identifier: MIT */
/* A host's memory on this provider: budget, contents, growth, sharing, and releases under work. */
#include "check/host.h"

#include <stdlib.h>
#include <string.h>

/* ---- accounts ---- */

static void books_balance(void)
{
    static const uint64_t sizes[] = {1, 4097, HOST_SMALL_BYTES, (UINT64_C(3) << 20) + 1};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    struct host host = host_open(0);
    moor_buffer buffers[COUNT];
    uint64_t charged = 0;
    for (size_t i = 0; i < COUNT; i++) {
        buffers[i] = host_allocate(&host, sizes[i]);
        charged += host_footprint(&host, sizes[i]);
        host_expect_charged(&host, charged, "after an allocation");
    }
    for (size_t i = 0; i < COUNT; i++) {
        host_release(&host, buffers[i]);
        host_reap(&host);
        charged -= host_footprint(&host, sizes[i]);
        host_expect_charged(&host, charged, "after a release");
    }
    host_close(&host);
}

static void edge_of_budget(void)
{
    enum { COUNT = 4 };
    struct host host = host_open(0);
    moor_buffer buffers[COUNT];
    const uint64_t each = host_footprint(&host, HOST_SMALL_BYTES);
    host_expect_ok(moor_authority_set_capacity(host.authority, COUNT * each, 0, NULL), "set capacity");
    for (size_t i = 0; i < COUNT; i++)
        buffers[i] = host_allocate(&host, HOST_SMALL_BYTES);
    host_expect_no_allocation(&host, HOST_SMALL_BYTES, MOOR_OVER_BUDGET, "an allocation beyond the budget");
    host_expect_no_allocation(&host, COUNT * each + 1, MOOR_NEVER_FITS,
                              "an allocation larger than the budget");
    host_expect_charged(&host, COUNT * each, "with a full budget");
    host_release(&host, buffers[1]);
    host_reap(&host);
    buffers[1] = host_allocate(&host, HOST_SMALL_BYTES);
    host_expect_charged(&host, COUNT * each, "with a full budget again");
    for (size_t i = 0; i < COUNT; i++)
        host_release(&host, buffers[i]);
    host_close(&host);
}

static void grants_have_room(void)
{
    struct host host = host_open(0);
    const uint64_t each = host_footprint(&host, HOST_SMALL_BYTES);
    moor_grant grant = 0;
    uint64_t remaining = 0;
    host_expect_ok(moor_authority_set_capacity(host.authority, 3 * each, 0, NULL), "set capacity");
    host_expect_ok(moor_grant_reserve(host.holder, 2 * each, MOOR_NO_WAIT, &grant), "grant reserve");
    moor_buffer buffers[3] = {host_allocate(&host, HOST_SMALL_BYTES)};
    host_expect_no_allocation(&host, HOST_SMALL_BYTES, MOOR_OVER_BUDGET, "an allocation of reserved bytes");
    const struct moor_buffer_options options = {.grant = grant};
    for (size_t i = 1; i < 3; i++)
        host_expect_ok(moor_buffer_allocate(host.binding, HOST_SMALL_BYTES, &options, &buffers[i]),
                       "an allocation from a grant");
    host_expect_ok(moor_grant_get_remaining(host.runtime, grant, &remaining), "grant remaining");
    check_that(remaining == 0, "%llu bytes are left of a used grant", (unsigned long long)remaining);
    host_expect_ok(moor_grant_release(host.runtime, grant), "grant release");
    host_expect_charged(&host, 3 * each, "with a grant used up");
    for (size_t i = 0; i < 3; i++)
        host_release(&host, buffers[i]);
    host_close(&host);
}

static void zeroed_buffers(void)
{
    struct host host = host_open(MOOR_ABI_CAP_COPY);
    const struct moor_buffer_options options = {.flags = MOOR_BUFFER_ZERO};
    for (unsigned int round = 0; round < 8; round++) {
        moor_buffer buffer = 0;
        host_expect_ok(moor_buffer_allocate(host.binding, HOST_SMALL_BYTES + 3, &options, &buffer),
                       "allocate");
        struct moor_view view = host_view(&host, buffer);
        host_expect_bytes(&host, &view, 0, "a buffer that was asked to be zero");
        host_fill(&host, &view, 0xd1);
        host_release(&host, buffer);
        host_reap(&host);
    }
    host_close(&host);
}

/* ---- unfinished work ---- */

static void expect_release_waits(struct host *host, moor_buffer buffer, struct check_gate *gate)
{
    static uint8_t seen[HOST_SMALL_BYTES];
    const uint64_t each = host_footprint(host, HOST_SMALL_BYTES);
    struct moor_view view = host_view(host, buffer);
    struct moor_view to = moor_view_host(seen, sizeof seen);
    host_expect_ok(moor_authority_set_capacity(host->authority, each, 0, NULL), "set capacity");
    host_expect_ok(moor_fill(host->stream, &view, 0x5e, 1), "fill behind work");
    host_expect_ok(moor_copy(host->stream, &to, &view), "copy behind work");
    host_release(host, buffer);
    host_expect(moor_runtime_reap(host->runtime, MOOR_NO_WAIT), MOOR_PENDING, "reap behind work");
    struct moor_authority_stats stats = host_accounts(host);
    check_that(stats.pending_bytes == each && stats.charged_bytes == each,
               "behind unfinished work %llu bytes are charged and %llu pending, not %llu",
               (unsigned long long)stats.charged_bytes, (unsigned long long)stats.pending_bytes,
               (unsigned long long)each);
    host_expect_no_allocation(host, HOST_SMALL_BYTES, MOOR_PENDING,
                              "an allocation while the budget's bytes are pending");
    check_gate_open(gate);
    host_reap(host);
    for (size_t i = 0; i < sizeof seen; i++)
        check_that(seen[i] == 0x5e, "work on released memory produced a wrong byte at %zu", i);
    host_release(host, host_allocate(host, HOST_SMALL_BYTES));
}

static void release_waits(void)
{
    struct host host = host_open(MOOR_ABI_CAP_COPY);
    moor_buffer buffer = host_allocate(&host, HOST_SMALL_BYTES);
    struct check_gate *gate = check_gate_create();
    host_expect_ok(moor_stream_host_function(host.stream, check_gate_stand, gate, NULL, 0), "host function");
    if (!check_gate_holds(gate))
        check_skip("the device is synchronous: a gate cannot block a stream");
    expect_release_waits(&host, buffer, gate);
    host_close(&host);
    check_gate_free(gate);
}

/* ---- ranges ---- */

static moor_range reserve(const struct host *host, uint64_t granule_count, struct moor_view *ret_view)
{
    const struct moor_range_options options = {.granule_bytes = host->info.granule_min_bytes};
    moor_range range = 0;
    host_expect_ok(moor_range_reserve(host->binding, granule_count * options.granule_bytes, &options, &range),
                   "range reserve");
    host_expect_ok(moor_range_get_view(host->runtime, range, ret_view), "range view");
    return range;
}

static void expect_committed(const struct host *host, moor_range range, uint64_t length, uint64_t expected,
                             const char *when)
{
    uint64_t bytes = 0;
    host_expect_ok(moor_range_get_committed(host->runtime, range, 0, length, &bytes), "committed");
    check_that(bytes == expected, "%s: %llu bytes are committed, not %llu", when, (unsigned long long)bytes,
               (unsigned long long)expected);
}

static void ranges_grow(void)
{
    enum { STEPS = 8 };
    struct host host = host_open(MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_COPY);
    const uint64_t granule = host.info.granule_min_bytes;
    struct moor_view view;
    struct moor_view again;
    moor_range range = reserve(&host, 2 * STEPS, &view);
    host_expect_ok(moor_authority_set_capacity(host.authority, STEPS * granule, 0, NULL), "set capacity");
    for (uint64_t i = 0; i < STEPS; i++) {
        host_expect_ok(moor_range_commit(host.runtime, range, i * granule, granule, 0), "range commit");
        struct moor_view part = host_slice(&view, i * granule, granule);
        host_expect_bytes(&host, &part, 0, "a range that has grown");
        host_fill(&host, &part, (uint8_t)(i + 1));
        host_expect_charged(&host, (i + 1) * granule, "after a step of growth");
        host_expect_ok(moor_range_get_view(host.runtime, range, &again), "range view");
        check_that(again.address == view.address, "a range has moved from 0x%llx to 0x%llx",
                   (unsigned long long)view.address, (unsigned long long)again.address);
    }
    moor_status status = moor_range_commit(host.runtime, range, STEPS * granule, granule, 0);
    host_expect(status, MOOR_OVER_BUDGET, "growth beyond the budget");
    expect_committed(&host, range, view.size_bytes, STEPS * granule, "after growth beyond the budget");
    for (uint64_t i = 0; i < STEPS; i++) {
        struct moor_view part = host_slice(&view, i * granule, granule);
        host_expect_bytes(&host, &part, (uint8_t)(i + 1), "an earlier step of growth");
    }
    host_expect_ok(moor_range_release(host.runtime, range), "range release");
    host_close(&host);
}

static void transactions(void)
{
    enum { COUNT = 4 };
    struct host host = host_open(MOOR_ABI_CAP_VIRTUAL);
    const uint64_t granule = host.info.granule_min_bytes;
    struct moor_view view;
    moor_range ranges[2] = {reserve(&host, COUNT, &view), reserve(&host, COUNT, &view)};
    struct moor_step steps[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        steps[i] = (struct moor_step){.kind = MOOR_STEP_COMMIT,
                                      .range = ranges[i % 2],
                                      .offset_bytes = i * granule,
                                      .length_bytes = granule};
    host_expect_ok(moor_authority_set_capacity(host.authority, COUNT * granule - 1, 0, NULL), "set capacity");
    moor_status status = moor_transact(host.runtime, steps, COUNT, NULL);
    check_that(status == MOOR_OVER_BUDGET || status == MOOR_NEVER_FITS,
               "a transaction beyond the budget returned %s", moor_status_name(status));
    for (size_t i = 0; i < 2; i++)
        expect_committed(&host, ranges[i], COUNT * granule, 0, "after a refused transaction");
    host_expect_charged(&host, 0, "after a refused transaction");
    host_expect_ok(moor_authority_set_capacity(host.authority, COUNT * granule, 0, NULL), "set capacity");
    host_expect_ok(moor_transact(host.runtime, steps, COUNT, NULL), "a transaction that fits");
    for (size_t i = 0; i < 2; i++) {
        expect_committed(&host, ranges[i], COUNT * granule, COUNT / 2 * granule, "after a transaction");
        host_expect_ok(moor_range_release(host.runtime, ranges[i]), "range release");
    }
    host_close(&host);
}

static void copy_on_write(void)
{
    struct host host = host_open(MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED | MOOR_ABI_CAP_COPY);
    const uint64_t granule = host.info.granule_min_bytes;
    struct moor_view views[2];
    moor_range ranges[2] = {reserve(&host, 1, &views[0]), reserve(&host, 1, &views[1])};
    moor_segment segment = 0;
    host_expect_ok(moor_segment_create(host.binding, granule, granule, 0, &segment), "segment create");
    host_expect_ok(moor_segment_map(host.runtime, segment, ranges[0], 0, MOOR_ACCESS_READ_WRITE), "map");
    host_fill(&host, &views[0], 0x31);
    host_expect_ok(moor_segment_seal(host.runtime, segment, run.deadline_ns), "seal");
    host_expect_ok(moor_segment_map(host.runtime, segment, ranges[1], 0, MOOR_ACCESS_READ), "second map");
    host_expect_bytes(&host, &views[1], 0x31, "a second map");
    host_expect_charged(&host, granule, "with a segment mapped twice");
    host_expect_ok(
        moor_range_make_writable(host.runtime, ranges[1], 0, host.stream, 0, run.deadline_ns, NULL),
        "make writable");
    host_expect_charged(&host, 2 * granule, "with a private copy");
    host_expect_bytes(&host, &views[1], 0x31, "a private copy");
    host_fill(&host, &views[1], 0x32);
    host_expect_bytes(&host, &views[0], 0x31, "the other map of a segment that was copied on write");
    host_expect_ok(moor_segment_release(host.runtime, segment), "segment release");
    for (size_t i = 0; i < 2; i++)
        host_expect_ok(moor_range_release(host.runtime, ranges[i]), "range release");
    host_close(&host);
}

/* ---- wrapped memory and copies ---- */

static void wrapped_memory(void)
{
    struct host host = host_open(MOOR_ABI_CAP_COPY);
    uint8_t *memory = check_memory(HOST_SMALL_BYTES, 1);
    moor_buffer wrapped[2] = {0};
    memset(memory, 0x2a, HOST_SMALL_BYTES);
    host_expect_ok(moor_buffer_wrap(host.binding, memory, HOST_SMALL_BYTES, 0, &wrapped[0]), "wrap");
    host_expect_charged(&host, 0, "with wrapped memory");
    host_expect_ok(moor_buffer_wrap(host.binding, memory, HOST_SMALL_BYTES, MOOR_BUFFER_CHARGE, &wrapped[1]),
                   "wrap with a charge");
    host_expect_charged(&host, HOST_SMALL_BYTES, "with charged wrapped memory");

    moor_buffer buffer = host_allocate(&host, HOST_SMALL_BYTES);
    struct moor_view from = host_view(&host, wrapped[0]);
    struct moor_view to = host_view(&host, buffer);
    host_expect_ok(moor_copy(host.stream, &to, &from), "copy from wrapped memory");
    host_finish(&host);
    host_expect_bytes(&host, &to, 0x2a, "a copy of wrapped memory");
    for (size_t i = 0; i < 2; i++)
        host_release(&host, wrapped[i]);
    host_release(&host, buffer);
    host_reap(&host);
    for (size_t i = 0; i < HOST_SMALL_BYTES; i++)
        check_that(memory[i] == 0x2a, "wrapped memory has changed at byte %zu", i);
    free(memory);
    host_close(&host);
}

/* Copies plain host memory to a buffer, to another one at an odd offset, and back. */
static void copies_with_the_host(void)
{
    struct host host = host_open(MOOR_ABI_CAP_COPY);
    uint8_t *sent = check_memory(HOST_SMALL_BYTES, 1);
    uint8_t *received = check_memory(HOST_SMALL_BYTES, 1);
    moor_buffer buffers[2] = {host_allocate(&host, HOST_SMALL_BYTES),
                              host_allocate(&host, 2 * HOST_SMALL_BYTES)};
    struct moor_view first = host_view(&host, buffers[0]);
    struct moor_view second = host_view(&host, buffers[1]);
    struct moor_view part = host_slice(&second, 13, HOST_SMALL_BYTES);
    struct moor_view to = moor_view_host(received, HOST_SMALL_BYTES);
    struct moor_view from = moor_view_host(sent, HOST_SMALL_BYTES);
    for (size_t i = 0; i < HOST_SMALL_BYTES; i++)
        sent[i] = (uint8_t)(i * 2654435761u >> 13);
    host_expect_ok(moor_copy(host.stream, &first, &from), "copy to the device");
    host_expect_ok(moor_copy(host.stream, &part, &first), "copy within the device");
    host_expect_ok(moor_copy(host.stream, &to, &part), "copy to the host");
    host_finish(&host);
    check_that(memcmp(sent, received, HOST_SMALL_BYTES) == 0,
               "host memory changed on its way to the device and back");
    check_that(moor_copy(host.stream, &first, &second) != MOOR_OK,
               "a copy larger than its destination was accepted");
    for (size_t i = 0; i < 2; i++)
        host_release(&host, buffers[i]);
    host_close(&host);
    free(sent);
    free(received);
}

const struct check check_host_memory[] = {
    {"host.books_balance",
     "After every step the charged bytes equal the bytes that the provider takes and holds.",
     .run = books_balance},
    {"host.edge_of_budget", "The budget is usable to the last byte and not beyond: OVER_BUDGET, NEVER_FITS.",
     .run = edge_of_budget},
    {"host.grants_have_room", "An allocation drawn from a grant always fits.", .run = grants_have_room},
    {"host.zeroed_buffers", "A buffer requested zeroed reads as zero, reused memory included.",
     MOOR_ABI_CAP_COPY, .run = zeroed_buffers},
    {"host.release_waits",
     "Memory released under work stays pending until the work is done, and then returns.", MOOR_ABI_CAP_COPY,
     .run = release_waits},
    {"host.ranges_grow",
     "A range grows in place: address and contents stay, new memory is zero, the budget holds.",
     MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_COPY, .run = ranges_grow},
    {"host.transactions",
     "A transaction that does not fit changes nothing; one that fits takes effect as a whole.",
     MOOR_ABI_CAP_VIRTUAL, .run = transactions},
    {"host.copy_on_write", "When one owner makes a shared segment writable, the other owner keeps its bytes.",
     MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED | MOOR_ABI_CAP_COPY, .run = copy_on_write},
    {"host.wrapped_memory",
     "Wrapped memory is charged only on request, can be copied from, and keeps its bytes.", MOOR_ABI_CAP_COPY,
     .run = wrapped_memory},
    {"host.copies_with_the_host", "Plain host memory is copied to the device, within it and back unchanged.",
     MOOR_ABI_CAP_COPY, .run = copies_with_the_host},
    {0},
};
