/* SPDX-License-Identifier: MIT */
/*
 * The governor under all kinds of calls at once. A plain program, because ThreadSanitizer does not run under
 * Criterion.
 *
 * governor_stress [PROVIDER.so|- [SECONDS [THREADS [exchange]]]]
 *
 * Threads reserve, commit, adjust, refund, wait, cancel, change limits and capacities, replace pressure
 * functions, and create and destroy holders over two pools, of the scripted provider or one of them of a
 * provider from a file. They end and are replaced, so that other threads take over their accounts. The pool
 * is wide at times, so that threads have credit, and narrow at times, so that requests wait. Every snapshot
 * must add up. From time to time all threads stand still, and the sums of all events must equal the accounts.
 * All threads use all objects: STALE is then a right answer, a wrong sum is not. "exchange" runs without
 * membarrier, as on systems that lack it.
 */
#include "governor_stress.h"

#include "attach.h"
#include "settle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATIENCE_S 90 /* without anything happening: a deadlock */

struct world world;
static struct worker workers[THREADS_MAX];
static size_t worker_count;
static _Atomic uint64_t main_beats;

void die(const char *what, moor_status status)
{
    (void)fprintf(stderr, "governor_stress: %s: %s: %s\n", what, moor_status_name(status),
                  moor_last_error()->text);
    abort();
}

void must(const char *what, moor_status status)
{
    if (status)
        die(what, status);
}

void check(bool holds, const char *what)
{
    if (!holds)
        die(what, MOOR_CORRUPT);
}

bool fits(const char *what, moor_status status)
{
    if (status != MOOR_OK && status != MOOR_OVER_BUDGET && status != MOOR_PENDING &&
        status != MOOR_NEVER_FITS && status != MOOR_NO_VICTIM && status != MOOR_TIMEOUT)
        die(what, status);
    return status == MOOR_OK;
}

bool is_there(const char *what, moor_status status)
{
    if (status != MOOR_OK && status != MOOR_STALE)
        die(what, status);
    return status == MOOR_OK;
}

/* ---- threads ---- */

/* Waits while the gate is closed. */
static void park(struct worker *w)
{
    pthread_mutex_lock(&world.lock);
    world.parked++;
    pthread_cond_broadcast(&world.changed);
    while (atomic_load(&world.gate)) {
        atomic_store(&w->doing, "stands still");
        pthread_cond_wait(&world.changed, &world.lock);
    }
    world.parked--;
    pthread_mutex_unlock(&world.lock);
}

/* One of a worker's threads, one after another. */
static void *work(void *user)
{
    struct worker *w = user;
    uint64_t rounds = 20 + next_random(w) % 400;
    for (uint64_t i = 0; i < rounds && !atomic_load_explicit(&world.stop, memory_order_relaxed); i++) {
        if (atomic_load_explicit(&world.gate, memory_order_relaxed))
            park(w);
        const struct act *act = any_act(w);
        atomic_store_explicit(&w->doing, act->name, memory_order_relaxed);
        act->run(w);
        atomic_fetch_add_explicit(&w->beats, 1, memory_order_relaxed);
    }
    pthread_mutex_lock(&world.lock);
    world.running--;
    pthread_cond_broadcast(&world.changed);
    pthread_mutex_unlock(&world.lock);
    return NULL;
}

static void start(pthread_t *thread, void *(*run)(void *), void *user)
{
    if (pthread_create(thread, NULL, run, user) != 0)
        die("thread", MOOR_HOST_NOMEM);
}

static void start_worker(struct worker *w)
{
    pthread_mutex_lock(&world.lock);
    world.running++;
    pthread_mutex_unlock(&world.lock);
    w->lives++;
    start(&w->thread, work, w);
}

static void replace_ended(void)
{
    for (size_t i = 0; i < worker_count; i++)
        if (pthread_tryjoin_np(workers[i].thread, NULL) == 0)
            start_worker(&workers[i]);
}

