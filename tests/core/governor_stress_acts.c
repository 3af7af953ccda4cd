/* SPDX-License-Identifier: MIT */
/*
 * The acts of the workers of governor_stress. Each act is complete and leaves its object in a place where all
 * threads find it: one thread opens a ticket, another one waits for it, a third one cancels it meanwhile.
 */
#include "governor_stress.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

/* ---- chance ---- */

uint64_t next_random(struct worker *w)
{
    return service_random(&w->random);
}

static struct pool *any_pool(struct worker *w)
{
    return &world.pools[next_random(w) % POOLS];
}

/* Picks an owner with a guarantee that other threads may use. */
static struct owner *any_owner(struct worker *w, uint32_t has)
{
    struct pool *pool = any_pool(w);
    for (;;) {
        struct owner *owner = &pool->owners[next_random(w) % OWNERS];
        if ((owner->has & has) && !owner->guarantee_bytes)
            return owner;
    }
}

static uint64_t any_bytes(struct worker *w)
{
    switch (next_random(w) % 8) {
    case 0:
        return KIB(256) + next_random(w) % MIB(3);
    case 1:
        return KIB(256) + (uint64_t)(next_random(w) % 3) - 1;
    default:
        return 1 + next_random(w) % KIB(64);
    }
}

static uint64_t any_deadline(struct worker *w)
{
    bool waits = !atomic_load_explicit(&world.is_calm, memory_order_relaxed) && next_random(w) % 4 == 0;
    return waits ? moor_clock_ns() + MS(1) + next_random(w) % MS(15) : MOOR_NO_WAIT;
}

/* ---- a worker's acts ---- */

static void keep_lease(struct worker *w, struct owner *owner, moor_lease lease)
{
    lease = atomic_exchange(&owner->leases[next_random(w) % KEPT], lease);
    must("refund", moor_lease_refund(world.runtime, lease));
}

/* Part of the grant becomes a lease, and the rest returns. */
static void use_grant(struct worker *w, struct owner *owner, moor_grant grant, uint64_t bytes)
{
    moor_lease lease = 0;
    uint64_t some = 1 + next_random(w) % bytes, left = 0;
    switch (next_random(w) % 4) {
    case 0:
        must("grant", moor_grant_release(world.runtime, grant));
        return;
    case 1:
        must("lease", moor_lease_commit(world.runtime, grant, some, &lease)); /* I2, as below */
        must("remaining", moor_grant_get_remaining(world.runtime, grant, &left));
        check(left == bytes - some, "a grant has what was not drawn from it");
        must("grant", moor_grant_release(world.runtime, grant));
        break;
    default:
        must("commit", moor_grant_commit(world.runtime, grant, some, &lease));
    }
    keep_lease(w, owner, lease);
}

/* Several leases at once, so that more small ones use the thread's own credit. */
static void reserve(struct worker *w)
{
    for (int i = 0; i < 8; i++) {
        struct owner *owner = any_owner(w, HAS_LEASES);
        uint64_t bytes = any_bytes(w);
        moor_grant grant;
        if (fits("reserve", moor_grant_reserve(owner->holder, bytes, any_deadline(w), &grant)))
            use_grant(w, owner, grant, bytes);
    }
}

static void adjust(struct worker *w)
{
    struct owner *owner = any_owner(w, HAS_LEASES);
    moor_lease lease = atomic_load(&owner->leases[next_random(w) % KEPT]);
    moor_status status =
        lease ? moor_lease_adjust(world.runtime, lease, any_bytes(w), any_deadline(w)) : MOOR_STALE;
    if (status != MOOR_STALE)
        (void)fits("adjust", status);
}

static void allocate(struct worker *w)
{
    struct owner *owner = any_owner(w, HAS_MEMORY);
    struct moor_buffer_options options = {.deadline_ns = any_deadline(w)};
    moor_buffer buffer = 0;
    struct moor_view view;
    if (!fits("allocate", moor_buffer_allocate(owner->binding, any_bytes(w), &options, &buffer)))
        return;
    must("view", moor_buffer_get_view(world.runtime, buffer, &view));
    if (next_random(w) % 2)
        must("fill", moor_fill(w->streams[owner->pool - world.pools], &view, 1, 1));
    buffer = atomic_exchange(&owner->buffers[next_random(w) % KEPT], buffer);
    must("release", moor_buffer_release(world.runtime, buffer));
}

static void grow_range(struct worker *w)
{
    struct owner *owner = any_owner(w, HAS_MEMORY);
    uint64_t granule = owner->pool->granule_bytes;
    const struct moor_range_options options = {.granule_bytes = granule};
    moor_range range = 0;
    must("range", moor_range_reserve(owner->binding, 8 * granule, &options, &range));
    for (uint64_t i = 0; i < 4; i++) {
        if (!fits("grow", moor_range_commit(world.runtime, range, 2 * i * granule, granule, 0)))
            break;
        if (next_random(w) % 2)
            must("shrink", moor_range_decommit(world.runtime, range, 2 * i * granule, granule));
    }
    must("range", moor_range_release(world.runtime, range));
}

