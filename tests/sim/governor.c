/* SPDX-License-Identifier: MIT */
/*
 * Requests: whether one fits, will fit, or never can, as core/README.md has it; and what a full device says.
 *
 * What is on its way out may have gone or not, so a holder has a span of bytes; where the ends of the span
 * give different answers, either will do.
 */
#include "world.h"

#include <string.h>

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- what holders have ---- */

/* With all pending back; at least, and at most, after a reap. */
enum view { VIEW_LATER, VIEW_LEAST, VIEW_MOST, VIEWS };

struct spans {
    uint64_t has[VIEWS][SIM_HOLDERS];
};

/* Bytes that count from that view on. */
static void add(struct spans *spans, int holder, enum view from, uint64_t bytes)
{
    for (int view = (int)from; view < VIEWS; view++)
        spans->has[view][holder] += bytes;
}

/* It is taken back in the next reap. */
static bool goes(const struct sim_world *world, const struct sim_release *release)
{
    /* A function's thread is given nothing by the device. */
    return !sim_inside && !(release->fresh && release->streams) && sim_release_is_done(world, release);
}

static void take_spans(const struct sim_world *world, struct spans *ret_spans)
{
    *ret_spans = (struct spans){0};
    for (int i = 0; i < SIM_HOLDERS; i++) {
        uint64_t bytes = world->holders[i].holder ? world->holders[i].reserved + world->holders[i].live : 0;
        add(ret_spans, i, VIEW_LATER, bytes);
    }
    for (uint32_t i = 0;
         sim_inside && world->request && world->request->is_granted && i < world->request->count; i++)
        add(ret_spans, world->request->parts[i].holder, VIEW_LATER, world->request->parts[i].bytes);
    for (uint32_t i = 0; i < world->release_count; i++) {
        const struct sim_release *release = &world->releases[i];
        /* Before it says no for want of room, the library takes back what has gone. */
        enum view from = release->stuck || release->kept            ? VIEW_LATER
                         : !sim_release_may_be_done(world, release) ? VIEW_LEAST
                         : !goes(world, release)                    ? VIEW_MOST
                                                                    : VIEWS;
        add(ret_spans, release->holder, from, release->bytes);
    }
}

uint64_t sim_guaranteed(const struct sim_world *world, int pool)
{
    uint64_t sum = 0;
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (world->holders[i].holder && world->holders[i].authority == pool)
            sum += world->holders[i].guarantee;
    return sum;
}

uint64_t sim_over(const struct sim_world *world, int pool, const uint64_t *has)
{
    const struct sim_authority *authority = &world->authorities[pool];
    uint64_t sum = 0, claims = 0;
    for (int i = 0; i < SIM_HOLDERS; i++) {
        const struct sim_holder *holder = &world->holders[i];
        if (!holder->holder || holder->authority != pool)
            continue;
        sum += has[i];
        claims += larger(has[i], holder->guarantee);
    }
    uint64_t lent = minus(claims + authority->set_aside, authority->capacity);
    uint64_t borrowed = claims - sim_guaranteed(world, pool);
    return larger(minus(sum, authority->capacity), lent < borrowed ? lent : borrowed);
}

void sim_last_seen(const struct sim_world *world, uint64_t *ret_has)
{
    for (int i = 0; i < SIM_HOLDERS; i++)
        ret_has[i] = world->holders[i].reserved + world->holders[i].charged;
}

/* ---- budgets ---- */

enum fit { FITS, MAY_FIT, COMES, TOO_MUCH, NEVER };

/* How much of a pool there is beside what others hold. */
struct capacities {
    uint64_t of[SIM_DEVICES];
};

/* inside: the request is a pressure function's, and has the set-aside. */
static uint64_t pool_room(const struct sim_world *world, const uint64_t *has, int of, uint64_t capacity,
                          bool inside)
{
    const struct sim_holder *holder = &world->holders[of];
    uint64_t taken = has[of] + (inside ? 0 : world->authorities[holder->authority].set_aside);
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (i != of && world->holders[i].holder && world->holders[i].authority == holder->authority)
            taken += larger(has[i], world->holders[i].guarantee);
    return minus(capacity, taken);
}