/* Makes no call that could wait for the threads under watch. */
static void *watch(void *user)
{
    static uint64_t seen[THREADS_MAX + 1];
    static int since_s[THREADS_MAX + 1];
    while (!atomic_load(&world.over)) {
        (void)nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        for (size_t i = 0; i <= worker_count; i++) {
            uint64_t beats = atomic_load(i == worker_count ? &main_beats : &workers[i].beats);
            since_s[i] = beats == seen[i] ? since_s[i] + 1 : 0;
            seen[i] = beats;
            if (since_s[i] < PATIENCE_S)
                continue;
            for (size_t j = 0; j < worker_count; j++)
                (void)fprintf(stderr, "worker %zu: %s\n", j, atomic_load(&workers[j].doing));
            (void)fprintf(stderr, "governor_stress: %s %zu does not go on\n",
                          i < worker_count ? "worker" : "main", i);
            abort();
        }
    }
    return NULL;
}

/* Gets credit, does nothing for a long time, and ends after the runtime. */
static void *outlive(void *user)
{
    moor_grant grant;
    must("reserve", moor_grant_reserve(world.pools[0].owners[0].holder, 1, MOOR_NO_WAIT, &grant));
    must("grant", moor_grant_release(world.runtime, grant));
    pthread_mutex_lock(&world.lock);
    *(bool *)user = true;
    pthread_cond_broadcast(&world.changed);
    while (world.runtime)
        pthread_cond_wait(&world.changed, &world.lock);
    pthread_mutex_unlock(&world.lock);
    return NULL;
}

static void start_survivor(pthread_t *thread)
{
    static bool has_credit;
    start(thread, outlive, &has_credit);
    pthread_mutex_lock(&world.lock);
    while (!has_credit)
        pthread_cond_wait(&world.changed, &world.lock);
    pthread_mutex_unlock(&world.lock);
}

/* ---- quiet points ---- */

static void set_calm(bool is_calm)
{
    struct pool *pool = &world.pools[0];
    uint64_t bytes = is_calm ? pool->calm_bytes : pool->tight_bytes, revision;
    atomic_store(&world.is_calm, is_calm);
    do
        revision = atomic_fetch_add(&pool->revision, 1) + 1;
    while (!is_there("capacity", moor_authority_set_capacity(pool->authority, bytes, revision, NULL)));
}

/* No pressure request starts any more, because no holder is over its limit. */
static void lift_limits(struct pool *pool)
{
    for (size_t i = 0; i < OWNERS; i++) {
        struct owner *owner = &pool->owners[i];
        const struct moor_holder_limits limits = {.guarantee_bytes = owner->guarantee_bytes};
        must("limits",
             moor_holder_set_limits(owner->holder, &limits, atomic_fetch_add(&owner->revision, 1) + 1, NULL));
    }
    if (!pool->is_fixed)
        must("aside", moor_authority_set_aside(pool->authority, 0));
}

static void compare_all(void)
{
    for (size_t i = 0; i < POOLS; i++) {
        static struct snapshot snapshot;
        struct moor_authority_stats *stats = &snapshot.stats;
        stats->capacity_bytes = 0;
        snapshot_check(&world.pools[i], &snapshot);
        check(stats->over_bytes == 0 && stats->tickets == 0, "nobody waits, and nothing is over its limits");
        for (size_t j = 0; j < OWNERS; j++) {
            struct moor_holder_stats holder;
            struct owner *owner = &world.pools[i].owners[j];
            must("stats", moor_holder_get_stats(owner->holder, &holder));
            accounts_compare(owner->holder, &holder, owner->has);
        }
    }
}

/* All workers wait at the gate or have ended. */
static void be_quiet(void)
{
    set_calm(true);
    for (size_t i = 0; i < TICKETS; i++)
        (void)is_there("cancel", moor_ticket_cancel(world.runtime, atomic_exchange(&world.tickets[i], 0)));
    for (size_t i = 0; i < POOLS; i++)
        lift_limits(&world.pools[i]);
    moor__pressure_settle(world.runtime);
    helper_settle();
    must("reap",
         moor_runtime_reap(world.runtime, moor_clock_ns() + MS(10000))); /* no completion arrives either */
    compare_all();
}

