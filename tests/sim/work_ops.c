/* SPDX-License-Identifier: MIT */
/* Work on memory: kernels, fills, copies, host functions. Waiting for memory, and reading it. */
#include "draw.h"

#include <string.h>

static bool draw_stream_and_thing(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_STREAMS, &op->arg[0]) &&
           sim_draw_thing(world, random, &op->arg[1], &op->arg[2], &op->arg[3]);
}

/* Gets the stream and the target of its work. */
static bool get(struct sim_world *world, const struct sim_op *op, struct sim_target *target)
{
    return sim_stream_is_open(world, op->arg[0]) && sim_stream_has_room(world, (int)op->arg[0]) &&
           sim_target_get(world, op->arg[1], (uint32_t)op->arg[2], (uint32_t)op->arg[3], target);
}

static void set_values(const struct sim_target *target, int16_t value)
{
    for (uint32_t i = 0; i < target->count; i++)
        target->units[i].block->value = value;
}

/* ---- kernels ---- */

static bool draw_kernel(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[4] = sim_below(random, 3); /* 0: read; otherwise write */
    op->arg[5] = sim_below(random, 256);
    return draw_stream_and_thing(world, random, op);
}

/* Launches on the native stream without the library, and declares the uses afterwards. */
static void run_kernel(struct sim_world *world, const struct sim_op *op)
{
    struct sim_target target;
    struct moor_mock_access accesses[SIM_GRANULES];
    bool writes = op->arg[4] != 0;
    if (!get(world, op, &target) || target.area != SIM_NONE ||
        (writes ? target.write.must : target.read.must) ||
        !sim_order(world, (int)op->arg[0], &target, writes))
        return;
    struct sim_stream *stream = &world->streams[op->arg[0]];
    for (uint32_t i = 0; i < target.count; i++) {
        int16_t value = target.units[i].block->value;
        accesses[i] = (struct moor_mock_access){
            .address = target.view.address + i * target.unit_bytes,
            .size_bytes = target.unit_bytes,
            .flags = writes                 ? MOOR_MOCK_WRITE
                     : value != SIM_UNKNOWN ? MOOR_MOCK_READ | MOOR_MOCK_EXPECT
                                            : MOOR_MOCK_READ,
            .value = writes ? (uint32_t)op->arg[5] & 0xff : (uint32_t)value & 0xff,
        };
    }
    if (!sim_expect_ok(
            world, "a kernel",
            world->control->kernel(world->control->mock, stream->native, accesses, target.count, 0)))
        return;
    if (writes)
        set_values(&target, (int16_t)(op->arg[5] & 0xff));
    (void)sim_expect_ok(world, "the mark of a kernel", moor_stream_used(stream->stream, &target.view));
    sim_submitted(world, (int)op->arg[0], &target, 1, &writes);
}

const struct sim_kind_info sim_kind_kernel = {
    "kernel", {"stream", "on@", "first", "count", "writes", "value"}, {0}, draw_kernel, run_kernel};

/* A kernel reads every other granule of a range. The host declares each granule separately: more parts than
 * the library remembers exactly. */
static bool draw_scatter(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[2] = sim_below(random, 2);
    return sim_draw_live(world, random, SIM_TABLE_STREAMS, &op->arg[0]) &&
           sim_draw_live(world, random, SIM_TABLE_RANGES, &op->arg[1]);
}

