/* SPDX-License-Identifier: MIT */
/* Segments: create, map, seal, copy on write. */
#include "draw.h"
#include "memory.h"

static bool draw_create_segment(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[2] = 1 + sim_below(random, SIM_SEGMENT_GRANULES);
    op->arg[4] = sim_one_in(random, 4) ? 1 : 0;
    if (!sim_draw_live(world, random, SIM_TABLE_BINDINGS, &op->arg[1]))
        return false;
    op->arg[3] = sim_draw_grant(world, random, op->arg[1]);
    return sim_draw_free(world, random, SIM_TABLE_SEGMENTS, &op->arg[0]);
}

static void run_create_segment(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_free(world, SIM_TABLE_SEGMENTS, op->arg[0]) ||
        !sim_is_live(world, SIM_TABLE_BINDINGS, op->arg[1]) || op->arg[2] == 0 ||
        op->arg[2] > SIM_SEGMENT_GRANULES)
        return;
    uint64_t granule = world->geometry.granule_bytes << (op->arg[4] & 1);
    uint32_t count = (uint32_t)op->arg[2];
    struct sim_verdict verdict = {0};
    struct sim_request request = {0};
    moor_grant grant = 0;
    moor_segment handle = SIM_UNTOUCHED;
    int from = sim_grant_at(world, op->arg[3], &grant);
    sim_want_memory(world, &request, (int)op->arg[1], from, count * granule);
    if (!sim_request_begin(world, op, &verdict, &request, &handle))
        return;
    moor_status status =
        moor_segment_create(world->bindings[op->arg[1]].binding, count * granule, granule, grant, &handle);
    if (sim_request_end(world, op, status, &request))
        sim_create_done(world, (int)op->arg[0], handle, (int)op->arg[1], granule, count, from);
}

const struct sim_kind_info sim_kind_create_segment = {"create_segment",
                                                      {"segment", "binding", "granules", "grant", "doubled"},
                                                      {"shared.create", "reap"},
                                                      draw_create_segment,
                                                      run_create_segment};

static bool draw_map(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint64_t count;
    if (!sim_draw_live(world, random, SIM_TABLE_SEGMENTS, &op->arg[0]))
        return false;
    bool likely = !world->segments[op->arg[0]].sealed;
    op->arg[3] = sim_one_in(random, 12) ? !likely : likely;
    /* Try a few places. */
    for (int tries = 0; tries < 4; tries++)
        if (!sim_draw_granules(world, random, SIM_FREE, SIM_SEGMENT_GRANULES, &op->arg[1], &op->arg[2],
                               &count))
            return false;
        else if (count >= world->segments[op->arg[0]].count &&
                 world->segments[op->arg[0]].granule_bytes == world->ranges[op->arg[1]].granule_bytes)
            return true;
    return true;
}

static void run_map(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_SEGMENTS, op->arg[0]) ||
        !sim_are_inside(world, op->arg[1], op->arg[2], world->segments[op->arg[0]].count))
        return;
    const struct sim_segment *segment = &world->segments[op->arg[0]];
    const struct sim_range *range = &world->ranges[op->arg[1]];
    bool writable = op->arg[3] & 1;
    struct sim_verdict verdict = {0};
    sim_judge_map(world, (int)op->arg[0], (int)op->arg[1], (uint32_t)op->arg[2], writable, &verdict);
    sim_begin(world, op, &verdict);
    moor_status status =
        moor_segment_map(world->runtime, segment->handle, range->handle, op->arg[2] * range->granule_bytes,
                         writable ? MOOR_ACCESS_READ_WRITE : MOOR_ACCESS_READ);
    if (sim_end(world, op, status, &verdict))
        sim_map_done(world, (int)op->arg[0], (int)op->arg[1], (uint32_t)op->arg[2], writable);
}

const struct sim_kind_info sim_kind_map = {
    "map", {"segment", "range", "first", "writable"}, {"map", "reap"}, draw_map, run_map};

/* ---- sealing ---- */

/* Returns the first granule of the only mapping of an unsealed segment, or NULL. */
static struct sim_granule *writable_mapping(struct sim_world *world, int segment, int *ret_range)
{
    for (int r = 0; r < SIM_RANGES; r++)
        for (uint32_t i = 0; world->ranges[r].handle && i < world->ranges[r].count; i++) {
            struct sim_granule *granule = &world->ranges[r].granules[i];
            if (granule->state == SIM_MAPPED && granule->segment == segment) {
                *ret_range = r;
                return granule;
            }
        }
    return NULL;
}

