/* SPDX-License-Identifier: MIT */
/* The progress of streams, and the releases under way. */
#include "world.h"

/* ---- streams ---- */

bool sim_is_done(const struct sim_world *world, uint32_t stream, uint32_t serial, uint32_t place)
{
    const struct sim_stream *it = &world->streams[stream];
    return it->serial != serial || it->done >= place;
}

bool sim_may_be_done(const struct sim_world *world, uint32_t stream, uint32_t serial, uint32_t place)
{
    /* The probe behind a piece of work runs after the work takes effect. */
    const struct sim_stream *it = &world->streams[stream];
    return it->serial != serial || it->done + 1 >= place;
}

void sim_uses_add(struct sim_uses *uses, const struct sim_stream *stream, int index, uint32_t place,
                  bool writes)
{
    bool known = uses->streams >> index & 1 && uses->of[index].serial == stream->serial;
    uses->streams |= UINT32_C(1) << index;
    uses->of[index].writes = writes || (known && uses->of[index].writes);
    uses->of[index].serial = stream->serial;
    uses->of[index].place = place;
}

void sim_uses_pending(const struct sim_world *world, const struct sim_uses *uses, bool exact,
                      struct sim_verdict *verdict)
{
    for (uint32_t left = uses->streams; left != 0; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        const struct sim_stream *stream = &world->streams[i];
        if (stream->serial != uses->of[i].serial ||
            (stream->recorded >= uses->of[i].place && stream->done >= stream->recorded))
            continue;
        if (exact && !sim_may_be_done(world, i, uses->of[i].serial, uses->of[i].place))
            sim_must(verdict, MOOR_PENDING);
        else
            sim_may(verdict,
                    MOOR_PENDING); /* the library may also wait for later work, and for a new record */
    }
}

/* ---- releases ---- */

struct sim_release *sim_release_add(struct sim_world *world, enum sim_release_kind kind, int binding,
                                    uint64_t bytes, uint64_t requested)
{
    struct sim_binding *of = &world->bindings[binding];
    if (world->release_count == SIM_RELEASES) {
        sim_fail(world, "the simulation's list of releases is full");
        world->release_count--;
    }
    struct sim_release *release = &world->releases[world->release_count++];
    release->kind = kind;
    release->stuck = release->kept = false;
    release->binding = binding;
    release->holder = of->holder;
    release->bytes = bytes;
    release->requested = requested;
    release->range = SIM_NONE;
    release->segment = SIM_NONE;
    release->streams = 0;
    release->fresh = true;
    world->holders[of->holder].live -= bytes;
    world->holders[of->holder].requested -= requested;
    world->live[of->device] -= bytes;
    return release;
}

static void behind(struct sim_release *release, uint32_t stream, uint32_t serial, uint32_t earliest,
                   uint32_t latest)
{
    bool known = release->streams >> stream & 1 && release->of[stream].serial == serial;
    release->streams |= UINT32_C(1) << stream;
    if (!known) {
        release->of[stream].earliest = 0;
        release->of[stream].latest = 0;
    }
    release->of[stream].serial = serial;
    if (earliest > release->of[stream].earliest)
        release->of[stream].earliest = earliest;
    if (latest > release->of[stream].latest)
        release->of[stream].latest = latest;
}

void sim_release_behind(const struct sim_world *world, struct sim_release *release,
                        const struct sim_uses *uses, bool exact)
{
    for (uint32_t left = uses->streams; left != 0; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        /* Finished uses count too: a release that is retried may wait for later work. */
        if (uses->of[i].serial == world->streams[i].serial)
            behind(release, i, uses->of[i].serial, exact ? uses->of[i].place : 0,
                   world->streams[i].submitted);
    }
}

void sim_release_behind_other(struct sim_release *release, const struct sim_release *other, bool exact)
{
    for (uint32_t left = other->streams; left != 0; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        behind(release, i, other->of[i].serial, exact ? other->of[i].earliest : 0, other->of[i].latest);
    }
}

bool sim_release_may_be_done(const struct sim_world *world, const struct sim_release *release)
{
    for (uint32_t left = release->streams; left != 0; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        if (!sim_may_be_done(world, i, release->of[i].serial, release->of[i].earliest))
            return false;
    }
    return !release->stuck && !release->kept;
}

bool sim_release_is_done(const struct sim_world *world, const struct sim_release *release)
{
    for (uint32_t left = release->streams; left != 0; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        if (!sim_is_done(world, i, release->of[i].serial, release->of[i].latest))
            return false;
    }
    return !release->stuck && !release->kept;
}

void sim_tick(struct sim_world *world)
{
    (void)sim_expect_ok(world, "advance", world->control->advance(world->control->mock, 0));
    for (uint32_t i = 0; i < world->release_count; i++)
        world->releases[i].fresh = false;
}

