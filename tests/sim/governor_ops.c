/* SPDX-License-Identifier: MIT */
/* Capacity, external bytes, grants, leases and bindings. */
#include "draw.h"

#include <string.h>

/* ---- the pool ---- */

static bool draw_capacity(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint64_t total = world->geometry.total_bytes;
    op->arg[0] = sim_below(random, world->geometry.devices);
    const struct sim_authority *authority = &world->authorities[world->authority_of[op->arg[0]]];
    /* Mostly near the device's total; sometimes beyond it, zero or unchanged. */
    op->arg[1] = sim_one_in(random, 16) ? 0 : total / 16 * (1 + sim_below(random, 20));
    if (sim_one_in(random, 6))
        op->arg[1] = authority->capacity;
    op->arg[2] = sim_draw_revision(random);
    return true;
}

static void run_capacity(struct sim_world *world, const struct sim_op *op)
{
    if (op->arg[0] >= world->geometry.devices)
        return;
    int pool = world->authority_of[op->arg[0]];
    struct sim_authority *authority = &world->authorities[pool];
    struct sim_verdict verdict = {0};
    uint64_t over = SIM_UNTOUCHED, has[SIM_HOLDERS], before = authority->capacity;
    bool known = false;
    uint64_t revision = sim_revision(op->arg[2], authority->revision, op->arg[1] == before, &verdict, &known);
    sim_last_seen(world, has);
    sim_begin_with(world, op, &verdict, &over);
    moor_status status = moor_authority_set_capacity(authority->authority, op->arg[1], revision, &over);
    if (!sim_end(world, op, status, &verdict))
        return;
    authority->capacity = op->arg[1];
    authority->revision = known ? authority->revision : revision ? revision : authority->revision + 1;
    uint64_t expected = sim_over(world, pool, has);
    sim_check(world, over == expected, "bytes over a new capacity", expected, over);
}

const struct sim_kind_info sim_kind_capacity = {
    "capacity", {"device", "bytes", "revision"}, {0}, draw_capacity, run_capacity};

static bool draw_set_aside(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[0] = sim_below(random, world->geometry.devices);
    op->arg[1] = sim_one_in(random, 2) ? 0 : world->geometry.granule_bytes * sim_below(random, 12);
    return true;
}

static void run_set_aside(struct sim_world *world, const struct sim_op *op)
{
    if (op->arg[0] >= world->geometry.devices)
        return;
    int pool = world->authority_of[op->arg[0]];
    struct sim_authority *authority = &world->authorities[pool];
    struct sim_verdict verdict = {0};
    uint64_t guaranteed = sim_guaranteed(world, pool);
    uint64_t room = authority->capacity > guaranteed ? authority->capacity - guaranteed : 0;
    if (op->arg[1] > room && op->arg[1] > authority->set_aside)
        sim_must(&verdict, MOOR_OVER_BUDGET);
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_authority_set_aside(authority->authority, op->arg[1]), &verdict))
        return;
    authority->set_aside = op->arg[1];
}

const struct sim_kind_info sim_kind_set_aside = {
    "set_aside", {"device", "bytes"}, {0}, draw_set_aside, run_set_aside};

static bool draw_refresh(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[0] = sim_below(random, world->geometry.devices);
    return true;
}

/* Returns true if a binding keeps the device open. Without one the model does not know. */
static bool is_open(const struct sim_world *world, int pool)
{
    for (int i = 0; i < SIM_BINDINGS; i++)
        if (world->bindings[i].binding && world->authority_of[world->bindings[i].device] == pool)
            return true;
    return false;
}

static void run_refresh(struct sim_world *world, const struct sim_op *op)
{
    if (op->arg[0] >= world->geometry.devices)
        return;
    int pool = world->authority_of[op->arg[0]];
    struct sim_authority *authority = &world->authorities[pool];
    struct sim_verdict verdict = {0};
    struct moor_authority_stats stats = {0};
    if (!is_open(world, pool))
        sim_may(&verdict, MOOR_UNSUPPORTED);
    authority->may_refresh = true;
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_authority_refresh(authority->authority), &verdict))
        return;
    moor_status status = moor_authority_get_stats(authority->authority, &stats, NULL, 0, NULL);
    (void)sim_expect_ok(world, "statistics of an authority", status);
    uint64_t expected = sim_external_now(world, pool);
    sim_check(world, stats.external_known && stats.external_bytes == expected,
              "external bytes after a refresh", expected, stats.external_bytes);
}

