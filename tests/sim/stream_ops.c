/* SPDX-License-Identifier: MIT */
/* Streams, fences, and the clock. */
#include "draw.h"

#include <string.h>

static bool draw_stream_create(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[1] = sim_below(random, world->geometry.devices);
    return sim_draw_free(world, random, SIM_TABLE_STREAMS, &op->arg[0]);
}

static void run_stream_create(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_free(world, SIM_TABLE_STREAMS, op->arg[0]) || op->arg[1] >= world->geometry.devices)
        return;
    struct sim_stream *stream = &world->streams[op->arg[0]];
    struct sim_verdict verdict = {0};
    struct moor_stream *made = NULL;
    if (stream->state == SIM_STREAM_CLOSED && !stream->seen_closed) {
        (void)moor_runtime_reap(world->runtime, MOOR_NO_WAIT); /* the library reads the stream's progress */
        sim_reaped(world);
    }
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_stream_create(world->devices[op->arg[1]], NULL, &made), &verdict))
        return;
    memset(stream, 0, sizeof *stream);
    stream->state = SIM_STREAM_OPEN;
    stream->world = world;
    stream->stream = made;
    stream->device = (int)op->arg[1];
    stream->serial = ++world->serials;
    (void)sim_expect_ok(world, "the native name of a stream", moor_stream_get_native(made, &stream->native));
}

const struct sim_kind_info sim_kind_stream_create = {
    "stream_create", {"stream", "device"}, {"stream.create"}, draw_stream_create, run_stream_create};

static bool draw_one_stream(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_STREAMS, &op->arg[0]);
}

static void run_stream_destroy(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_stream_is_open(world, op->arg[0]))
        return;
    struct sim_stream *stream = &world->streams[op->arg[0]];
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_stream_destroy(stream->stream), &verdict))
        return;
    stream->state = SIM_STREAM_CLOSED;
    stream->recorded = stream->submitted;
    for (int i = 0; i < SIM_FENCES; i++)
        if (world->fences[i].live && world->fences[i].stream == (int)op->arg[0])
            world->fences[i].live = false;
}

const struct sim_kind_info sim_kind_stream_destroy = {
    "stream_destroy", {"stream"}, {"record"}, draw_one_stream, run_stream_destroy};

/* ---- the clock ---- */

static bool draw_advance(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    (void)world;
    op->arg[0] = UINT64_C(1) << sim_below(random, 20);
    return true;
}

static void run_advance(struct sim_world *world, const struct sim_op *op)
{
    world->now.effective =
        sim_expect_ok(world, "advance", world->control->advance(world->control->mock, op->arg[0]));
}

const struct sim_kind_info sim_kind_advance = {"advance", {"ns"}, {0}, draw_advance, run_advance};

static void run_step(struct sim_world *world, const struct sim_op *op)
{
    uint32_t ran = 0;
    (void)op;
    (void)sim_expect_ok(world, "step", world->control->step(world->control->mock, &ran));
    world->now.effective = ran != 0;
}

const struct sim_kind_info sim_kind_step = {"step", {0}, {0}, sim_draw_nothing, run_step};

static void run_hold(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_stream_is_open(world, op->arg[0]) || world->streams[op->arg[0]].held ||
        !sim_stream_has_room(world, (int)op->arg[0]))
        return;
    struct sim_stream *stream = &world->streams[op->arg[0]];
    if (!sim_expect_ok(world, "hold", world->control->hold(world->control->mock, stream->native)))
        return;
    stream->held = world->now.effective = true;
    world->held_streams++;
    sim_probe(world, (int)op->arg[0]);
}

const struct sim_kind_info sim_kind_hold = {"hold", {"stream"}, {0}, draw_one_stream, run_hold};

static bool draw_open(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint32_t start = sim_below(random, SIM_STREAMS);
    for (uint32_t i = 0; i < SIM_STREAMS; i++) {
        op->arg[0] = (start + i) % SIM_STREAMS;
        if (world->streams[op->arg[0]].held)
            return true;
    }
    return false;
}

