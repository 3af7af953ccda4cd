/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include "draw.h"

bool sim_are_inside(const struct sim_world *world, uint64_t range, uint64_t first, uint64_t count)
{
    return sim_is_live(world, SIM_TABLE_RANGES, range) && count > 0 && first < world->ranges[range].count &&
           count <= world->ranges[range].count - first;
}

void sim_set_blocks(struct sim_block *blocks, uint32_t count, int16_t value)
{
    for (uint32_t i = 0; i < count; i++)
        blocks[i] = (struct sim_block){.value = value};
}

/* ---- statuses ---- */

void sim_judge_free(const struct sim_world *world, int range, uint32_t first, uint32_t count,
                    struct sim_verdict *verdict)
{
    for (uint32_t i = first; i < first + count; i++) {
        const struct sim_granule *granule = &world->ranges[range].granules[i];
        if (granule->state == SIM_COMMITTED || granule->state == SIM_MAPPED)
            sim_must(verdict, MOOR_INVALID);
        if (granule->state != SIM_LEAVING)
            continue;
        /* Before the library returns PENDING it reaps. */
        const struct sim_release *release = sim_leaving(world, range, i);
        if (!sim_release_may_be_done(world, release))
            sim_must(verdict, MOOR_PENDING);
        else if (!sim_release_is_done(world, release))
            sim_may(verdict, MOOR_PENDING);
    }
}

void sim_judge_state(const struct sim_world *world, int range, uint32_t first, uint32_t count,
                     enum sim_granule_state state, struct sim_verdict *verdict)
{
    for (uint32_t i = first; i < first + count; i++) {
        const struct sim_granule *granule = &world->ranges[range].granules[i];
        if (granule->state == state)
            continue;
        sim_must(verdict, granule->state == SIM_LEAVING ? MOOR_PENDING : MOOR_INVALID);
        if (granule->state == SIM_LEAVING && sim_release_may_be_done(world, sim_leaving(world, range, i)))
            sim_may(verdict, MOOR_INVALID);
    }
}

bool sim_has_stuck_mapping(const struct sim_world *world, int segment)
{
    for (uint32_t i = 0; i < world->release_count; i++)
        if (world->releases[i].segment == segment && world->releases[i].stuck)
            return true;
    return false;
}

void sim_judge_last_mappings(const struct sim_world *world, int segment, struct sim_verdict *verdict)
{
    for (uint32_t i = 0; i < world->release_count; i++) {
        const struct sim_release *release = &world->releases[i];
        if (release->segment != segment)
            continue;
        if (!sim_release_may_be_done(world, release))
            sim_must(verdict, MOOR_PENDING);
        else if (!sim_release_is_done(world, release))
            sim_may(verdict, MOOR_PENDING);
    }
}

void sim_judge_map(const struct sim_world *world, int index, int range, uint32_t first, bool writable,
                   struct sim_verdict *verdict)
{
    const struct sim_segment *segment = &world->segments[index];
    if (segment->granule_bytes == world->ranges[range].granule_bytes) {
        sim_judge_free(world, range, first, segment->count, verdict);
    } else {
        sim_must(verdict, MOOR_INVALID);
        sim_may(verdict, MOOR_PENDING); /* the release covers granules outside the span */
    }
    if (world->bindings[segment->binding].device != world->bindings[world->ranges[range].binding].device)
        sim_must(verdict, MOOR_FOREIGN);
    if (segment->sealed == writable ||
        (writable && (segment->mapped > 0 || sim_has_stuck_mapping(world, index))))
        sim_must(verdict, MOOR_BUSY);
    else if (writable)
        sim_judge_last_mappings(world, index, verdict);
}

/* ---- effects ---- */

void sim_commit_done(struct sim_world *world, int index, uint32_t first, uint32_t count, int grant)
{
    struct sim_range *range = &world->ranges[index];
    sim_granules_gone(world, index, first, count);
    for (uint32_t i = first; i < first + count; i++) {
        range->granules[i].state = SIM_COMMITTED;
        range->granules[i].block = (struct sim_block){.value = 0};
    }
    sim_charge(world, range->binding, grant, count * range->granule_bytes, count * range->granule_bytes);
}

void sim_create_done(struct sim_world *world, int index, moor_segment handle, int binding,
                     uint64_t granule_bytes, uint32_t count, int grant)
{
    struct sim_segment *segment = &world->segments[index];
    *segment = (struct sim_segment){
        .used = true, .handle = handle, .binding = binding, .granule_bytes = granule_bytes, .count = count};
    sim_set_blocks(segment->blocks, count, 0);
    world->bindings[binding].live++;
    sim_charge(world, binding, grant, count * granule_bytes, count * granule_bytes);
    world->holders[world->bindings[binding].holder].shared += count * granule_bytes;
}

void sim_map_done(struct sim_world *world, int index, int at, uint32_t first, bool writable)
{
    struct sim_segment *segment = &world->segments[index];
    sim_granules_gone(world, at, first, segment->count);
    /* The library has seen that none of the pending mappings is left. */
    for (uint32_t i = world->release_count; writable && i-- > 0;)
        if (world->releases[i].segment == index)
            sim_release_gone(world, i);
    for (uint32_t i = 0; i < segment->count; i++) {
        struct sim_granule *granule = &world->ranges[at].granules[first + i];
        granule->state = SIM_MAPPED;
        granule->segment = index;
        granule->index = i;
        granule->writable = writable;
    }
    segment->mapped++;
}

struct sim_release *sim_release_granules(struct sim_world *world, int index, uint32_t first, uint32_t count)
{
    struct sim_range *range = &world->ranges[index];
    const struct sim_granule *head = &range->granules[first];
    bool mapping = head->state == SIM_MAPPED;
    uint64_t bytes = mapping ? 0 : count * range->granule_bytes;
    struct sim_release *release =
        sim_release_add(world, mapping ? SIM_GONE_MAPPING : SIM_GONE_PIECE, range->binding, bytes, bytes);
    release->segment = mapping ? head->segment : SIM_NONE;
    release->range = index;
    release->first = first;
    release->count = count;
    /* The release may wait for uses of the whole range, because the library may remember uses per range. */
    for (uint32_t i = 0; i < range->count; i++)
        sim_release_behind(world, release, &range->granules[i].own, false);
    for (uint32_t i = first; i < first + count; i++) {
        sim_release_behind(world, release, &range->granules[i].own, true);
        range->granules[i].state = SIM_LEAVING;
    }
    return release;
}

void sim_unmapped(struct sim_world *world, int segment)
{
    world->segments[segment].mapped--;
    if (world->segments[segment].mapped == 0 && !world->segments[segment].handle)
        sim_segment_drop(world, segment);
}

void sim_handle_released(struct sim_world *world, int segment)
{
    sim_forget_handle(world, SIM_HANDLE_SEGMENT, world->segments[segment].handle);
    world->segments[segment].handle = 0;
    if (world->segments[segment].mapped == 0)
        sim_segment_drop(world, segment);
}
