/* SPDX-License-Identifier: MIT */
#include "world.h"

#include "settle.h"

#include <dlfcn.h>
#include <moorage/abi/provider.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WITNESS 0x5a
#define WITNESS_BYTES 8192u
#define PATIENCE_NS UINT64_C(5000000000)

char world_trial[256];

void world_fail(const char *file, int line, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const struct moor_error *last = moor_last_error();
    fprintf(stderr, "%s: %s\n  at %s:%d, last error %s: %s\n", world_trial, text, file, line,
            moor_status_name(last->status), last->text);
    exit(1);
}

void world_expect(moor_status expected, moor_status status, const char *call, const char *file, int line)
{
    if (status != expected)
        world_fail(file, line, "%s answered %s, not %s", call, moor_status_name(status),
                   moor_status_name(expected));
}

/* ---- life ---- */

static void log_line(void *user, uint32_t level, const char *message)
{
    struct world *world = user;
    if (level <= MOOR_ABI_LOG_WARNING)
        atomic_fetch_add(&world->logged, 1);
    if (strstr(message, ": made to fail by a fault"))
        atomic_fetch_add(&world->told, 1);
    if (strstr(message, "are not asked for bytes over the limits"))
        atomic_fetch_add(&world->unasked, 1);
    if (getenv("MOOR_TEST_LOG"))
        fprintf(stderr, "# %s\n", message);
}

void world_start_runtime(struct world *world)
{
    const struct moor_runtime_options options = {
        .log = log_line, .log_user = world, .patience_ns = PATIENCE_NS};
    MUST(moor_runtime_create(&options, &world->runtime));
    memset(world->accounts, 0, sizeof world->accounts);
    MUST(moor_runtime_set_trace(world->runtime, account_trace, world->accounts));
}

/* The provider opens the same library, which is never closed. */
static void find_driver(struct world *world)
{
    void *library = dlopen(world->target->driver_path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library, "%s", dlerror());
    world->driver = dlsym(library, MOOR_CUDASIM_SYMBOL);
    CHECK(world->driver, "%s is not the simulated driver", world->target->driver_path);
    world->driver->live(&world->driver_live);
    world->driver_violations = world->driver->violations();
}

void world_start(struct world *world, const struct target *target)
{
    *world = (struct world){.target = target};
    if (target->driver_path)
        find_driver(world);
    world->host = aligned_alloc(PAGE_BYTES, HOST_BYTES);
    CHECK(world->host, "no memory for the test itself");
    memset(world->host, 0, HOST_BYTES);
    world_start_runtime(world);
}

uint32_t world_settings(const struct world *world, struct moor_setting settings[SETTINGS_MAX])
{
    const struct target *target = world->target;
    uint32_t count = 0;
    settings[count++] = (struct moor_setting){"provider", target->inner_path};
    settings[count++] = (struct moor_setting){"faults", world->faults};
    if (world->is_small)
        settings[count++] = (struct moor_setting){"total_bytes", SMALL_BYTES};
    if (target->driver_path) {
        settings[count++] = (struct moor_setting){"driver", target->driver_path};
        settings[count++] = (struct moor_setting){"timeline", target->timeline};
    }
    return count;
}

moor_status world_load(struct world *world)
{
    struct moor_setting settings[SETTINGS_MAX];
    const struct moor_load_options options = {.settings = settings,
                                              .setting_count = world_settings(world, settings)};
    moor_status status =
        moor_provider_load(world->runtime, world->target->fault_path, &options, &world->provider);
    if (status)
        return status;
    const void *table;
    MUST(
        moor_provider_get_extension(world->provider, MOOR_FAULT_CONTROL, MOOR_FAULT_CONTROL_VERSION, &table));
    world->control = table;
    if (moor_provider_get_extension(world->provider, MOOR_MOCK_CONTROL, MOOR_MOCK_CONTROL_VERSION, &table) ==
        MOOR_OK)
        world->mock = table;
    return MOOR_OK;
}

void world_forget_provider(struct world *world)
{
    world->provider = NULL;
    world->control = NULL;
    world->mock = NULL;
    world->device = NULL;
}

