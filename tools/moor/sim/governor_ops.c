/* SPDX-License-Identifier: MIT */
/* Holders, limits, grants, leases and bindings. */
#include "sim/draw.h"

#include <stdio.h>
#include <string.h>

/* ---- holders ---- */

/* 0 is no limit; otherwise some granules. */
static uint64_t draw_limit(const struct sim_world *world, struct sim_random *random)
{
    return sim_one_in(random, 3) ? 0 : world->geometry.granule_bytes * (1 + sim_below(random, 96));
}

static bool draw_holder_create(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[1] = sim_below(random, world->geometry.devices);
    op->arg[2] = draw_limit(world, random);
    return sim_draw_free(world, random, SIM_TABLE_HOLDERS, &op->arg[0]);
}

static void run_holder_create(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_free(world, SIM_TABLE_HOLDERS, op->arg[0]) || op->arg[1] >= world->geometry.devices)
        return;
    int authority = world->authority_of[op->arg[1]];
    char name[8];
    (void)snprintf(name, sizeof name, "h%u", (unsigned)op->arg[0]);
    struct moor_holder_options options = {.name = name, .limits.limit_bytes = op->arg[2]};
    struct moor_holder *holder = NULL;
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    moor_status status = moor_holder_create(world->authorities[authority].authority, &options, &holder);
    if (sim_end(world, op, status, &verdict))
        world->holders[op->arg[0]] = (struct sim_holder){
            .holder = holder, .authority = authority, .limit = op->arg[2] ? op->arg[2] : UINT64_MAX};
}

const struct sim_kind_info sim_kind_holder_create = {
    "holder_create", {"holder", "device", "limit"}, {0}, draw_holder_create, run_holder_create};

static bool draw_one_holder(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_HOLDERS, &op->arg[0]);
}

static void run_holder_destroy(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_HOLDERS, op->arg[0]))
        return;
    struct sim_holder *holder = &world->holders[op->arg[0]];
    struct sim_verdict verdict = {0};
    /* What it had pending may have gone: the books of the last step say. */
    if (holder->reserved || holder->charged || holder->users)
        sim_must(&verdict, MOOR_BUSY);
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_holder_destroy(holder->holder), &verdict))
        return;
    for (uint32_t i = world->release_count; i-- > 0;)
        if (world->releases[i].holder == (int)op->arg[0])
            sim_release_gone(world, i);
    holder->holder = NULL;
}

const struct sim_kind_info sim_kind_holder_destroy = {
    "holder_destroy", {"holder"}, {0}, draw_one_holder, run_holder_destroy};

static bool draw_holder_limit(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[1] = draw_limit(world, random);
    return draw_one_holder(world, random, op);
}

static void run_holder_limit(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_HOLDERS, op->arg[0]))
        return;
    struct sim_holder *holder = &world->holders[op->arg[0]];
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    if (sim_end(world, op, moor_holder_set_limits(holder->holder, &(struct moor_holder_limits){.limit_bytes = op->arg[1]}, 0, NULL), &verdict))
        holder->limit = op->arg[1] ? op->arg[1] : UINT64_MAX;
}

const struct sim_kind_info sim_kind_holder_limit = {
    "holder_limit", {"holder", "limit"}, {0}, draw_holder_limit, run_holder_limit};

static bool draw_capacity(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint64_t total = world->geometry.total_bytes;
    op->arg[0] = sim_below(random, world->geometry.devices);
    /* Mostly near what the device has; also beyond it, and nothing at all. */
    op->arg[1] = sim_one_in(random, 16) ? 0 : total / 16 * (1 + sim_below(random, 20));
    return true;
}

static void run_capacity(struct sim_world *world, const struct sim_op *op)
{
    if (op->arg[0] >= world->geometry.devices)
        return;
    struct sim_authority *authority = &world->authorities[world->authority_of[op->arg[0]]];
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    if (sim_end(world, op, moor_authority_set_capacity(authority->authority, op->arg[1], 0, NULL), &verdict))
        authority->capacity = op->arg[1];
}

const struct sim_kind_info sim_kind_capacity = {
    "capacity", {"device", "bytes"}, {0}, draw_capacity, run_capacity};

/* ---- grants and leases ---- */

