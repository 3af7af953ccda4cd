/* SPDX-License-Identifier: MIT */
/*
 * device: the cost of device memory to a host. Uses the first device's own domain through the public API, so
 * the charge and the release queue are included. No case reads or writes device memory by address.
 *
 * Each case runs once as a trial. A case that needs a capability or memory that the domain lacks is skipped
 * and listed with the reason.
 */
#include "bench/bench.h"

#include <moorage/moorage.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_BYTES (UINT64_C(64) << 10)
#define LARGE_BYTES (UINT64_C(2) << 20)
#define COPIED_BYTES (UINT64_C(64) << 20)
#define FLIGHT_MAX 1000u
#define CAPACITY_BYTES (UINT64_C(1) << 40) /* if the pool's size is unknown */
#define WAIT_NS UINT64_C(60000000000)      /* longer than any case takes */
#define COPY_ROUNDS_MAX 21u                /* a hundred copies would tell little more */
#define GIB ((double)(UINT64_C(1) << 30))

struct account {
    struct moor_holder *holder;
    struct moor_binding *binding;
};

/* Large: the objects of all cases. Zero: not made yet. Each case makes the objects that it needs. */
struct world {
    struct moor_runtime *runtime;
    struct moor_device *device;
    struct moor_abi_domain_info domain;
    struct account own;    /* in the device's domain */
    struct account pinned; /* in the domain of pinned host memory */
    struct moor_stream *stream;
    moor_range range; /* commits use its first part, maps its second */
    uint64_t piece_bytes;
    moor_segment segments[2];      /* mapped for reading, mapped for writing */
    moor_buffer copied;            /* on the device */
    moor_buffer locked;            /* pinned */
    struct moor_view copied_view;  /* view of `copied` */
    struct moor_view host_view[2]; /* pageable, pinned */
    void *pageable;                /* [owned] */
    uint32_t flight;               /* buffers released per reap */
    moor_buffer buffers[FLIGHT_MAX];
    char piece_text[32];
    char flight_text[32];
};

/* Measures one sample, in us or GiB/s. */
typedef moor_status (*device_case)(struct world *world, unsigned variant, double *ret_value);

static double us_since(uint64_t start_ns)
{
    return (double)(moor_clock_ns() - start_ns) / 1000.0;
}

/* Waits until all released memory has been returned. */
static moor_status reap_all(struct world *world)
{
    return moor_runtime_reap(world->runtime, moor_clock_ns() + WAIT_NS);
}

/* ---- allocations ---- */

static moor_status allocate_once(struct world *world, unsigned variant)
{
    moor_buffer buffer;
    moor_status status =
        moor_buffer_allocate(world->own.binding, variant ? LARGE_BYTES : SMALL_BYTES, NULL, &buffer);
    if (!status)
        status = moor_buffer_release(world->runtime, buffer);
    return status ? status : reap_all(world);
}

/* Measures the mean of a few runs. The first run is not counted, so that a case inherits nothing from the
 * case before. */
static moor_status repeat(struct world *world, moor_status (*once)(struct world *world, unsigned variant),
                          unsigned variant, double *ret_us)
{
    const unsigned runs = 4;
    moor_status status = once(world, variant);
    uint64_t start_ns = moor_clock_ns();
    for (unsigned i = 0; i < runs && !status; i++)
        status = once(world, variant);
    *ret_us = us_since(start_ns) / runs;
    return status;
}

static moor_status run_allocate(struct world *world, unsigned variant, double *ret_us)
{
    return repeat(world, allocate_once, variant, ret_us);
}

static moor_status fly_once(struct world *world)
{
    moor_buffer buffer;
    struct moor_view view;
    moor_status status = moor_buffer_allocate(world->own.binding, SMALL_BYTES, NULL, &buffer);
    if (status)
        return status;
    status = moor_buffer_get_view(world->runtime, buffer, &view);
    if (!status)
        status = moor_fill(world->stream, &view, 0x2a, 1);
    moor_status released = moor_buffer_release(world->runtime, buffer);
    return status ? status : released;
}