static void make_witnesses(struct world *world)
{
    MUST(moor_buffer_allocate(world->binding, WITNESS_BYTES, NULL, &world->witness));
    struct moor_view view = world_buffer_view(world, world->witness);
    if (world->domain.capabilities & MOOR_ABI_CAP_COPY)
        world_fill(world, &view, WITNESS);
    MUST(moor_memory_wait(&view, MOOR_FOREVER));
    MUST(moor_buffer_allocate(world->binding, PAGE_BYTES, NULL, &world->stale_buffer));
    MUST(moor_buffer_release(world->runtime, world->stale_buffer));
    if (world->domain.capabilities & MOOR_ABI_CAP_VIRTUAL) {
        MUST(moor_range_reserve(world->binding, world->granule,
                                &(struct moor_range_options){.granule_bytes = world->granule},
                                &world->stale_range));
        MUST(moor_range_release(world->runtime, world->stale_range));
    }
    if (world->domain.capabilities & MOOR_ABI_CAP_SHARED) {
        MUST(moor_segment_create(world->binding, world->granule, world->granule, 0, &world->stale_segment));
        MUST(moor_segment_release(world->runtime, world->stale_segment));
    }
    world_settle(world);
}

void world_open(struct world *world, bool witnesses)
{
    if (!world->provider)
        MUST(world_load(world));
    MUST(moor_provider_get_device(world->provider, 0, &world->device));
    MUST(moor_device_get_domain_info(world->device, 0, &world->domain));
    MUST(moor_device_get_authority(world->device, 0, &world->authority));
    MUST(moor_holder_create(world->authority, NULL, &world->holder));
    MUST(moor_binding_open(world->device, 0, world->holder, &world->binding));
    MUST(moor_stream_create(world->device, NULL, &world->stream));
    /* The smallest there is: the sweep makes and frees memory by the thousand. */
    world->granule = world->domain.granule_min_bytes;
    if (witnesses)
        make_witnesses(world);
}

void world_open_far(struct world *world)
{
    struct moor_authority *authority;
    MUST(moor_provider_load(world->runtime, world->target->far_path, NULL, &world->far_provider));
    MUST(moor_provider_get_device(world->far_provider, 0, &world->far_device));
    MUST(moor_device_get_domain_info(world->far_device, 0, &world->far_domain));
    MUST(moor_device_get_authority(world->far_device, 0, &authority));
    MUST(moor_holder_create(authority, NULL, &world->far_holder));
    MUST(moor_binding_open(world->far_device, 0, world->far_holder, &world->far_binding));
}

/* Where the end itself is made to fail, the provider's own things go with the context. */
#define LEFT "the context of device 0 is released with "

/* The simulated CUDA driver has nothing that it did not have before, and was used as it must be. What lies in
 * a context that has come to its end by an error cannot be given back. */
static void check_driver(const struct world *world)
{
    struct moor_cudasim_live live;
    const struct moor_cudasim_live *before = &world->driver_live;
    for (uint64_t i = world->driver_violations; i < world->driver->violations(); i++) {
        const char *text = world->driver->violation(i);
        CHECK(world->driver_is_ending && strncmp(text, LEFT, strlen(LEFT)) == 0, "%s", text);
    }
    world->driver->live(&live);
    if (world->driver_is_ending) {
        live.streams = before->streams;
        live.events = before->events;
        live.host = before->host;
    }
    if (world->driver_keeps_context)
        live.contexts = before->contexts;
    CHECK(live.contexts == before->contexts, "a context is left");
    CHECK(world->driver_has_ended || memcmp(&live, before, sizeof live) == 0,
          "the driver has %llu contexts, %llu streams, %llu events, %llu allocations, %llu pieces of pinned "
          "memory, %llu ranges, %llu maps, %llu handles at the end",
          (unsigned long long)live.contexts, (unsigned long long)live.streams,
          (unsigned long long)live.events, (unsigned long long)live.allocations,
          (unsigned long long)(live.host + live.registered), (unsigned long long)live.reservations,
          (unsigned long long)live.mappings, (unsigned long long)live.handles);
}