static bool draw_grant_reserve(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint64_t granule = world->geometry.granule_bytes;
    op->arg[2] = sim_one_in(random, 8) ? sim_below(random, (uint32_t)world->geometry.total_bytes)
                                       : granule * sim_below(random, 24);
    return sim_draw_free(world, random, SIM_TABLE_GRANTS, &op->arg[0]) &&
           sim_draw_live(world, random, SIM_TABLE_HOLDERS, &op->arg[1]);
}

static void run_grant_reserve(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_free(world, SIM_TABLE_GRANTS, op->arg[0]) ||
        !sim_is_live(world, SIM_TABLE_HOLDERS, op->arg[1]))
        return;
    struct sim_holder *holder = &world->holders[op->arg[1]];
    struct sim_verdict verdict = {0};
    struct sim_claims claims = {0};
    moor_grant grant = SIM_UNTOUCHED;
    if (op->arg[2] == 0)
        sim_must(&verdict, MOOR_INVALID);
    else
        sim_want_budget(world, &claims, (int)op->arg[1], op->arg[2], &verdict);
    sim_begin_with(world, op, &verdict, &grant);
    if (!sim_end(world, op, moor_grant_reserve(holder->holder, op->arg[2], MOOR_NO_WAIT, &grant), &verdict))
        return;
    world->grants[op->arg[0]] = (struct sim_grant){grant, (int)op->arg[1], op->arg[2]};
    holder->reserved += op->arg[2];
    holder->users++;
}

const struct sim_kind_info sim_kind_grant_reserve = {
    "grant_reserve", {"grant", "holder", "bytes"}, {"reap"}, draw_grant_reserve, run_grant_reserve};

static bool draw_one_grant(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_GRANTS, &op->arg[0]);
}

static void run_grant_release(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_GRANTS, op->arg[0]))
        return;
    struct sim_grant *grant = &world->grants[op->arg[0]];
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_grant_release(world->runtime, grant->handle), &verdict))
        return;
    sim_forget_handle(world, SIM_HANDLE_GRANT, grant->handle);
    world->holders[grant->holder].reserved -= grant->remaining;
    world->holders[grant->holder].users--;
    grant->handle = 0;
}

const struct sim_kind_info sim_kind_grant_release = {
    "grant_release", {"grant"}, {0}, draw_one_grant, run_grant_release};

static bool draw_lease_commit(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[2] = sim_below(random, (uint32_t)world->geometry.granule_bytes * 4);
    return sim_draw_free(world, random, SIM_TABLE_LEASES, &op->arg[0]) &&
           sim_draw_live(world, random, SIM_TABLE_GRANTS, &op->arg[1]);
}

static void run_lease_commit(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_free(world, SIM_TABLE_LEASES, op->arg[0]) ||
        !sim_is_live(world, SIM_TABLE_GRANTS, op->arg[1]))
        return;
    struct sim_grant *grant = &world->grants[op->arg[1]];
    struct sim_holder *holder = &world->holders[grant->holder];
    struct sim_verdict verdict = {0};
    moor_lease lease = SIM_UNTOUCHED;
    uint64_t bytes = op->arg[2];
    if (bytes == 0)
        sim_must(&verdict, MOOR_INVALID);
    else if (bytes > grant->remaining)
        sim_must(&verdict, MOOR_OVER_BUDGET);
    world->added[grant->holder] = bytes;
    sim_begin_with(world, op, &verdict, &lease);
    if (!sim_end(world, op, moor_lease_commit(world->runtime, grant->handle, bytes, &lease), &verdict))
        return;
    world->leases[op->arg[0]] = (struct sim_lease){lease, grant->holder, bytes};
    grant->remaining -= bytes;
    holder->reserved -= bytes;
    holder->live += bytes;
    holder->external += bytes;
}

const struct sim_kind_info sim_kind_lease_commit = {
    "lease_commit", {"lease", "grant", "bytes"}, {0}, draw_lease_commit, run_lease_commit};

static bool draw_lease_refund(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_LEASES, &op->arg[0]);
}

static void run_lease_refund(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_LEASES, op->arg[0]))
        return;
    struct sim_lease *lease = &world->leases[op->arg[0]];
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_lease_refund(world->runtime, lease->handle), &verdict))
        return;
    sim_forget_handle(world, SIM_HANDLE_LEASE, lease->handle);
    world->holders[lease->holder].live -= lease->bytes;
    world->holders[lease->holder].external -= lease->bytes;
    lease->handle = 0;
}

const struct sim_kind_info sim_kind_lease_refund = {
    "lease_refund", {"lease"}, {0}, draw_lease_refund, run_lease_refund};

