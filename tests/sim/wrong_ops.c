/* SPDX-License-Identifier: MIT */
/* Mistakes of hosts: stale, foreign and invented handles, and sizes that wrap. Each must get its status and
 * change nothing. */
#include "draw.h"

/* ---- handles ---- */

enum wrong { WRONG_ZERO, WRONG_STALE, WRONG_FOREIGN, WRONG_KIND, WRONG_RANDOM, WRONG_COUNT };

static moor_status buffer_view(struct sim_world *world, uint64_t handle)
{
    struct moor_view view;
    return moor_buffer_get_view(world->runtime, handle, &view);
}

static moor_status buffer_native(struct sim_world *world, uint64_t handle)
{
    uint64_t native;
    return moor_buffer_get_native(world->runtime, handle, &native);
}

static moor_status buffer_release(struct sim_world *world, uint64_t handle)
{
    return moor_buffer_release(world->runtime, handle);
}

static moor_status range_view(struct sim_world *world, uint64_t handle)
{
    struct moor_view view;
    return moor_range_get_view(world->runtime, handle, &view);
}

static moor_status range_granule(struct sim_world *world, uint64_t handle)
{
    uint64_t bytes;
    return moor_range_get_granule(world->runtime, handle, &bytes);
}

static moor_status range_committed(struct sim_world *world, uint64_t handle)
{
    uint64_t bytes;
    return moor_range_get_committed(world->runtime, handle, 0, world->geometry.granule_bytes, &bytes);
}

static moor_status range_commit(struct sim_world *world, uint64_t handle)
{
    return moor_range_commit(world->runtime, handle, 0, world->geometry.granule_bytes, 0);
}

static moor_status range_decommit(struct sim_world *world, uint64_t handle)
{
    return moor_range_decommit(world->runtime, handle, 0, world->geometry.granule_bytes);
}

static moor_status range_unmap(struct sim_world *world, uint64_t handle)
{
    return moor_range_unmap(world->runtime, handle, 0, world->geometry.granule_bytes);
}

static moor_status range_release(struct sim_world *world, uint64_t handle)
{
    return moor_range_release(world->runtime, handle);
}

static moor_status range_transact(struct sim_world *world, uint64_t handle)
{
    struct moor_step step = {
        .kind = MOOR_STEP_COMMIT, .range = handle, .length_bytes = world->geometry.granule_bytes};
    return moor_transact(world->runtime, &step, 1, NULL);
}

static moor_status range_wait(struct sim_world *world, uint64_t handle)
{
    struct moor_view view = {.address = 4096, .size_bytes = 16, .owner = handle, .runtime = world->runtime};
    return moor_memory_wait(&view, MOOR_NO_WAIT);
}

static moor_status segment_map(struct sim_world *world, uint64_t handle)
{
    return moor_segment_map(world->runtime, handle, handle, 0, MOOR_ACCESS_READ);
}

static moor_status segment_seal(struct sim_world *world, uint64_t handle)
{
    return moor_segment_seal(world->runtime, handle, MOOR_NO_WAIT);
}

static moor_status segment_release(struct sim_world *world, uint64_t handle)
{
    return moor_segment_release(world->runtime, handle);
}

static moor_status grant_remaining(struct sim_world *world, uint64_t handle)
{
    uint64_t bytes;
    return moor_grant_get_remaining(world->runtime, handle, &bytes);
}

static moor_status grant_release(struct sim_world *world, uint64_t handle)
{
    return moor_grant_release(world->runtime, handle);
}

static moor_status grant_draw(struct sim_world *world, uint64_t handle)
{
    moor_lease lease;
    return moor_lease_commit(world->runtime, handle, 1, &lease);
}

static moor_status grant_commit(struct sim_world *world, uint64_t handle)
{
    moor_lease lease;
    return moor_grant_commit(world->runtime, handle, 1, &lease);
}

static moor_status lease_bytes(struct sim_world *world, uint64_t handle)
{
    uint64_t bytes;
    return moor_lease_get_bytes(world->runtime, handle, &bytes);
}

static moor_status lease_adjust(struct sim_world *world, uint64_t handle)
{
    return moor_lease_adjust(world->runtime, handle, 1, MOOR_NO_WAIT);
}

static moor_status ticket_wait(struct sim_world *world, uint64_t handle)
{
    moor_grant grants[SIM_PARTS];
    return moor_ticket_wait(world->runtime, handle, grants, SIM_PARTS);
}

