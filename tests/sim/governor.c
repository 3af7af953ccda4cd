/* SPDX-License-Identifier: MIT */
/*
 * Requests: the statuses that a host may get for a demand of budget and device memory.
 *
 * A request must succeed if it fits beside the bytes that remain after a reap, unless a ticket waits for the
 * same pool. If it fits only beside the bytes without pending ones, it may be PENDING. If it does not fit even
 * then, it is OVER_BUDGET, or NEVER_FITS if it would not fit an empty pool. After a success the statistics must
 * show that the request fitted.
 */
#include "world.h"

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool is_in_pool(const struct sim_world *world, int holder, int pool)
{
    return world->holders[holder].holder && world->holders[holder].authority == pool;
}

static int pool_of(const struct sim_world *world, const struct sim_part *part)
{
    return world->holders[part->holder].authority;
}

/* ---- sums over holders ---- */

uint64_t sim_guaranteed(const struct sim_world *world, int pool)
{
    uint64_t sum = 0;
    for (int i = 0; i < SIM_HOLDERS; i++)
        sum += is_in_pool(world, i, pool) ? world->holders[i].guarantee : 0;
    return sum;
}

uint64_t sim_over(const struct sim_world *world, int pool, const uint64_t *has)
{
    const struct sim_authority *authority = &world->authorities[pool];
    uint64_t sum = 0, commitments = 0;
    for (int i = 0; i < SIM_HOLDERS; i++) {
        if (!is_in_pool(world, i, pool))
            continue;
        sum += has[i];
        commitments += larger(has[i], world->holders[i].guarantee);
    }
    uint64_t lent = minus(commitments + authority->set_aside, authority->capacity);
    uint64_t borrowed = commitments - sim_guaranteed(world, pool);
    return larger(minus(sum, authority->capacity), smaller(lent, borrowed));
}

void sim_last_seen(const struct sim_world *world, uint64_t *ret_has)
{
    for (int i = 0; i < SIM_HOLDERS; i++)
        ret_has[i] = world->holders[i].reserved + world->holders[i].charged;
}

/* Returns the bytes of a pool that are taken from a holder's point of view: its own bytes + the emergency
 * reserve + the commitments max(bytes, guarantee) of the other holders. */
static uint64_t taken_for(const struct sim_world *world, const uint64_t *has, int of)
{
    int pool = world->holders[of].authority;
    uint64_t taken = has[of] + world->authorities[pool].set_aside;
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (i != of && is_in_pool(world, i, pool))
            taken += larger(has[i], world->holders[i].guarantee);
    return taken;
}

/* Returns true if the parts fit beside has[], one after the other. */
static bool fits(const struct sim_world *world, const struct sim_part *parts, uint32_t count,
                 const uint64_t *has, const uint64_t *capacities)
{
    uint64_t with[SIM_HOLDERS];
    for (int i = 0; i < SIM_HOLDERS; i++)
        with[i] = has[i];
    for (uint32_t i = 0; i < count; i++) {
        int holder = parts[i].holder;
        uint64_t room = minus(capacities[pool_of(world, &parts[i])], taken_for(world, with, holder));
        if (parts[i].bytes > room || parts[i].bytes > minus(world->holders[holder].limit, with[holder]))
            return false;
        with[holder] += parts[i].bytes;
    }
    return true;
}

static void take_capacities(const struct sim_world *world, uint64_t *ret_capacities)
{
    for (int i = 0; i < SIM_DEVICES; i++)
        ret_capacities[i] = world->authorities[i].capacity;
}

bool sim_never_fits(const struct sim_world *world, const struct sim_part *parts, uint32_t count)
{
    static const uint64_t nothing[SIM_HOLDERS];
    uint64_t capacities[SIM_DEVICES];
    take_capacities(world, capacities);
    return !fits(world, parts, count, nothing, capacities);
}

/* ---- external bytes ---- */

uint64_t sim_external_now(const struct sim_world *world, int pool)
{
    uint64_t used = 0, ours = 0, held = 0;
    for (uint32_t i = 0; i < world->geometry.devices; i++) {
        if (world->authority_of[i] != pool)
            continue;
        (void)world->control->held(world->control->mock, i, &held); /* cannot fail for an existing device */
        ours += held;
        used += held + world->external[i];
    }
    for (int i = 0; i < SIM_HOLDERS; i++)
        ours += is_in_pool(world, i, pool) ? world->holders[i].leased : 0;
    return minus(smaller(used, world->geometry.total_bytes), ours);
}

/* Lowers the capacities to the bytes that the devices have beside external ones. The library may know the
 * external bytes of its last refresh, or refresh them in the call: the larger figure counts. */
