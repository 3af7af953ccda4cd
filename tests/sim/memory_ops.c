/* SPDX-License-Identifier: MIT */
/* Buffers and ranges. */
#include "draw.h"
#include "memory.h"

#include <string.h>

/* ---- buffers ---- */

#define SIZE_UNITS 2 /* work uses an allocation in halves */

static bool draw_allocate(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint64_t granule = world->geometry.granule_bytes;
    op->arg[2] = sim_one_in(random, 3) ? 1 + sim_below(random, (uint32_t)granule * 2)
                                       : granule * SIZE_UNITS * (1 + sim_below(random, 2));
    if (sim_one_in(random, 64))
        op->arg[2] = 0;
    op->arg[3] = sim_below(random, 2);
    op->arg[5] = sim_one_in(random, 4) ? UINT64_C(1) << sim_below(random, 14) : 0;
    if (sim_one_in(random, 64))
        op->arg[5] = 3; /* not a power of two */
    if (!sim_draw_live(world, random, SIM_TABLE_BINDINGS, &op->arg[1]))
        return false;
    op->arg[4] = sim_draw_grant(world, random, op->arg[1]);
    return sim_draw_free(world, random, SIM_TABLE_BUFFERS, &op->arg[0]);
}

static void run_allocate(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_free(world, SIM_TABLE_BUFFERS, op->arg[0]) ||
        !sim_is_live(world, SIM_TABLE_BINDINGS, op->arg[1]))
        return;
    struct sim_binding *binding = &world->bindings[op->arg[1]];
    struct moor_buffer_options options = {.alignment_bytes = op->arg[5],
                                          .flags = op->arg[3] ? MOOR_BUFFER_ZERO : 0};
    int grant = sim_grant_at(world, op->arg[4], &options.grant);
    uint64_t size_bytes = op->arg[2], footprint = 0;
    struct sim_verdict verdict = {0};
    struct sim_request request = {0};
    if (size_bytes == 0 || (op->arg[5] & (op->arg[5] - 1)))
        sim_must(&verdict, MOOR_INVALID);
    moor_status status = moor_binding_get_footprint(binding->binding, size_bytes, &options, &footprint);
    if (!verdict.must) {
        if (!sim_expect_ok(world, "a footprint", status))
            return;
        sim_check(world, footprint >= size_bytes, "the least footprint", size_bytes, footprint);
        sim_want_memory(world, &request, (int)op->arg[1], grant, footprint);
    }
    moor_buffer handle = SIM_UNTOUCHED;
    world->places[SIM_TABLE_BUFFERS] |= UINT32_C(1) << op->arg[0];
    if (!sim_request_begin(world, op, &verdict, &request, &handle))
        return;
    status = moor_buffer_allocate(binding->binding, size_bytes, &options, &handle);
    if (!sim_request_end(world, op, status, &request))
        return;
    struct sim_buffer *buffer = &world->buffers[op->arg[0]];
    *buffer = (struct sim_buffer){.handle = handle,
                                  .binding = (int)op->arg[1],
                                  .area = SIM_NONE,
                                  .bytes = footprint,
                                  .requested = size_bytes,
                                  .unit_bytes = size_bytes / SIZE_UNITS / 4 * 4};
    buffer->units = buffer->unit_bytes ? SIZE_UNITS : 0;
    sim_set_blocks(buffer->blocks, SIZE_UNITS, op->arg[3] ? 0 : SIM_UNKNOWN);
    (void)sim_expect_ok(world, "a view", moor_buffer_get_view(world->runtime, handle, &buffer->view));
    sim_check(world, buffer->view.size_bytes == size_bytes, "the size of a view", size_bytes,
              buffer->view.size_bytes);
    if (op->arg[5])
        sim_check(world, buffer->view.address % op->arg[5] == 0, "the alignment of an address", 0,
                  buffer->view.address % op->arg[5]);
    binding->live++;
    sim_charge(world, (int)op->arg[1], grant, footprint, size_bytes);
}