static moor_status ticket_cancel(struct sim_world *world, uint64_t handle)
{
    return moor_ticket_cancel(world->runtime, handle);
}

static moor_status ticket_stats(struct sim_world *world, uint64_t handle)
{
    struct moor_ticket_stats stats;
    return moor_ticket_get_stats(world->runtime, handle, &stats);
}

static moor_status lease_refund(struct sim_world *world, uint64_t handle)
{
    return moor_lease_refund(world->runtime, handle);
}

static const struct {
    enum sim_handle_kind kind;
    bool zero_is_nothing; /* releasing 0 is legal */
    moor_status (*call)(struct sim_world *world, uint64_t handle);
} handle_calls[] = {
    {SIM_HANDLE_BUFFER, false, buffer_view},    {SIM_HANDLE_BUFFER, false, buffer_native},
    {SIM_HANDLE_BUFFER, true, buffer_release},  {SIM_HANDLE_RANGE, false, range_view},
    {SIM_HANDLE_RANGE, false, range_granule},   {SIM_HANDLE_RANGE, false, range_committed},
    {SIM_HANDLE_RANGE, false, range_commit},    {SIM_HANDLE_RANGE, false, range_decommit},
    {SIM_HANDLE_RANGE, false, range_unmap},     {SIM_HANDLE_RANGE, true, range_release},
    {SIM_HANDLE_RANGE, false, range_transact},  {SIM_HANDLE_SEGMENT, false, segment_map},
    {SIM_HANDLE_SEGMENT, false, segment_seal},  {SIM_HANDLE_SEGMENT, true, segment_release},
    {SIM_HANDLE_GRANT, false, grant_remaining}, {SIM_HANDLE_GRANT, true, grant_release},
    {SIM_HANDLE_GRANT, false, grant_draw},      {SIM_HANDLE_LEASE, true, lease_refund},
    {SIM_HANDLE_RANGE, true, range_wait},       {SIM_HANDLE_GRANT, false, grant_commit},
    {SIM_HANDLE_LEASE, false, lease_bytes},     {SIM_HANDLE_LEASE, false, lease_adjust},
    {SIM_HANDLE_TICKET, false, ticket_wait},    {SIM_HANDLE_TICKET, true, ticket_cancel},
    {SIM_HANDLE_TICKET, false, ticket_stats},
};

#define HANDLE_CALLS (sizeof handle_calls / sizeof *handle_calls)

/* Returns a live handle of another kind, or 0. */
static uint64_t live_handle(const struct sim_world *world, enum sim_handle_kind not_kind)
{
    for (int i = 0; i < SIM_BUFFERS && not_kind != SIM_HANDLE_BUFFER; i++)
        if (world->buffers[i].handle)
            return world->buffers[i].handle;
    for (int i = 0; i < SIM_GRANTS && not_kind != SIM_HANDLE_GRANT; i++)
        if (world->grants[i].handle)
            return world->grants[i].handle;
    return 0;
}

static uint64_t stale_handle(const struct sim_world *world, enum sim_handle_kind kind, uint64_t k)
{
    uint32_t known = world->stale_count < SIM_STALE ? world->stale_count : SIM_STALE;
    for (uint32_t i = 0; i < known; i++) {
        const struct sim_stale *stale = &world->stale[(k + i) % known];
        if (stale->kind == kind)
            return stale->handle;
    }
    return 0;
}

static bool draw_wrong_handle(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    (void)world;
    op->arg[0] = sim_below(random, HANDLE_CALLS);
    op->arg[1] = sim_below(random, WRONG_COUNT + 2);
    if (op->arg[1] >= WRONG_COUNT)
        op->arg[1] = WRONG_STALE; /* the most likely mistake */
    op->arg[2] = sim_next(random);
    return true;
}