/* Wraps the host's own memory with a charge. */
static void wrap(struct worker *w)
{
    static unsigned char memory[KIB(8)];
    struct owner *owner = &any_pool(w)->owners[OWNERS - 1];
    moor_buffer buffer;
    if (fits("wrap", moor_buffer_wrap(owner->binding, memory, sizeof memory, MOOR_BUFFER_CHARGE, &buffer)))
        must("unwrap", moor_buffer_release(world.runtime, buffer));
}

/* A request over both pools, with two parts of one holder. */
static size_t any_request(struct worker *w, struct owner *owners[4], struct moor_request requests[4])
{
    size_t count = 1 + next_random(w) % 4;
    for (size_t i = 0; i < count; i++) {
        owners[i] = i == 3 ? owners[0] : any_owner(w, HAS_LEASES);
        requests[i] = (struct moor_request){owners[i]->holder, any_bytes(w)};
    }
    return count;
}

static void reserve_many(struct worker *w)
{
    struct owner *owners[4];
    struct moor_request requests[4];
    moor_grant grants[4];
    size_t count = any_request(w, owners, requests);
    if (!fits("reserve many", moor_grants_reserve(requests, count, any_deadline(w), grants)))
        return;
    for (size_t i = 0; i < count; i++)
        use_grant(w, owners[i], grants[i], requests[i].bytes);
}

/* ---- tickets: one thread opens them, another waits, a third cancels ---- */

static void await_ticket(moor_ticket ticket)
{
    moor_grant grants[4] = {0};
    moor_status status = moor_ticket_wait(world.runtime, ticket, grants, 4);
    if (status == MOOR_CANCELLED || status == MOOR_STALE || !fits("wait", status))
        return;
    for (size_t i = 0; i < 4; i++)
        must("grant", moor_grant_release(world.runtime, grants[i]));
}

static void open_ticket(struct worker *w)
{
    struct owner *owners[4];
    struct moor_request requests[4];
    size_t count = any_request(w, owners, requests);
    uint64_t deadline_ns = moor_clock_ns() + MS(1) + next_random(w) % MS(40);
    moor_ticket ticket = 0;
    if (atomic_load_explicit(&world.is_calm, memory_order_relaxed) ||
        !fits("open", moor_ticket_open(requests, count, deadline_ns, &ticket)))
        return;
    ticket = atomic_exchange(&world.tickets[next_random(w) % TICKETS], ticket);
    if (!ticket)
        return;
    if (next_random(w) % 2)
        await_ticket(ticket);
    else
        (void)is_there("cancel", moor_ticket_cancel(world.runtime, ticket));
}

static void meddle_with_ticket(struct worker *w)
{
    moor_ticket ticket = atomic_load(&world.tickets[next_random(w) % TICKETS]);
    struct moor_ticket_stats stats;
    if (!ticket)
        return;
    switch (next_random(w) % 4) {
    case 0:
        await_ticket(ticket);
        break;
    case 1:
        (void)is_there("cancel", moor_ticket_cancel(world.runtime, ticket));
        break;
    default:
        if (is_there("ticket stats", moor_ticket_get_stats(world.runtime, ticket, &stats)))
            check(stats.evicted_bytes == stats.pending_bytes + stats.returned_bytes,
                  "what was let go for a ticket is pending or back");
    }
}

/* ---- changes of limits ---- */

static void change_limits(struct worker *w)
{
    struct pool *pool = any_pool(w);
    struct owner *owner = &pool->owners[next_random(w) % OWNERS];
    struct moor_holder_limits limits = {.priority = (int32_t)(next_random(w) % 4) - 1};
    if (owner->guarantee_bytes)
        limits.guarantee_bytes = owner->guarantee_bytes;
    else if (next_random(w) % 2)
        limits.limit_bytes = MIB(1) + next_random(w) % MIB(8);
    if (!pool->is_fixed && next_random(w) % 2)
        limits.guarantee_bytes = next_random(w) % MIB(1);
    uint64_t over = 0, revision = atomic_fetch_add(&owner->revision, 1) + 1;
    moor_status status = moor_holder_set_limits(owner->holder, &limits, revision, &over);
    if (status != MOOR_OVER_BUDGET) /* the sum of all guarantees */
        (void)is_there("limits", status);
}

static void change_capacity(struct worker *w)
{
    struct pool *pool = &world.pools[0];
    uint64_t most = atomic_load(&world.is_calm) ? pool->calm_bytes : pool->tight_bytes;
    uint64_t over = 0, bytes = most - next_random(w) % (most / 2);
    uint64_t revision = atomic_fetch_add(&pool->revision, 1) + 1;
    (void)is_there("capacity", moor_authority_set_capacity(pool->authority, bytes, revision, &over));
    if (next_random(w) % 4 == 0)
        must("aside", moor_authority_set_aside(pool->authority, next_random(w) % KIB(256)));
}