/* Adds the statuses of calls that wait for the uses of a part of a range. */
static void judge_uses(const struct sim_world *world, int index, uint32_t first, uint32_t count,
                       struct sim_verdict *verdict)
{
    const struct sim_range *range = &world->ranges[index];
    for (uint32_t i = 0; i < range->count; i++)
        sim_uses_pending(world, &range->granules[i].own, i >= first && i < first + count, verdict);
}

static bool draw_seal(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[1] = sim_below(random, 2);
    return sim_draw_live(world, random, SIM_TABLE_SEGMENTS, &op->arg[0]);
}

static void run_seal(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_SEGMENTS, op->arg[0]))
        return;
    struct sim_segment *segment = &world->segments[op->arg[0]];
    struct sim_verdict verdict = {0};
    uint64_t deadline = sim_deadline(world, op->arg[1]);
    int range = SIM_NONE;
    struct sim_granule *head = segment->sealed ? NULL : writable_mapping(world, (int)op->arg[0], &range);
    if (sim_has_stuck_mapping(world, (int)op->arg[0]))
        return; /* a quarantined mapping may never go */
    if (!segment->sealed)
        sim_judge_last_mappings(world, (int)op->arg[0], &verdict);
    if (head)
        judge_uses(world, range, (uint32_t)(head - world->ranges[range].granules), segment->count, &verdict);
    if (deadline)
        verdict = (struct sim_verdict){0};
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_segment_seal(world->runtime, segment->handle, deadline), &verdict))
        return;
    for (uint32_t i = world->release_count; !segment->sealed && i-- > 0;)
        if (world->releases[i].segment == (int)op->arg[0])
            sim_release_gone(world, i);
    for (uint32_t i = 0; head && i < segment->count; i++)
        head[i].writable = false;
    segment->sealed = true;
}

const struct sim_kind_info sim_kind_seal = {
    "seal", {"segment", "wait"}, {"protect", "watermark", "wait"}, draw_seal, run_seal};

static bool draw_release_segment(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_SEGMENTS, &op->arg[0]);
}

static bool has_leaving(const struct sim_world *world, int segment)
{
    for (uint32_t i = 0; i < world->release_count; i++)
        if (world->releases[i].segment == segment)
            return true;
    return false;
}

static void run_release_segment(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_SEGMENTS, op->arg[0]))
        return;
    struct sim_segment *segment = &world->segments[op->arg[0]];
    struct sim_verdict verdict = {0};
    /* Only the last owner is released in this call. A fault would meet a later release. */
    struct sim_op call = *op;
    if (segment->mapped > 0 || has_leaving(world, (int)op->arg[0]))
        call.fault.function = 0;
    sim_begin(world, &call, &verdict);
    if (!sim_end(world, &call, moor_segment_release(world->runtime, segment->handle), &verdict))
        return;
    sim_handle_released(world, (int)op->arg[0]);
    if (world->now.fault_hit)
        world->releases[world->release_count - 1].stuck = true;
}

const struct sim_kind_info sim_kind_release_segment = {
    "release_segment", {"segment"}, {"release"}, draw_release_segment, run_release_segment};

/* ---- copy on write ---- */

#define FLAG_WAIT 1u
#define FLAG_HANDLE 2u /* the host wants a handle of the new memory */

static bool draw_make_writable(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint64_t count;
    op->arg[4] = sim_below(random, 4);
    if (!sim_draw_granules(world, random, SIM_MAPPED, 1, &op->arg[0], &op->arg[1], &count))
        return false;
    op->arg[5] = sim_draw_grant(world, random, (uint64_t)world->ranges[op->arg[0]].binding);
    return sim_draw_live(world, random, SIM_TABLE_STREAMS, &op->arg[2]) &&
           sim_draw_free(world, random, SIM_TABLE_SEGMENTS, &op->arg[3]);
}

/* The model's state before the call. */
struct exchange {
    struct sim_range *range;
    int range_index;
    uint32_t first;
    int old;
    int new;
    int stream;
    int grant;
    uint64_t deadline;
    bool in_place;
    uint64_t bytes;
};

