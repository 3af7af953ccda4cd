/* SPDX-License-Identifier: MIT */
/*
 * Pressure functions of every kind: they evict everything, half, or nothing; are slow; return wrong figures;
 * let another thread evict; allocate first; wait for fences; remove themselves or other holders.
 *
 * An owner's function is replaced while it may be running. These functions check the promise: one thread at a
 * time runs a function, and no thread once its removal has returned.
 */
#include "governor_stress.h"

#include <time.h>

enum {
    GIVES_ALL,
    GIVES_HALF,
    GIVES_NOTHING,
    IS_SLOW,
    LIES,
    LETS_HELPER_GIVE,
    LETS_HELPER_GIVE_LATER,
    ALLOCATES,
    WAITS_FOR_FENCES,
    CHANGES_LIMITS,
    REMOVES_ITSELF,
    REMOVES_ANOTHER,
    KINDS
};

#define SLOW_NS 40000000 /* longer than the runtime's patience */

/* ---- an owner's objects ---- */

static uint64_t give_lease(struct owner *owner, size_t place)
{
    struct moor_runtime *runtime = world.runtime;
    moor_lease lease = atomic_exchange(&owner->leases[place], 0);
    uint64_t bytes = 0;
    if (!lease || !is_there("lease", moor_lease_get_bytes(runtime, lease, &bytes)))
        return 0;
    must("refund",
         moor_lease_refund(runtime, lease)); /* the thread that takes the lease out of its place refunds it */
    return bytes;
}

static uint64_t give_buffer(struct owner *owner, size_t place)
{
    struct moor_runtime *runtime = world.runtime;
    moor_buffer buffer = atomic_exchange(&owner->buffers[place], 0);
    struct moor_view view;
    if (!buffer)
        return 0;
    must("view", moor_buffer_get_view(runtime, buffer, &view));
    must("release", moor_buffer_release(runtime, buffer));
    return view.size_bytes;
}

uint64_t owner_give(struct owner *owner, uint64_t bytes)
{
    uint64_t given = 0;
    for (size_t i = 0; i < KEPT && given < bytes; i++)
        given += give_lease(owner, i) + give_buffer(owner, i);
    return given;
}

/* ---- the helper: lets go when others say so ---- */

#define JOBS 64u

static struct owner *jobs[JOBS];

/* Returns the number of the job, or 0 if there are too many. */
static uint64_t helper_ask(struct owner *owner)
{
    uint64_t job = 0;
    pthread_mutex_lock(&world.lock);
    if (world.jobs - world.done < JOBS) {
        jobs[world.jobs % JOBS] = owner;
        job = ++world.jobs;
    }
    pthread_cond_broadcast(&world.changed);
    pthread_mutex_unlock(&world.lock);
    return job;
}

static void helper_await(uint64_t job)
{
    pthread_mutex_lock(&world.lock);
    while (world.done < job)
        pthread_cond_wait(&world.changed, &world.lock);
    pthread_mutex_unlock(&world.lock);
}

void helper_settle(void)
{
    pthread_mutex_lock(&world.lock);
    while (world.done < world.jobs)
        pthread_cond_wait(&world.changed, &world.lock);
    pthread_mutex_unlock(&world.lock);
}

void *helper_run(void *unused)
{
    pthread_mutex_lock(&world.lock);
    for (;;) {
        while (world.done == world.jobs && !atomic_load(&world.over))
            pthread_cond_wait(&world.changed, &world.lock);
        if (world.done == world.jobs)
            break;
        struct owner *owner = jobs[world.done % JOBS];
        pthread_mutex_unlock(&world.lock);
        (void)owner_give(owner, MIB(1));
        pthread_mutex_lock(&world.lock);
        world.done++;
        pthread_cond_broadcast(&world.changed);
    }
    pthread_mutex_unlock(&world.lock);
    return NULL;
}

/* ---- answers ---- */

/* Takes a part of the emergency reserve for the replacement of everything that is evicted. */
static uint64_t allocate_and_give(struct owner *owner)
{
    struct moor_runtime *runtime = world.runtime;
    moor_grant grant = 0;
    moor_lease lease = 0;
    moor_buffer buffer = 0;
    if (!(owner->has & HAS_LEASES))
        (void)fits("allocate inside", moor_buffer_allocate(owner->binding, KIB(4), NULL, &buffer));
    else if (fits("reserve inside", moor_grant_reserve(owner->holder, KIB(4), MOOR_NO_WAIT, &grant)))
        must("commit inside", moor_grant_commit(runtime, grant, KIB(4), &lease)); /* I2 */
    uint64_t given = owner_give(owner, UINT64_MAX);
    must("release inside", moor_buffer_release(runtime, buffer));
    must("refund inside", moor_lease_refund(runtime, lease));
    return given;
}

