/* SPDX-License-Identifier: MIT */
/* Cases from the field (tests/README.md) on the CUDA provider: destroyed streams, shared pages, and other
 * users of the device. */
#include "host.h"

#include <cuda.h>
#include <pthread.h>
#include <time.h>

TestSuite(shared_cases, .timeout = 90);

/* ---- O09: room that only waits for its fence ---- */

struct opening {
    const struct host *host;
    void *native;
};

static void *open_when_waited_for(void *user)
{
    struct opening *opening = user;
    while (host_stats(opening->host).tickets == 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    cr_assert_eq(opening->host->sim->open(opening->native), 0);
    return NULL;
}

static void wait_for_fence(const char *timeline)
{
    struct host host;
    moor_buffer blocks[4], block;
    struct moor_view view;
    pthread_t thread;
    host_open(&host, "total=8MiB", "timeline", timeline);
    for (size_t i = 0; i < LENGTH(blocks); i++)
        blocks[i] = host_allocate(&host, BLOCK_BYTES);
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(host.binding, BLOCK_BYTES, NULL, &block));
    struct opening opening = {&host, host_native(&host)};
    cr_assert_eq(host.sim->hold(opening.native), 0);
    MUST(moor_buffer_get_view(host.runtime, blocks[0], &view));
    MUST(moor_fill(host.stream, &view, 1, 1));
    MUST(moor_buffer_release(host.runtime, blocks[0]));
    for (int i = 0; i < 3; i++) {
        EXPECT(MOOR_PENDING, moor_buffer_allocate(host.binding, BLOCK_BYTES, NULL, &block));
        cr_assert_eq(moor_last_error()->bytes, BLOCK_BYTES);
    }
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(host.binding, BLOCK_BYTES + 1, NULL, &block));
    const struct moor_buffer_options waiting = {.deadline_ns = moor_clock_ns() + UINT64_C(60000000000)};
    cr_assert_eq(pthread_create(&thread, NULL, open_when_waited_for, &opening), 0);
    MUST(moor_buffer_allocate(host.binding, BLOCK_BYTES, &waiting, &block));
    cr_assert_eq(pthread_join(thread, NULL), 0);
    MUST(moor_buffer_release(host.runtime, block));
    for (size_t i = 1; i < LENGTH(blocks); i++)
        MUST(moor_buffer_release(host.runtime, blocks[i]));
    host_close(&host);
}

Test(shared_cases, O09_memory_behind_a_fence_is_waited_for_with_words)
{
    wait_for_fence("memory");
}

Test(shared_cases, O09_memory_behind_a_fence_is_waited_for_with_events)
{
    wait_for_fence("events");
}

/* Memory that the provider keeps for the next commit goes back before a request fails for lack of memory. */
Test(shared_cases, O09_idle_memory_is_trimmed_before_a_call_fails)
{
    struct host host;
    host_open(&host, "total=8MiB", NULL, NULL);
    moor_range range = host_reserve(&host, 128);
    for (int i = 0; i < 2; i++) {
        MUST(moor_range_commit(host.runtime, range, 0, 8 * MIB, 0));
        MUST(moor_range_decommit(host.runtime, range, 0, 8 * MIB));
        cr_assert_eq(host_check(&host), 0);
        cr_assert_eq(host_live(&host).physical_bytes, 8 * MIB, "nothing is kept");
        moor_buffer block = host_allocate(&host, i == 0 ? BLOCK_BYTES : 8 * MIB);
        cr_assert_eq(host_check(&host), i == 0 ? BLOCK_BYTES : 8 * MIB);
        MUST(moor_buffer_release(host.runtime, block));
        host_settle(&host);
    }
    MUST(moor_range_release(host.runtime, range));
    host_close(&host);
}

/* ---- O10: streams that are destroyed while frees wait behind them ---- */

#define STREAMS 64u
#define FREES 4u

static void free_behind(const struct host *host, const struct moor_fence *fence)
{
    struct moor_stream *stream;
    MUST(moor_stream_create(host->device, NULL, &stream));
    MUST(moor_stream_wait(stream, fence));
    for (uint32_t i = 0; i < FREES; i++) {
        struct moor_view view;
        moor_buffer buffer = host_allocate(host, 4096);
        MUST(moor_buffer_get_view(host->runtime, buffer, &view));
        MUST(moor_fill(stream, &view, i, 1));
        MUST(moor_buffer_release(host->runtime, buffer));
    }
    MUST(moor_stream_destroy(stream));
}