static void run_open(struct sim_world *world, const struct sim_op *op)
{
    if (op->arg[0] >= SIM_STREAMS || !world->streams[op->arg[0]].held)
        return;
    struct sim_stream *stream = &world->streams[op->arg[0]];
    if (!sim_expect_ok(world, "open", world->control->open(world->control->mock, stream->native)))
        return;
    stream->held = false;
    world->now.effective = true;
    world->held_streams--;
}

const struct sim_kind_info sim_kind_open = {"open", {"stream"}, {0}, draw_open, run_open};

/* ---- fences ---- */

static bool draw_record(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[0] = sim_below(random, SIM_FENCES);
    return sim_draw_live(world, random, SIM_TABLE_STREAMS, &op->arg[1]);
}

static void run_record(struct sim_world *world, const struct sim_op *op)
{
    if (op->arg[0] >= SIM_FENCES || !sim_stream_is_open(world, op->arg[1]))
        return;
    struct sim_stream *stream = &world->streams[op->arg[1]];
    struct sim_fence fence = {.live = true, .stream = (int)op->arg[1], .place = stream->submitted};
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_stream_record(stream->stream, &fence.fence), &verdict))
        return;
    world->fences[op->arg[0]] = fence;
    stream->recorded = fence.place;
}

const struct sim_kind_info sim_kind_record = {
    "record", {"fence", "stream"}, {"record"}, draw_record, run_record};

static bool draw_fence_wait(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[1] = sim_one_in(random, 4) ? 1 : 0;
    op->arg[2] = sim_one_in(random, 16) ? 1 + sim_below(random, 1000) : 0;
    return sim_draw_live(world, random, SIM_TABLE_FENCES, &op->arg[0]);
}

static void run_fence_wait(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_FENCES, op->arg[0]))
        return;
    const struct sim_fence *fence = &world->fences[op->arg[0]];
    uint64_t deadline = sim_deadline(world, op->arg[1]);
    struct sim_verdict verdict = {0};
    if (op->arg[2]) {
        struct moor_fence ahead = {fence->fence.stream, fence->fence.value + (op->arg[2] << 32)};
        sim_must(&verdict, MOOR_INVALID); /* never recorded */
        sim_begin(world, op, &verdict);
        (void)sim_end(world, op, moor_fence_wait(&ahead, deadline), &verdict);
        return;
    }
    /* Exact, because a probe precedes the fence. */
    if (!deadline && world->streams[fence->stream].done < fence->place)
        sim_must(&verdict, MOOR_PENDING);
    sim_begin(world, op, &verdict);
    if (sim_end(world, op, moor_fence_wait(&fence->fence, deadline), &verdict))
        sim_check(world, world->streams[fence->stream].done >= fence->place, "work before a fence",
                  fence->place, world->streams[fence->stream].done);
}

const struct sim_kind_info sim_kind_fence_wait = {
    "fence_wait", {"fence", "wait", "ahead"}, {"watermark", "wait"}, draw_fence_wait, run_fence_wait};

static bool draw_stream_wait(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_STREAMS, &op->arg[0]) &&
           sim_draw_live(world, random, SIM_TABLE_FENCES, &op->arg[1]);
}

static void run_stream_wait(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_stream_is_open(world, op->arg[0]) || !sim_is_live(world, SIM_TABLE_FENCES, op->arg[1]) ||
        !sim_stream_has_room(world, (int)op->arg[0]))
        return;
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    moor_status status =
        moor_stream_wait(world->streams[op->arg[0]].stream, &world->fences[op->arg[1]].fence);
    if (sim_end(world, op, status, &verdict))
        sim_probe(world, (int)op->arg[0]);
}

const struct sim_kind_info sim_kind_stream_wait = {
    "stream_wait", {"stream", "fence"}, {"wait_stream"}, draw_stream_wait, run_stream_wait};