static moor_status run_flight(struct world *world, unsigned variant, double *ret_us)
{
    (void)variant;
    moor_status status = MOOR_OK;
    uint64_t start_ns = moor_clock_ns();
    for (uint32_t i = 0; i < world->flight && !status; i++)
        status = fly_once(world);
    moor_status settled = reap_all(world);
    *ret_us = us_since(start_ns) / world->flight;
    return status ? status : settled;
}

/* ---- backing ---- */

static moor_status reserve_range(struct world *world)
{
    if (world->range != 0)
        return MOOR_OK;
    return moor_range_reserve(world->own.binding, 2 * world->piece_bytes,
                              &(struct moor_range_options){.granule_bytes = world->piece_bytes},
                              &world->range);
}

static moor_status commit_once(struct world *world, unsigned variant)
{
    (void)variant;
    moor_status status = moor_range_commit(world->runtime, world->range, 0, world->piece_bytes, 0);
    if (!status)
        status = moor_range_decommit(world->runtime, world->range, 0, world->piece_bytes);
    return status ? status : reap_all(world);
}

static moor_status run_commit(struct world *world, unsigned variant, double *ret_us)
{
    moor_status status = reserve_range(world);
    return status ? status : repeat(world, commit_once, variant, ret_us);
}

static moor_status make_segment(struct world *world, unsigned variant)
{
    moor_segment *segment = &world->segments[variant];
    moor_status status = reserve_range(world);
    if (status || *segment != 0)
        return status;
    status = moor_segment_create(world->own.binding, world->piece_bytes, world->piece_bytes, 0, segment);
    return status || variant ? status : moor_segment_seal(world->runtime, *segment, MOOR_NO_WAIT);
}

static moor_status map_once(struct world *world, unsigned variant)
{
    uint32_t access = variant ? MOOR_ACCESS_READ_WRITE : MOOR_ACCESS_READ;
    uint64_t offset = world->piece_bytes;
    moor_status status =
        moor_segment_map(world->runtime, world->segments[variant], world->range, offset, access);
    if (!status)
        status = moor_range_unmap(world->runtime, world->range, offset, world->piece_bytes);
    return status ? status : reap_all(world);
}

static moor_status run_map(struct world *world, unsigned variant, double *ret_us)
{
    moor_status status = make_segment(world, variant);
    return status ? status : repeat(world, map_once, variant, ret_us);
}

/* ---- copies ---- */

static moor_status open_account(struct world *world, uint32_t domain, struct account *account)
{
    struct moor_authority *authority;
    struct moor_authority_stats stats;
    moor_status status = moor_device_get_authority(world->device, domain, &authority);
    if (!status)
        status = moor_authority_get_stats(authority, &stats, NULL, 0, NULL);
    if (!status && stats.capacity_bytes == 0)
        status = moor_authority_set_capacity(authority, CAPACITY_BYTES, 0, NULL);
    if (!status)
        status =
            moor_holder_create(authority, &(struct moor_holder_options){.name = "bench"}, &account->holder);
    return status ? status : moor_binding_open(world->device, domain, account->holder, &account->binding);
}

/* Pinned memory is a buffer of its domain. Pageable memory comes from malloc and has been touched. */
static moor_status make_host_memory(struct world *world, unsigned pinned)
{
    uint32_t domain;
    if (world->host_view[pinned].size_bytes != 0)
        return MOOR_OK;
    if (!pinned) {
        world->pageable = tool_allocate(COPIED_BYTES, 1);
        memset(world->pageable, 1, COPIED_BYTES);
        world->host_view[pinned] = moor_view_host(world->pageable, COPIED_BYTES);
        return MOOR_OK;
    }
    moor_status status = moor_device_find_domain(world->device, MOOR_ABI_DOMAIN_PINNED, &domain);
    if (!status && world->pinned.binding == NULL)
        status = open_account(world, domain, &world->pinned);
    if (!status)
        status = moor_buffer_allocate(world->pinned.binding, COPIED_BYTES, NULL, &world->locked);
    return status ? status : moor_buffer_get_view(world->runtime, world->locked, &world->host_view[pinned]);
}