static void leave_streams(const char *timeline)
{
    struct host host;
    host_open(&host, "total=1GiB", "timeline", timeline);
    for (int round = 0; round < 3; round++) { /* the addresses of destroyed streams are reused */
        struct moor_fence fence;
        struct moor_view view;
        void *native = host_native(&host);
        cr_assert_eq(host.sim->hold(native), 0);
        MUST(moor_stream_record(host.stream, &fence));
        for (uint32_t i = 0; i < STREAMS; i++)
            free_behind(&host, &fence);
        struct host other = host; /* meanwhile a new stream works, which is none of the old ones */
        MUST(moor_stream_create(host.device, NULL, &other.stream));
        moor_buffer buffer = host_allocate(&host, 4096);
        MUST(moor_buffer_get_view(host.runtime, buffer, &view));
        host_fill(&other, &view, 0x42);
        cr_assert(host_holds(&host, &view, 0x42));
        MUST(moor_stream_destroy(other.stream));
        MUST(moor_buffer_release(host.runtime, buffer));
        cr_assert_geq(host_stats(&host).pending_bytes, (uint64_t)STREAMS * FREES * BLOCK_BYTES);
        cr_assert_eq(host.sim->open(native), 0);
        cr_assert_eq(host_check(&host), 0, "not all came back");
    }
    host_close(&host);
}

Test(shared_cases, O10_streams_may_end_before_their_frees_with_words)
{
    leave_streams("memory");
}

Test(shared_cases, O10_streams_may_end_before_their_frees_with_events)
{
    leave_streams("events");
}

/* The library does not know whether the work is done: it must not reuse the memory, and a later try must
 * find it. */
Test(shared_cases, O10_a_fence_that_cannot_be_read_frees_nothing)
{
    struct host host;
    struct moor_view view;
    moor_buffer block, other;
    host_open(&host, "total=2MiB", "timeline", "events");
    void *native = host_native(&host);
    block = host_allocate(&host, BLOCK_BYTES);
    MUST(moor_buffer_get_view(host.runtime, block, &view));
    cr_assert_eq(host.sim->hold(native), 0);
    MUST(moor_fill(host.stream, &view, 1, 1));
    configure(&host, "fault=cuEventQuery:1:999:all");
    MUST(moor_buffer_release(host.runtime, block));
    host_settle(&host);
    cr_assert_eq(host_stats(&host).quarantined_bytes, BLOCK_BYTES);
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(host.binding, BLOCK_BYTES, NULL, &other));
    cr_assert_eq(host_live(&host).physical_bytes, BLOCK_BYTES, "freed under its work");
    configure(&host, "faults=none");
    EXPECT(MOOR_BUSY, moor_binding_close(host.binding)); /* retries the quarantined memory */
    cr_assert_eq(host_live(&host).physical_bytes, BLOCK_BYTES, "freed under its work");
    cr_assert_eq(host.sim->open(native), 0);
    host_settle(&host);
    cr_assert_eq(host_check(&host), 0);
    MUST(moor_buffer_allocate(host.binding, BLOCK_BYTES, NULL, &other));
    MUST(moor_buffer_release(host.runtime, other));
    host_close(&host);
}

/* ---- O19: others on the same device ---- */

static void expect_external(const struct host *host, uint64_t external, uint64_t ours)
{
    struct moor_device_stats device;
    MUST(moor_authority_refresh(host->authority));
    struct moor_authority_stats stats = host_stats(host);
    cr_assert(stats.external_known);
    cr_assert_eq(stats.external_bytes, external, "%llu", (unsigned long long)stats.external_bytes);
    cr_assert_eq(stats.committed_bytes, ours);
    cr_assert_eq(stats.headroom_bytes, stats.capacity_bytes - external - ours);
    cr_assert_eq(host_check(host), ours);
    MUST(moor_device_get_stats(host->device, 0, &device));
    cr_assert_leq(device.free_bytes, device.total_bytes);
}

