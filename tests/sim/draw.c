/* SPDX-License-Identifier: MIT */
#include "draw.h"

static const uint32_t sizes[SIM_TABLE_COUNT] = {
    [SIM_TABLE_HOLDERS] = SIM_HOLDERS, [SIM_TABLE_BINDINGS] = SIM_BINDINGS, [SIM_TABLE_BUFFERS] = SIM_BUFFERS,
    [SIM_TABLE_RANGES] = SIM_RANGES,   [SIM_TABLE_SEGMENTS] = SIM_SEGMENTS, [SIM_TABLE_GRANTS] = SIM_GRANTS,
    [SIM_TABLE_LEASES] = SIM_LEASES,   [SIM_TABLE_TICKETS] = SIM_TICKETS,   [SIM_TABLE_STREAMS] = SIM_STREAMS,
    [SIM_TABLE_FENCES] = SIM_FENCES,
};

bool sim_is_live(const struct sim_world *world, enum sim_table table, uint64_t index)
{
    if (table >= SIM_TABLE_COUNT || index >= sizes[table])
        return false;
    switch (table) {
    case SIM_TABLE_HOLDERS:
        return world->holders[index].holder != NULL;
    case SIM_TABLE_BINDINGS:
        return world->bindings[index].binding != NULL;
    case SIM_TABLE_BUFFERS:
        return world->buffers[index].handle != 0;
    case SIM_TABLE_RANGES:
        return world->ranges[index].handle != 0;
    case SIM_TABLE_SEGMENTS:
        return world->segments[index].used && world->segments[index].handle != 0;
    case SIM_TABLE_GRANTS:
        return world->grants[index].handle != 0;
    case SIM_TABLE_LEASES:
        return world->leases[index].handle != 0;
    case SIM_TABLE_TICKETS:
        return world->tickets[index].handle != 0;
    case SIM_TABLE_STREAMS:
        return world->streams[index].state == SIM_STREAM_OPEN;
    case SIM_TABLE_FENCES:
        return world->fences[index].live;
    case SIM_TABLE_COUNT:
        break;
    }
    return false;
}

bool sim_is_free(const struct sim_world *world, enum sim_table table, uint64_t index)
{
    if (table >= SIM_TABLE_COUNT || index >= sizes[table])
        return false;
    if (world->places[table] >> index & 1)
        return false; /* reserved for the current operation */
    const struct sim_stream *stream = &world->streams[index % SIM_STREAMS];
    if (table == SIM_TABLE_STREAMS)
        return stream->state == SIM_STREAM_FREE ||
               (stream->state == SIM_STREAM_CLOSED && stream->done == stream->submitted);
    if (table == SIM_TABLE_SEGMENTS)
        return !world->segments[index].used;
    return !sim_is_live(world, table, index);
}

typedef bool (*predicate)(const struct sim_world *world, enum sim_table table, uint64_t index);

static bool draw(const struct sim_world *world, struct sim_random *random, enum sim_table table,
                 predicate wanted, uint64_t *ret_arg)
{
    uint32_t start = sim_below(random, sizes[table]);
    for (uint32_t i = 0; i < sizes[table]; i++) {
        uint32_t index = (start + i) % sizes[table];
        if (wanted(world, table, index)) {
            *ret_arg = index;
            return true;
        }
    }
    return false;
}

bool sim_draw_live(const struct sim_world *world, struct sim_random *random, enum sim_table table,
                   uint64_t *ret_arg)
{
    return draw(world, random, table, sim_is_live, ret_arg);
}

bool sim_draw_free(const struct sim_world *world, struct sim_random *random, enum sim_table table,
                   uint64_t *ret_arg)
{
    return draw(world, random, table, sim_is_free, ret_arg);
}

bool sim_draw_nothing(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    (void)world;
    (void)random;
    (void)op;
    return true;
}

uint64_t sim_draw_grant(const struct sim_world *world, struct sim_random *random, uint64_t binding)
{
    uint64_t grant = 0;
    if (!sim_one_in(random, 3) || !sim_draw_live(world, random, SIM_TABLE_GRANTS, &grant))
        return 0;
    if (sim_one_in(random, 8))
        return grant + 1;
    for (uint32_t i = 0; i < SIM_GRANTS; i++) {
        const struct sim_grant *own = &world->grants[(grant + i) % SIM_GRANTS];
        if (own->handle && own->holder == world->bindings[binding].holder)
            return (grant + i) % SIM_GRANTS + 1;
    }
    return 0;
}

bool sim_draw_thing(const struct sim_world *world, struct sim_random *random, uint64_t *ret_thing,
                    uint64_t *ret_first, uint64_t *ret_count)
{
    static const enum sim_table tables[SIM_THING_COUNT] = {SIM_TABLE_BUFFERS, SIM_TABLE_RANGES};
    enum sim_thing thing = sim_one_in(random, 5)   ? SIM_THING_AREA
                           : sim_one_in(random, 2) ? SIM_THING_RANGE
                                                   : SIM_THING_BUFFER;
    uint64_t index = sim_below(random, SIM_AREAS);
    if (thing != SIM_THING_AREA && !sim_draw_live(world, random, tables[thing], &index))
        return false;
    *ret_thing = sim_thing(thing, (uint32_t)index);
    if (thing == SIM_THING_RANGE) {
        uint64_t range = index;
        enum sim_granule_state state = sim_one_in(random, 2) ? SIM_COMMITTED : SIM_MAPPED;
        if (!sim_draw_granules(world, random, state, 4, &range, ret_first, ret_count))
            return false;
        *ret_thing = sim_thing(thing, (uint32_t)range);
        return true;
    }
    uint32_t units = sim_thing_units(world, *ret_thing);
    if (units == 0)
        return false;
    *ret_first = sim_below(random, units);
    *ret_count = 1 + sim_below(random, units - (uint32_t)*ret_first);
    return true;
}

bool sim_draw_granules(const struct sim_world *world, struct sim_random *random, enum sim_granule_state state,
                       uint32_t longest, uint64_t *ret_range, uint64_t *ret_first, uint64_t *ret_count)
{
    if (!sim_draw_live(world, random, SIM_TABLE_RANGES, ret_range))
        return false;
    const struct sim_range *range = &world->ranges[*ret_range];
    uint32_t start = sim_below(random, range->count), i = 0;
    while (i < range->count && range->granules[(start + i) % range->count].state != state)
        i++;
    if (i == range->count && !sim_one_in(random, 8))
        return false; /* sometimes a pointless choice */
    uint32_t first = (start + i) % range->count, count = 1;
    uint32_t most = 1 + sim_below(random, longest);
    while (count < most && first + count < range->count &&
           (range->granules[first + count].state == state || sim_one_in(random, 32)))
        count++;
    *ret_first = first;
    *ret_count = count;
    return true;
}
