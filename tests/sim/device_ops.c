/* SPDX-License-Identifier: MIT */
/* Operations on more than one piece of memory: reaping, quarantine, the device's surroundings, loading,
 * unloading. */
#include "draw.h"
#include "memory.h"

#include <sched.h>
#include <string.h>

#define STREAM_REAPS 8

/* ---- reaping ---- */

static bool draw_reap(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    (void)world;
    op->arg[0] = sim_one_in(random, 8) ? 1 : 0;
    return true;
}

/* Returns true if a reap could wait for destroyed streams alone: the device is idle, so no wait advances the
 * clock. */
static bool is_waiting_for_streams(const struct sim_world *world)
{
    for (int i = 0; i < SIM_STREAMS; i++)
        if (world->streams[i].state == SIM_STREAM_CLOSED &&
            world->streams[i].done < world->streams[i].submitted)
            return true;
    return false;
}

static void judge_reap(const struct sim_world *world, struct sim_verdict *verdict)
{
    sim_may(verdict, MOOR_PENDING); /* destroyed streams need several reaps */
    for (uint32_t i = 0; i < world->release_count; i++)
        if (!world->releases[i].stuck && !world->releases[i].kept &&
            !sim_release_may_be_done(world, &world->releases[i]))
            sim_must(verdict, MOOR_PENDING);
    if (is_waiting_for_streams(world))
        sim_must(verdict, MOOR_PENDING);
}

/* Destroyed streams need several reaps. If nothing else is pending they are freed, unless a thread of the
 * runtime is inspecting them. */
static bool reaps_again(struct sim_world *world, int reaps)
{
    struct moor_object_counts counts = {0};
    if (reaps < STREAM_REAPS)
        return true;
    (void)sched_yield();
    return moor_runtime_get_counts(world->runtime, &counts) == MOOR_OK && counts.releases == 0;
}

static void run_reap(struct sim_world *world, const struct sim_op *op)
{
    uint64_t deadline = is_waiting_for_streams(world) ? MOOR_NO_WAIT : sim_deadline(world, op->arg[0]);
    struct sim_verdict verdict = {0};
    if (!deadline)
        judge_reap(world, &verdict);
    sim_begin(world, op, &verdict);
    moor_status status = moor_runtime_reap(world->runtime, deadline);
    for (int reaps = 0; status == MOOR_PENDING && !verdict.must && reaps_again(world, reaps); reaps++) {
        world->now.error_before = *moor_last_error();
        status = moor_runtime_reap(world->runtime, deadline);
    }
    bool all = sim_end(world, op, status, &verdict);
    sim_reaped(world);
    for (uint32_t i = world->release_count; all && i-- > 0;) {
        if (world->releases[i].stuck || world->releases[i].kept)
            continue;
        /* The reap reports that nothing is pending, so every release must be possibly done. */
        sim_check(world, sim_release_may_be_done(world, &world->releases[i]), "releases that are not due", 0,
                  1);
        sim_release_gone(world, i);
    }
}

const struct sim_kind_info sim_kind_reap = {"reap", {"wait"}, {0}, draw_reap, run_reap};

/* ---- quarantine ---- */

static bool draw_fail_free(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    static const enum sim_kind kinds[] = {SIM_RELEASE_BUFFER, SIM_DECOMMIT, SIM_UNMAP, SIM_RELEASE_SEGMENT};
    struct sim_op release = {.kind = kinds[sim_below(random, 4)]};
    if (!sim_kinds[release.kind]->draw(world, random, &release))
        return false;
    op->arg[0] = release.kind;
    for (int i = 0; i < 3; i++)
        op->arg[i + 1] = release.arg[i];
    return true;
}

/* Returns true if no other release can be freed next, so that the fault hits the wanted one. */
static bool is_quiet(struct sim_world *world)
{
    (void)moor_runtime_reap(world->runtime, MOOR_NO_WAIT); /* the pending releases are inspected next */
    sim_reaped(world);
    for (uint32_t i = 0; i < world->release_count; i++)
        if (sim_release_may_be_done(world, &world->releases[i]))
            return false;
    return true;
}