Test(shared_cases, O19_memory_of_other_processes_is_not_ours)
{
    struct host host;
    moor_grant grant;
    host_open(&host, "total=1000MiB,other=100MiB", NULL, NULL);
    moor_buffer ours = host_allocate(&host, 50 * MIB);
    expect_external(&host, 100 * MIB, 50 * MIB);
    configure(&host, "other=600MiB");
    expect_external(&host, 600 * MIB, 50 * MIB);
    EXPECT(MOOR_OVER_BUDGET, moor_grant_reserve(host.holder, 351 * MIB, MOOR_NO_WAIT, &grant));
    MUST(moor_grant_reserve(host.holder, 350 * MIB, MOOR_NO_WAIT, &grant));
    MUST(moor_grant_release(host.runtime, grant));
    configure(&host, "other=50MiB"); /* the call refreshes the figure before it fails */
    MUST(moor_grant_reserve(host.holder, 900 * MIB, MOOR_NO_WAIT, &grant));
    MUST(moor_grant_release(host.runtime, grant));
    expect_external(&host, 50 * MIB, 50 * MIB);
    /* Memory that is kept between a decommit and the next commit belongs to no other process: it is room
     * for us. */
    moor_range range = host_reserve(&host, 64);
    MUST(moor_range_commit(host.runtime, range, 0, 64 * host.granule, 0));
    MUST(moor_range_release(host.runtime, range));
    host_settle(&host);
    expect_external(&host, 50 * MIB, 50 * MIB);
    configure(&host, "other=0");
    MUST(moor_buffer_release(host.runtime, ours));
    host_close(&host);
}

Test(shared_cases, O19_two_runtimes_share_a_device)
{
    struct host first, second;
    host_open(&first, "total=1000MiB", NULL, NULL);
    MUST(moor_authority_set_capacity(first.authority, 500 * MIB, 0, NULL));
    moor_buffer ours = host_allocate(&first, 500 * MIB);
    second = first;
    host_join(&second, NULL, NULL, NULL);
    MUST(moor_authority_set_capacity(second.authority, 400 * MIB, 0, NULL));
    moor_buffer theirs = host_allocate(&second, 400 * MIB);
    MUST(moor_authority_refresh(first.authority));
    MUST(moor_authority_refresh(second.authority));
    cr_assert_eq(host_stats(&first).external_bytes, 400 * MIB);
    cr_assert_eq(host_stats(&second).external_bytes, 500 * MIB);
    cr_assert_eq(host_check(&first), 500 * MIB);
    cr_assert_eq(host_check(&second), 400 * MIB);
    MUST(moor_buffer_release(first.runtime, ours));
    MUST(moor_buffer_release(second.runtime, theirs));
    host_part(&second);
    MUST(moor_runtime_destroy(second.runtime));
    host_close(&first);
}

/* An integrated device has the host's memory: one pool with the CPU provider, and one budget. */
Test(shared_cases, O19_a_device_that_shares_the_hosts_memory_shares_its_budget)
{
    struct host host;
    struct moor_provider *cpu;
    struct moor_device *cpu_device;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    moor_buffer buffer;
    host_open(&host, "total=1GiB,integrated=1", NULL, NULL);
    MUST(moor_provider_load(host.runtime, path_of("MOOR_CPU_PROVIDER"), NULL, &cpu));
    MUST(moor_provider_get_device(cpu, 0, &cpu_device));
    MUST(moor_device_get_authority(cpu_device, 0, &authority));
    cr_assert_eq(authority, host.authority, "two budgets for one pool");
    MUST(moor_authority_set_capacity(authority, 64 * MIB, 0, NULL));
    MUST(moor_holder_create(authority, NULL, &holder));
    MUST(moor_binding_open(cpu_device, 0, holder, &binding));
    moor_buffer ours = host_allocate(&host, 40 * MIB);
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(binding, 40 * MIB, NULL, &buffer));
    MUST(moor_buffer_allocate(binding, 24 * MIB, NULL, &buffer));
    cr_assert_eq(host_stats(&host).committed_bytes, 64 * MIB);
    MUST(moor_buffer_release(host.runtime, ours));
    MUST(moor_buffer_release(host.runtime, buffer));
    host_settle(&host);
    MUST(moor_binding_close(binding));
    MUST(moor_holder_destroy(holder));
    host_close(&host);
}