static void release_handles(struct world *world)
{
    for (size_t i = 0; i < THINGS; i++) {
        MUST(moor_buffer_release(world->runtime, world->buffers[i]));
        MUST(moor_range_release(world->runtime, world->ranges[i]));
        MUST(moor_segment_release(world->runtime, world->segments[i]));
    }
    for (size_t i = 0; i < THINGS; i++)
        MUST(moor_grant_release(world->runtime, world->grants[i]));
    MUST(moor_buffer_release(world->runtime, world->witness));
    MUST(moor_ticket_cancel(world->runtime, world->ticket));
    world->ticket = 0;
    MUST(moor_lease_refund(world->runtime, world->lease));
    MUST(moor_lease_refund(world->runtime, world->given_lease));
    MUST(moor_grant_release(world->runtime, world->grant));
}

/* What is in quarantine is tried again here; what that sets free may follow only at the second try. */
static void close_binding(struct world *world, struct moor_binding *binding)
{
    if (moor_binding_close(binding) == MOOR_OK)
        return;
    world_settle(world);
    MUST(moor_binding_close(binding));
}

/* What the simulated device has seen of uses that are too early, too late, or not as they were announced. */
static void check_violations(struct world *world)
{
    struct moor_mock_violation first;
    uint64_t total;
    uint32_t count;
    CHECK(world->mock->violations(world->mock->mock, &total, &first, 1, &count) == MOOR_OK,
          "no violations are told");
    CHECK(total == 0, "%s\n%s", first.text, first.history);
}

void world_close(struct world *world)
{
    if (world->mock)
        check_violations(world);
    if (world->runtime) {
        release_handles(world);
        world_settle(world);
        MUST(moor_stream_destroy(world->other));
        MUST(moor_stream_destroy(world->stream));
        world->other = world->stream = NULL;
        world_settle(world);
        close_binding(world, world->second_binding);
        close_binding(world, world->binding);
        close_binding(world, world->far_binding);
        if (world->authority) {
            struct moor_authority_stats stats;
            MUST(moor_authority_get_stats(world->authority, &stats, NULL, 0, NULL));
            CHECK(stats.charged_bytes + stats.reserved_bytes == 0, "%llu bytes are charged at the end",
                  (unsigned long long)(stats.charged_bytes + stats.reserved_bytes));
        }
        MUST(moor_holder_destroy(world->second_holder));
        MUST(moor_holder_destroy(world->holder));
        MUST(moor_holder_destroy(world->far_holder));
        struct moor_object_counts counts, none = {0};
        MUST(moor_runtime_get_counts(world->runtime, &counts));
        CHECK(memcmp(&counts, &none, sizeof none) == 0, "objects are left at the end");
        account_check(world->runtime, world->accounts, world->ticket);
        account_check_slots(world->runtime);
        MUST(moor_runtime_destroy(world->runtime));
    }
    MUST(moor_runtime_destroy(world->second_runtime));
    if (world->driver)
        check_driver(world);
    free(world->host);
}

/* ---- streams that stop ---- */