static moor_status make_copied(struct world *world)
{
    if (world->copied != 0)
        return MOOR_OK;
    moor_status status = moor_buffer_allocate(world->own.binding, COPIED_BYTES, NULL, &world->copied);
    return status ? status : moor_buffer_get_view(world->runtime, world->copied, &world->copied_view);
}

static moor_status wait_stream(struct world *world)
{
    struct moor_fence fence;
    moor_status status = moor_stream_record(world->stream, &fence);
    return status ? status : moor_fence_wait(&fence, moor_clock_ns() + WAIT_NS);
}

#define COPY_PINNED 1u /* otherwise pageable */
#define COPY_BACK 2u   /* otherwise to the device */

static moor_status run_copy(struct world *world, unsigned variant, double *ret_gib_per_s)
{
    unsigned pinned = variant & COPY_PINNED;
    moor_status status = make_copied(world);
    if (!status)
        status = make_host_memory(world, pinned);
    const struct moor_view *host = &world->host_view[pinned], *device = &world->copied_view;
    uint64_t start_ns = moor_clock_ns();
    if (!status)
        status = variant & COPY_BACK ? moor_copy(world->stream, host, device)
                                     : moor_copy(world->stream, device, host);
    if (!status)
        status = wait_stream(world);
    *ret_gib_per_s = (double)COPIED_BYTES / GIB / (us_since(start_ns) / 1e6);
    return status;
}

/* ---- cases ---- */

static const struct {
    const char *name;
    const char *param; /* NULL: derived from the world */
    const char *unit;
    device_case run;
    unsigned variant;
} cases[] = {
    {"device/allocate + release", "2 MiB", "us", run_allocate, 1},
    {"device/allocate + release", "64 KiB", "us", run_allocate, 0},
    {"device/allocate + fill + release, reaped", NULL, "us", run_flight, 0},
    {"device/range commit + decommit", NULL, "us", run_commit, 0},
    {"device/segment map + unmap, read-only", NULL, "us", run_map, 0},
    {"device/segment map + unmap, read-write", NULL, "us", run_map, 1},
    {"device/copy 64 MiB, host to device", "pageable", "GiB/s", run_copy, 0},
    {"device/copy 64 MiB, device to host", "pageable", "GiB/s", run_copy, COPY_BACK},
    {"device/copy 64 MiB, host to device", "pinned", "GiB/s", run_copy, COPY_PINNED},
    {"device/copy 64 MiB, device to host", "pinned", "GiB/s", run_copy, COPY_PINNED | COPY_BACK},
};

#define CASE_COUNT (sizeof cases / sizeof *cases)

static const char *param_of(const struct world *world, size_t index)
{
    if (cases[index].param != NULL)
        return cases[index].param;
    return cases[index].run == run_flight ? world->flight_text : world->piece_text;
}

/* Returns true if the domain lacks the capability or the memory. */
static bool is_lack(moor_status status)
{
    return status == MOOR_UNSUPPORTED || status == MOOR_LIMIT || status == MOOR_HOST_NOMEM ||
           status == MOOR_DEVICE_NOMEM || status == MOOR_NO_VA || status == MOOR_OVER_BUDGET ||
           status == MOOR_NEVER_FITS;
}

/* ---- set-up ---- */

/* Uses units of 2 MiB where such granules exist, and at most a quarter of the device for unreaped buffers. */
static moor_status choose_sizes(struct world *world)
{
    uint64_t footprint = SMALL_BYTES;
    moor_status status = moor_binding_get_footprint(world->own.binding, SMALL_BYTES, NULL, &footprint);
    if (status)
        return status;
    world->flight = FLIGHT_MAX;
    uint64_t room = world->domain.total_bytes / 4 / footprint;
    if (world->domain.flags & MOOR_ABI_DOMAIN_TOTAL_KNOWN && room < world->flight)
        world->flight = room > 0 ? (uint32_t)room : 1;
    world->piece_bytes = LARGE_BYTES;
    if (world->domain.granule_min_bytes > world->piece_bytes)
        world->piece_bytes = world->domain.granule_min_bytes;
    (void)snprintf(world->flight_text, sizeof world->flight_text, "64 KiB x%u", world->flight);
    (void)snprintf(world->piece_text, sizeof world->piece_text, "%llu MiB",
                   (unsigned long long)(world->piece_bytes >> 20));
    return MOOR_OK;
}

