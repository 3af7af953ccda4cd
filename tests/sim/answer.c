/* SPDX-License-Identifier: MIT */
/*
 * What pressure functions do. Each time something else: let go what is asked, part of it, nothing, or more;
 * lie; make something first; give up their function, or another's, or their holder. They leave alone what the
 * call that asks is about, as a host would that knows what it is doing.
 */
#include "draw.h"

#include <moorage/runtime.h>

_Thread_local bool sim_inside;

enum manner { GIVES_ALL, GIVES_PART, GIVES_NOTHING, GIVES_MORE, LIES, MAKES_SOMETHING, GOES, SILENCES, ENDS };

static const uint8_t weights[] = {
    [GIVES_ALL] = 10,      [GIVES_PART] = 3, [GIVES_NOTHING] = 2, [GIVES_MORE] = 3, [LIES] = 1,
    [MAKES_SOMETHING] = 3, [GOES] = 1,       [SILENCES] = 1,      [ENDS] = 1};

#define PIECES_MAX 16 /* of one answer */

struct answer {
    struct sim_world *world;
    int holder;
    struct sim_random random;
};

static enum manner draw_manner(struct sim_random *random)
{
    uint32_t total = 0, manner = 0;
    for (size_t i = 0; i < sizeof weights; i++)
        total += weights[i];
    uint32_t at = sim_below(random, total);
    while (at >= weights[manner])
        at -= weights[manner++];
    return (enum manner)manner;
}

static uint64_t let_go(const struct answer *answer)
{
    return answer->world->holders[answer->holder].ask.let_go;
}

static bool is_of(const struct answer *answer, int binding)
{
    return answer->world->bindings[binding].holder == answer->holder;
}

/* An operation within the function. Who is asked because of it has been called when it returns; what is only
 * let go has nobody asked for a call. */
static void run(struct answer *answer, const struct sim_op *op, bool takes)
{
    struct sim_world *world = answer->world;
    sim_kinds[op->kind]->run(world, op);
    if (takes || sim_someone_waits(world))
        sim_line_inside(world);
}

/* ---- pieces ---- */

static bool give_lease(struct answer *answer, uint32_t start, uint64_t wanted)
{
    struct sim_world *world = answer->world;
    for (uint32_t i = 0; i < SIM_LEASES; i++) {
        uint32_t at = (start + i) % SIM_LEASES;
        const struct sim_lease *lease = &world->leases[at];
        if (!lease->handle || lease->holder != answer->holder ||
            (world->request && world->request->leases >> at & 1))
            continue;
        struct sim_op op = {.kind = SIM_LEASE_REFUND, .arg = {at}};
        if (lease->bytes > wanted && sim_one_in(&answer->random, 2))
            op = (struct sim_op){.kind = SIM_LEASE_ADJUST, .arg = {at, lease->bytes - wanted}};
        run(answer, &op, false);
        return true;
    }
    return false;
}

static bool give_grant(struct answer *answer, uint32_t start, uint64_t wanted)
{
    struct sim_world *world = answer->world;
    (void)wanted;
    for (uint32_t i = 0; i < SIM_GRANTS; i++) {
        uint32_t at = (start + i) % SIM_GRANTS;
        const struct sim_grant *grant = &world->grants[at];
        if (!grant->handle || grant->holder != answer->holder || grant->remaining == 0 ||
            (world->request && world->request->draws[at]))
            continue;
        run(answer, &(struct sim_op){.kind = SIM_GRANT_RELEASE, .arg = {at}}, false);
        return true;
    }
    return false;
}

static bool give_buffer(struct answer *answer, uint32_t start, uint64_t wanted)
{
    struct sim_world *world = answer->world;
    (void)wanted;
    for (uint32_t i = 0; i < SIM_BUFFERS; i++) {
        uint32_t at = (start + i) % SIM_BUFFERS;
        const struct sim_buffer *buffer = &world->buffers[at];
        if (!buffer->handle || !is_of(answer, buffer->binding) || buffer->bytes + buffer->leased == 0)
            continue;
        run(answer, &(struct sim_op){.kind = SIM_RELEASE_BUFFER, .arg = {at}}, false);
        return true;
    }
    return false;
}

static bool give_granules(struct answer *answer, uint32_t start, uint64_t wanted)
{
    struct sim_world *world = answer->world;
    for (uint32_t i = 0; i < SIM_RANGES; i++) {
        uint32_t at = (start + i) % SIM_RANGES, first = 0, count = 0;
        const struct sim_range *range = &world->ranges[at];
        if (!range->handle || !is_of(answer, range->binding) ||
            (world->request && world->request->ranges >> at & 1))
            continue;
        while (first < range->count && range->granules[first].state != SIM_COMMITTED)
            first++;
        while (first + count < range->count && range->granules[first + count].state == SIM_COMMITTED &&
               count * range->granule_bytes < wanted)
            count++;
        if (count == 0)
            continue;
        run(answer, &(struct sim_op){.kind = SIM_DECOMMIT, .arg = {at, first, count}}, false);
        return true;
    }
    return false;
}

