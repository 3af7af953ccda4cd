/* SPDX-License-Identifier: MIT */
/* The world of governor_stress: two pools, permanent holders, and their objects. */
#ifndef MOOR_TESTS_GOVERNOR_STRESS_H
#define MOOR_TESTS_GOVERNOR_STRESS_H

#include "services.h"

#include <moorage/moorage.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define POOLS 2
#define OWNERS 6 /* per pool */
#define KEPT 16  /* leases and buffers of one owner */
#define TICKETS 16
#define THREADS_MAX 32
#define SNAPSHOT_HOLDERS 128

#define KIB(n) (UINT64_C(1024) * (n))
#define MIB(n) (UINT64_C(1048576) * (n))
#define MS(n) (UINT64_C(1000000) * (n))

/* The part of an owner's bytes that its events describe further, so that more figures can be compared. */
#define HAS_LEASES 1u
#define HAS_MEMORY 2u

struct pool;
struct owner;

/* One pressure function of an owner, as it was set once. */
struct post {
    struct owner *owner;
    uint32_t kind;
    _Atomic int running; /* threads inside, one at most */
    _Atomic int removed; /* the function has been removed and must not be called again */
};

/* The host's side of a holder: other threads may use, grow and release all its objects. */
struct owner {
    struct pool *pool;
    struct moor_holder *holder;
    struct moor_binding *binding; /* NULL: the owner has leases only */
    uint32_t has;
    uint64_t guarantee_bytes; /* a limit that never changes; 0: it may change */
    _Atomic moor_lease leases[KEPT];
    _Atomic moor_buffer buffers[KEPT];
    _Atomic uint64_t revision; /* the newest revision that a thread has used for its limits */
    _Atomic uint64_t promised; /* bytes under request of a guarantee that never changes */
    _Atomic int replacing;     /* a thread is replacing the pressure function */
    struct post posts[2];      /* one function is in force, the other one was before */
    uint32_t current;          /* the lock of the thread that replaces it */
};

/* In the fixed pool neither capacity nor guarantees change, so that a guarantee must be available at once. */
struct pool {
    struct moor_device *device;
    uint32_t domain;
    struct moor_authority *authority;
    bool is_fixed;
    uint64_t granule_bytes;
    uint64_t tight_bytes; /* the lowest capacity and the highest */
    uint64_t calm_bytes;
    _Atomic uint64_t revision;
    struct owner owners[OWNERS];
};

struct world {
    struct moor_runtime *runtime;
    struct pool pools[POOLS];
    _Atomic moor_ticket tickets[TICKETS];
    _Atomic int is_calm;      /* no request waits for room, so that threads have credit */
    _Atomic int gate;         /* the workers have to wait at the gate */
    _Atomic int stop;         /* the workers have to end */
    _Atomic int over;         /* then the other threads have to end */
    _Atomic uint64_t answers; /* guards the changes of pressure functions */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    int running; /* workers, and workers that wait at the gate; lock */
    int parked;
    uint64_t jobs; /* jobs for the helper: submitted, and done; lock */
    uint64_t done;
};

struct snapshot {
    struct moor_authority_stats stats;
    struct moor_holder_stats holders[SNAPSHOT_HOLDERS];
    size_t count;
};

struct worker {
    pthread_t thread;
    struct moor_stream *streams[POOLS];
    uint64_t random;
    uint64_t lives;              /* threads that the worker has been */
    _Atomic uint64_t beats;      /* acts so far */
    _Atomic(const char *) doing; /* for the watchdog */
    struct snapshot snapshots[POOLS];
};

/* One act of a worker; a higher weight makes it more frequent. */
struct act {
    const char *name;
    void (*run)(struct worker *w);
    uint32_t weight;
};

/* governor_stress.c */
extern struct world world;
_Noreturn void die(const char *what, moor_status status);
void must(const char *what, moor_status status);
/* Returns true if the status is OK. A lack of room must give one of the shortage statuses. */
bool fits(const char *what, moor_status status);
/* Returns true if the status is OK. Another thread may have ended the object. */
bool is_there(const char *what, moor_status status);
void check(bool holds, const char *what);

/* governor_stress_acts.c */
uint64_t next_random(struct worker *w);
const struct act *any_act(struct worker *w);

/* governor_stress_accounts.c: sums of all events, and the rules of a snapshot. */
void accounts_listen(void *user, const struct moor_trace_event *event);
/* At a quiet point: the events' sums equal the holder's account lines. */
void accounts_compare(const struct moor_holder *holder, const struct moor_holder_stats *stats, uint32_t has);
/* At the end: no holder has any bytes, and as many tickets have ended as were opened. */
void accounts_check_empty(void);

/* Takes a snapshot and checks it. previous: the caller's last snapshot of that pool, which this one
 * replaces. */
void snapshot_check(const struct pool *pool, struct snapshot *previous);

/* governor_stress_pressure.c */
/* Installs another pressure function, or none. */
void pressure_replace(struct owner *owner, uint64_t random);
void pressure_remove(struct owner *owner);
/* Evicts at most about that many bytes of the owner's objects; returns the evicted bytes. */
uint64_t owner_give(struct owner *owner, uint64_t bytes);
/* Evicts on behalf of other threads. */
void *helper_run(void *unused);
void helper_settle(void);

#endif