static void leave_external(const struct sim_world *world, uint64_t *capacities)
{
    for (int i = 0; i < SIM_DEVICES; i++) {
        const struct sim_authority *authority = &world->authorities[i];
        if (!authority->authority || !authority->seen.external_known)
            continue;
        uint64_t external = larger(authority->seen.external_bytes, sim_external_now(world, i));
        capacities[i] = smaller(capacities[i], minus(world->geometry.total_bytes, external));
    }
}

/* ---- budgets ---- */

/* A reap before the call frees the release. */
static bool is_due(const struct sim_world *world, const struct sim_release *release)
{
    return !(release->fresh && release->streams) && sim_release_is_done(world, release);
}

/* The holders' bytes by the library's statistics. */
struct figures {
    uint64_t has[SIM_HOLDERS];
    uint64_t reaped[SIM_HOLDERS];  /* after a reap, at most */
    uint64_t settled[SIM_HOLDERS]; /* after all pending bytes have returned */
};

static void take_figures(struct sim_world *world, struct figures *ret_figures)
{
    *ret_figures = (struct figures){0};
    for (int i = 0; i < SIM_HOLDERS; i++) {
        struct moor_holder_stats stats;
        if (!world->holders[i].holder)
            continue;
        (void)sim_expect_ok(world, "statistics of a holder",
                            moor_holder_get_stats(world->holders[i].holder, &stats));
        ret_figures->has[i] = stats.reserved_bytes + stats.charged_bytes;
        ret_figures->settled[i] = ret_figures->reaped[i] = ret_figures->has[i] - stats.pending_bytes;
    }
    for (uint32_t i = 0; i < world->release_count; i++) {
        const struct sim_release *release = &world->releases[i];
        if (!release->stuck && !release->kept && !is_due(world, release))
            ret_figures->reaped[release->holder] += release->bytes;
    }
    for (int i = 0; i < SIM_HOLDERS; i++)
        ret_figures->reaped[i] = smaller(ret_figures->reaped[i], ret_figures->has[i]);
}

bool sim_fits_now(struct sim_world *world, const struct sim_part *parts, uint32_t count)
{
    struct figures figures;
    uint64_t capacities[SIM_DEVICES];
    take_figures(world, &figures);
    take_capacities(world, capacities);
    leave_external(world, capacities);
    return fits(world, parts, count, figures.reaped, capacities);
}

static bool has_ticket(const struct sim_world *world, const struct sim_request *request)
{
    for (uint32_t i = 0; i < request->count; i++)
        if (sim_open_tickets(world, pool_of(world, &request->parts[i])) > 0)
            return true;
    return false;
}

static bool has_external(const struct sim_world *world, const struct sim_request *request)
{
    for (uint32_t i = 0; i < request->count; i++)
        if (world->authorities[pool_of(world, &request->parts[i])].seen.external_known)
            return true;
    return false;
}

