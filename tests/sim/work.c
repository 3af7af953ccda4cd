/* SPDX-License-Identifier: MIT */
/*
 * Work on memory: its targets, its order, and the probe behind it. The simulated host orders its own work, so
 * disorder is an error of the library or of the device.
 */
#include "world.h"

#include <string.h>

/* ---- targets ---- */

static const struct sim_buffer *buffer_at(const struct sim_world *world, uint64_t thing)
{
    uint32_t index = thing & 0xff;
    bool good =
        sim_thing_of(thing) == SIM_THING_BUFFER && index < SIM_BUFFERS && world->buffers[index].handle;
    return good ? &world->buffers[index] : NULL;
}

static const struct sim_range *range_at(const struct sim_world *world, uint64_t thing)
{
    uint32_t index = thing & 0xff;
    bool good = sim_thing_of(thing) == SIM_THING_RANGE && index < SIM_RANGES && world->ranges[index].handle;
    return good ? &world->ranges[index] : NULL;
}

uint32_t sim_thing_units(const struct sim_world *world, uint64_t thing)
{
    const struct sim_buffer *buffer = buffer_at(world, thing);
    if (buffer)
        return buffer->units;
    const struct sim_range *range = range_at(world, thing);
    if (range)
        return range->count;
    return sim_thing_of(thing) == SIM_THING_AREA && (thing & 0xff) < SIM_AREAS ? SIM_UNITS : 0;
}

static void judge_granule(const struct sim_world *world, int range, uint32_t index, struct sim_target *target)
{
    const struct sim_granule *granule = &world->ranges[range].granules[index];
    if (granule->state == SIM_LEAVING) {
        sim_must(&target->read, MOOR_PENDING);
        sim_must(&target->write, MOOR_PENDING);
        if (sim_release_may_be_done(world, sim_leaving(world, range, index))) {
            sim_may(&target->read, MOOR_INVALID);
            sim_may(&target->write, MOOR_INVALID);
        }
    } else if (granule->state == SIM_FREE) {
        sim_must(&target->read, MOOR_INVALID);
        sim_must(&target->write, MOOR_INVALID);
    } else if (granule->state == SIM_MAPPED && !granule->writable) {
        sim_must(&target->write, MOOR_INVALID);
    }
}

static struct sim_block *block_of(struct sim_world *world, struct sim_granule *granule)
{
    if (granule->state == SIM_COMMITTED)
        return &granule->block;
    return granule->state == SIM_MAPPED ? &world->segments[granule->segment].blocks[granule->index] : NULL;
}

static struct sim_unit unit_of(struct sim_world *world, uint64_t thing, uint32_t index)
{
    uint32_t at = thing & 0xff;
    if (sim_thing_of(thing) == SIM_THING_AREA)
        return (struct sim_unit){NULL, &world->areas[at].blocks[index]};
    if (sim_thing_of(thing) == SIM_THING_RANGE) {
        struct sim_granule *granule = &world->ranges[at].granules[index];
        return (struct sim_unit){&granule->own, block_of(world, granule)};
    }
    struct sim_buffer *buffer = &world->buffers[at];
    struct sim_block *blocks = buffer->area == SIM_NONE ? buffer->blocks : world->areas[buffer->area].blocks;
    return (struct sim_unit){&buffer->own[index], &blocks[index]};
}

bool sim_target_get(struct sim_world *world, uint64_t thing, uint32_t first, uint32_t count,
                    struct sim_target *target)
{
    uint32_t units = sim_thing_units(world, thing);
    if (count == 0 || first >= units || count > units - first)
        return false;
    const struct sim_buffer *buffer = buffer_at(world, thing);
    const struct sim_range *range = range_at(world, thing);
    target->read = target->write = (struct sim_verdict){0};
    target->first = first;
    target->count = count;
    target->area = buffer ? buffer->area : range ? SIM_NONE : (int)(thing & 0xff);
    target->unit_bytes = buffer  ? buffer->unit_bytes
                         : range ? range->granule_bytes
                                 : world->geometry.granule_bytes;
    struct moor_view whole =
        buffer  ? buffer->view
        : range ? range->view
                : moor_view_host(world->areas[target->area].memory, SIM_UNITS * target->unit_bytes);
    moor_status status =
        moor_view_slice(&whole, first * target->unit_bytes, count * target->unit_bytes, &target->view);
    if (!sim_expect_ok(world, "a part of a view", status))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        target->units[i] = unit_of(world, thing, first + i);
        if (range)
            judge_granule(world, (int)(thing & 0xff), first + i, target);
    }
    return true;
}

void sim_read(struct sim_world *world, const struct sim_target *target)
{
    const unsigned char *memory = (const unsigned char *)(uintptr_t)target->view.address;
    for (uint32_t i = 0; world->host_access && i < target->count; i++) {
        int16_t value = target->units[i].block->value;
        uint64_t at = i * target->unit_bytes, last = at + target->unit_bytes - 1;
        if (value == SIM_UNKNOWN)
            continue;
        sim_check(world, memory[at] == value, "the first byte of a unit", (uint64_t)value, memory[at]);
        sim_check(world, memory[last] == value, "the last byte of a unit", (uint64_t)value, memory[last]);
    }
}

/* ---- order ---- */