/* Makes the device fail when the release is freed in the next reap: the library then quarantines it. */
static void free_fails(struct sim_world *world, struct sim_release *release)
{
    const struct moor_mock_control *control = world->control;
    struct moor_mock_fault fault = {.function = "free", .nth = 1, .times = 1, .status = MOOR_PROVIDER};
    uint64_t before = control->calls(control->mock, "free");
    if (!sim_expect_ok(world, "a fault", control->fault(control->mock, &fault)))
        return;
    /* Records made for the release are reached now. */
    (void)sim_expect_ok(world, "advance", control->advance(control->mock, 0));
    (void)moor_runtime_reap(world->runtime, MOOR_NO_WAIT); /* streams may be pending */
    release->stuck = control->calls(control->mock, "free") > before;
    (void)sim_expect_ok(world, "no faults", control->clear_faults(control->mock));
    world->now.effective = release->stuck;
    sim_reaped(world);
}

/* Returns true if the segment keeps another owner: its last mapping would release it too. */
static bool stays_owned(const struct sim_world *world, const struct sim_op *unmap)
{
    if (!sim_are_inside(world, unmap->arg[0], unmap->arg[1], 1))
        return false;
    const struct sim_granule *head = &world->ranges[unmap->arg[0]].granules[unmap->arg[1]];
    if (head->state != SIM_MAPPED)
        return false;
    return world->segments[head->segment].handle || world->segments[head->segment].mapped > 1;
}

static void run_fail_free(struct sim_world *world, const struct sim_op *op)
{
    struct sim_op release = {.kind = (uint16_t)op->arg[0], .arg = {op->arg[1], op->arg[2], op->arg[3]}};
    if (release.kind != SIM_RELEASE_BUFFER && release.kind != SIM_DECOMMIT && release.kind != SIM_UNMAP &&
        release.kind != SIM_RELEASE_SEGMENT)
        return;
    if (!is_quiet(world) || (release.kind == SIM_UNMAP && !stays_owned(world, &release)))
        return;
    uint32_t before = world->release_count;
    sim_kinds[release.kind]->run(world, &release);
    world->now.effective = false;
    if (world->release_count == before + 1 && sim_release_is_done(world, &world->releases[before]))
        free_fails(world, &world->releases[before]);
}

const struct sim_kind_info sim_kind_fail_free = {
    "fail_free", {"release", "arg0", "arg1", "arg2"}, {0}, draw_fail_free, run_fail_free};

/* ---- surroundings ---- */

static bool draw_external(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[0] = sim_below(random, world->geometry.devices);
    op->arg[1] = sim_one_in(random, 3) ? 0 : world->geometry.total_bytes / 16 * sim_below(random, 17);
    return true;
}

static void run_external(struct sim_world *world, const struct sim_op *op)
{
    if (op->arg[0] >= world->geometry.devices)
        return;
    int32_t status = world->control->set_external(world->control->mock, (uint32_t)op->arg[0], op->arg[1]);
    world->now.effective = sim_expect_ok(world, "set_external", status);
    if (world->now.effective)
        world->external[op->arg[0]] = op->arg[1];
}

const struct sim_kind_info sim_kind_external = {
    "external", {"device", "bytes"}, {0}, draw_external, run_external};

static bool draw_device_stats(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[0] = sim_below(random, world->geometry.devices);
    op->arg[1] = sim_below(random, 4);
    return true;
}

/* Implausible figures, and the true ones. */
static const struct moor_abi_stats *false_figures_of(const struct sim_world *world, uint64_t which,
                                                     struct moor_abi_stats *stats)
{
    uint64_t total = world->geometry.total_bytes;
    *stats = (struct moor_abi_stats){.struct_size = sizeof *stats,
                                     .valid = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD,
                                     .total_bytes = total};
    switch (which) {
    case 1: /* free beyond the total */
        stats->free_bytes = total + 1;
        return stats;
    case 2: /* held and free beyond the total */
        stats->free_bytes = total;
        stats->held_bytes = 1;
        return stats;
    case 3: /* held beyond the total */
        stats->held_bytes = UINT64_MAX;
        return stats;
    default:
        return NULL;
    }
}