const struct sim_kind_info sim_kind_refresh = {"refresh", {"device"}, {0}, draw_refresh, run_refresh};

/* ---- grants ---- */

/* 0: no wait. 1: a deadline that has passed, so the call waits its turn for no time. */
static uint64_t deadline_of(uint64_t arg)
{
    return arg ? 1 : MOOR_NO_WAIT;
}

static uint64_t draw_deadline(struct sim_random *random)
{
    return sim_one_in(random, 6) ? 1 : 0;
}

static bool draw_grant_reserve(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint64_t granule = world->geometry.granule_bytes;
    op->arg[2] = sim_one_in(random, 8) ? sim_below(random, (uint32_t)world->geometry.total_bytes)
                                       : granule * sim_below(random, 24);
    op->arg[3] = draw_deadline(random);
    return sim_draw_free(world, random, SIM_TABLE_GRANTS, &op->arg[0]) &&
           sim_draw_live(world, random, SIM_TABLE_HOLDERS, &op->arg[1]);
}

static void run_grant_reserve(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_free(world, SIM_TABLE_GRANTS, op->arg[0]) ||
        !sim_is_live(world, SIM_TABLE_HOLDERS, op->arg[1]))
        return;
    struct moor_holder *holder = world->holders[op->arg[1]].holder;
    struct sim_verdict verdict = {0};
    struct sim_request request = {.deadline_ns = deadline_of(op->arg[3])};
    moor_grant grant = SIM_UNTOUCHED;
    if (op->arg[2] == 0)
        sim_must(&verdict, MOOR_INVALID);
    else
        sim_want_budget(world, &request, (int)op->arg[1], op->arg[2]);
    world->places[SIM_TABLE_GRANTS] |= UINT32_C(1) << op->arg[0];
    if (!sim_request_begin(world, op, &verdict, &request, &grant))
        return;
    moor_status status = moor_grant_reserve(holder, op->arg[2], request.deadline_ns, &grant);
    if (sim_request_end(world, op, status, &request))
        sim_put_grant(world, op->arg[0], grant, (int)op->arg[1], op->arg[2]);
}

const struct sim_kind_info sim_kind_grant_reserve = {
    "grant_reserve", {"grant", "holder", "bytes", "late"}, {"reap"}, draw_grant_reserve, run_grant_reserve};

static bool draw_one_grant(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_GRANTS, &op->arg[0]);
}

/* The grant has ended, and its remaining bytes are no longer reserved. */
static void drop_grant(struct sim_world *world, struct sim_grant *grant)
{
    sim_forget_handle(world, SIM_HANDLE_GRANT, grant->handle);
    world->holders[grant->holder].reserved -= grant->remaining;
    world->holders[grant->holder].users--;
    grant->handle = 0;
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
    drop_grant(world, grant);
}

const struct sim_kind_info sim_kind_grant_release = {
    "grant_release", {"grant"}, {0}, draw_one_grant, run_grant_release};

/* ---- leases ---- */

static bool draw_lease_commit(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[2] = sim_below(random, (uint32_t)world->geometry.granule_bytes * 4);
    if (!sim_draw_free(world, random, SIM_TABLE_LEASES, &op->arg[0]) ||
        !sim_draw_live(world, random, SIM_TABLE_GRANTS, &op->arg[1]))
        return false;
    if (sim_one_in(random, 3))
        op->arg[2] = world->grants[op->arg[1]].remaining;
    return true;
}

typedef moor_status (*commit_function)(struct moor_runtime *runtime, moor_grant grant, uint64_t bytes,
                                       moor_lease *ret_lease);