/* ---- O20: a half-full last page that two sequences would both write ---- */

#define PREFIX 0x33
#define FORKS 1000u

static struct moor_view half(const struct host *host, moor_range range, uint64_t which)
{
    return host_view(host, range, which * host->granule / 2, host->granule / 2);
}

static void expect_halves(const struct host *host, moor_range range, uint8_t first, uint8_t second)
{
    struct moor_view views[] = {half(host, range, 0), half(host, range, 1)};
    cr_assert(host_holds(host, &views[0], first));
    cr_assert(host_holds(host, &views[1], second));
}

/* Makes a segment with a full first half, mapped nowhere, ready to be shared. */
static moor_segment make_tail(const struct host *host)
{
    moor_segment tail = 0;
    moor_range range = host_reserve(host, 1);
    MUST(moor_segment_create(host->binding, host->granule, host->granule, 0, &tail));
    MUST(moor_segment_map(host->runtime, tail, range, 0, MOOR_ACCESS_READ_WRITE));
    struct moor_view view = half(host, range, 0);
    host_fill(host, &view, PREFIX);
    MUST(moor_segment_seal(host->runtime, tail, MOOR_FOREVER));
    MUST(moor_range_release(host->runtime, range));
    return tail;
}

static moor_range share(const struct host *host, moor_segment tail)
{
    moor_range range = host_reserve(host, 1);
    MUST(moor_segment_map(host->runtime, tail, range, 0, MOOR_ACCESS_READ));
    return range;
}

static moor_status append(const struct host *host, moor_range range, uint8_t value)
{
    moor_status status =
        moor_range_make_writable(host->runtime, range, 0, host->stream, 0, MOOR_FOREVER, NULL);
    struct moor_view view = half(host, range, 1);
    if (status == MOOR_OK)
        host_fill(host, &view, value);
    return status;
}

Test(shared_cases, O20_a_shared_tail_is_copied_before_a_write)
{
    struct host host;
    host_open(&host, "total=64MiB", NULL, NULL);
    moor_segment tail = make_tail(&host);
    moor_range a = share(&host, tail), b = share(&host, tail), c = share(&host, tail);
    uint64_t shared_bytes = host_check(&host);
    MUST(append(&host, a, 0xaa)); /* a private copy that no other sequence sees */
    cr_assert_eq(host_check(&host), shared_bytes + host.granule, "a private copy is not one page");
    expect_halves(&host, a, PREFIX, 0xaa);
    expect_halves(&host, b, PREFIX, 0);
    MUST(moor_authority_set_capacity(host.authority, shared_bytes + host.granule, 0, NULL)); /* a full page */
    EXPECT(MOOR_OVER_BUDGET, append(&host, c, 0xcc));
    struct moor_view view = half(&host, c, 1);
    EXPECT(MOOR_INVALID, moor_fill(host.stream, &view, 1, 1));
    expect_halves(&host, b, PREFIX, 0);
    expect_halves(&host, c, PREFIX, 0);
    /* The last owner writes in place: no copy, no further page. */
    MUST(moor_range_release(host.runtime, c));
    MUST(moor_segment_release(host.runtime, tail));
    host_settle(&host);
    uint64_t copies = host.sim->calls("cuMemcpyDtoDAsync");
    MUST(append(&host, b, 0xbb));
    cr_assert_eq(host.sim->calls("cuMemcpyDtoDAsync"), copies, "the last owner made a copy");
    cr_assert_eq(host_check(&host), shared_bytes + host.granule);
    expect_halves(&host, a, PREFIX, 0xaa);
    expect_halves(&host, b, PREFIX, 0xbb);
    MUST(moor_range_release(host.runtime, a));
    MUST(moor_range_release(host.runtime, b));
    host_close(&host);
}