static void write_in_place(struct sim_world *world, const struct exchange *exchange, moor_segment handle)
{
    struct sim_segment *old = &world->segments[exchange->old];
    old->sealed = false;
    old->handle = handle;
    for (uint32_t i = 0; i < old->count; i++)
        exchange->range->granules[exchange->first + i].writable = true;
}

static void write_a_copy(struct sim_world *world, const struct exchange *exchange, moor_segment handle)
{
    struct sim_segment *new = &world->segments[exchange->new];
    const struct sim_segment *old = &world->segments[exchange->old];
    sim_create_done(world, exchange->new, handle, exchange->range->binding, old->granule_bytes, old->count,
                    exchange->grant);
    for (uint32_t i = 0; i < old->count; i++)
        new->blocks[i].value = old->blocks[i].value;
    sim_unmapped(world, exchange->old);
    sim_map_done(world, exchange->new, exchange->range_index, exchange->first, true);
    struct sim_target copy;
    if (sim_target_get(world, sim_thing(SIM_THING_RANGE, (uint32_t)exchange->range_index), exchange->first,
                       new->count, &copy))
        sim_read(world, &copy);
}

/* The copy was submitted and given up. Its memory is released behind it. */
static void release_copy(struct sim_world *world, const struct exchange *exchange)
{
    struct sim_stream *stream = &world->streams[exchange->stream];
    struct sim_uses copy = {0};
    sim_probe(world, exchange->stream);
    sim_uses_add(&copy, stream, exchange->stream, stream->submitted, true);
    for (uint32_t i = 0; i < world->segments[exchange->old].count; i++) {
        struct sim_granule *granule = &exchange->range->granules[exchange->first + i];
        sim_uses_add(&granule->own, stream, exchange->stream, stream->submitted, false);
        sim_uses_add(&world->segments[exchange->old].blocks[i].uses, stream, exchange->stream,
                     stream->submitted, false);
    }
    sim_charge(world, exchange->range->binding, SIM_NONE, exchange->bytes, exchange->bytes);
    struct sim_release *memory =
        sim_release_add(world, SIM_GONE_SEGMENT, exchange->range->binding, exchange->bytes, exchange->bytes);
    sim_release_behind(world, memory, &copy, true);
    struct sim_release *window = sim_release_add(world, SIM_GONE_RANGE, exchange->range->binding, 0, 0);
    sim_release_behind(world, window, &copy, true);
}

/* Adds the demand of the copy. Returns false while a ticket waits, which might get the bytes that the call
 * gives back. */
static bool wants_copy(struct sim_world *world, const struct exchange *it, struct sim_request *request,
                       struct sim_verdict *verdict)
{
    sim_want_memory(world, request, it->range->binding, it->grant, it->bytes);
    if (sim_someone_waits(world))
        return false;
    world->authorities[world->holders[world->bindings[it->range->binding].holder].authority].may_refresh =
        true;
    sim_judge(world, request, verdict);
    return true;
}

static void exchange(struct sim_world *world, const struct sim_op *op, struct exchange *it)
{
    struct sim_verdict verdict = {0};
    struct sim_request request = {0};
    moor_segment handle = SIM_UNTOUCHED;
    moor_grant grant = it->grant == SIM_NONE ? 0 : world->grants[it->grant].handle;
    const struct sim_segment *old = &world->segments[it->old];
    if (!it->deadline)
        judge_uses(world, it->range_index, it->first, old->count, &verdict);
    /* The model must be certain whether the copy was submitted. */
    if (!verdict.must && verdict.may && !it->in_place)
        return;
    bool waits = verdict.must != 0;
    if (!it->in_place && !wants_copy(world, it, &request, &verdict))
        return;
    if (!it->deadline && !it->in_place && (verdict.may || (verdict.must && !waits)))
        return;
    if (!it->deadline && !it->in_place)
        sim_may(&verdict, MOOR_PENDING);
    if (it->deadline) {
        /* While the call waits for the mapping's uses, other releases may complete. */
        uint32_t loose = verdict.must & (sim_bit(MOOR_PENDING) | sim_bit(MOOR_DEVICE_NOMEM));
        verdict.must &= ~loose;
        verdict.may |= loose;
    }
    struct sim_op call = *op;
    if (!it->deadline)
        call.fault.function = 0;
    bool wants_handle = op->arg[4] & FLAG_HANDLE;
    sim_begin_with(world, &call, &verdict, wants_handle ? &handle : NULL);
    moor_status status = moor_range_make_writable(
        world->runtime, it->range->handle, it->first * it->range->granule_bytes,
        world->streams[it->stream].stream, grant, it->deadline, wants_handle ? &handle : NULL);
    bool done = sim_end(world, &call, status, &verdict);
    handle = wants_handle ? handle : 0;
    if (done && it->in_place)
        write_in_place(world, it, handle);
    else if (done)
        write_a_copy(world, it, handle);
    else if (!it->in_place && !it->deadline && !waits)
        release_copy(world, it);
    if (it->in_place || !it->deadline)
        return;
    /* The call may have submitted work. A failed call has released its memory, or does so behind that
     * work. */
    sim_probe(world, it->stream);
    if (!done) {
        sim_run_dry(world);
        (void)moor_runtime_reap(world->runtime, MOOR_NO_WAIT); /* streams may be pending */
        sim_reaped(world);
    }
}