static void run_scatter(struct sim_world *world, const struct sim_op *op)
{
    struct sim_target targets[SIM_GRANULES / 2];
    struct moor_mock_access accesses[SIM_GRANULES / 2];
    static const bool reads[SIM_GRANULES / 2] = {false};
    uint32_t count = 0;
    if (!sim_stream_is_open(world, op->arg[0]) || !sim_stream_has_room(world, (int)op->arg[0]) ||
        !sim_is_live(world, SIM_TABLE_RANGES, op->arg[1]))
        return;
    uint64_t thing = sim_thing(SIM_THING_RANGE, (uint32_t)op->arg[1]);
    for (uint32_t i = 0; i + 1 < world->ranges[op->arg[1]].count; i += 2) {
        struct sim_target *target = &targets[count];
        if (!sim_target_get(world, thing, i, 1, target) || target->read.must ||
            !sim_order(world, (int)op->arg[0], target, false))
            continue;
        accesses[count++] = (struct moor_mock_access){
            .address = target->view.address, .size_bytes = target->unit_bytes, .flags = MOOR_MOCK_READ};
    }
    struct sim_stream *stream = &world->streams[op->arg[0]];
    if (count == 0 ||
        !sim_expect_ok(world, "a kernel",
                       world->control->kernel(world->control->mock, stream->native, accesses, count, 0)))
        return;
    for (uint32_t i = 0; i < count; i++)
        (void)sim_expect_ok(world, "the mark of a kernel",
                            moor_stream_used(stream->stream, &targets[op->arg[2] ? count - 1 - i : i].view));
    sim_submitted(world, (int)op->arg[0], targets, count, reads);
}

const struct sim_kind_info sim_kind_scatter = {
    "scatter", {"stream", "range", "down"}, {0}, draw_scatter, run_scatter};

/* A kernel writes through a read-only map: the device must report it. */
static bool draw_trespass(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint64_t count;
    return sim_draw_live(world, random, SIM_TABLE_STREAMS, &op->arg[0]) &&
           sim_draw_granules(world, random, SIM_MAPPED, 1, &op->arg[1], &op->arg[2], &count);
}

static void run_trespass(struct sim_world *world, const struct sim_op *op)
{
    const struct moor_mock_control *control = world->control;
    struct sim_target target;
    bool writes = true;
    uint64_t total = 0;
    uint32_t count = 0;
    if (!sim_stream_is_open(world, op->arg[0]) || !sim_stream_has_room(world, (int)op->arg[0]) ||
        !sim_is_live(world, SIM_TABLE_RANGES, op->arg[1]) ||
        !sim_target_get(world, sim_thing(SIM_THING_RANGE, (uint32_t)op->arg[1]), (uint32_t)op->arg[2], 1,
                        &target) ||
        target.read.must || !target.write.must || !sim_order(world, (int)op->arg[0], &target, writes))
        return;
    struct sim_stream *stream = &world->streams[op->arg[0]];
    struct moor_mock_access access = {
        .address = target.view.address, .size_bytes = target.unit_bytes, .flags = MOOR_MOCK_WRITE};
    (void)sim_expect_ok(world, "a kernel", control->kernel(control->mock, stream->native, &access, 1, 0));
    (void)sim_expect_ok(world, "violations", control->violations(control->mock, &total, NULL, 0, &count));
    sim_check(world, total == 1, "violations by a kernel that writes a read-only map", 1, total);
    if (total == 1)
        (void)sim_expect_ok(world, "no violations", control->clear_violations(control->mock));
    (void)sim_expect_ok(world, "the mark of a kernel", moor_stream_used(stream->stream, &target.view));
    sim_submitted(world, (int)op->arg[0], &target, 1, &writes);
}

const struct sim_kind_info sim_kind_trespass = {
    "trespass", {"stream", "range", "first"}, {0}, draw_trespass, run_trespass};

/* ---- fills ---- */

static bool draw_fill(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[4] = sim_below(random, 256);
    op->arg[5] = sim_one_in(random, 32) ? 3 : UINT64_C(1) << sim_below(random, 3);
    return draw_stream_and_thing(world, random, op);
}

static void run_fill(struct sim_world *world, const struct sim_op *op)
{
    struct sim_target target;
    if (!get(world, op, &target) || target.area != SIM_NONE)
        return;
    uint64_t pattern_bytes = op->arg[5];
    if (pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4)
        sim_must(&target.write, MOOR_INVALID);
    bool writes = true;
    if (!target.write.must && !sim_order(world, (int)op->arg[0], &target, writes))
        return;
    struct sim_stream *stream = &world->streams[op->arg[0]];
    uint64_t pattern = (op->arg[4] & 0xff) * UINT64_C(0x0101010101010101);
    sim_begin(world, op, &target.write);
    moor_status status = moor_fill(stream->stream, &target.view, pattern, (uint32_t)pattern_bytes);
    if (sim_end(world, op, status, &target.write)) {
        set_values(&target, (int16_t)(op->arg[4] & 0xff));
        sim_submitted(world, (int)op->arg[0], &target, 1, &writes);
    } else {
        sim_probe(world, (int)op->arg[0]); /* behind the waits submitted for it */
    }
}