/* Only what is mapped nowhere goes by its handle alone. */
static bool give_segment(struct answer *answer, uint32_t start, uint64_t wanted)
{
    struct sim_world *world = answer->world;
    (void)wanted;
    for (uint32_t i = 0; i < SIM_SEGMENTS; i++) {
        uint32_t at = (start + i) % SIM_SEGMENTS;
        const struct sim_segment *segment = &world->segments[at];
        bool leaves = false;
        if (!segment->used || !segment->handle || segment->mapped > 0 || !is_of(answer, segment->binding) ||
            (world->request && world->request->segments >> at & 1))
            continue;
        for (uint32_t j = 0; j < world->release_count; j++)
            leaves |= world->releases[j].segment == (int)at;
        if (leaves)
            continue;
        run(answer, &(struct sim_op){.kind = SIM_RELEASE_SEGMENT, .arg = {at}}, false);
        return true;
    }
    return false;
}

/* Until so much has been let go, or nothing is left. */
static void give(struct answer *answer, uint64_t wanted)
{
    static bool (*const ways[])(struct answer *, uint32_t, uint64_t) = {give_lease, give_grant, give_buffer,
                                                                        give_granules, give_segment};
    const uint32_t count = sizeof ways / sizeof *ways;
    bool any = true;
    for (int pieces = 0; any && pieces < PIECES_MAX && let_go(answer) < wanted; pieces++) {
        uint32_t way = sim_below(&answer->random, count), start = sim_below(&answer->random, SIM_BUFFERS);
        any = false;
        for (uint32_t i = 0; i < count && !any && answer->world->failure[0] == '\0'; i++)
            any = ways[(way + i) % count](answer, start, wanted - let_go(answer));
    }
}

/* ---- manners ---- */

/* The call under way has had an answer, and may be taking back what has gone, at the same time: what would be
 * found of that is a matter of time. */
static bool may_be_taken_back(const struct sim_world *world)
{
    return world->request && world->request->answered;
}

/* The set-aside is for this. */
static void make_something(struct answer *answer)
{
    struct sim_world *world = answer->world;
    if (may_be_taken_back(world))
        return;
    uint64_t granule = world->geometry.granule_bytes, place = 0, binding = 0;
    if (sim_one_in(&answer->random, 2) && sim_draw_free(world, &answer->random, SIM_TABLE_GRANTS, &place)) {
        struct sim_op op = {.kind = SIM_GRANT_RESERVE,
                            .arg = {place, (uint64_t)answer->holder,
                                    granule * (1 + sim_below(&answer->random, 3)),
                                    sim_below(&answer->random, 2)}};
        run(answer, &op, true);
    } else if (sim_draw_live(world, &answer->random, SIM_TABLE_BINDINGS, &binding) &&
               is_of(answer, (int)binding) &&
               sim_draw_free(world, &answer->random, SIM_TABLE_BUFFERS, &place)) {
        struct sim_op op = {.kind = SIM_ALLOCATE, .arg = {place, binding, granule, 1, 0, 0}};
        run(answer, &op, true);
    }
}

/* Takes another one's function away, or another holder that has nothing. Not one that has just acted: whether
 * it has returned by now is a matter of time. */
static void silence(struct answer *answer)
{
    uint64_t other = 0;
    if (!sim_draw_live(answer->world, &answer->random, SIM_TABLE_HOLDERS, &other) ||
        (int)other == answer->holder || answer->world->holders[other].has_acted)
        return;
    bool silenced = sim_one_in(&answer->random, 2) || may_be_taken_back(answer->world);
    enum sim_kind kind = silenced ? SIM_HOLDER_PRESSURE : SIM_HOLDER_DESTROY;
    run(answer, &(struct sim_op){.kind = (uint16_t)kind, .arg = {other, 0}}, true);
}

static void act(struct answer *answer, enum manner manner, uint64_t bytes)
{
    const uint64_t own = (uint64_t)answer->holder;
    switch (manner) {
    case GIVES_NOTHING:
        return;
    case GIVES_PART:
    case LIES:
        give(answer, bytes / 2);
        return;
    case GIVES_MORE:
        give(answer, bytes + answer->world->geometry.granule_bytes * (1 + sim_below(&answer->random, 8)));
        return;
    case MAKES_SOMETHING:
        make_something(answer);
        break;
    case GOES:
        run(answer, &(struct sim_op){.kind = SIM_HOLDER_PRESSURE, .arg = {own, 0}}, true);
        break;
    case SILENCES:
        silence(answer);
        break;
    case GIVES_ALL:
    case ENDS:
        break;
    }
    give(answer, bytes);
    if (manner == ENDS && !may_be_taken_back(answer->world))
        run(answer, &(struct sim_op){.kind = SIM_HOLDER_DESTROY, .arg = {own}}, true);
}

uint64_t sim_answer(struct sim_world *world, int index)
{
    struct sim_holder *holder = &world->holders[index];
    struct answer answer = {world, index, {sim_mix(holder->behaviour + holder->answers++)}};
    struct sim_present outer = world->now;
    enum manner manner = draw_manner(&answer.random);
    sim_inside = true;
    act(&answer, manner, holder->ask.bytes);
    sim_inside = false;
    world->now = outer;
    return manner == LIES ? UINT64_MAX : holder->ask.let_go;
}