static bool open_world(const struct bench_options *options, struct world *world)
{
    struct tool_failure *failure = options->failure;
    struct moor_provider *provider;
    uint32_t domain = 0;
    if (moor_runtime_create(NULL, &world->runtime))
        return tool_fail_last(failure, TOOL_FAILED, "runtime");
    if (!bench_load_provider(options, world->runtime, 0, &provider) ||
        !bench_get_device(options, provider, &world->device))
        return false;
    if (moor_device_find_domain(world->device, MOOR_ABI_DOMAIN_DEVICE, &domain))
        domain = 0; /* the first domain, if the device has no domain of its own */
    if (moor_device_get_domain_info(world->device, domain, &world->domain) ||
        open_account(world, domain, &world->own) || choose_sizes(world) ||
        moor_stream_create(world->device, NULL, &world->stream))
        return tool_fail_last(failure, TOOL_REFUSED, options->provider);
    return true;
}

static void close_world(struct world *world)
{
    /* The process ends next: a failure of these releases would not change a figure. */
    (void)moor_buffer_release(world->runtime, world->copied);
    (void)moor_buffer_release(world->runtime, world->locked);
    (void)moor_segment_release(world->runtime, world->segments[0]);
    (void)moor_segment_release(world->runtime, world->segments[1]);
    (void)moor_range_release(world->runtime, world->range);
    (void)moor_stream_destroy(world->stream);
    (void)reap_all(world);
    for (unsigned i = 0; i < 2; i++) {
        struct account *account = i ? &world->pinned : &world->own;
        (void)moor_binding_close(account->binding);
        (void)moor_holder_destroy(account->holder);
    }
    (void)moor_runtime_destroy(world->runtime);
    free(world->pageable);
}

/* ---- measuring ---- */

static size_t rounds_of(const struct bench_options *options, size_t index)
{
    bool few = cases[index].run == run_copy || cases[index].run == run_flight;
    return few && options->rounds > COPY_ROUNDS_MAX ? COPY_ROUNDS_MAX : options->rounds;
}

/* ret_there: [out] for each case, true if it can run. */
static bool try_all(const struct bench_options *options, struct world *world, struct bench_report *report,
                    bool ret_there[CASE_COUNT])
{
    for (size_t i = 0; i < CASE_COUNT; i++) {
        double value;
        moor_status status = cases[i].run(world, cases[i].variant, &value);
        ret_there[i] = status == MOOR_OK;
        if (status && !is_lack(status))
            return tool_fail_last(options->failure, TOOL_FAILED, cases[i].name);
        if (status)
            bench_skip(report, cases[i].name, param_of(world, i), moor_last_error()->text);
    }
    return true;
}

static bool measure(const struct bench_options *options, struct world *world, const bool there[CASE_COUNT],
                    double (*samples)[BENCH_ROUNDS_MAX])
{
    for (size_t round = 0; round < options->rounds; round++)
        for (size_t i = 0; i < CASE_COUNT; i++)
            if (there[i] && round < rounds_of(options, i) &&
                cases[i].run(world, cases[i].variant, &samples[i][round]))
                return tool_fail_last(options->failure, TOOL_FAILED, cases[i].name);
    return true;
}

bool bench_device(const struct bench_options *options, struct bench_report *report)
{
    static double samples[CASE_COUNT][BENCH_ROUNDS_MAX];
    static struct world world; /* static because the report borrows its texts */
    bool there[CASE_COUNT];
    bool good = open_world(options, &world) && try_all(options, &world, report, there) &&
                measure(options, &world, there, samples);
    for (size_t i = 0; i < CASE_COUNT && good; i++)
        if (there[i])
            bench_add(report, bench_summarise(cases[i].name, param_of(&world, i), cases[i].unit, samples[i],
                                              rounds_of(options, i)));
    close_world(&world);
    return good;
}
