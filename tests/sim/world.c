/* SPDX-License-Identifier: MIT */
/* The creation and the end of a world. */
#include "draw.h"

#include <moorage/runtime.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_REAPS_MAX 10000

/* ---- loading ---- */

static void set(struct sim_settings *settings, const char *key, const char *value)
{
    settings->list[settings->count++] = (struct moor_setting){key, value};
}

static void set_number(struct sim_settings *settings, const char *key, uint64_t value)
{
    char *text = settings->values[settings->count];
    (void)snprintf(text, sizeof settings->values[0], "%llu", (unsigned long long)value);
    set(settings, key, text);
}

static void describe(const struct sim_geometry *geometry, uint64_t seed, struct sim_settings *settings)
{
    set_number(settings, "devices", geometry->devices);
    set_number(settings, "total_bytes", geometry->total_bytes);
    set_number(settings, "granule_bytes", geometry->granule_bytes);
    set_number(settings, "granule_min_bytes", geometry->granule_bytes);
    set(settings, "pool", geometry->shared_pool ? "shared" : "own");
    set(settings, "clock", "virtual");
    set_number(settings, "seed", seed & UINT32_MAX);
    set_number(settings, "strict", 1);
    /* Each kind of work takes a different time, so that streams overtake each other. */
    set_number(settings, "cost_kernel_ns", 700);
    set_number(settings, "cost_copy_ns_per_mib", 200000);
    set_number(settings, "cost_fill_ns_per_mib", 90000);
    set_number(settings, "cost_host_function_ns", 50);
}

/* From here on the device's clock advances only by calls of this thread, not by the runtime's threads. */
static moor_status drive(struct moor_provider *provider)
{
    const void *table = NULL;
    moor_status status =
        moor_provider_get_extension(provider, MOOR_MOCK_DRIVE, MOOR_MOCK_DRIVE_VERSION, &table);
    const struct moor_mock_drive *extension = table;
    return status ? status : extension->take(extension->mock);
}

static bool load(struct sim_world *world)
{
    if (!sim_expect_ok(world, "a runtime", moor_runtime_create(NULL, &world->runtime)))
        return false;
    moor_status status = moor_provider_load(world->runtime, world->path, &world->load, &world->provider);
    if (status != MOOR_OK) {
        sim_fail(world, "the provider was not loaded: %s", moor_last_error()->text);
        return false;
    }
    const void *table = NULL;
    status =
        moor_provider_get_extension(world->provider, MOOR_MOCK_CONTROL, MOOR_MOCK_CONTROL_VERSION, &table);
    world->control = table;
    world->loads = 1;
    return sim_expect_ok(world, "the mock's control table", status) &&
           sim_expect_ok(world, "driving the device", drive(world->provider));
}

/* ---- devices and their pools ---- */

static bool find_devices(struct sim_world *world)
{
    for (uint32_t i = 0; i < world->geometry.devices; i++) {
        struct moor_authority *authority = NULL;
        struct moor_abi_domain_info info;
        if (!sim_expect_ok(world, "a device",
                           moor_provider_get_device(world->provider, i, &world->devices[i])) ||
            !sim_expect_ok(world, "a domain", moor_device_get_domain_info(world->devices[i], 0, &info)) ||
            !sim_expect_ok(world, "an authority",
                           moor_device_get_authority(world->devices[i], 0, &authority)))
            return false;
        world->host_access = info.flags & MOOR_ABI_DOMAIN_HOST_ACCESS;
        int of = 0;
        while (of < (int)i && world->authorities[of].authority != authority)
            of++;
        if (of == (int)i)
            world->authorities[i] =
                (struct sim_authority){.authority = authority, .capacity = info.total_bytes};
        world->authority_of[i] = of;
    }
    return true;
}