const struct sim_kind_info sim_kind_allocate = {"allocate",
                                                {"buffer", "binding", "bytes", "zero", "grant", "alignment"},
                                                {"footprint", "allocate", "reap"},
                                                draw_allocate,
                                                run_allocate};

static bool draw_wrap(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[2] = sim_below(random, SIM_AREAS);
    op->arg[3] = sim_below(random, 2);
    return sim_draw_free(world, random, SIM_TABLE_BUFFERS, &op->arg[0]) &&
           sim_draw_live(world, random, SIM_TABLE_BINDINGS, &op->arg[1]);
}

static void run_wrap(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_free(world, SIM_TABLE_BUFFERS, op->arg[0]) ||
        !sim_is_live(world, SIM_TABLE_BINDINGS, op->arg[1]) || op->arg[2] >= SIM_AREAS)
        return;
    struct sim_binding *binding = &world->bindings[op->arg[1]];
    uint64_t size_bytes = SIM_UNITS * world->geometry.granule_bytes;
    uint64_t charged = op->arg[3] ? size_bytes : 0;
    struct sim_verdict verdict = {0};
    struct sim_request request = {0};
    if (charged)
        sim_want_budget(world, &request, binding->holder, charged);
    moor_buffer handle = SIM_UNTOUCHED;
    world->places[SIM_TABLE_BUFFERS] |= UINT32_C(1) << op->arg[0];
    if (!sim_request_begin(world, op, &verdict, &request, &handle))
        return;
    moor_status status = moor_buffer_wrap(binding->binding, world->areas[op->arg[2]].memory, size_bytes,
                                          charged ? MOOR_BUFFER_CHARGE : 0, &handle);
    if (!sim_request_end(world, op, status, &request))
        return;
    struct sim_buffer *buffer = &world->buffers[op->arg[0]];
    *buffer = (struct sim_buffer){.handle = handle,
                                  .binding = (int)op->arg[1],
                                  .area = (int)op->arg[2],
                                  .leased = charged,
                                  .unit_bytes = world->geometry.granule_bytes,
                                  .units = SIM_UNITS};
    (void)sim_expect_ok(world, "a view", moor_buffer_get_view(world->runtime, handle, &buffer->view));
    binding->live++;
    if (charged)
        sim_charge_leased(world, binding->holder, (int64_t)charged);
}

const struct sim_kind_info sim_kind_wrap = {
    "wrap", {"buffer", "binding", "area", "charged"}, {"reap"}, draw_wrap, run_wrap};

static bool draw_release_buffer(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_BUFFERS, &op->arg[0]);
}

static void run_release_buffer(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_BUFFERS, op->arg[0]))
        return;
    struct sim_buffer *buffer = &world->buffers[op->arg[0]];
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_buffer_release(world->runtime, buffer->handle), &verdict))
        return;
    sim_forget_handle(world, SIM_HANDLE_BUFFER, buffer->handle);
    world->bindings[buffer->binding].live--;
    if (buffer->area == SIM_NONE) {
        struct sim_release *release =
            sim_release_add(world, SIM_GONE_BUFFER, buffer->binding, buffer->bytes, buffer->requested);
        /* the host has released the buffer; it stays quarantined and charged */
        release->stuck = world->now.fault_hit;
        for (uint32_t i = 0; i < SIM_UNITS; i++)
            sim_release_behind(world, release, &buffer->own[i], true);
    }
    if (buffer->leased)
        sim_charge_leased(world, world->bindings[buffer->binding].holder, -(int64_t)buffer->leased);
    buffer->handle = 0;
}

const struct sim_kind_info sim_kind_release_buffer = {
    "release_buffer", {"buffer"}, {"release", "record"}, draw_release_buffer, run_release_buffer};

/* ---- ranges ---- */