static void judge_budget(struct sim_world *world, const struct sim_request *request,
                         struct sim_verdict *verdict)
{
    bool waits = request->deadline_ns != MOOR_NO_WAIT;
    struct figures figures;
    uint64_t capacities[SIM_DEVICES];
    if (sim_never_fits(world, request->parts, request->count)) {
        sim_must(verdict, MOOR_NEVER_FITS);
        return;
    }
    take_figures(world, &figures);
    take_capacities(world, capacities);
    if (!fits(world, request->parts, request->count, figures.settled, capacities)) {
        sim_must(verdict, waits ? MOOR_TIMEOUT : MOOR_OVER_BUDGET);
    } else if (has_ticket(world, request) || !sim_fits_now(world, request->parts, request->count)) {
        sim_may(verdict, waits ? MOOR_TIMEOUT : MOOR_PENDING);
        if (!waits && (has_ticket(world, request) || has_external(world, request)))
            sim_may(verdict, MOOR_OVER_BUDGET);
    }
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

/* ---- device memory ---- */

/* The device memory of a pool, which external users share. Before the library reports a full device it reaps
 * and retries once. */
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
        least += sim_release_may_be_done(world, release) ? 0 : release->bytes;
        most += is_due(world, release) ? 0 : release->bytes;
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

void sim_judge(struct sim_world *world, const struct sim_request *request, struct sim_verdict *verdict)
{
    struct sim_verdict own = {0};
    judge_grants(world, request, &own);
    if (!own.must && request->count)
        judge_budget(world, request, &own);
    if (!own.must)
        judge_rooms(world, request, &own);
    if (!verdict->must)
        verdict->must = own.must;
    verdict->may |= own.may;
}

/* ---- after the call ---- */

static uint64_t capacity_of(const struct sim_world *world, int holder)
{
    return world->authorities[world->holders[holder].authority].capacity;
}

static bool is_last_of_pool(const struct sim_world *world, const struct sim_request *request, uint32_t index)
{
    for (uint32_t i = index + 1; i < request->count; i++)
        if (pool_of(world, &request->parts[i]) == pool_of(world, &request->parts[index]))
            return false;
    return true;
}

/* A granted request fitted: its holders are within their limits and its pools within their capacities, with
 * the guarantees of the other holders and the emergency reserve intact. */
static void check_granted(struct sim_world *world, const struct sim_request *request)
{
    struct figures figures;
    take_figures(world, &figures);
    for (uint32_t i = 0; i < request->count; i++) {
        int holder = request->parts[i].holder;
        sim_check(world, figures.has[holder] <= world->holders[holder].limit, "a granted holder's bytes",
                  world->holders[holder].limit, figures.has[holder]);
        if (is_last_of_pool(world, request, i))
            sim_check(world, taken_for(world, figures.has, holder) <= capacity_of(world, holder),
                      "the bytes taken of a granted pool", capacity_of(world, holder),
                      taken_for(world, figures.has, holder));
    }
}

/* The text of a refusal carries the status, and for NEVER_FITS the most bytes that could fit. */
static void check_refused(struct sim_world *world, const struct sim_request *request, moor_status status)
{
    static const uint64_t nothing[SIM_HOLDERS];
    const struct moor_error *error = moor_last_error();
    sim_check(world, error->status == status, "the status of the last error", (uint64_t)status,
              (uint64_t)error->status);
    if (status != MOOR_NEVER_FITS || request->count != 1)
        return;
    int holder = request->parts[0].holder;
    uint64_t room = minus(capacity_of(world, holder), taken_for(world, nothing, holder));
    sim_check_equal(world, "the most that could fit", smaller(room, world->holders[holder].limit),
                    error->bytes);
}

bool sim_request_begin(struct sim_world *world, const struct sim_op *op, const struct sim_verdict *verdict,
                       struct sim_request *request, const uint64_t *output)
{
    struct sim_verdict rooms = {0};
    request->is_refused = verdict->must != 0;
    request->verdict = *verdict;
    sim_judge(world, request, &request->verdict);
    judge_rooms(world, request, &rooms);
    /* While a ticket waits, a full device might serve it with the bytes that the call gives back. */
    if (!request->is_refused && sim_someone_waits(world) && (rooms.must || rooms.may))
        return false;
    for (uint32_t i = 0; i < request->count; i++)
        world->authorities[pool_of(world, &request->parts[i])].may_refresh = true;
    for (int i = 0; i < SIM_DEVICES; i++)
        world->authorities[i].may_refresh |= request->rooms[i] != 0;
    sim_begin_with(world, op, &request->verdict, output);
    return true;
}

bool sim_request_end(struct sim_world *world, const struct sim_op *op, moor_status status,
                     struct sim_request *request)
{
    if (op->fault.function && request->deadline_ns != MOOR_NO_WAIT)
        sim_may(&request->verdict, MOOR_TIMEOUT); /* the call cannot see completed releases */
    bool good = sim_end(world, op, status, &request->verdict);
    if (good)
        check_granted(world, request);
    if (status > 0 && request->count && !request->is_refused && !world->now.fault_hit)
        check_refused(world, request, status);
    return good;
}

/* ---- demands and charges ---- */

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
    holder->live += (uint64_t)bytes; /* a negative number wraps, which subtracts */
    holder->leased += (uint64_t)bytes;
    holder->requested += (uint64_t)bytes;
}

int sim_grant_at(const struct sim_world *world, uint64_t arg, moor_grant *ret_handle)
{
    bool known = arg > 0 && arg <= SIM_GRANTS && world->grants[arg - 1].handle;
    *ret_handle = known ? world->grants[arg - 1].handle : 0;
    return known ? (int)arg - 1 : SIM_NONE;
}

void sim_put_grant(struct sim_world *world, uint64_t place, moor_grant handle, int holder, uint64_t bytes)
{
    world->grants[place] = (struct sim_grant){handle, holder, bytes};
    world->holders[holder].reserved += bytes;
    world->holders[holder].users++;
}

/* ---- revisions ---- */

uint64_t sim_revision(uint64_t how, uint64_t current, bool same, struct sim_verdict *verdict, bool *ret_known)
{
    const uint64_t revisions[] = {0, current + 1, current + 5, current, current > 1 ? current - 1 : 0};
    uint64_t revision = revisions[how % (sizeof revisions / sizeof *revisions)];
    *ret_known = false;
    if (revision == 0 || revision > current)
        return revision;
    if (revision < current)
        sim_must(verdict, MOOR_STALE);
    else if (!same)
        sim_must(verdict, MOOR_REFUSED);
    *ret_known = revision == current;
    return revision;
}

uint64_t sim_draw_revision(struct sim_random *random)
{
    return sim_one_in(random, 2) ? 0 : sim_below(random, 5);
}