static bool make_areas(struct sim_world *world)
{
    for (int i = 0; i < SIM_AREAS; i++) {
        struct sim_area *area = &world->areas[i];
        uint64_t unit_bytes = world->geometry.granule_bytes;
        area->memory = aligned_alloc(unit_bytes, SIM_UNITS * unit_bytes);
        if (!area->memory) {
            sim_fail(world, "no memory for the host's areas");
            return false;
        }
        for (int j = 0; j < SIM_UNITS; j++) {
            area->blocks[j].value = (int16_t)(16 * i + j);
            memset(area->memory + (uint64_t)j * unit_bytes, area->blocks[j].value, unit_bytes);
        }
    }
    return true;
}

bool sim_world_create(struct sim_world *world, const char *path, const struct sim_geometry *geometry,
                      uint64_t seed, const struct sim_foreign *foreign)
{
    memset(world, 0, sizeof *world);
    describe(geometry, seed, &world->settings);
    world->geometry = *geometry;
    world->foreign = foreign;
    world->path = path;
    world->load =
        (struct moor_load_options){.settings = world->settings.list, .setting_count = world->settings.count};
    return load(world) && find_devices(world) && make_areas(world);
}

/* ---- the end ---- */

static void run(struct sim_world *world, enum sim_kind kind, uint64_t arg, uint64_t more)
{
    struct sim_op op = {.kind = kind, .arg = {arg, more}};
    memset(world->places, 0, sizeof world->places);
    sim_kinds[kind]->run(world, &op);
    sim_settle(world);
    sim_check_accounts(world);
}

static void run_all(struct sim_world *world, enum sim_kind kind, uint64_t count)
{
    for (uint64_t i = 0; i < count && world->failure[0] == '\0'; i++)
        run(world, kind, i, 0);
}

void sim_run_dry(struct sim_world *world)
{
    uint32_t ran = 1;
    while (ran && sim_expect_ok(world, "step", world->control->step(world->control->mock, &ran)))
        ;
}

void sim_let_run(struct sim_world *world)
{
    for (uint64_t i = 0; i < SIM_STREAMS; i++)
        if (world->streams[i].held)
            run(world, SIM_OPEN, i, 0);
    sim_run_dry(world);
    run(world, SIM_REAP, 0, 0);
}

static void check_nothing_left(struct sim_world *world)
{
    uint64_t allocations = 1, ranges = 1, segments = 1, streams = 1, releases = 1;
    int32_t status =
        world->control->objects(world->control->mock, &allocations, &ranges, &segments, &streams, &releases);
    (void)sim_expect_ok(world, "objects", status);
    sim_check(world, allocations == 0, "allocations at the end", 0, allocations);
    sim_check(world, ranges == 0, "ranges at the end", 0, ranges);
    sim_check(world, segments == 0, "segments at the end", 0, segments);
    sim_check(world, streams == 0, "streams at the end", 0, streams);
    sim_check(world, releases == 0, "releases at the end", 0, releases);
    for (uint32_t i = 0; i < world->geometry.devices; i++)
        sim_check(world, world->held[i] == 0, "bytes held at the end", 0, world->held[i]);
}

/* Destroyed streams need several reaps, and a thread of the runtime may be inspecting them. No check is
 * counted, because the number of reaps depends on time. */
static void retire_streams(struct sim_world *world)
{
    struct moor_object_counts counts = {.streams = 1};
    for (int reaps = 0; counts.streams > 0 && reaps < STREAM_REAPS_MAX; reaps++) {
        /* the end of the world shows the remaining objects */
        (void)moor_runtime_reap(world->runtime, MOOR_NO_WAIT);
        (void)sched_yield();
        (void)moor_runtime_get_counts(world->runtime, &counts);
    }
}

void sim_world_end(struct sim_world *world)
{
    retire_streams(world);
    check_nothing_left(world);
    for (int i = 0; i < SIM_AREAS; i++)
        free(world->areas[i].memory);
    for (; world->loads > 0 && world->failure[0] == '\0'; world->loads--)
        (void)sim_expect_ok(world, "unload at the end", moor_provider_unload(world->provider));
    if (world->failure[0] == '\0')
        (void)sim_expect_ok(world, "the runtime's end", moor_runtime_destroy(world->runtime));
}