static void wait_for_gate(void *user)
{
    struct world *world = user;
    while (atomic_load(&world->gate))
        (void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

void world_hold(struct world *world, struct moor_stream *stream)
{
    uint64_t native;
    if (world->never_holds)
        return;
    if (world->mock && moor_stream_get_native(stream, &native) == MOOR_OK &&
        world->mock->hold(world->mock->mock, native) == MOOR_OK) {
        atomic_store(&world->held, native);
    } else if (world->target->threads) {
        atomic_store(&world->gate, 1);
        MUST(moor_stream_host_function(stream, wait_for_gate, world, NULL, 0));
    }
}

void world_open_gate(struct world *world)
{
    atomic_store(&world->gate, 0);
    uint64_t held = atomic_exchange(&world->held, 0);
    CHECK(!held || world->mock->open(world->mock->mock, held) == MOOR_OK, "the held stream cannot be opened");
}

void world_settle(struct world *world)
{
    world_open_gate(world);
    moor__pressure_settle(world->runtime);
    MUST(moor_runtime_reap(world->runtime, moor_clock_ns() + PATIENCE_NS));
}

void world_empty_quarantine(struct world *world)
{
    moor_status status = moor_binding_close(world->binding);
    world->emptied = true;
    if (status == MOOR_OK)
        MUST(moor_binding_open(world->device, 0, world->holder, &world->binding));
    else
        world_expect(MOOR_BUSY, status, "moor_binding_close of what is in use", __FILE__, __LINE__);
}

/* ---- the books ---- */

static uint64_t held(struct moor_device *device, struct moor_authority *authority)
{
    struct moor_abi_device_info info;
    uint64_t bytes = 0;
    MUST(moor_device_get_info(device, &info));
    for (uint32_t i = 0; i < info.domain_count; i++) {
        struct moor_authority *other;
        struct moor_device_stats stats;
        MUST(moor_device_get_authority(device, i, &other));
        if (other != authority)
            continue;
        MUST(moor_device_get_stats(device, i, &stats));
        CHECK(stats.valid & MOOR_ABI_STAT_HELD, "the provider does not say what it holds");
        bytes += stats.held_bytes;
    }
    return bytes;
}

static struct moor_authority_stats balanced_stats(struct moor_device *device, uint64_t *ret_held)
{
    struct moor_authority *authority;
    struct moor_authority_stats stats;
    MUST(moor_device_get_authority(device, 0, &authority));
    MUST(moor_authority_get_stats(authority, &stats, NULL, 0, NULL));
    *ret_held = held(device, authority);
    CHECK(stats.charged_bytes == stats.live_bytes + stats.pending_bytes + stats.quarantined_bytes,
          "charged is not live, pending and quarantined together");
    uint64_t has = stats.reserved_bytes + stats.charged_bytes;
    CHECK(stats.free_bytes == (has < stats.capacity_bytes ? stats.capacity_bytes - has : 0),
          "free, reserved and charged are not the capacity");
    CHECK(stats.charged_bytes - stats.leased_bytes == *ret_held, "%llu bytes are charged, %llu are held",
          (unsigned long long)(stats.charged_bytes - stats.leased_bytes), (unsigned long long)*ret_held);
    return stats;
}

struct world_state world_state(struct world *world)
{
    struct world_state state = {0};
    uint64_t far_held;
    if (world->binding) {
        state.stats = balanced_stats(world->device, &state.held_bytes);
        MUST(moor_authority_get_stats(world->authority, &state.stats, state.holders, THINGS, NULL));
    }
    if (world->far_binding)
        state.far_stats = balanced_stats(world->far_device, &far_held);
    if (world->grant)
        MUST(moor_grant_get_remaining(world->runtime, world->grant, &state.grant_bytes));
    if (world->runtime) {
        MUST(moor_runtime_get_counts(world->runtime, &state.counts));
        account_check(world->runtime, world->accounts, world->ticket);
    }
    return state;
}

static void same(uint64_t before, uint64_t after, const char *what, const char *when)
{
    CHECK(before == after, "%s: %s were %llu and are %llu", when, what, (unsigned long long)before,
          (unsigned long long)after);
}

static void same_holder(const struct moor_holder_stats *before, const struct moor_holder_stats *after,
                        bool is_stuck, const char *when)
{
    same(before->limit_bytes, after->limit_bytes, "a holder's limit", when);
    same(before->guarantee_bytes, after->guarantee_bytes, "a holder's guarantee", when);
    same((uint64_t)before->priority, (uint64_t)after->priority, "a holder's priority", when);
    if (is_stuck)
        return;
    same(before->reserved_bytes, after->reserved_bytes, "a holder's reserved bytes", when);
    same(before->charged_bytes, after->charged_bytes, "a holder's charged bytes", when);
    same(before->requested_bytes, after->requested_bytes, "the bytes that a holder asked for", when);
    same(before->evictable_bytes, after->evictable_bytes, "a holder's evictable bytes", when);
}

void world_same(const struct world_state *before, const struct world_state *after, const char *when)
{
    /* May be less: what was in quarantine is gone if it was tried again. Modulo 2^64 all adds up. */
    uint64_t stuck = after->stats.quarantined_bytes - before->stats.quarantined_bytes;
    bool is_stuck = after->counts.quarantined != before->counts.quarantined;
    CHECK(stuck == 0 || is_stuck, "%s: bytes are in quarantine without an object", when);
    same(before->stats.capacity_bytes, after->stats.capacity_bytes, "capacity bytes", when);
    same(before->stats.live_bytes, after->stats.live_bytes, "live bytes", when);
    same(before->stats.pending_bytes, after->stats.pending_bytes, "pending bytes", when);
    same(before->stats.leased_bytes, after->stats.leased_bytes, "leased bytes", when);
    same(before->stats.set_aside_bytes, after->stats.set_aside_bytes, "bytes set aside", when);
    same(before->stats.holder_count, after->stats.holder_count, "holders", when);
    for (uint32_t i = 0; i < before->stats.holder_count && i < THINGS; i++)
        same_holder(&before->holders[i], &after->holders[i], is_stuck, when);
    same(before->far_stats.charged_bytes, after->far_stats.charged_bytes, "the other pool's bytes", when);
    same(before->far_stats.reserved_bytes, after->far_stats.reserved_bytes, "its reserved bytes", when);
    same(before->held_bytes + stuck, after->held_bytes, "held bytes", when);
    /* What a grant paid for and is in quarantine does not come back to it. */
    same(before->stats.free_bytes + before->stats.reserved_bytes,
         after->stats.free_bytes + after->stats.reserved_bytes + stuck, "free and reserved bytes", when);
    same(before->stats.reserved_bytes - before->grant_bytes, after->stats.reserved_bytes - after->grant_bytes,
         "reserved bytes", when);
    same(before->counts.bindings, after->counts.bindings, "bindings", when);
    same(before->counts.grants, after->counts.grants, "grants", when);
    same(before->counts.leases, after->counts.leases, "leases", when);
    same(before->counts.tickets, after->counts.tickets, "open tickets", when);
    same(before->counts.releases, after->counts.releases, "queued releases", when);
    same(before->counts.streams, after->counts.streams, "streams", when);
    if (is_stuck)
        return;
    same(before->grant_bytes, after->grant_bytes, "the grant's bytes", when);
    same(before->counts.buffers, after->counts.buffers, "buffers", when);
    same(before->counts.ranges, after->counts.ranges, "ranges", when);
    same(before->counts.segments, after->counts.segments, "segments", when);
}

void world_check_witnesses(struct world *world)
{
    struct moor_view view;
    if (!world->witness)
        return;
    view = world_buffer_view(world, world->witness);
    if (world->domain.capabilities & MOOR_ABI_CAP_COPY)
        world_expect_full_of(world, &view, WITNESS);
    EXPECT(MOOR_STALE, moor_buffer_get_view(world->runtime, world->stale_buffer, &view));
    EXPECT(MOOR_STALE, moor_buffer_release(world->runtime, world->stale_buffer));
    if (world->stale_range)
        EXPECT(MOOR_STALE, moor_range_get_view(world->runtime, world->stale_range, &view));
    if (world->stale_segment)
        EXPECT(MOOR_STALE, moor_segment_release(world->runtime, world->stale_segment));
}

/* ---- memory ---- */

struct moor_view world_buffer_view(struct world *world, moor_buffer buffer)
{
    struct moor_view view = {0};
    MUST(moor_buffer_get_view(world->runtime, buffer, &view));
    return view;
}

struct moor_view world_range_view(struct world *world, moor_range range, uint64_t first, uint64_t granules)
{
    struct moor_view whole = {0}, view = {0};
    MUST(moor_range_get_view(world->runtime, range, &whole));
    MUST(moor_view_slice(&whole, first * world->granule, granules * world->granule, &view));
    return view;
}

void world_fill(struct world *world, const struct moor_view *view, uint8_t value)
{
    MUST(moor_fill(world->stream, view, value, 1));
}

bool world_is_full_of(struct world *world, const struct moor_view *view, uint8_t value)
{
    unsigned char *bytes = malloc(view->size_bytes);
    struct moor_view copy = moor_view_host(bytes, view->size_bytes);
    struct moor_fence fence;
    CHECK(bytes, "no memory for the test itself");
    MUST(moor_memory_wait(view, MOOR_FOREVER));
    MUST(moor_copy(world->stream, &copy, view));
    MUST(moor_stream_record(world->stream, &fence));
    MUST(moor_fence_wait(&fence, MOOR_FOREVER));
    bool full = bytes[0] == value && memcmp(bytes, bytes + 1, view->size_bytes - 1) == 0;
    free(bytes);
    return full;
}

void world_expect_full_of(struct world *world, const struct moor_view *view, uint8_t value)
{
    CHECK(world_is_full_of(world, view, value), "bytes at %#llx are not all %#x",
          (unsigned long long)view->address, value);
}
