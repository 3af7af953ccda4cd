/* SPDX-License-Identifier: MIT */
#include "generate.h"

#include "draw.h"

#include <string.h>

/* The weights of all profiles. A profile adds its own. */
static const uint8_t common[SIM_KIND_COUNT] = {
    [SIM_HOLDER_CREATE] = 2, [SIM_HOLDER_DESTROY] = 1, [SIM_HOLDER_LIMITS] = 1,  [SIM_EVICTABLE] = 1,
    [SIM_CAPACITY] = 1,      [SIM_SET_ASIDE] = 1,      [SIM_REFRESH] = 1,        [SIM_GRANT_RESERVE] = 3,
    [SIM_GRANT_RELEASE] = 2, [SIM_GRANT_COMMIT] = 1,   [SIM_LEASE_COMMIT] = 2,   [SIM_LEASE_ADJUST] = 2,
    [SIM_LEASE_REFUND] = 2,  [SIM_GRANTS_RESERVE] = 1, [SIM_TICKET_OPEN] = 1,    [SIM_TICKET_WAIT] = 2,
    [SIM_TICKET_CANCEL] = 1, [SIM_BINDING_OPEN] = 3,   [SIM_BINDING_CLOSE] = 1,  [SIM_ALLOCATE] = 8,
    [SIM_WRAP] = 2,          [SIM_RELEASE_BUFFER] = 7, [SIM_RESERVE] = 3,        [SIM_RELEASE_RANGE] = 2,
    [SIM_COMMIT] = 8,        [SIM_DECOMMIT] = 5,       [SIM_CREATE_SEGMENT] = 4, [SIM_MAP] = 8,
    [SIM_SEAL] = 4,          [SIM_UNMAP] = 5,          [SIM_MAKE_WRITABLE] = 2,  [SIM_RELEASE_SEGMENT] = 3,
    [SIM_STEP_COMMIT] = 4,   [SIM_STEP_CREATE] = 2,    [SIM_STEP_MAP] = 2,       [SIM_TRANSACT] = 4,
    [SIM_STREAM_CREATE] = 3, [SIM_STREAM_DESTROY] = 2, [SIM_ADVANCE] = 8,        [SIM_STEP] = 6,
    [SIM_HOLD] = 2,          [SIM_OPEN] = 4,           [SIM_RECORD] = 3,         [SIM_FENCE_WAIT] = 3,
    [SIM_STREAM_WAIT] = 3,   [SIM_KERNEL] = 10,        [SIM_SCATTER] = 2,        [SIM_TRESPASS] = 1,
    [SIM_FILL] = 5,          [SIM_COPY] = 8,           [SIM_HOST_FUNCTION] = 2,  [SIM_USED] = 2,
    [SIM_MEMORY_WAIT] = 3,   [SIM_READ] = 4,           [SIM_REAP] = 5,           [SIM_FAIL_FREE] = 1,
    [SIM_EXTERNAL] = 1,      [SIM_DEVICE_STATS] = 1,   [SIM_LOAD] = 0,           [SIM_UNLOAD] = 0,
    [SIM_DESTROY_EARLY] = 1, [SIM_WRONG_HANDLE] = 5,   [SIM_WRONG_SIZE] = 2,
};

const struct sim_profile sim_profiles[] = {
    {"mixed", 4000, 20, 256, false, {0}},
    {"memory",
     4000,
     5,
     256,
     false,
     {[SIM_ALLOCATE] = 40,
      [SIM_RELEASE_BUFFER] = 35,
      [SIM_COMMIT] = 40,
      [SIM_DECOMMIT] = 30,
      [SIM_TRANSACT] = 10,
      [SIM_STEP_COMMIT] = 20,
      [SIM_ADVANCE] = 10}},
    {"sharing",
     4000,
     5,
     256,
     false,
     {[SIM_CREATE_SEGMENT] = 20,
      [SIM_MAP] = 50,
      [SIM_SEAL] = 20,
      [SIM_UNMAP] = 30,
      [SIM_MAKE_WRITABLE] = 25,
      [SIM_WRONG_HANDLE] = 15,
      [SIM_RELEASE_SEGMENT] = 15,
      [SIM_KERNEL] = 40,
      [SIM_FILL] = 15,
      [SIM_STEP_MAP] = 10,
      [SIM_STEP_CREATE] = 10,
      [SIM_TRANSACT] = 10}},
    {"streams",
     4000,
     5,
     256,
     false,
     {[SIM_STREAM_CREATE] = 15,
      [SIM_STREAM_DESTROY] = 12,
      [SIM_HOLD] = 8,
      [SIM_OPEN] = 12,
      [SIM_RECORD] = 20,
      [SIM_FENCE_WAIT] = 15,
      [SIM_STREAM_WAIT] = 20,
      [SIM_KERNEL] = 50,
      [SIM_COPY] = 40,
      [SIM_USED] = 10,
      [SIM_STEP] = 20,
      [SIM_ADVANCE] = 20}},
    {"pressure",
     4000,
     5,
     64,
     false,
     {[SIM_CAPACITY] = 15,
      [SIM_HOLDER_LIMITS] = 15,
      [SIM_EXTERNAL] = 10,
      [SIM_GRANT_RESERVE] = 20,
      [SIM_GRANT_RELEASE] = 12,
      [SIM_ALLOCATE] = 40,
      [SIM_RELEASE_BUFFER] = 25,
      [SIM_HOLD] = 5,
      [SIM_KERNEL] = 20}},
    {"governor",
     4000,
     5,
     64,
     false,
     {[SIM_HOLDER_CREATE] = 4, [SIM_HOLDER_LIMITS] = 12,  [SIM_EVICTABLE] = 3,       [SIM_CAPACITY] = 8,
      [SIM_SET_ASIDE] = 4,     [SIM_REFRESH] = 4,         [SIM_EXTERNAL] = 4,        [SIM_GRANT_RESERVE] = 25,
      [SIM_GRANT_RELEASE] = 8, [SIM_GRANT_COMMIT] = 20,   [SIM_LEASE_COMMIT] = 15,   [SIM_LEASE_ADJUST] = 15,
      [SIM_LEASE_REFUND] = 8,  [SIM_GRANTS_RESERVE] = 12, [SIM_TICKET_OPEN] = 20,    [SIM_TICKET_WAIT] = 20,
      [SIM_TICKET_CANCEL] = 5, [SIM_ALLOCATE] = 30,       [SIM_RELEASE_BUFFER] = 10, [SIM_COMMIT] = 10,
      [SIM_FAIL_FREE] = 2,     [SIM_KERNEL] = 15}},
    {"faults",
     2000,
     300,
     256,
     false,
     {[SIM_TRANSACT] = 12,
      [SIM_STEP_COMMIT] = 10,
      [SIM_STEP_CREATE] = 8,
      [SIM_GRANT_RESERVE] = 5,
      [SIM_FAIL_FREE] = 12,
      [SIM_DEVICE_STATS] = 5,
      [SIM_BINDING_CLOSE] = 3}},
    {"lifecycle",
     300,
     20,
     256,
     false,
     {[SIM_HOLDER_CREATE] = 8,
      [SIM_HOLDER_DESTROY] = 6,
      [SIM_BINDING_OPEN] = 10,
      [SIM_BINDING_CLOSE] = 10,
      [SIM_STREAM_CREATE] = 8,
      [SIM_STREAM_DESTROY] = 8,
      [SIM_LOAD] = 2,
      [SIM_UNLOAD] = 4,
      [SIM_DESTROY_EARLY] = 4}},
    {"loss", 150, 20, 256, true, {[SIM_KERNEL] = 20, [SIM_HOLD] = 5, [SIM_FAIL_FREE] = 3}},
    {0},
};