/* Records a fence behind all work of the stream. */
static bool fence_of(struct sim_world *world, struct sim_stream *stream)
{
    if (stream->fence_place == stream->submitted)
        return true;
    if (!sim_expect_ok(world, "a record", moor_stream_record(stream->stream, &stream->fence)))
        return false;
    stream->fence_place = stream->recorded = stream->submitted;
    return true;
}

/* A destroyed stream has no fences. Its work must be done, and a reap must have seen that. */
static bool observe_closed(struct sim_world *world, struct sim_stream *stream)
{
    if (stream->done < stream->submitted)
        return false;
    if (!stream->seen_closed) {
        (void)moor_runtime_reap(world->runtime, MOOR_NO_WAIT); /* other checks cover the pending releases */
        sim_reaped(world);
        stream->seen_closed = true;
    }
    return true;
}

static bool order_behind(struct sim_world *world, struct sim_stream *stream, uint32_t other, uint32_t serial,
                         uint32_t place)
{
    struct sim_stream *before = &world->streams[other];
    if (before == stream || before->serial != serial)
        return true;
    if (stream->ordered_serial[other] == serial && stream->ordered[other] >= place)
        return true;
    if (before->state == SIM_STREAM_CLOSED)
        return observe_closed(world, before);
    if (!fence_of(world, before) || !sim_expect_ok(world, "a wait of a stream for another",
                                                   moor_stream_wait(stream->stream, &before->fence)))
        return false;
    stream->ordered_serial[other] = serial;
    stream->ordered[other] = before->fence_place;
    return true;
}

bool sim_order(struct sim_world *world, int index, const struct sim_target *target, bool writes)
{
    for (uint32_t i = 0; i < target->count; i++) {
        const struct sim_uses *uses = &target->units[i].block->uses;
        for (uint32_t left = uses->streams; left != 0; left &= left - 1) {
            uint32_t other = (uint32_t)__builtin_ctz(left);
            if ((!writes && !uses->of[other].writes) ||
                order_behind(world, &world->streams[index], other, uses->of[other].serial,
                             uses->of[other].place))
                continue;
            sim_probe(world, index); /* behind the waits that were just submitted */
            return false;
        }
    }
    return true;
}

/* ---- submission ---- */

bool sim_stream_has_room(const struct sim_world *world, int stream)
{
    const struct sim_stream *it = &world->streams[stream];
    return it->submitted - it->done < SIM_IN_FLIGHT - 1;
}

static void check_area(struct sim_world *world, const struct sim_stream *stream, uint32_t slot)
{
    if (stream->probes[slot].area == SIM_NONE)
        return;
    const unsigned char *memory = world->areas[stream->probes[slot].area].memory;
    uint64_t unit_bytes = world->geometry.granule_bytes;
    for (uint32_t i = 0; i < stream->probes[slot].count; i++) {
        uint64_t at = (stream->probes[slot].first + i) * unit_bytes;
        int16_t value = stream->probes[slot].values[i];
        if (value == SIM_UNKNOWN)
            continue;
        sim_check(world, memory[at] == value, "the first byte that a copy brought", (uint64_t)value,
                  memory[at]);
        sim_check(world, memory[at + unit_bytes - 1] == value, "the last byte that a copy brought",
                  (uint64_t)value, memory[at + unit_bytes - 1]);
    }
}

/* Runs in stream order when the clock advances. */
static void run_probe(void *user)
{
    struct sim_stream *stream = user;
    stream->done++;
    sim_check(stream->world, stream->done <= stream->submitted, "probes that have run", stream->submitted,
              stream->done);
    check_area(stream->world, stream, stream->done % SIM_IN_FLIGHT);
}

static void submit_probe(struct sim_world *world, struct sim_stream *stream, const struct sim_target *brought)
{
    uint32_t slot = ++stream->submitted % SIM_IN_FLIGHT;
    stream->seen_closed = false;
    stream->probes[slot].area = brought ? brought->area : SIM_NONE;
    if (brought) {
        stream->probes[slot].first = brought->first;
        stream->probes[slot].count = brought->count;
        for (uint32_t i = 0; i < brought->count; i++)
            stream->probes[slot].values[i] = brought->units[i].block->value;
    }
    (void)sim_expect_ok(world, "a probe",
                        moor_stream_host_function(stream->stream, run_probe, stream, NULL, 0));
}

void sim_probe(struct sim_world *world, int stream)
{
    submit_probe(world, &world->streams[stream], NULL);
}

void sim_submitted(struct sim_world *world, int index, const struct sim_target *targets, size_t count,
                   const bool *writes)
{
    struct sim_stream *stream = &world->streams[index];
    const struct sim_target *brought = NULL;
    world->now.effective = true;
    for (size_t t = 0; t < count; t++) {
        for (uint32_t i = 0; i < targets[t].count; i++) {
            const struct sim_unit *unit = &targets[t].units[i];
            if (unit->own)
                sim_uses_add(unit->own, stream, index, stream->submitted + 1, writes[t]);
            sim_uses_add(&unit->block->uses, stream, index, stream->submitted + 1, writes[t]);
        }
        if (writes[t] && targets[t].area != SIM_NONE)
            brought = &targets[t];
    }
    submit_probe(world, stream, brought);
}