static bool draw_reserve(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[2] = 1 + sim_below(random, SIM_GRANULES);
    op->arg[3] = sim_one_in(random, 4) ? 1 : 0;
    return sim_draw_free(world, random, SIM_TABLE_RANGES, &op->arg[0]) &&
           sim_draw_live(world, random, SIM_TABLE_BINDINGS, &op->arg[1]);
}

static void run_reserve(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_free(world, SIM_TABLE_RANGES, op->arg[0]) ||
        !sim_is_live(world, SIM_TABLE_BINDINGS, op->arg[1]) || op->arg[2] == 0 || op->arg[2] > SIM_GRANULES)
        return;
    struct sim_range *range = &world->ranges[op->arg[0]];
    uint64_t granule = world->geometry.granule_bytes << (op->arg[3] & 1);
    struct moor_range_options options = {.granule_bytes = granule};
    struct sim_verdict verdict = {0};
    moor_range handle = SIM_UNTOUCHED;
    sim_begin_with(world, op, &verdict, &handle);
    /* One byte less than whole granules: the library rounds up. */
    moor_status status =
        moor_range_reserve(world->bindings[op->arg[1]].binding, op->arg[2] * granule - 1, &options, &handle);
    if (!sim_end(world, op, status, &verdict))
        return;
    *range = (struct sim_range){.handle = handle,
                                .binding = (int)op->arg[1],
                                .granule_bytes = granule,
                                .count = (uint32_t)op->arg[2]};
    (void)sim_expect_ok(world, "a view", moor_range_get_view(world->runtime, handle, &range->view));
    sim_check(world, range->view.size_bytes == op->arg[2] * granule, "the size of a range",
              op->arg[2] * granule, range->view.size_bytes);
    world->bindings[op->arg[1]].live++;
}

const struct sim_kind_info sim_kind_reserve = {
    "reserve", {"range", "binding", "granules", "doubled"}, {"reserve"}, draw_reserve, run_reserve};

static bool draw_release_range(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_RANGES, &op->arg[0]);
}

static bool has_stuck(const struct sim_world *world, int range)
{
    for (uint32_t i = 0; i < world->release_count; i++)
        if (world->releases[i].range == range && world->releases[i].stuck)
            return true;
    return false;
}

static void run_release_range(struct sim_world *world, const struct sim_op *op)
{
    /* A quarantined part would keep the range; another operation covers that. */
    if (!sim_is_live(world, SIM_TABLE_RANGES, op->arg[0]) || has_stuck(world, (int)op->arg[0]))
        return;
    struct sim_range *range = &world->ranges[op->arg[0]];
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_range_release(world->runtime, range->handle), &verdict))
        return;
    sim_forget_handle(world, SIM_HANDLE_RANGE, range->handle);
    for (uint32_t i = 0; i < range->count; i++) {
        enum sim_granule_state state = range->granules[i].state;
        int segment = range->granules[i].segment;
        if (state != SIM_COMMITTED && state != SIM_MAPPED)
            continue;
        (void)sim_release_granules(world, (int)op->arg[0], i,
                                   state == SIM_MAPPED ? world->segments[segment].count : 1);
        if (state == SIM_MAPPED)
            sim_unmapped(world, segment);
    }
    struct sim_release *addresses = sim_release_add(world, SIM_GONE_RANGE, range->binding, 0, 0);
    for (uint32_t i = 0; i < world->release_count; i++)
        if (world->releases[i].range == (int)op->arg[0]) {
            sim_release_behind_other(addresses, &world->releases[i], true);
            world->releases[i].range = SIM_NONE;
        }
    world->bindings[range->binding].live--;
    range->handle = 0;
}

const struct sim_kind_info sim_kind_release_range = {
    "release_range", {"range"}, {0}, draw_release_range, run_release_range};

/* ---- commit and decommit ---- */