bool sim_never_fits(const struct sim_world *world, const struct sim_part *parts, uint32_t count, bool inside)
{
    uint64_t wish[SIM_HOLDERS] = {0};
    for (uint32_t i = 0; i < count; i++) {
        const struct sim_part *part = &parts[i];
        const struct sim_holder *holder = &world->holders[part->holder];
        uint64_t capacity = world->authorities[holder->authority].capacity;
        uint64_t room = pool_room(world, wish, part->holder, capacity, inside);
        if (part->bytes > room || part->bytes > minus(holder->limit, wish[part->holder]))
            return true;
        wish[part->holder] += part->bytes;
    }
    return false;
}

/* *ret_pool: the authority that the first part lacks room in, SIM_NONE: it is not for that. */
static bool fits(const struct sim_world *world, const struct sim_request *request, const uint64_t *span,
                 const struct capacities *capacities, int *ret_pool)
{
    uint64_t has[SIM_HOLDERS];
    bool all = true;
    *ret_pool = SIM_NONE;
    for (int i = 0; i < SIM_HOLDERS; i++)
        has[i] = span[i];
    for (uint32_t i = 0; i < request->count; i++) {
        const struct sim_part *part = &request->parts[i];
        const struct sim_holder *holder = &world->holders[part->holder];
        bool limited = part->bytes > minus(holder->limit, has[part->holder]);
        uint64_t room = pool_room(world, has, part->holder, capacities->of[holder->authority], sim_inside);
        if (all && !limited && part->bytes > room)
            *ret_pool = holder->authority;
        all &= !limited && part->bytes <= room;
        has[part->holder] += part->bytes;
    }
    return all;
}

static enum fit judge_parts(const struct sim_world *world, const struct sim_request *request,
                            const struct spans *spans, const struct capacities *capacities)
{
    int unused;
    if (fits(world, request, spans->has[VIEW_MOST], capacities, &unused))
        return FITS;
    if (fits(world, request, spans->has[VIEW_LEAST], capacities, &unused))
        return MAY_FIT;
    return fits(world, request, spans->has[VIEW_LATER], capacities, &unused) ? COMES : TOO_MUCH;
}

/* ---- what others hold ---- */

static uint64_t beside(const struct sim_world *world, int pool, uint64_t external)
{
    uint64_t there = world->geometry.total_bytes - external;
    return there < world->authorities[pool].capacity ? there : world->authorities[pool].capacity;
}

/* As the core is to work it out from what the devices say, if they hold so much of ours. */
static uint64_t external_beside(const struct sim_world *world, int pool, uint64_t held)
{
    uint64_t used = held, ours = held, total = world->geometry.total_bytes;
    for (uint32_t i = 0; i < world->geometry.devices; i++)
        used += world->authority_of[i] == pool ? world->external[i] : 0;
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (world->holders[i].holder && world->holders[i].authority == pool)
            ours += world->holders[i].leased;
    return minus(used < total ? used : total, ours);
}

uint64_t sim_external_now(const struct sim_world *world, int pool)
{
    uint64_t sum = 0, held = 0;
    for (uint32_t i = 0; i < world->geometry.devices; i++) {
        (void)world->control->held(world->control->mock, i, &held); /* the device is there */
        sum += world->authority_of[i] == pool ? held : 0;
    }
    return external_beside(world, pool, sum);
}

/* What the devices of a pool hold after the next reap: at most, or at least. */
static uint64_t held_later(const struct sim_world *world, int pool, bool least)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < world->geometry.devices; i++)
        bytes += world->authority_of[i] == pool ? world->live[i] : 0;
    for (uint32_t i = 0; i < world->release_count; i++) {
        const struct sim_release *release = &world->releases[i];
        if (world->holders[release->holder].authority == pool && !goes(world, release) &&
            !(least && sim_release_may_be_done(world, release)))
            bytes += release->bytes;
    }
    return bytes;
}