/* A pressure function may change other owners' limits and its own. */
static void change_limits(struct owner *owner)
{
    struct moor_holder_limits limits = {.guarantee_bytes = owner->guarantee_bytes, .priority = 1};
    uint64_t revision = atomic_fetch_add(&owner->revision, 1) + 1;
    (void)is_there("limits inside", moor_holder_set_limits(owner->holder, &limits, revision, NULL));
}

static void remove_another(struct owner *owner)
{
    struct owner *other = &owner->pool->owners[OWNERS - 1];
    moor_status status = moor_holder_set_pressure(other->holder, NULL, NULL);
    check(status == MOOR_OK || status == MOOR_BUSY, "another holder's function is removed, or is running");
}

static uint64_t respond(struct post *post, const struct moor_pressure *pressure)
{
    struct owner *owner = post->owner;
    switch (post->kind) {
    case GIVES_ALL:
        return owner_give(owner, UINT64_MAX);
    case GIVES_HALF:
        return owner_give(owner, pressure->bytes / 2);
    case IS_SLOW:
        (void)nanosleep(&(struct timespec){.tv_nsec = SLOW_NS}, NULL);
        return owner_give(owner, pressure->bytes);
    case LIES:
        return UINT64_MAX;
    case LETS_HELPER_GIVE:
        helper_await(helper_ask(owner));
        return 0;
    case LETS_HELPER_GIVE_LATER:
        (void)helper_ask(owner);
        return pressure->bytes;
    case ALLOCATES:
        return allocate_and_give(owner);
    case WAITS_FOR_FENCES: {
        uint64_t given = owner_give(owner, pressure->bytes);
        (void)moor_runtime_reap(world.runtime, moor_clock_ns() + MS(1)); /* PENDING is permitted */
        return given;
    }
    case CHANGES_LIMITS:
        change_limits(owner);
        return owner_give(owner, pressure->bytes);
    case REMOVES_ITSELF:
        must("remove itself", moor_holder_set_pressure(owner->holder, NULL, NULL));
        return owner_give(owner, pressure->bytes);
    case REMOVES_ANOTHER:
        remove_another(owner);
        return owner_give(owner, pressure->bytes);
    default:
        return 0;
    }
}

static uint64_t answer(void *user, const struct moor_pressure *pressure)
{
    struct post *post = user;
    check(atomic_fetch_add(&post->running, 1) == 0, "one thread at a time asks a holder");
    check(!atomic_load(&post->removed), "a function that has been removed is not called");
    check(pressure->bytes != 0 && pressure->reason >= MOOR_PRESSURE_REQUEST &&
              pressure->reason <= MOOR_PRESSURE_DEVICE,
          "who is asked is told how much and why");
    uint64_t given = respond(post, pressure);
    atomic_fetch_sub(&post->running, 1);
    atomic_fetch_add(&world.answers, 1);
    return given;
}

/* ---- replacing the function ---- */

static void replace(struct owner *owner, moor_pressure_function function, uint32_t kind)
{
    struct post *before = &owner->posts[owner->current], *after = &owner->posts[1 - owner->current];
    check(atomic_load(&after->running) == 0, "a function that has been removed does not run");
    *after = (struct post){.owner = owner, .kind = kind};
    must("pressure", moor_holder_set_pressure(owner->holder, function, function ? after : NULL));
    check(atomic_load(&before->running) == 0, "a function whose removal has returned does not run");
    atomic_store(&before->removed, 1);
    owner->current = 1 - owner->current;
}

void pressure_replace(struct owner *owner, uint64_t random)
{
    if (atomic_exchange(&owner->replacing, 1))
        return;
    uint32_t kind = (uint32_t)(random % (KINDS + 1));
    replace(owner, kind < KINDS ? answer : NULL, kind);
    atomic_store(&owner->replacing, 0);
}

void pressure_remove(struct owner *owner)
{
    replace(owner, NULL, GIVES_NOTHING);
}
