/* SPDX-License-Identifier: MIT */
/* The world of governor_stress: two pools, holders that live all the time, and what they keep. */
#ifndef MOOR_TESTS_GOVERNOR_STRESS_H
#define MOOR_TESTS_GOVERNOR_STRESS_H

#include <moorage/moorage.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define POOLS 2
#define OWNERS 6 /* of each pool */
#define KEPT 16  /* leases, and buffers, of one owner */
#define TICKETS 16
#define THREADS_MAX 32
#define SNAPSHOT_HOLDERS 128

#define KIB(n) (UINT64_C(1024) * (n))
#define MIB(n) (UINT64_C(1048576) * (n))
#define MS(n) (UINT64_C(1000000) * (n))

/* What an owner has: then its events say more, and more can be compared. */
#define HAS_LEASES 1u
#define HAS_MEMORY 2u

struct pool;
struct owner;

/* One way to answer pressure, as it was given to the runtime once. */
struct post {
    struct owner *owner;
    uint32_t kind;
    _Atomic int running; /* threads inside: one at most */
    _Atomic int removed; /* never called again */
};

/* The host's side of a holder: others may use, grow and give back all that it keeps. */
struct owner {
    struct pool *pool;
    struct moor_holder *holder;
    struct moor_binding *binding; /* NULL: it has leases alone */
    uint32_t has;
    uint64_t guarantee_bytes; /* that never changes; 0: it may */
    _Atomic moor_lease leases[KEPT];
    _Atomic moor_buffer buffers[KEPT];
    _Atomic uint64_t revision; /* the latest that somebody has used for its limits */
    _Atomic uint64_t promised; /* of a guarantee that never changes: what is being asked for */
    _Atomic int replacing;     /* a thread is changing its post */
    struct post posts[2];      /* one is in force, the other was before */
    uint32_t current;          /* whoever is replacing */
};

/* In the fixed pool neither capacity nor guarantees change, so guarantees have to be good at once. */
struct pool {
    struct moor_device *device;
    uint32_t domain;
    struct moor_authority *authority;
    bool is_fixed;
    uint64_t granule_bytes;
    uint64_t tight_bytes; /* the least capacity, and the most */
    uint64_t calm_bytes;
    _Atomic uint64_t revision;
    struct owner owners[OWNERS];
};

struct world {
    struct moor_runtime *runtime;
    struct pool pools[POOLS];
    _Atomic moor_ticket tickets[TICKETS];
    _Atomic int is_calm;      /* nobody waits for room, so that threads have credit */
    _Atomic int gate;         /* workers are to stand still */
    _Atomic int stop;         /* workers are to end */
    _Atomic int over;         /* and then the others */
    _Atomic uint64_t answers; /* of pressure functions */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    int running; /* workers, and those of them that stand still; lock */
    int parked;
    uint64_t jobs; /* of the helper: given, and done; lock */
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
    uint64_t lives;              /* threads that it has been */
    _Atomic uint64_t beats;      /* acts, so far */
    _Atomic(const char *) doing; /* for the watchdog */
    struct snapshot snapshots[POOLS];
};

/* One thing that a worker does; the more weight it has, the more often. */
struct act {
    const char *name;
    void (*run)(struct worker *w);
    uint32_t weight;
};

/* governor_stress.c */
extern struct world world;
_Noreturn void die(const char *what, moor_status status);
void must(const char *what, moor_status status);
/* Whether it is OK. There may be no room, and then the answer is one of those that say so. */
bool fits(const char *what, moor_status status);
/* Whether it is OK. Another thread may have ended the thing. */
bool is_there(const char *what, moor_status status);
void check(bool holds, const char *what);

/* governor_stress_acts.c */
uint64_t next_random(struct worker *w);
const struct act *any_act(struct worker *w);

/* governor_stress_books.c: what every event says, added up; and what a snapshot must be. */
void books_listen(void *user, const struct moor_trace_event *event);
/* At a quiet point: the events' sums are the holder's figures. */
void books_compare(const struct moor_holder *holder, const struct moor_holder_stats *stats, uint32_t has);
/* At the end: nobody has anything left, and as many tickets have ended as were opened. */
void books_check_empty(void);

/* Takes one and checks it. previous: the caller's last one of that pool, replaced by this. */
void snapshot_check(const struct pool *pool, struct snapshot *previous);

/* governor_stress_pressure.c */
/* Another of the ways to answer, or none at all. */
void pressure_replace(struct owner *owner, uint64_t random);
void pressure_remove(struct owner *owner);
/* Lets go of at most about so many bytes of what it keeps; returns how many that were. */
uint64_t owner_give(struct owner *owner, uint64_t bytes);
/* The thread that lets go for others. */
void *helper_run(void *unused);
void helper_settle(void);

#endif