static void stand_still(void)
{
    pthread_mutex_lock(&world.lock);
    atomic_store(&world.gate, 1);
    while (world.parked < world.running)
        pthread_cond_wait(&world.changed, &world.lock);
    pthread_mutex_unlock(&world.lock);
    be_quiet();
    pthread_mutex_lock(&world.lock);
    atomic_store(&world.gate, 0);
    pthread_cond_broadcast(&world.changed);
    pthread_mutex_unlock(&world.lock);
}

static void run(uint64_t seconds)
{
    uint64_t start_ns = moor_clock_ns(), turn_ns = start_ns;
    for (uint64_t turn = 0; moor_clock_ns() < start_ns + seconds * MS(1000);) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        atomic_fetch_add(&main_beats, 1);
        replace_ended();
        if (moor_clock_ns() < turn_ns)
            continue;
        if (turn % 2 == 0)
            stand_still(); /* restores the wide pool */
        else
            set_calm(false);
        turn++;
        turn_ns = moor_clock_ns() + MS(300);
    }
}

/* ---- set-up, and the end ---- */

static void make_pool(struct pool *pool, struct moor_device *device, uint32_t domain, bool is_fixed)
{
    struct moor_abi_domain_info info = {.struct_size = MOOR_ABI_DOMAIN_INFO_SIZE};
    must("domain", moor_device_get_domain_info(device, domain, &info));
    *pool = (struct pool){.device = device, .domain = domain, .is_fixed = is_fixed};
    pool->granule_bytes = info.granule_min_bytes > KIB(16) ? info.granule_min_bytes : KIB(16);
    pool->tight_bytes = MIB(12);
    pool->calm_bytes = is_fixed ? MIB(16) : MIB(256);
    must("authority", moor_device_get_authority(device, domain, &pool->authority));
    must("capacity", moor_authority_set_capacity(pool->authority, pool->calm_bytes, 1, NULL));
    must("aside", moor_authority_set_aside(pool->authority, KIB(64)));
    pool->revision = 1;
    for (uint32_t i = 0; i < OWNERS; i++) {
        struct owner *owner = &pool->owners[i];
        char name[32];
        struct moor_holder_options options = {.name = name, .limits.priority = (int32_t)(i % 3) - 1};
        *owner = (struct owner){.pool = pool, .has = 1 + i % 3};
        if (is_fixed && i == 0)
            options.limits.guarantee_bytes = owner->guarantee_bytes = MIB(4);
        (void)snprintf(name, sizeof name, "owner %u", i);
        must("holder", moor_holder_create(pool->authority, &options, &owner->holder));
        if (owner->has & HAS_MEMORY)
            must("binding", moor_binding_open(device, domain, owner->holder, &owner->binding));
    }
}

static struct scripted *make_world(const char *path)
{
    struct moor_runtime_options options = {.patience_ns = MS(20)};
    struct scripted *script = scripted_create(&(struct scripted_options){.total_bytes = MIB(512)});
    struct moor_provider *provider;
    struct moor_device *device;
    pthread_mutex_init(&world.lock, NULL);
    pthread_cond_init(&world.changed, NULL);
    must("runtime", moor_runtime_create(&options, &world.runtime));
    must("trace", moor_runtime_set_trace(world.runtime, accounts_listen, NULL));
    must("attach", scripted_attach(script, world.runtime, &provider));
    must("device", moor_provider_get_device(provider, 0, &device));
    make_pool(&world.pools[1], device, SCRIPTED_DOMAIN_DEVICE, true);
    uint32_t domain = SCRIPTED_DOMAIN_HOST;
    if (path) {
        must("load", moor_provider_load(world.runtime, path, NULL, &provider));
        must("device", moor_provider_get_device(provider, 0, &device));
        domain = 0;
    }
    make_pool(&world.pools[0], device, domain, false);
    return script;
}