static void tell_evictable(struct worker *w)
{
    must("evictable", moor_holder_set_evictable(any_owner(w, ~0u)->holder, next_random(w) % MIB(2)));
}

static void replace_pressure(struct worker *w)
{
    pressure_replace(any_owner(w, ~0u), next_random(w));
}

/* In a pool without changes, guaranteed bytes are available at once, however many other requests there
 * are. */
static void use_guarantee(struct worker *w)
{
    struct owner *owner = &world.pools[1].owners[0];
    uint64_t bytes = 1 + next_random(w) % (owner->guarantee_bytes / 4);
    moor_grant grant;
    if (atomic_fetch_add(&owner->promised, bytes) + bytes <= owner->guarantee_bytes) {
        must("what is guaranteed", moor_grant_reserve(owner->holder, bytes, MOOR_NO_WAIT, &grant));
        must("grant", moor_grant_release(world.runtime, grant));
    }
    atomic_fetch_sub(&owner->promised, bytes);
}

/* ---- holders that come and go ---- */

struct guest {
    _Atomic(struct moor_holder *) holder; /* the thread that takes the holder out of here ends it */
    moor_lease lease;                     /* the thread that takes it ends it */
    _Atomic int running;
};

static void end_guest(struct guest *guest)
{
    struct moor_holder *holder = atomic_exchange(&guest->holder, NULL);
    if (!holder)
        return;
    must("guest's lease", moor_lease_refund(world.runtime, guest->lease));
    must("guest's end", moor_holder_destroy(holder));
}

static uint64_t end_inside(void *user, const struct moor_pressure *pressure)
{
    struct guest *guest = user;
    atomic_store(&guest->running, 1);
    end_guest(guest);
    atomic_store(&guest->running, 0);
    return pressure->bytes; /* the result may be less, with a warning */
}

static void be_guest(struct worker *w)
{
    static _Atomic uint64_t guests;
    struct guest guest = {.lease = 0};
    char name[32];
    struct pool *pool = any_pool(w);
    struct moor_holder_options options = {.name = name, .limits = {.priority = -1}, .pressure_user = &guest};
    struct moor_holder *holder;
    moor_grant grant;
    (void)snprintf(name, sizeof name, "guest %llu", (unsigned long long)atomic_fetch_add(&guests, 1));
    options.pressure = next_random(w) % 2 ? end_inside : NULL;
    options.limits.limit_bytes = MIB(1);
    if (!pool->is_fixed && next_random(w) % 4 == 0)
        options.limits.guarantee_bytes = KIB(64);
    if (!fits("guest", moor_holder_create(pool->authority, &options, &holder)))
        return;
    if (fits("guest's grant", moor_grant_reserve(holder, KIB(100), any_deadline(w), &grant)))
        must("guest's lease", moor_grant_commit(world.runtime, grant, KIB(90), &guest.lease));
    atomic_store(&guest.holder, holder);
    if (next_random(w) % 2)
        (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    end_guest(&guest);
    while (atomic_load(&guest.running)) /* the holder has ended itself, and returns that at last */
        (void)sched_yield();
}

/* ---- looks ---- */

static void look(struct worker *w)
{
    size_t pool = next_random(w) % POOLS;
    snapshot_check(&world.pools[pool], &w->snapshots[pool]);
}

static void look_elsewhere(struct worker *w)
{
    struct moor_object_counts counts;
    struct moor_holder_stats stats;
    must("counts", moor_runtime_get_counts(world.runtime, &counts));
    check(counts.grants < 1000 && counts.leases < 10000, "no count is negative");
    must("holder stats", moor_holder_get_stats(any_owner(w, ~0u)->holder, &stats));
    (void)moor_runtime_reap(world.runtime, MOOR_NO_WAIT); /* PENDING is permitted */
}

/* ---- random owners ---- */

static const struct act acts[] = {
    {"reserve", reserve, 24},
    {"adjust", adjust, 12},
    {"allocate", allocate, 12},
    {"grow a range", grow_range, 3},
    {"wrap", wrap, 2},
    {"reserve many", reserve_many, 6},
    {"open a ticket", open_ticket, 4},
    {"meddle with a ticket", meddle_with_ticket, 6},
    {"change limits", change_limits, 2},
    {"change the capacity", change_capacity, 2},
    {"tell what is evictable", tell_evictable, 2},
    {"replace a pressure function", replace_pressure, 1},
    {"use a guarantee", use_guarantee, 6},
    {"be a guest", be_guest, 2},
    {"look", look, 3},
    {"look elsewhere", look_elsewhere, 1},
};

const struct act *any_act(struct worker *w)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        sum += acts[i].weight;
    uint64_t place = next_random(w) % sum;
    const struct act *act = acts;
    for (; place >= act->weight; act++)
        place -= act->weight;
    return act;
}