/* As the devices said in the last look. */
static void take_capacities(const struct sim_world *world, struct capacities *ret_capacities)
{
    for (int i = 0; i < SIM_DEVICES; i++) {
        const struct sim_authority *authority = &world->authorities[i];
        bool known = authority->authority && authority->seen.external_known;
        ret_capacities->of[i] =
            known ? beside(world, i, authority->seen.external_bytes) : authority->capacity;
    }
}

static void tell(enum fit fit, const struct sim_request *request, struct sim_verdict *verdict)
{
    bool late = request->deadline_ns != MOOR_NO_WAIT && !sim_inside;
    switch (fit) {
    case FITS:
        break;
    case MAY_FIT:
        sim_may(verdict, late ? MOOR_TIMEOUT : MOOR_PENDING);
        break;
    case COMES:
        sim_must(verdict, late ? MOOR_TIMEOUT : MOOR_PENDING);
        break;
    case TOO_MUCH:
        sim_must(verdict, late                                     ? MOOR_TIMEOUT
                          : request->asked || request->turned_away ? MOOR_NO_VICTIM
                                                                   : MOOR_OVER_BUDGET);
        if (request->asked && request->is_retried)
            sim_must(verdict, MOOR_OVER_BUDGET); /* the last time there was nobody left */
        break;
    case NEVER:
        sim_must(verdict, MOOR_NEVER_FITS);
    }
}

/* A pool where others hold what is missing. */
static bool is_external(const struct sim_world *world, const struct capacities *capacities, int pool)
{
    return pool != SIM_NONE && capacities->of[pool] < world->authorities[pool].capacity;
}

/* Whether the core looks again at what others hold: before it refuses a request for that; if what holders
 * have is in between, the first part that does not fit may be another one. */
enum looking { LOOKS_IF_SHORT, LOOKS, LOOKS_NOT };

/* One way it may have gone. */
struct way {
    enum view view;  /* so much holders have */
    bool held_least; /* so much devices hold of ours, when it is looked what others do */
    enum looking looking;
};

static void look_at_others(const struct sim_world *world, int pool, bool held_least,
                           struct capacities *capacities)
{
    uint64_t held = held_later(world, pool, held_least);
    capacities->of[pool] = beside(world, pool, external_beside(world, pool, held));
}

static void judge_way(const struct sim_world *world, const struct sim_request *request,
                      const struct spans *spans, const struct way *way, struct sim_verdict *verdict,
                      bool *ret_fits)
{
    struct capacities capacities;
    uint32_t looked = 0;
    int pool;
    take_capacities(world, &capacities);
    /* Not for a ticket; and a function's thread is told nothing by the device. */
    bool looks = way->looking != LOOKS_NOT && !request->is_waiting && !sim_inside;
    for (uint32_t i = 0; looks && way->looking == LOOKS && i < request->count; i++) {
        pool = world->holders[request->parts[i].holder].authority;
        if (world->authorities[pool].seen.external_known)
            look_at_others(world, pool, way->held_least, &capacities);
    }
    while (!fits(world, request, spans->has[way->view], &capacities, &pool) && looks &&
           way->looking != LOOKS && is_external(world, &capacities, pool) && !(looked >> pool & 1)) {
        look_at_others(world, pool, way->held_least, &capacities);
        looked |= UINT32_C(1) << pool;
    }
    tell(judge_parts(world, request, spans, &capacities), request, verdict);
    *ret_fits |= fits(world, request, spans->has[way->view], &capacities, &pool);
}