const struct sim_kind_info sim_kind_fill = {
    "fill", {"stream", "on@", "first", "count", "value", "pattern_bytes"}, {"fill"}, draw_fill, run_fill};

/* ---- copies ---- */

static bool draw_copy(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint64_t unused;
    return sim_draw_live(world, random, SIM_TABLE_STREAMS, &op->arg[0]) &&
           sim_draw_thing(world, random, &op->arg[1], &op->arg[2], &unused) &&
           sim_draw_thing(world, random, &op->arg[3], &op->arg[4], &op->arg[5]);
}

/* Returns the value of the source's bytes [low, high), or SIM_UNKNOWN if they differ. */
static int16_t value_of(const struct sim_target *source, uint64_t low, uint64_t high)
{
    uint64_t unit = low / source->unit_bytes;
    int16_t value = source->units[unit].block->value;
    while (++unit * source->unit_bytes < high)
        if (source->units[unit].block->value != value)
            return SIM_UNKNOWN;
    return value;
}

static void copy_values(const struct sim_target *destination, const struct sim_target *source)
{
    for (uint32_t i = 0; i < destination->count; i++) {
        struct sim_block *block = destination->units[i].block;
        uint64_t low = i * destination->unit_bytes, high = low + destination->unit_bytes;
        bool whole = high <= source->view.size_bytes;
        int16_t value = value_of(source, low, whole ? high : source->view.size_bytes);
        if (whole || value != block->value)
            block->value = whole ? value : SIM_UNKNOWN;
    }
}

static bool overlap(const struct moor_view *a, const struct moor_view *b, uint64_t size_bytes)
{
    return a->address < b->address + size_bytes && b->address < a->address + size_bytes;
}

static void run_copy(struct sim_world *world, const struct sim_op *op)
{
    struct sim_target sides[2]; /* destination, source */
    static const bool writes[2] = {true, false};
    if (!sim_stream_is_open(world, op->arg[0]) || !sim_stream_has_room(world, (int)op->arg[0]) ||
        !sim_target_get(world, op->arg[3], (uint32_t)op->arg[4], (uint32_t)op->arg[5], &sides[1]) ||
        !sim_target_get(world, op->arg[1], (uint32_t)op->arg[2], 1, &sides[0]))
        return;
    uint64_t bytes = sides[1].view.size_bytes;
    uint64_t wanted = (bytes + sides[0].unit_bytes - 1) / sides[0].unit_bytes;
    uint64_t there = sim_thing_units(world, op->arg[1]) - op->arg[2];
    if (!sim_target_get(world, op->arg[1], (uint32_t)op->arg[2], (uint32_t)(wanted < there ? wanted : there),
                        &sides[0]))
        return;
    struct sim_verdict verdict = {sides[0].write.must | sides[1].read.must,
                                  sides[0].write.may | sides[1].read.may};
    if (wanted > there || overlap(&sides[0].view, &sides[1].view, bytes))
        sim_must(&verdict, MOOR_INVALID);
    for (int i = 0; i < 2 && !verdict.must; i++)
        if (!sim_order(world, (int)op->arg[0], &sides[i], writes[i]))
            return;
    sim_begin(world, op, &verdict);
    moor_status status = moor_copy(world->streams[op->arg[0]].stream, &sides[0].view, &sides[1].view);
    if (sim_end(world, op, status, &verdict)) {
        copy_values(&sides[0], &sides[1]);
        sim_submitted(world, (int)op->arg[0], sides, 2, writes);
    } else {
        sim_probe(world, (int)op->arg[0]);
    }
}

const struct sim_kind_info sim_kind_copy = {
    "copy", {"stream", "to@", "to_first", "from@", "from_first", "count"}, {"copy"}, draw_copy, run_copy};

