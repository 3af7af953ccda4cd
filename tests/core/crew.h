/* SPDX-License-Identifier: MIT */
/* Threads that reserve together, each in a holder of its own or all in one; for the tests of credit. */
#ifndef MOOR_TESTS_CREW_H
#define MOOR_TESTS_CREW_H

#include "governor/governor.h"

#include "fixture.h"

#include <pthread.h>

#define HANDS 8
#define GRANTS 4096

struct crew;

/* A thread, or several one after another, and what they have reserved. */
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
    uint64_t most_bytes;        /* that all together may have */
    _Atomic uint64_t attempted; /* is reserved, or just being asked for */
    _Atomic uint64_t held;      /* is reserved, for sure */
    _Atomic int ready;          /* hands that have done their part */
    _Atomic int go;             /* they go on */
    struct hand hands[HANDS];
};

/* As on systems that have no membarrier. Before anything else. */
void crew_use_exchanges(void);
/* All hands reserve for the fixture's holder. There is one crew. */
struct crew *crew_open(void);

uint64_t hand_random(struct hand *hand);
void hand_start(struct hand *hand, void *(*run)(void *));
void hand_join(struct hand *hand);
/* A grant more; without waiting. */
moor_status hand_take(struct hand *hand, uint64_t bytes);
/* Releases all its grants. Takes a hand, and returns NULL: it may be what a thread runs. */
void *hand_give_all(void *user);
/* Reserves and gives back: this thread has credit of the hand's holder then. */
void hand_get_credit(struct hand *hand);

/* Each on a thread of its own, from start to end. */
void crew_run(struct crew *crew, void *(*run)(void *));
/* Threads that have got credit, and keep still; and their end. */
void crew_sit(struct crew *crew);
void crew_stand_up(struct crew *crew);

/* From the inside, while nobody calls the runtime: what threads could give out of the holder's, and takes
 * it back. */
uint64_t crew_credit_of(struct moor_holder *holder);
/* How many threads have left, or keep, something of the runtime. */
uint32_t crew_count_locals(struct moor_runtime *runtime);

#endif