static void run_wrong_handle(struct sim_world *world, const struct sim_op *op)
{
    if (op->arg[0] >= HANDLE_CALLS)
        return;
    enum sim_handle_kind kind = handle_calls[op->arg[0]].kind;
    uint64_t handle = 0;
    struct sim_verdict verdict = {0};
    switch (op->arg[1]) {
    case WRONG_ZERO:
        if (!handle_calls[op->arg[0]].zero_is_nothing)
            sim_must(&verdict, MOOR_INVALID);
        break;
    case WRONG_STALE:
        handle = stale_handle(world, kind, op->arg[2]);
        sim_must(&verdict, MOOR_STALE);
        break;
    case WRONG_FOREIGN:
        handle = world->foreign->handles[kind];
        sim_must(&verdict, MOOR_FOREIGN);
        break;
    case WRONG_KIND:
        handle = live_handle(world, kind);
        sim_must(&verdict, MOOR_INVALID);
        /* A view may also belong to a buffer. */
        if (handle_calls[op->arg[0]].call == range_wait)
            return;
        break;
    default:
        handle = op->arg[2];
        verdict.must = sim_bit(MOOR_INVALID) | sim_bit(MOOR_STALE) | sim_bit(MOOR_FOREIGN);
        break;
    }
    if (handle == 0 && op->arg[1] != WRONG_ZERO)
        return;
    sim_begin(world, op, &verdict);
    (void)sim_end(world, op, handle_calls[op->arg[0]].call(world, handle), &verdict);
}

const struct sim_kind_info sim_kind_wrong_handle = {
    "wrong_handle", {"call", "wrong", "which"}, {0}, draw_wrong_handle, run_wrong_handle};

/* ---- sizes ---- */

static moor_status size_allocate(struct sim_world *world, uint64_t thing, uint64_t size)
{
    moor_buffer buffer;
    return moor_buffer_allocate(world->bindings[thing].binding, size, NULL, &buffer);
}

static moor_status size_reserve(struct sim_world *world, uint64_t thing, uint64_t size)
{
    moor_range range;
    return moor_range_reserve(world->bindings[thing].binding, size, NULL, &range);
}

static moor_status size_segment(struct sim_world *world, uint64_t thing, uint64_t size)
{
    moor_segment segment;
    return moor_segment_create(world->bindings[thing].binding, size, 0, 0, &segment);
}

static moor_status size_wrap(struct sim_world *world, uint64_t thing, uint64_t size)
{
    moor_buffer buffer;
    return moor_buffer_wrap(world->bindings[thing].binding, world->areas[0].memory, size, MOOR_BUFFER_CHARGE,
                            &buffer);
}

static moor_status offset_commit(struct sim_world *world, uint64_t thing, uint64_t size)
{
    return moor_range_commit(world->runtime, world->ranges[thing].handle, size,
                             world->ranges[thing].granule_bytes, 0);
}

static moor_status length_commit(struct sim_world *world, uint64_t thing, uint64_t size)
{
    return moor_range_commit(world->runtime, world->ranges[thing].handle, world->ranges[thing].granule_bytes,
                             size, 0);
}

static moor_status offset_decommit(struct sim_world *world, uint64_t thing, uint64_t size)
{
    return moor_range_decommit(world->runtime, world->ranges[thing].handle, size,
                               world->ranges[thing].granule_bytes);
}

static moor_status length_decommit(struct sim_world *world, uint64_t thing, uint64_t size)
{
    return moor_range_decommit(world->runtime, world->ranges[thing].handle,
                               world->ranges[thing].granule_bytes, size);
}

static moor_status length_unmap(struct sim_world *world, uint64_t thing, uint64_t size)
{
    return moor_range_unmap(world->runtime, world->ranges[thing].handle, world->ranges[thing].granule_bytes,
                            size);
}

static moor_status length_committed(struct sim_world *world, uint64_t thing, uint64_t size)
{
    uint64_t bytes;
    return moor_range_get_committed(world->runtime, world->ranges[thing].handle,
                                    world->ranges[thing].granule_bytes, size, &bytes);
}

static moor_status length_transact(struct sim_world *world, uint64_t thing, uint64_t size)
{
    struct moor_step step = {.kind = MOOR_STEP_COMMIT,
                             .range = world->ranges[thing].handle,
                             .offset_bytes = world->ranges[thing].granule_bytes,
                             .length_bytes = size};
    return moor_transact(world->runtime, &step, 1, NULL);
}

static moor_status view_wait(struct sim_world *world, uint64_t thing, uint64_t size)
{
    struct moor_view view = world->ranges[thing].view;
    view.address += world->ranges[thing].granule_bytes;
    view.size_bytes = size;
    return moor_memory_wait(&view, MOOR_NO_WAIT);
}