/* ---- bindings ---- */

static bool draw_binding_open(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[1] = sim_below(random, world->geometry.devices);
    return sim_draw_free(world, random, SIM_TABLE_BINDINGS, &op->arg[0]) &&
           sim_draw_live(world, random, SIM_TABLE_HOLDERS, &op->arg[2]);
}

static void run_binding_open(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_free(world, SIM_TABLE_BINDINGS, op->arg[0]) || op->arg[1] >= world->geometry.devices ||
        !sim_is_live(world, SIM_TABLE_HOLDERS, op->arg[2]))
        return;
    struct sim_holder *holder = &world->holders[op->arg[2]];
    struct sim_verdict verdict = {0};
    struct moor_binding *binding = NULL;
    if (holder->authority != world->authority_of[op->arg[1]])
        sim_must(&verdict, MOOR_FOREIGN);
    sim_begin(world, op, &verdict);
    moor_status status = moor_binding_open(world->devices[op->arg[1]], 0, holder->holder, &binding);
    if (!sim_end(world, op, status, &verdict))
        return;
    world->bindings[op->arg[0]] =
        (struct sim_binding){.binding = binding, .device = (int)op->arg[1], .holder = (int)op->arg[2]};
    holder->users++;
}

const struct sim_kind_info sim_kind_binding_open = {
    "binding_open", {"binding", "device", "holder"}, {"context_open"}, draw_binding_open, run_binding_open};

static bool draw_binding_close(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_BINDINGS, &op->arg[0]);
}

/* Objects made through it: those that live, and those on their way out. Pieces of a range are the range's. */
static bool is_object(const struct sim_release *release)
{
    return release->kind != SIM_GONE_PIECE && release->kind != SIM_GONE_MAPPING;
}

/* What is known of the objects of a binding, after a reap. */
struct remains {
    bool some;   /* for certain: alive, in quarantine, or behind fences */
    bool maybe;  /* perhaps: their uses are done, but not all that the library may wait for */
    bool fenced; /* some that no retry helps */
};

static struct remains remains_of(const struct sim_world *world, int binding)
{
    struct remains remains = {.some = world->bindings[binding].live > 0};
    remains.fenced = remains.some;
    for (uint32_t i = 0; i < world->release_count; i++) {
        const struct sim_release *release = &world->releases[i];
        if (release->binding != binding || !is_object(release))
            continue;
        struct sim_release submitted = *release;
        submitted.stuck = submitted.kept = false;
        bool may_be_done = sim_release_may_be_done(world, &submitted);
        bool again = release->stuck || release->kept;
        remains.some |= again || !may_be_done;
        /* What is tried again may need records that are made only then. */
        remains.maybe |=
            may_be_done && (again ? release->streams != 0 : !sim_release_is_done(world, release));
        remains.fenced |= !may_be_done;
    }
    return remains;
}

static bool has_stuck(const struct sim_world *world, int device)
{
    for (uint32_t i = 0; i < world->release_count; i++)
        if ((world->releases[i].stuck || world->releases[i].kept) &&
            world->bindings[world->releases[i].binding].device == device)
            return true;
    return false;
}

static void run_binding_close(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_BINDINGS, op->arg[0]))
        return;
    struct sim_binding *binding = &world->bindings[op->arg[0]];
    (void)moor_runtime_reap(world->runtime, MOOR_NO_WAIT); /* what is left pending is what this asks about */
    sim_reaped(world);
    struct remains remains = remains_of(world, (int)op->arg[0]);
    /* If anything is left of it, quarantined memory of the whole device is tried again: whether it was must
     * be certain. */
    if (!remains.some && remains.maybe && has_stuck(world, binding->device))
        return;
    if (remains.some)
        sim_unstick(world, binding->device);
    struct sim_verdict verdict = {0};
    if (remains.fenced)
        sim_must(&verdict, MOOR_BUSY);
    else if (remains.maybe)
        sim_may(&verdict, MOOR_BUSY);
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_binding_close(binding->binding), &verdict))
        return;
    for (uint32_t i = world->release_count; i-- > 0;)
        if (world->releases[i].binding == (int)op->arg[0])
            sim_release_gone(world, i);
    world->holders[binding->holder].users--;
    binding->binding = NULL;
}

const struct sim_kind_info sim_kind_binding_close = {
    "binding_close", {"binding"}, {0}, draw_binding_close, run_binding_close};