void sim_release_gone(struct sim_world *world, uint32_t index)
{
    struct sim_release *release = &world->releases[index];
    if (release->range != SIM_NONE)
        for (uint32_t i = 0; i < release->count; i++)
            world->ranges[release->range].granules[release->first + i].state = SIM_FREE;
    if (index != --world->release_count)
        *release = world->releases[world->release_count];
}

void sim_reaped(struct sim_world *world)
{
    for (uint32_t i = world->release_count; i-- > 0;)
        if (sim_release_is_done(world, &world->releases[i]))
            sim_release_gone(world, i);
}

/* The release is submitted again: behind all work of its streams, and behind new uses of the range. */
static void submit_again(struct sim_world *world, struct sim_release *release)
{
    release->stuck = false;
    for (uint32_t left = release->streams; left != 0; left &= left - 1) {
        uint32_t stream = (uint32_t)__builtin_ctz(left);
        release->of[stream].latest = world->streams[stream].submitted;
    }
    for (uint32_t i = 0; release->range != SIM_NONE && i < world->ranges[release->range].count; i++)
        sim_release_behind(world, release, &world->ranges[release->range].granules[i].own, false);
}

/* A segment follows its mappings. The model does not know which, so it takes all. */
static void follow_mappings(struct sim_world *world, struct sim_release *segment)
{
    segment->kept = false;
    for (uint32_t i = 0; i < world->release_count; i++)
        if (world->releases[i].kind == SIM_GONE_MAPPING)
            sim_release_behind_other(segment, &world->releases[i], false);
}

static bool is_on(const struct sim_world *world, const struct sim_release *release, int device)
{
    return device == SIM_NONE || world->bindings[release->binding].device == device;
}

void sim_unstick(struct sim_world *world, int device)
{
    for (uint32_t i = 0; i < world->release_count; i++)
        if (world->releases[i].stuck && is_on(world, &world->releases[i], device))
            submit_again(world, &world->releases[i]);
    for (uint32_t i = 0; i < world->release_count; i++)
        if (world->releases[i].kept && is_on(world, &world->releases[i], device))
            follow_mappings(world, &world->releases[i]);
}

const struct sim_release *sim_leaving(const struct sim_world *world, int range, uint32_t granule)
{
    for (uint32_t i = 0; i < world->release_count; i++) {
        const struct sim_release *release = &world->releases[i];
        if (release->range == range && granule >= release->first && granule < release->first + release->count)
            return release;
    }
    return NULL;
}

void sim_granules_gone(struct sim_world *world, int range, uint32_t first, uint32_t count)
{
    for (uint32_t i = world->release_count; i-- > 0;) {
        const struct sim_release *release = &world->releases[i];
        if (release->range == range && release->first < first + count &&
            first < release->first + release->count)
            sim_release_gone(world, i);
    }
}

void sim_segment_drop(struct sim_world *world, int index)
{
    struct sim_segment *segment = &world->segments[index];
    uint64_t bytes = segment->count * segment->granule_bytes;
    struct sim_release *release = sim_release_add(world, SIM_GONE_SEGMENT, segment->binding, bytes, bytes);
    world->holders[release->holder].shared -= bytes;
    for (uint32_t i = 0; i + 1 < world->release_count; i++)
        if (world->releases[i].segment == index) {
            sim_release_behind_other(release, &world->releases[i], true);
            release->kept |= world->releases[i].stuck;
            world->releases[i].segment = SIM_NONE;
        }
    world->bindings[segment->binding].live--;
    segment->used = false;
}

/* ---- pending bytes ---- */

static void add_pending(const struct sim_world *world, const struct sim_release *release,
                        struct sim_pending *pending)
{
    if (release->stuck || release->kept)
        return;
    pending->most += release->bytes;
    pending->least += sim_release_may_be_done(world, release) ? 0 : release->bytes;
}

struct sim_pending sim_pending_of_holder(const struct sim_world *world, int holder)
{
    struct sim_pending pending = {0};
    for (uint32_t i = 0; i < world->release_count; i++)
        if (world->releases[i].holder == holder)
            add_pending(world, &world->releases[i], &pending);
    return pending;
}

struct sim_pending sim_requested_of_holder(const struct sim_world *world, int holder)
{
    struct sim_pending requested = {0};
    for (uint32_t i = 0; i < world->release_count; i++) {
        const struct sim_release *release = &world->releases[i];
        if (release->holder != holder)
            continue;
        requested.most += release->requested;
        requested.least += sim_release_may_be_done(world, release) ? 0 : release->requested;
    }
    return requested;
}

uint64_t sim_quarantined_of_holder(const struct sim_world *world, int holder)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < world->release_count; i++)
        if (world->releases[i].holder == holder && (world->releases[i].stuck || world->releases[i].kept))
            bytes += world->releases[i].bytes;
    return bytes;
}

void sim_forget_handle(struct sim_world *world, enum sim_handle_kind kind, uint64_t handle)
{
    world->stale[world->stale_count++ % SIM_STALE] = (struct sim_stale){kind, handle};
}