void sim_world_destroy(struct sim_world *world)
{
    run_all(world, SIM_TICKET_CANCEL, SIM_TICKETS);
    for (uint64_t i = 0; i < world->geometry.devices; i++)
        run(world, SIM_CAPACITY, i, 2 * world->geometry.total_bytes); /* no holder is over it */
    sim_let_run(world);
    sim_check_all(world);
    /* The last unload retries the quarantined memory. */
    run_all(world, SIM_UNLOAD, world->loads);
    run_all(world, SIM_RELEASE_BUFFER, SIM_BUFFERS);
    run_all(world, SIM_RELEASE_RANGE, SIM_RANGES);
    run_all(world, SIM_RELEASE_SEGMENT, SIM_SEGMENTS);
    run_all(world, SIM_LEASE_REFUND, SIM_LEASES);
    run_all(world, SIM_GRANT_RELEASE, SIM_GRANTS);
    run_all(world, SIM_STREAM_DESTROY, SIM_STREAMS);
    sim_let_run(world);
    sim_check(world, world->release_count == 0, "releases when all work is done", 0, world->release_count);
    retire_streams(world);
    run_all(world, SIM_BINDING_CLOSE, SIM_BINDINGS);
    run_all(world, SIM_HOLDER_DESTROY, SIM_HOLDERS);
    for (uint64_t i = 0; i < SIM_HOLDERS; i++)
        sim_check(world, !sim_is_live(world, SIM_TABLE_HOLDERS, i), "holders that cannot be destroyed", 0, 1);
    sim_world_end(world);
}

/* ---- another runtime ---- */

bool sim_foreign_create(const char *path, struct sim_foreign *foreign, char *text, size_t text_bytes)
{
    struct moor_runtime *runtime = NULL;
    struct moor_provider *provider = NULL;
    struct moor_device *device = NULL;
    struct moor_authority *authority = NULL;
    struct moor_holder *holder = NULL;
    struct moor_binding *binding = NULL;
    static const struct moor_setting setting = {"clock", "virtual"};
    const struct moor_load_options options = {.settings = &setting, .setting_count = 1};
    uint64_t *handles = foreign->handles;
    moor_status status = moor_runtime_create(NULL, &runtime);
    if (!status)
        status = moor_provider_load(runtime, path, &options, &provider);
    if (!status)
        status = moor_provider_get_device(provider, 0, &device);
    if (!status)
        status = moor_device_get_authority(device, 0, &authority);
    if (!status)
        status = moor_holder_create(authority, NULL, &holder);
    if (!status)
        status = moor_binding_open(device, 0, holder, &binding);
    if (!status)
        status = moor_buffer_allocate(binding, 4096, NULL, &handles[SIM_HANDLE_BUFFER]);
    if (!status)
        status = moor_range_reserve(binding, 1, NULL, &handles[SIM_HANDLE_RANGE]);
    if (!status)
        status = moor_grant_reserve(holder, UINT64_C(16) << 20, MOOR_NO_WAIT, &handles[SIM_HANDLE_GRANT]);
    if (!status)
        status = moor_lease_commit(runtime, handles[SIM_HANDLE_GRANT], 1, &handles[SIM_HANDLE_LEASE]);
    if (!status)
        status = moor_ticket_open(&(struct moor_request){holder, UINT64_C(1) << 30}, 1, MOOR_FOREVER,
                                  &handles[SIM_HANDLE_TICKET]);
    struct moor_abi_domain_info info;
    if (!status)
        status = moor_device_get_domain_info(device, 0, &info);
    if (!status)
        status =
            moor_segment_create(binding, info.granule_recommended_bytes, 0, 0, &handles[SIM_HANDLE_SEGMENT]);
    if (status)
        (void)snprintf(text, text_bytes, "%s", moor_last_error()->text); /* cuts a longer text */
    return status == MOOR_OK;
}