static void end_world(struct scripted *script)
{
    for (size_t i = 0; i < worker_count; i++)
        for (size_t j = 0; j < POOLS; j++)
            must("stream", moor_stream_destroy(workers[i].streams[j]));
    for (size_t i = 0; i < POOLS; i++)
        for (size_t j = 0; j < OWNERS; j++) {
            pressure_remove(&world.pools[i].owners[j]);
            (void)owner_give(&world.pools[i].owners[j], UINT64_MAX);
        }
    must("reap", moor_runtime_reap(world.runtime, moor_clock_ns() + MS(10000)));
    for (size_t i = 0; i < POOLS; i++) {
        struct moor_authority_stats stats;
        for (size_t j = 0; j < OWNERS; j++) {
            must("binding", moor_binding_close(world.pools[i].owners[j].binding));
            must("holder", moor_holder_destroy(world.pools[i].owners[j].holder));
        }
        must("stats", moor_authority_get_stats(world.pools[i].authority, &stats, NULL, 0, NULL));
        check(!stats.charged_bytes && !stats.reserved_bytes && !stats.leased_bytes && !stats.holder_count &&
                  !stats.tickets && !stats.guaranteed_bytes && !stats.requested_bytes,
              "the accounts are empty");
    }
    struct moor_object_counts counts, none = {0};
    must("counts", moor_runtime_get_counts(world.runtime, &counts));
    counts.streams = 0; /* one stream may still be pending */
    check(memcmp(&counts, &none, sizeof none) == 0, "nothing is left");
    must("destroy", moor_runtime_destroy(world.runtime));
    accounts_check_empty(); /* the runtime's own threads have traced every event */
    scripted_destroy(script);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 && strcmp(argv[1], "-") != 0 ? argv[1] : NULL;
    long seconds = argc > 2 ? strtol(argv[2], NULL, 10) : 4;
    worker_count = argc > 3 ? strtoul(argv[3], NULL, 10) : 16;
    bool exchanges = argc > 4 && strcmp(argv[4], "exchange") == 0;
    if (seconds < 1 || worker_count < 1 || worker_count > THREADS_MAX || argc > 5 ||
        (argc > 4 && !exchanges)) {
        (void)fprintf(stderr, "usage: governor_stress [PROVIDER.so|- [SECONDS [THREADS [exchange]]]]\n");
        return 2;
    }
    moor__credit_init();
    if (exchanges)
        moor__has_membarrier = false;
    struct scripted *script = make_world(path);
    pthread_t helper, watchdog, survivor;
    start(&helper, helper_run, NULL);
    start_survivor(&survivor);
    for (size_t i = 0; i < worker_count; i++) {
        workers[i] = (struct worker){.random = (i + 1) * UINT64_C(0x9e3779b97f4a7c15)};
        for (size_t j = 0; j < POOLS; j++)
            must("stream", moor_stream_create(world.pools[j].device, NULL, &workers[i].streams[j]));
        start_worker(&workers[i]);
    }
    start(&watchdog, watch, NULL);
    run((uint64_t)seconds);
    atomic_store(&world.stop, 1);
    uint64_t rounds = 0, lives = 0;
    for (size_t i = 0; i < worker_count; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        rounds += workers[i].beats;
        lives += workers[i].lives;
    }
    be_quiet();
    end_world(script);
    pthread_mutex_lock(&world.lock);
    atomic_store(&world.over, 1);
    pthread_cond_broadcast(&world.changed);
    pthread_mutex_unlock(&world.lock);
    (void)pthread_join(helper, NULL);
    (void)pthread_join(watchdog, NULL);
    pthread_mutex_lock(&world.lock);
    world.runtime = NULL;
    pthread_cond_broadcast(&world.changed);
    pthread_mutex_unlock(&world.lock);
    (void)pthread_join(survivor, NULL);
    (void)printf("governor_stress: %llu rounds of %llu threads in %ld s, %llu answers, accounts empty\n",
                 (unsigned long long)rounds, (unsigned long long)lives, seconds,
                 (unsigned long long)atomic_load(&world.answers));
    return 0;
}