static bool draw_commit(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    enum sim_granule_state state = sim_one_in(random, 6) ? SIM_LEAVING : SIM_FREE;
    if (!sim_draw_granules(world, random, state, 5, &op->arg[0], &op->arg[1], &op->arg[2]))
        return false;
    op->arg[3] = sim_draw_grant(world, random, (uint64_t)world->ranges[op->arg[0]].binding);
    return true;
}

static void run_commit(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_are_inside(world, op->arg[0], op->arg[1], op->arg[2]))
        return;
    struct sim_range *range = &world->ranges[op->arg[0]];
    uint32_t first = (uint32_t)op->arg[1], count = (uint32_t)op->arg[2];
    uint64_t bytes = count * range->granule_bytes;
    struct sim_verdict verdict = {0};
    struct sim_request request = {0};
    moor_grant grant = 0;
    int from = sim_grant_at(world, op->arg[3], &grant);
    sim_judge_free(world, (int)op->arg[0], first, count, &verdict);
    sim_want_memory(world, &request, range->binding, from, bytes);
    if (!sim_request_begin(world, op, &verdict, &request, NULL))
        return;
    moor_status status =
        moor_range_commit(world->runtime, range->handle, first * range->granule_bytes, bytes, grant);
    if (sim_request_end(world, op, status, &request))
        sim_commit_done(world, (int)op->arg[0], first, count, from);
}

const struct sim_kind_info sim_kind_commit = {
    "commit", {"range", "first", "count", "grant"}, {"commit", "reap"}, draw_commit, run_commit};

static bool draw_decommit(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    enum sim_granule_state state = sim_one_in(random, 16) ? SIM_MAPPED : SIM_COMMITTED;
    return sim_draw_granules(world, random, state, 4, &op->arg[0], &op->arg[1], &op->arg[2]);
}

static void run_decommit(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_are_inside(world, op->arg[0], op->arg[1], op->arg[2]))
        return;
    struct sim_range *range = &world->ranges[op->arg[0]];
    uint32_t first = (uint32_t)op->arg[1], count = (uint32_t)op->arg[2];
    struct sim_verdict verdict = {0};
    sim_judge_state(world, (int)op->arg[0], first, count, SIM_COMMITTED, &verdict);
    sim_begin(world, op, &verdict);
    moor_status status = moor_range_decommit(world->runtime, range->handle, first * range->granule_bytes,
                                             count * range->granule_bytes);
    if (sim_end(world, op, status, &verdict))
        (void)sim_release_granules(world, (int)op->arg[0], first, count);
}

const struct sim_kind_info sim_kind_decommit = {
    "decommit", {"range", "first", "count"}, {"release", "record"}, draw_decommit, run_decommit};

static bool draw_unmap(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint64_t count;
    return sim_draw_granules(world, random, SIM_MAPPED, 1, &op->arg[0], &op->arg[1], &count);
}

static void run_unmap(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_are_inside(world, op->arg[0], op->arg[1], 1))
        return;
    struct sim_range *range = &world->ranges[op->arg[0]];
    uint32_t first = (uint32_t)op->arg[1], count = 1;
    const struct sim_granule *head = &range->granules[first];
    int segment = head->segment;
    struct sim_verdict verdict = {0};
    if (head->state == SIM_MAPPED) {
        /* From inside a mapping the call must be refused at any length. */
        count = world->segments[segment].count;
        if (head->index != 0)
            sim_must(&verdict, MOOR_INVALID);
        count -= head->index;
    } else {
        sim_judge_state(world, (int)op->arg[0], first, 1, SIM_MAPPED, &verdict);
    }
    sim_begin(world, op, &verdict);
    moor_status status = moor_range_unmap(world->runtime, range->handle, first * range->granule_bytes,
                                          count * range->granule_bytes);
    if (!sim_end(world, op, status, &verdict))
        return;
    (void)sim_release_granules(world, (int)op->arg[0], first, count);
    sim_unmapped(world, segment);
}

const struct sim_kind_info sim_kind_unmap = {
    "unmap", {"range", "first"}, {"release", "record"}, draw_unmap, run_unmap};