/* ---- host functions and declared uses ---- */

static void do_nothing(void *user)
{
    (void)user;
}

static void run_host_function(struct sim_world *world, const struct sim_op *op)
{
    struct sim_target target;
    bool writes = false;
    if (!get(world, op, &target) ||
        (!target.read.must && !sim_order(world, (int)op->arg[0], &target, writes)))
        return;
    sim_begin(world, op, &target.read);
    moor_status status =
        moor_stream_host_function(world->streams[op->arg[0]].stream, do_nothing, NULL, &target.view, 1);
    if (sim_end(world, op, status, &target.read))
        sim_submitted(world, (int)op->arg[0], &target, 1, &writes);
    else
        sim_probe(world, (int)op->arg[0]);
}

const struct sim_kind_info sim_kind_host_function = {"host_function",
                                                     {"stream", "on@", "first", "count"},
                                                     {"host_function"},
                                                     draw_stream_and_thing,
                                                     run_host_function};

/* Declares a use without work, as a careful host may. It stands for all earlier work of the stream. */
static void run_used(struct sim_world *world, const struct sim_op *op)
{
    struct sim_target target;
    struct sim_verdict verdict = {0};
    if (!get(world, op, &target))
        return;
    struct sim_stream *stream = &world->streams[op->arg[0]];
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_stream_used(stream->stream, &target.view), &verdict))
        return;
    sim_probe(world, (int)op->arg[0]);
    for (uint32_t i = 0; i < target.count; i++)
        if (target.units[i].own)
            sim_uses_add(target.units[i].own, stream, (int)op->arg[0], stream->submitted, false);
}

const struct sim_kind_info sim_kind_used = {
    "used", {"stream", "on@", "first", "count"}, {0}, draw_stream_and_thing, run_used};

/* ---- waiting and reading ---- */

static bool draw_memory_wait(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[3] = sim_one_in(random, 4) ? 1 : 0;
    return sim_draw_thing(world, random, &op->arg[0], &op->arg[1], &op->arg[2]);
}

/* Adds the statuses of a wait for the target's uses. The library may also wait for other parts of the same
 * owner. */
static void judge_wait(struct sim_world *world, uint64_t thing, const struct sim_target *target,
                       struct sim_verdict *verdict)
{
    struct sim_target whole;
    if (!sim_target_get(world, thing, 0, sim_thing_units(world, thing), &whole))
        return;
    for (uint32_t i = 0; i < whole.count; i++)
        if (whole.units[i].own)
            sim_uses_pending(world, whole.units[i].own,
                             i >= target->first && i < target->first + target->count, verdict);
}

static bool wait_for(struct sim_world *world, const struct sim_op *op, const struct sim_target *target)
{
    uint64_t deadline = sim_deadline(world, op->arg[3]);
    struct sim_verdict verdict = {0};
    if (!deadline)
        judge_wait(world, op->arg[0], target, &verdict);
    sim_begin(world, op, &verdict);
    return sim_end(world, op, moor_memory_wait(&target->view, deadline), &verdict);
}

static void run_memory_wait(struct sim_world *world, const struct sim_op *op)
{
    struct sim_target target;
    if (sim_target_get(world, op->arg[0], (uint32_t)op->arg[1], (uint32_t)op->arg[2], &target))
        (void)wait_for(world, op, &target);
}

const struct sim_kind_info sim_kind_memory_wait = {"memory_wait",
                                                   {"on@", "first", "count", "wait"},
                                                   {"watermark", "wait", "record"},
                                                   draw_memory_wait,
                                                   run_memory_wait};

/* Reads memory by address after all work on it is done. */
static void run_read(struct sim_world *world, const struct sim_op *op)
{
    struct sim_target target;
    if (!sim_target_get(world, op->arg[0], (uint32_t)op->arg[1], (uint32_t)op->arg[2], &target) ||
        target.area != SIM_NONE || target.read.must || !wait_for(world, op, &target))
        return;
    sim_read(world, &target);
}

const struct sim_kind_info sim_kind_read = {
    "read", {"on@", "first", "count", "wait"}, {0}, draw_memory_wait, run_read};