/* A call on granules without a mapping, or with a writable one. */
static void expect_nothing(struct sim_world *world, const struct sim_op *op)
{
    const struct sim_range *range = &world->ranges[op->arg[0]];
    const struct sim_granule *head = &range->granules[op->arg[1]];
    struct sim_verdict verdict = {0};
    moor_segment handle = SIM_UNTOUCHED;
    sim_judge_state(world, (int)op->arg[0], (uint32_t)op->arg[1], 1, SIM_MAPPED, &verdict);
    if (head->state == SIM_MAPPED && head->index > 0)
        sim_must(&verdict, MOOR_INVALID);
    sim_begin_with(world, op, &verdict, &handle);
    moor_status status =
        moor_range_make_writable(world->runtime, range->handle, op->arg[1] * range->granule_bytes,
                                 world->streams[op->arg[2]].stream, 0, MOOR_NO_WAIT, &handle);
    if (sim_end(world, op, status, &verdict))
        sim_check(world, handle == 0, "a handle of memory that was writable already", 0, handle);
}

static void run_make_writable(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_are_inside(world, op->arg[0], op->arg[1], 1) || !sim_stream_is_open(world, op->arg[2]) ||
        !sim_is_free(world, SIM_TABLE_SEGMENTS, op->arg[3]) || !sim_stream_has_room(world, (int)op->arg[2]))
        return;
    struct sim_range *range = &world->ranges[op->arg[0]];
    const struct sim_granule *head = &range->granules[op->arg[1]];
    if (head->state != SIM_MAPPED || head->index > 0 || head->writable) {
        expect_nothing(world, op);
        return;
    }
    struct exchange it = {.range = range,
                          .range_index = (int)op->arg[0],
                          .first = (uint32_t)op->arg[1],
                          .old = head->segment,
                          .new = (int)op->arg[3],
                          .stream = (int)op->arg[2],
                          .grant = SIM_NONE,
                          .deadline = sim_deadline(world, op->arg[4] & FLAG_WAIT)};
    const struct sim_segment *old = &world->segments[it.old];
    it.bytes = old->count * old->granule_bytes;
    moor_grant unused;
    if (it.deadline && !op->fault.function)
        it.grant = sim_grant_at(world, op->arg[5], &unused);
    /* A pending mapping is still an owner. The model must be certain whether it is gone. */
    (void)moor_runtime_reap(world->runtime, MOOR_NO_WAIT); /* the next call reports the pending mappings */
    sim_reaped(world);
    it.in_place = !old->handle && old->mapped == 1;
    for (uint32_t i = 0; i < world->release_count && it.in_place; i++) {
        if (world->releases[i].segment != it.old)
            continue;
        if (it.deadline || sim_release_may_be_done(world, &world->releases[i]))
            return;
        it.in_place = false;
    }
    exchange(world, op, &it);
}

const struct sim_kind_info sim_kind_make_writable = {
    "make_writable",
    {"range", "first", "stream", "segment", "flags", "grant"},
    {"shared.create", "map", "copy", "protect"},
    draw_make_writable,
    run_make_writable,
};