static void run_device_stats(struct sim_world *world, const struct sim_op *op)
{
    if (op->arg[0] >= world->geometry.devices)
        return;
    const struct moor_mock_control *control = world->control;
    uint32_t device = (uint32_t)op->arg[0];
    struct moor_abi_stats false_stats;
    const struct moor_abi_stats *false_figures = false_figures_of(world, op->arg[1], &false_stats);
    struct moor_device_stats stats = {0};
    struct sim_verdict verdict = {0};
    if (!sim_expect_ok(world, "set_stats", control->set_stats(control->mock, device, false_figures)))
        return;
    sim_begin(world, op, &verdict);
    bool good = sim_end(world, op, moor_device_get_stats(world->devices[device], 0, &stats), &verdict);
    (void)sim_expect_ok(world, "set_stats", control->set_stats(control->mock, device, NULL));
    if (!good)
        return;
    sim_check(world, stats.inconsistent == (false_figures != NULL), "whether figures contradict each other",
              false_figures != NULL, stats.inconsistent);
    sim_check(world, stats.free_bytes <= stats.total_bytes, "the most that can be free", stats.total_bytes,
              stats.free_bytes);
    sim_check(world, stats.held_bytes <= stats.total_bytes - stats.free_bytes, "the most that can be held",
              stats.total_bytes - stats.free_bytes, stats.held_bytes);
    if (!false_figures)
        sim_check(world, stats.held_bytes == world->held[device], "bytes that the device says are held",
                  world->held[device], stats.held_bytes);
}

const struct sim_kind_info sim_kind_device_stats = {
    "device_stats", {"device", "lie"}, {"stats"}, draw_device_stats, run_device_stats};

/* ---- loading and ending ---- */

static void run_load(struct sim_world *world, const struct sim_op *op)
{
    struct moor_provider *provider = NULL;
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_provider_load(world->runtime, world->path, &world->load, &provider),
                 &verdict))
        return;
    sim_check(world, provider == world->provider, "one provider for one file", 1, 0);
    world->loads++;
}

const struct sim_kind_info sim_kind_load = {"load", {0}, {0}, sim_draw_nothing, run_load};

/* Returns true if an object exists that neither a reap nor a retry can end. */
static bool is_alive(const struct sim_world *world)
{
    for (uint64_t i = 0; i < SIM_STREAMS; i++)
        if (sim_stream_is_open(world, i) || sim_is_live(world, SIM_TABLE_BINDINGS, i))
            return true;
    return false;
}

static void run_unload(struct sim_world *world, const struct sim_op *op)
{
    struct sim_verdict verdict = {0};
    bool last = world->loads == 1;
    if (last && !is_alive(world))
        return; /* the end of a world covers this */
    if (last && sim_someone_waits(world))
        return; /* the retry takes its bytes for a moment */
    if (last) {
        sim_must(&verdict, MOOR_BUSY);
        sim_unstick(world, SIM_NONE); /* quarantined releases are retried first */
    }
    sim_begin(world, op, &verdict);
    if (sim_end(world, op, moor_provider_unload(world->provider), &verdict))
        world->loads--;
}

const struct sim_kind_info sim_kind_unload = {"unload", {0}, {0}, sim_draw_nothing, run_unload};

static void run_destroy_early(struct sim_world *world, const struct sim_op *op)
{
    uint64_t unused;
    struct sim_random random = {0};
    struct sim_verdict verdict = {0};
    if (!sim_draw_live(world, &random, SIM_TABLE_HOLDERS, &unused))
        return;
    sim_must(&verdict, MOOR_BUSY);
    sim_begin(world, op, &verdict);
    (void)sim_end(world, op, moor_runtime_destroy(world->runtime), &verdict);
}

const struct sim_kind_info sim_kind_destroy_early = {
    "destroy_early", {0}, {0}, sim_draw_nothing, run_destroy_early};

/* Bypasses the model, so that a test can see a run fail. No profile has this operation. */
static void run_bypass(struct sim_world *world, const struct sim_op *op)
{
    uint64_t holder = 0;
    struct sim_random random = {0};
    struct sim_verdict verdict = {0};
    if (!sim_draw_live(world, &random, SIM_TABLE_HOLDERS, &holder))
        return;
    sim_begin(world, op, &verdict);
    const struct sim_holder *it = &world->holders[holder];
    const struct moor_holder_limits limits = {.limit_bytes = it->limit == UINT64_MAX ? 0 : it->limit,
                                              .guarantee_bytes = it->guarantee,
                                              .priority = 12345};
    (void)sim_end(world, op, moor_holder_set_limits(it->holder, &limits, 0, NULL), &verdict);
}

const struct sim_kind_info sim_kind_bypass = {"bypass", {0}, {0}, sim_draw_nothing, run_bypass};