/* Before it says no, the library takes back what has gone. */
static void judge_budget(const struct sim_world *world, const struct sim_request *request,
                         struct sim_verdict *verdict)
{
    static const struct way ways[] = {{VIEW_MOST, false, LOOKS_IF_SHORT}, {VIEW_LEAST, false, LOOKS_IF_SHORT},
                                      {VIEW_LEAST, true, LOOKS_IF_SHORT}, {VIEW_MOST, false, LOOKS},
                                      {VIEW_LEAST, true, LOOKS},          {VIEW_LEAST, true, LOOKS_NOT}};
    struct spans spans;
    struct capacities capacities;
    struct sim_verdict told = {0};
    bool may_fit = false;
    int unused;
    if (sim_never_fits(world, request->parts, request->count, sim_inside)) {
        tell(NEVER, request, verdict);
        return;
    }
    take_spans(world, &spans);
    take_capacities(world, &capacities);
    if (fits(world, request, spans.has[VIEW_MOST], &capacities, &unused))
        return;
    bool is_sure = memcmp(spans.has[VIEW_LEAST], spans.has[VIEW_MOST], sizeof spans.has[VIEW_MOST]) == 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (i == 0 || !is_sure)
            judge_way(world, request, &spans, &ways[i], &told, &may_fit);
    if (may_fit) {
        told.may |= told.must;
        told.must = 0;
    }
    verdict->must |= told.must;
    verdict->may |= told.may;
}

static void judge_grants(const struct sim_world *world, const struct sim_request *request,
                         struct sim_verdict *verdict)
{
    if (request->is_foreign)
        sim_must(verdict, MOOR_FOREIGN);
    for (int i = 0; i < SIM_GRANTS; i++)
        if (request->draws[i] > world->grants[i].remaining)
            sim_must(verdict, MOOR_OVER_BUDGET);
}

/* ---- what a refusal says beside its status ---- */

static void check_within(struct sim_world *world, const char *what, uint64_t a, uint64_t b, uint64_t seen)
{
    sim_check_span(world, what, a < b ? a : b, a < b ? b : a, seen);
}

/* The most that could fit: by its limit, and by the capacity beside what is guaranteed to others. */
static uint64_t most_of(const struct sim_world *world, int index, bool inside)
{
    const struct sim_holder *holder = &world->holders[index];
    static const uint64_t nothing[SIM_HOLDERS];
    uint64_t room = pool_room(world, nothing, index, world->authorities[holder->authority].capacity, inside);
    return room < holder->limit ? room : holder->limit;
}

static uint64_t short_of(const struct sim_world *world, const struct sim_part *part, const uint64_t *has,
                         const struct capacities *capacities)
{
    const struct sim_holder *holder = &world->holders[part->holder];
    uint64_t own = minus(holder->limit, has[part->holder]);
    uint64_t pool = pool_room(world, has, part->holder, capacities->of[holder->authority], sim_inside);
    return minus(part->bytes, own < pool ? own : pool);
}

void sim_check_shortage(struct sim_world *world, const struct sim_request *request, moor_status status)
{
    const struct moor_error *error = moor_last_error();
    struct spans spans;
    struct capacities capacities;
    sim_check(world, error->status == status, "the status of the last error", (uint64_t)status,
              (uint64_t)error->status);
    struct sim_verdict drawn = {0};
    judge_grants(world, request, &drawn);
    if (request->count != 1 || request->is_device || drawn.must)
        return;
    const struct sim_part *part = &request->parts[0];
    take_spans(world, &spans);
    if (status == MOOR_NEVER_FITS)
        sim_check_equal(world, "the most that could fit", most_of(world, part->holder, sim_inside),
                        error->bytes);
    if (status == MOOR_PENDING || (status != MOOR_OVER_BUDGET && status != MOOR_NO_VICTIM))
        return;
    /* As others are known to hold now: it was looked at before the refusal. */
    moor_status known = moor_authority_get_stats(
        world->authorities[world->holders[part->holder].authority].authority,
        &world->authorities[world->holders[part->holder].authority].seen, NULL, 0, NULL);
    (void)sim_expect_ok(world, "statistics of an authority", known);
    take_capacities(world, &capacities);
    check_within(world, "the bytes that are short", short_of(world, part, spans.has[VIEW_LEAST], &capacities),
                 short_of(world, part, spans.has[VIEW_MOST], &capacities), error->bytes);
}

/* ---- memory ---- */