const struct sim_profile *sim_profile_find(const char *name)
{
    for (const struct sim_profile *profile = sim_profiles; profile->name; profile++)
        if (strcmp(profile->name, name) == 0)
            return profile;
    return NULL;
}

struct sim_geometry sim_draw_geometry(const struct sim_profile *profile, uint64_t seed)
{
    struct sim_random random = {seed};
    struct sim_geometry geometry = {
        .devices = 1 + sim_below(&random, SIM_DEVICES),
        .shared_pool = sim_one_in(&random, 3),
        .granule_bytes = UINT64_C(4096) << sim_below(&random, 2),
    };
    geometry.total_bytes = geometry.granule_bytes * profile->granules;
    return geometry;
}

/* Most operations need one of each of these. */
static bool draw_first_thing(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    static const struct {
        enum sim_table table;
        enum sim_kind kind;
    } first[] = {{SIM_TABLE_HOLDERS, SIM_HOLDER_CREATE},
                 {SIM_TABLE_BINDINGS, SIM_BINDING_OPEN},
                 {SIM_TABLE_STREAMS, SIM_STREAM_CREATE},
                 {SIM_TABLE_RANGES, SIM_RESERVE}};
    uint64_t unused;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        if (sim_draw_live(world, random, first[i].table, &unused))
            continue;
        op->kind = first[i].kind;
        return sim_kinds[op->kind]->draw(world, random, op);
    }
    return false;
}

static enum sim_kind draw_kind(const struct sim_profile *profile, struct sim_random *random)
{
    uint32_t total = 0;
    for (int i = 0; i < SIM_KIND_COUNT; i++)
        total += (uint32_t)common[i] + profile->weights[i];
    uint32_t at = sim_below(random, total);
    int kind = 0;
    while (at >= (uint32_t)common[kind] + profile->weights[kind]) {
        at -= (uint32_t)common[kind] + profile->weights[kind];
        kind++;
    }
    return (enum sim_kind)kind;
}

static void draw_fault(struct sim_random *random, struct sim_op *op)
{
    const struct sim_kind_info *info = sim_kinds[op->kind];
    uint32_t known = 0;
    while (known < sizeof info->faults / sizeof *info->faults && info->faults[known])
        known++;
    if (known == 0)
        return;
    const char *function = info->faults[sim_below(random, known)];
    /* Later calls of release and record may belong to other objects. */
    bool once = strcmp(function, "release") == 0 || strcmp(function, "record") == 0;
    op->fault =
        (struct sim_fault){.function = sim_function_find(function),
                           .nth = (uint8_t)(once ? 1 : 1 + sim_below(random, 3)),
                           .status = sim_fault_statuses[sim_below(random, (uint32_t)sim_fault_status_count)]};
}

struct sim_op sim_draw_op(const struct sim_profile *profile, const struct sim_world *world,
                          struct sim_random *random)
{
    struct sim_op op = {0};
    if (sim_one_in(random, 2) && draw_first_thing(world, random, &op))
        return op;
    for (int tries = 0; tries < 8; tries++) {
        op = (struct sim_op){.kind = (uint16_t)draw_kind(profile, random)};
        if (!sim_kinds[op.kind]->draw(world, random, &op))
            continue;
        if (sim_below(random, 1000) < profile->faults_in_1000)
            draw_fault(random, &op);
        return op;
    }
    return (struct sim_op){.kind = SIM_ADVANCE, .arg = {1000}};
}