/* Returns true if the lease was committed. */
static bool commit_lease(struct sim_world *world, const struct sim_op *op, commit_function commit)
{
    if (!sim_is_free(world, SIM_TABLE_LEASES, op->arg[0]) ||
        !sim_is_live(world, SIM_TABLE_GRANTS, op->arg[1]))
        return false;
    struct sim_grant *grant = &world->grants[op->arg[1]];
    struct sim_verdict verdict = {0};
    moor_lease lease = SIM_UNTOUCHED;
    uint64_t bytes = op->arg[2];
    if (bytes == 0)
        sim_must(&verdict, MOOR_INVALID);
    else if (bytes > grant->remaining)
        sim_must(&verdict, MOOR_OVER_BUDGET);
    sim_begin_with(world, op, &verdict, &lease);
    if (!sim_end(world, op, commit(world->runtime, grant->handle, bytes, &lease), &verdict))
        return false;
    world->leases[op->arg[0]] = (struct sim_lease){lease, grant->holder, bytes};
    grant->remaining -= bytes;
    world->holders[grant->holder].reserved -= bytes;
    sim_charge_leased(world, grant->holder, (int64_t)bytes);
    return true;
}

static void run_lease_commit(struct sim_world *world, const struct sim_op *op)
{
    (void)commit_lease(world, op, moor_lease_commit); /* the accounts show the result */
}

const struct sim_kind_info sim_kind_lease_commit = {
    "lease_commit", {"lease", "grant", "bytes"}, {0}, draw_lease_commit, run_lease_commit};

static void run_grant_commit(struct sim_world *world, const struct sim_op *op)
{
    if (commit_lease(world, op, moor_grant_commit))
        drop_grant(world, &world->grants[op->arg[1]]);
}

const struct sim_kind_info sim_kind_grant_commit = {
    "grant_commit", {"lease", "grant", "bytes"}, {0}, draw_lease_commit, run_grant_commit};

static bool draw_lease_adjust(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[1] = sim_below(random, (uint32_t)world->geometry.granule_bytes * 8);
    op->arg[2] = draw_deadline(random);
    return sim_draw_live(world, random, SIM_TABLE_LEASES, &op->arg[0]);
}

static void run_lease_adjust(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_LEASES, op->arg[0]))
        return;
    struct sim_lease *lease = &world->leases[op->arg[0]];
    struct sim_verdict verdict = {0};
    struct sim_request request = {.deadline_ns = deadline_of(op->arg[2])};
    uint64_t bytes = op->arg[1], seen = 0;
    if (bytes == 0)
        sim_must(&verdict, MOOR_INVALID);
    else if (bytes > lease->bytes)
        sim_want_budget(world, &request, lease->holder, bytes - lease->bytes);
    if (!sim_request_begin(world, op, &verdict, &request, NULL))
        return;
    moor_status status = moor_lease_adjust(world->runtime, lease->handle, bytes, request.deadline_ns);
    if (sim_request_end(world, op, status, &request)) {
        sim_charge_leased(world, lease->holder, (int64_t)(bytes - lease->bytes));
        lease->bytes = bytes;
    }
    (void)sim_expect_ok(world, "the bytes of a lease",
                        moor_lease_get_bytes(world->runtime, lease->handle, &seen));
    sim_check(world, seen == lease->bytes, "the bytes of a lease", lease->bytes, seen);
}

const struct sim_kind_info sim_kind_lease_adjust = {
    "lease_adjust", {"lease", "bytes", "late"}, {"reap"}, draw_lease_adjust, run_lease_adjust};

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
    sim_charge_leased(world, lease->holder, -(int64_t)lease->bytes);
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

/* Returns true for objects made through a binding. Parts of a range belong to the range. */
static bool is_object(const struct sim_release *release)
{
    return release->kind != SIM_GONE_PIECE && release->kind != SIM_GONE_MAPPING;
}

/* The objects of a binding after a reap, as far as the model knows. */
struct remains {
    bool some;   /* certainly: live, quarantined or behind fences */
    bool maybe;  /* possibly: the uses are done, but the library may wait for more */
    bool fenced; /* objects that no retry frees */
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
        /* A retry may need records that are made only then. */
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
    if (sim_someone_waits(world) && has_stuck(world, binding->device))
        return;                                            /* the retry takes its bytes for a moment */
    (void)moor_runtime_reap(world->runtime, MOOR_NO_WAIT); /* the call below reports the pending objects */
    sim_reaped(world);
    struct remains remains = remains_of(world, (int)op->arg[0]);
    /* If an object remains, the library retries the quarantined memory of the whole device. The model must be
     * certain of it. */
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