/* The pool's memory itself, which others use too. */
static void judge_room(const struct sim_world *world, int pool, uint64_t bytes, struct sim_verdict *verdict)
{
    uint64_t least = 0, most = 0, total = world->geometry.total_bytes, wanted = bytes;
    for (uint32_t i = 0; i < world->geometry.devices; i++) {
        if (world->authority_of[i] != pool)
            continue;
        wanted += world->external[i];
        least += world->live[i];
        most += world->live[i];
    }
    for (uint32_t i = 0; i < world->release_count; i++) {
        const struct sim_release *release = &world->releases[i];
        if (world->holders[release->holder].authority != pool)
            continue;
        /* A device that is full is asked once more when what has completed was taken back. */
        least += sim_release_may_be_done(world, release) ? 0 : release->bytes;
        most += goes(world, release) ? 0 : release->bytes;
    }
    if (wanted > total || least > total - wanted)
        sim_must(verdict, MOOR_DEVICE_NOMEM);
    else if (most > total - wanted)
        sim_may(verdict, MOOR_DEVICE_NOMEM);
}

static void judge_rooms(const struct sim_world *world, const struct sim_request *request,
                        struct sim_verdict *verdict)
{
    for (int i = 0; i < SIM_DEVICES; i++)
        if (request->rooms[i])
            judge_room(world, i, request->rooms[i], verdict);
}

bool sim_may_lack_memory(const struct sim_world *world, const struct sim_request *request)
{
    struct sim_verdict told = {0};
    judge_rooms(world, request, &told);
    return told.must || told.may;
}

void sim_judge(const struct sim_world *world, const struct sim_request *request, struct sim_verdict *verdict)
{
    struct sim_verdict told = {0};
    judge_grants(world, request, &told);
    if (!told.must && request->count && !request->is_device)
        judge_budget(world, request, &told);
    if (!told.must)
        judge_rooms(world, request, &told);
    if (!verdict->must)
        verdict->must = told.must;
    verdict->may |= told.may;
}

/* ---- what is wanted, and what has come of it ---- */

void sim_want_budget(struct sim_world *world, struct sim_request *request, int holder, uint64_t bytes)
{
    request->parts[request->count++] = (struct sim_part){holder, bytes};
    world->added[holder] += bytes;
}

void sim_want_memory(struct sim_world *world, struct sim_request *request, int binding, int grant,
                     uint64_t bytes)
{
    int holder = world->bindings[binding].holder;
    if (grant == SIM_NONE) {
        sim_want_budget(world, request, holder, bytes);
    } else if (world->grants[grant].holder != holder) {
        request->is_foreign = true;
    } else {
        request->draws[grant] += bytes;
        world->added[holder] += bytes;
    }
    request->rooms[world->holders[holder].authority] += bytes;
}

void sim_charge(struct sim_world *world, int binding, int grant, uint64_t bytes, uint64_t requested)
{
    struct sim_holder *holder = &world->holders[world->bindings[binding].holder];
    holder->live += bytes;
    holder->requested += requested;
    world->live[world->bindings[binding].device] += bytes;
    if (grant == SIM_NONE)
        return;
    holder->reserved -= bytes;
    world->grants[grant].remaining -= bytes;
}

void sim_charge_leased(struct sim_world *world, int index, int64_t bytes)
{
    struct sim_holder *holder = &world->holders[index];
    if (bytes > 0)
        world->added[index] += (uint64_t)bytes;
    else
        sim_let_go_at_once(world, index, (uint64_t)-bytes);
    holder->live += (uint64_t)bytes; /* which wraps, to go down; so below */
    holder->leased += (uint64_t)bytes;
    holder->requested += (uint64_t)bytes;
}

int sim_grant_at(const struct sim_world *world, uint64_t arg, moor_grant *ret_handle)
{
    bool known = arg > 0 && arg <= SIM_GRANTS && world->grants[arg - 1].handle;
    *ret_handle = known ? world->grants[arg - 1].handle : 0;
    return known ? (int)arg - 1 : SIM_NONE;
}