static moor_status view_slice(struct sim_world *world, uint64_t thing, uint64_t size)
{
    struct moor_view slice;
    return moor_view_slice(&world->ranges[thing].view, world->ranges[thing].granule_bytes, size, &slice);
}

static moor_status grant_reserve(struct sim_world *world, uint64_t thing, uint64_t size)
{
    moor_grant grant;
    return moor_grant_reserve(world->holders[thing].holder, size, MOOR_NO_WAIT, &grant);
}

static const struct {
    enum sim_table table; /* table of the operation's object */
    bool of_granules;     /* accepts whole granules only */
    moor_status (*call)(struct sim_world *world, uint64_t thing, uint64_t size);
} size_calls[] = {
    {SIM_TABLE_BINDINGS, false, size_allocate}, {SIM_TABLE_BINDINGS, false, size_reserve},
    {SIM_TABLE_BINDINGS, true, size_segment},   {SIM_TABLE_BINDINGS, false, size_wrap},
    {SIM_TABLE_RANGES, true, offset_commit},    {SIM_TABLE_RANGES, true, length_commit},
    {SIM_TABLE_RANGES, true, offset_decommit},  {SIM_TABLE_RANGES, true, length_decommit},
    {SIM_TABLE_RANGES, true, length_unmap},     {SIM_TABLE_RANGES, true, length_committed},
    {SIM_TABLE_RANGES, true, length_transact},  {SIM_TABLE_RANGES, false, view_wait},
    {SIM_TABLE_RANGES, false, view_slice},      {SIM_TABLE_HOLDERS, false, grant_reserve},
};

#define LEAST_ALIGNMENT 256u /* least alignment of the mock */
#define SIZE_CALLS (sizeof size_calls / sizeof *size_calls)

static bool draw_wrong_size(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint64_t granule = world->geometry.granule_bytes;
    const uint64_t below_top[] = {0, 1, 510, 511, granule - 2, granule - 1, granule, 2 * granule - 1};
    const uint64_t near_half[] = {(UINT64_C(1) << 63) - 1, UINT64_C(1) << 63, (UINT64_C(1) << 63) + 1,
                                  (UINT64_C(1) << 63) + granule};
    op->arg[0] = sim_below(random, SIZE_CALLS);
    op->arg[2] = sim_one_in(random, 3) ? near_half[sim_below(random, 4)]
                                       : UINT64_MAX - below_top[sim_below(random, 8)];
    if (sim_one_in(random, 4))
        op->arg[2] = 1 + sim_below(random, (uint32_t)granule - 1); /* not a whole granule */
    return sim_draw_live(world, random, size_calls[op->arg[0]].table, &op->arg[1]);
}

/* Counts the provider's calls that make objects. */
static uint64_t making_calls(const struct sim_world *world)
{
    static const char *const functions[] = {"footprint", "allocate", "reserve", "commit", "shared.create"};
    uint64_t calls = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        calls += world->control->calls(world->control->mock, functions[i]);
    return calls;
}

static void run_wrong_size(struct sim_world *world, const struct sim_op *op)
{
    if (op->arg[0] >= SIZE_CALLS || !sim_is_live(world, size_calls[op->arg[0]].table, op->arg[1]))
        return;
    struct sim_verdict verdict = {.must = sim_bit(MOOR_OVERFLOW) | sim_bit(MOOR_INVALID) |
                                          sim_bit(MOOR_NEVER_FITS) | sim_bit(MOOR_LIMIT) |
                                          sim_bit(MOOR_NO_VA)};
    bool is_huge = op->arg[2] >= UINT64_C(1) << 62;
    if (!is_huge && (!size_calls[op->arg[0]].of_granules || op->arg[2] % world->geometry.granule_bytes == 0))
        return; /* not a mistake */
    uint64_t before = making_calls(world);
    sim_begin(world, op, &verdict);
    (void)sim_end(world, op, size_calls[op->arg[0]].call(world, op->arg[1], op->arg[2]), &verdict);
    /* Providers need not detect sizes that wrap only with the least alignment, or that are not whole
     * granules. */
    if (!is_huge || op->arg[2] > UINT64_MAX - LEAST_ALIGNMENT)
        sim_check(world, making_calls(world) == before, "calls of the provider with a size that is wrong", 0,
                  making_calls(world) - before);
}

const struct sim_kind_info sim_kind_wrong_size = {
    "wrong_size", {"call", "of", "size"}, {0}, draw_wrong_size, run_wrong_size};