Test(shared_cases, O20_forks_end_in_any_order)
{
    static moor_range children[FORKS];
    struct host host;
    host_open(&host, "total=64MiB", NULL, NULL);
    moor_segment tail = make_tail(&host);
    uint64_t shared_bytes = host_check(&host);
    for (uint32_t i = 0; i < FORKS; i++)
        children[i] = share(&host, tail);
    cr_assert_eq(host_check(&host), shared_bytes, "a shared page is charged more than once");
    MUST(moor_segment_release(host.runtime, tail));
    for (uint32_t left = FORKS, state = 1; left > 0; left--) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes' generator: any order will do */
        uint32_t picked = state % left;
        if (left == 1)
            expect_halves(&host, children[picked], PREFIX, 0);
        MUST(moor_range_release(host.runtime, children[picked]));
        children[picked] = children[left - 1];
        if (left == 2)
            cr_assert_eq(host_check(&host), shared_bytes, "it went before the last that has it");
    }
    host_close(&host);
}

/* Launches a kernel as a host does: with the device's context current. */
static void launch(const struct host *host, const struct moor_cudasim_span *span)
{
    uint64_t context;
    CUresult (*set_current)(CUcontext);
    void *driver = dlopen(path_of("MOOR_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    void *symbol = dlsym(driver, "cuCtxSetCurrent");
    cr_assert_not_null(symbol);
    memcpy(&set_current, &symbol, sizeof symbol);
    MUST(moor_device_get_native(host->device, &context));
    cr_assert_eq(set_current((CUcontext)(uintptr_t)context), CUDA_SUCCESS);
    cr_assert_eq(host->sim->launch(host_native(host), span, 1, NULL, NULL), 0);
    cr_assert_eq(set_current(NULL), CUDA_SUCCESS);
}

/* A kernel that writes through a read-only map faults, and the host can still end. */
Test(shared_cases, O20_a_write_through_a_read_only_map_is_never_silent)
{
    struct host host;
    struct moor_fence fence;
    host_open(&host, "total=64MiB,violations=count", NULL, NULL);
    moor_segment tail = make_tail(&host);
    moor_range a = share(&host, tail), b = share(&host, tail);
    struct moor_view view = half(&host, a, 1), seen = half(&host, b, 1);
    const struct moor_cudasim_span span = {view.address, view.size_bytes, MOOR_CUDASIM_WRITE, 0};
    cr_assert(host_holds(&host, &seen, 0));
    void *native = host_native(&host);
    cr_assert_eq(host.sim->hold(native), 0);
    launch(&host, &span);
    MUST(moor_stream_record(host.stream, &fence));
    cr_assert_eq(host.sim->open(native), 0);
    EXPECT(MOOR_DEVICE_LOST, moor_fence_wait(&fence, moor_clock_ns() + UINT64_C(10000000000)));
    cr_assert_eq(host.sim->violations(), 1);
    cr_assert_not_null(strstr(host.sim->violation(0), "read-only"), "%s", host.sim->violation(0));
    cr_assert(host_holds(&host, &seen, 0), "the other one sees it");
    MUST(moor_range_release(host.runtime, a));
    MUST(moor_range_release(host.runtime, b));
    MUST(moor_segment_release(host.runtime, tail));
    MUST(moor_stream_destroy(host.stream));
    host_settle(&host);
    MUST(moor_binding_close(host.binding));
    MUST(moor_holder_destroy(host.holder));
    MUST(moor_runtime_destroy(host.runtime));
}

/* ---- O25: figures that a driver refuses ---- */

Test(shared_cases, O25_a_refused_figure_is_unknown_and_not_zero)
{
    struct host host;
    struct moor_device_stats device;
    host_open(&host, "total=64MiB,query=800", NULL, NULL);
    moor_buffer ours = host_allocate(&host, BLOCK_BYTES);
    MUST(moor_device_get_stats(host.device, 0, &device));
    cr_assert_eq(device.valid & MOOR_ABI_STAT_FREE, 0, "a refused query is a figure");
    cr_assert_eq(device.total_bytes, 64 * MIB);
    (void)moor_authority_refresh(host.authority); /* no figure to check */
    cr_assert_not(host_stats(&host).external_known);
    cr_assert_eq(host_stats(&host).capacity_bytes, 64 * MIB);
    MUST(moor_buffer_release(host.runtime, ours));
    host_close(&host);
}
