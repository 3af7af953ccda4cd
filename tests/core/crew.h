/* SPDX-License-Identifier: MIT */
/* Threads that reserve together, each in its own holder or all in one; for the tests of credit. */
#ifndef MOOR_TESTS_CREW_H
#define MOOR_TESTS_CREW_H

#include "governor/governor.h"

#include "fixture.h"
#include "services.h"

#include <pthread.h>

#define HANDS 8
#define GRANTS 4096

struct crew;

/* One thread, or several in succession, and their grants. */
struct hand {
    struct crew *crew;
    pthread_t thread;
    struct moor_holder *holder;
    uint64_t random;
    uint64_t bytes;
    size_t count;
    moor_grant grants[GRANTS];
};

struct crew {
    struct fixture f;
    uint64_t most_bytes;        /* the limit of all hands together */
    _Atomic uint64_t attempted; /* bytes of grants and of requests under way */
    _Atomic uint64_t held;      /* bytes of grants */
    _Atomic int ready;          /* hands that have finished their part */
    _Atomic int go;             /* 1: the hands continue */
    struct hand hands[HANDS];
};

/* Simulates a system without membarrier. Call it first. */
void crew_use_exchanges(void);
/* Opens the crew, of which there is one. All hands reserve for the fixture's holder. */
struct crew *crew_open(void);

/* A test with an open crew; the fixture is closed after the body. */
#define CREW_TEST(suite_, name_)                                                                             \
    static void suite_##_##name_(struct crew *crew);                                                         \
    Test(suite_, name_)                                                                                      \
    {                                                                                                        \
        crew_run_test(suite_##_##name_);                                                                     \
    }                                                                                                        \
    static void suite_##_##name_(struct crew *crew)

/* Two tests of one body: with membarrier, where the system has it, and without. */
#define CREW_TEST_BOTH(suite_, name_)                                                                        \
    static void suite_##_##name_(struct crew *crew);                                                         \
    Test(suite_, name_##_without_membarrier)                                                                 \
    {                                                                                                        \
        crew_use_exchanges();                                                                                \
        crew_run_test(suite_##_##name_);                                                                     \
    }                                                                                                        \
    Test(suite_, name_)                                                                                      \
    {                                                                                                        \
        crew_run_test(suite_##_##name_);                                                                     \
    }                                                                                                        \
    static void suite_##_##name_(struct crew *crew)

void crew_run_test(void (*body)(struct crew *crew));

uint64_t hand_random(struct hand *hand);
void hand_start(struct hand *hand, void *(*run)(void *));
void hand_join(struct hand *hand);
/* Takes one more grant, without waiting. */
moor_status hand_take(struct hand *hand, uint64_t bytes);
/* Releases all grants of the hand; returns NULL. A thread can run it. */
void *hand_give_all(void *user);
/* Reserves and releases: afterwards this thread has credit of the holder. */
void crew_get_credit(struct fixture *f, struct moor_holder *holder);
void hand_get_credit(struct hand *hand);

/* Runs `run` on a thread for each hand, from start to end. */
void crew_run(struct crew *crew, void *(*run)(void *));
/* crew_sit() starts threads that get credit and wait; crew_stand_up() ends them. */
void crew_sit(struct crew *crew);
void crew_stand_up(struct crew *crew);

/* Takes back and returns the credit that threads have of the holder. No other thread may call the runtime. */
uint64_t crew_credit_of(struct moor_holder *holder);
/* Returns the number of thread accounts of the runtime. */
uint32_t crew_count_locals(struct moor_runtime *runtime);

#endif
