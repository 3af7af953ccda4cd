/* SPDX-License-Identifier: MIT */
/* The beginning and the end of runtimes, providers, bindings and holders. */
#include "scenarios.h"

#include <stdlib.h>
#include <string.h>

/* ---- runtimes and providers ---- */

static moor_status create_runtime(struct world *world)
{
    return moor_runtime_create(NULL, &world->second_runtime);
}

static void destroy_runtime(struct world *world)
{
    MUST(moor_runtime_destroy(world->second_runtime));
    world->second_runtime = NULL;
}

static moor_status unload(struct world *world)
{
    moor_status status = moor_provider_unload(world->provider);
    if (!status)
        world_forget_provider(world);
    return status;
}

static void must_unload(struct world *world)
{
    MUST(unload(world));
}

static void must_load(struct world *world)
{
    MUST(world_load(world));
}

/* A provider with an open device that has had a stream and memory, both of which are gone. */
static void prepare_unload(struct world *world)
{
    moor_buffer buffer;
    struct moor_holder *holder = world->holder;
    MUST(moor_buffer_allocate(world->binding, PAGE_BYTES, NULL, &buffer));
    MUST(moor_buffer_release(world->runtime, buffer));
    MUST(moor_buffer_release(world->runtime, world->witness));
    world->witness = 0;
    MUST(moor_stream_destroy(world->stream));
    world->stream = NULL;
    world_settle(world);
    MUST(moor_binding_close(world->binding));
    world->binding = NULL;
    world->authority = NULL;
    MUST(moor_holder_destroy(holder));
    world->holder = NULL;
}

static moor_status end_runtime(struct world *world)
{
    moor_status status = moor_runtime_destroy(world->runtime);
    if (!status) {
        world->runtime = NULL;
        world_forget_provider(world);
    }
    return status;
}

static void start_again(struct world *world)
{
    world_start_runtime(world);
    must_load(world);
}

static moor_status find(struct world *world)
{
    char *path;
    moor_status status = moor_provider_find(world->runtime, "fault", &path);
    if (!status)
        free(path);
    return status;
}

static moor_status probe(struct world *world)
{
    struct moor_setting settings[SETTINGS_MAX];
    const struct moor_load_options options = {.settings = settings,
                                              .setting_count = world_settings(world, settings)};
    return moor_provider_probe(world->runtime, world->target->fault_path, &options);
}

/* ---- the first use of a device ---- */

static void load_alone(struct world *world)
{
    struct moor_authority *authority;
    must_load(world);
    MUST(moor_provider_get_device(world->provider, 0, &world->device));
    MUST(moor_device_get_authority(world->device, 0, &authority));
    MUST(moor_holder_create(authority, NULL, &world->holder));
}

static moor_status open_device(struct world *world)
{
    return moor_binding_open(world->device, 0, world->holder, &world->second_binding);
}

static void close_second(struct world *world)
{
    MUST(moor_binding_close(world->second_binding));
    world->second_binding = NULL;
}

/* ---- bindings and accounts ---- */

/* A buffer of the binding is in quarantine. */
static void prepare_stuck(struct world *world)
{
    moor_buffer buffer;
    MUST(open_device(world));
    MUST(moor_buffer_allocate(world->second_binding, PAGE_BYTES, NULL, &buffer));
    CHECK(world->control->inject(world->control->fault,
                                 &(struct moor_fault_plan){"free", 1, 1, MOOR_PROVIDER, 0, 0}) == MOOR_OK,
          "a fault cannot be planned");
    MUST(moor_buffer_release(world->runtime, buffer));
    MUST(moor_runtime_reap(world->runtime, MOOR_FOREVER));
    CHECK(world->control->clear(world->control->fault) == MOOR_OK, "faults cannot be cleared");
}

static moor_status close_stuck(struct world *world)
{
    moor_status status = moor_binding_close(world->second_binding);
    if (!status)
        world->second_binding = NULL;
    return status;
}

static moor_status create_holder(struct world *world)
{
    const struct moor_holder_options options = {.name = "second", .limits.limit_bytes = PAGE_BYTES};
    return moor_holder_create(world->authority, &options, &world->second_holder);
}

static void destroy_holder(struct world *world)
{
    MUST(moor_holder_destroy(world->second_holder));
    world->second_holder = NULL;
}

static moor_status reserve_grant(struct world *world)
{
    return moor_grant_reserve(world->holder, PAGE_BYTES, MOOR_NO_WAIT, &world->grant);
}

static void release_grant(struct world *world)
{
    MUST(moor_grant_release(world->runtime, world->grant));
    world->grant = 0;
}

static void must_reserve_grant(struct world *world)
{
    MUST(reserve_grant(world));
}

static moor_status commit_lease(struct world *world)
{
    return moor_lease_commit(world->runtime, world->grant, PAGE_BYTES, &world->lease);
}

static void refund_lease(struct world *world)
{
    MUST(moor_lease_refund(world->runtime, world->lease));
    world->lease = 0;
    release_grant(world);
    must_reserve_grant(world);
}

static const struct scenario list[] = {
    {"runtime", 0, 0, SWEEP_BARE | SWEEP_NO_CALLS, NULL, create_runtime, destroy_runtime, NULL},
    {"find a provider", 0, 0, SWEEP_BARE | SWEEP_NO_CALLS, NULL, find, NULL, NULL},
    {"probe", 0, 0, SWEEP_BARE | SWEEP_NO_CALLS, NULL, probe, NULL, NULL},
    {"load", 0, 0, SWEEP_BARE, NULL, world_load, must_unload, NULL},
    {"unload", 0, 0, SWEEP_ENDS, prepare_unload, unload, must_load, NULL},
    {"end of the runtime", 0, 0, SWEEP_ENDS, prepare_unload, end_runtime, start_again, NULL},
    {"first use of a device", 0, 0, SWEEP_BARE, load_alone, open_device, close_second, NULL},
    {"close a binding with memory in quarantine", 0, 0, 0, prepare_stuck, close_stuck, prepare_stuck, NULL},
    {"holder", 0, 0, SWEEP_NO_CALLS, NULL, create_holder, destroy_holder, NULL},
    {"grant", 0, 0, SWEEP_NO_CALLS, NULL, reserve_grant, release_grant, NULL},
    {"lease", 0, 0, SWEEP_NO_CALLS, must_reserve_grant, commit_lease, refund_lease, NULL},
};

const struct scenarios life_scenarios = {list, sizeof list / sizeof list[0]};
