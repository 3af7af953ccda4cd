/* SPDX-License-Identifier: MIT */
/*
 * The inside of the simulated device.
 *
 * Everything of an instance is under one lock, moor_mock.lock: a simulation must be right and repeatable, and
 * its calls are short. The lock is released only during a host function, during the delay of a fault or a
 * cost, and between the pieces of a large copy where threads execute it. The kit's locks (handles, queue,
 * timeline) are taken after it, and the kit calls back with none of its own held.
 *
 * With a virtual clock nothing is decided by an address, by real time or by the speed of a thread: one seed
 * gives one order.
 *
 * The floors, each of which calls only the ones before it:
 *
 *     interval  settings  |  violation (lock, events)  place (addresses)  span (bytes, spans)
 *     shadow (order of work)  |  queue (operations)  effect (bytes of an operation)  execute (one queue)
 *     thread (life of queues)  clock (virtual time)  call (counts, costs, faults)
 *     alloc  range  release  stream  control  |  provider
 */
#ifndef MOOR_MOCK_SIM_H
#define MOOR_MOCK_SIM_H

#include "call.h"
#include "memory.h"
#include "place.h"
#include "queue.h"
#include "settings.h"
#include "violation.h"
#include <assert.h>
#include <moorage/kit/host.h>

#define MOCK_UNSET_BYTE 0xa5  /* content of the first page of an allocation without ZERO */
#define MOCK_ABSENT_BYTE 0xd2 /* copied to the host where there are no contents */

struct moor_mock {
    const struct moor_abi_host *host;
    struct mock_settings settings;
    struct moor_mock_control control;
    struct moor_mock_drive drive;
    struct {
        bool is_taken; /* one thread alone drives; set before others call, as `thread` */
        pthread_t thread;
    } driver;
    struct mock_device *devices;
    struct mock_pool *pools; /* one for each device */

    pthread_mutex_t lock; /* guards all below, and the contents of devices and pools */
    struct {
        uint64_t now_ns; /* the virtual time */
        uint64_t random;
        bool is_running; /* `runner` lets the virtual clock run */
        pthread_t runner;
        pthread_cond_t ran;
    } time;
    struct mock_queues queues;
    struct {
        struct mock_intervals all;   /* struct mock_span */
        struct mock_intervals marks; /* last uses: shadow.c */
        uint64_t marks_swept;        /* marks that the last sweep left */
    } spans;
    struct mock_address_space space;
    struct mock_calls calls;
    struct {
        uint64_t objects[MOOR_KIT_KIND_COUNT];
        uint64_t streams;
        uint64_t releases;        /* queued */
        uint64_t release_numbers; /* used so far */
    } counts;
    struct mock_violations violations;
};

struct moor_abi_instance {
    struct moor_kit_instance kit;
    struct moor_mock mock;
};

static inline bool mock_has_contents(const struct moor_mock *mock)
{
    return mock->settings.contents == MOCK_CONTENTS_REAL;
}

static inline bool mock_is_virtual(const struct moor_mock *mock)
{
    return mock->settings.clock == MOCK_CLOCK_VIRTUAL;
}

static inline uint64_t mock_now(const struct moor_mock *mock)
{
    return mock_is_virtual(mock) ? mock->time.now_ns : mock->host->clock_ns(mock->host->user);
}

/* Returns true if another thread drives: for this one nothing moves. */
static inline bool mock_is_bystander(const struct moor_mock *mock)
{
    return mock->driver.is_taken && !pthread_equal(mock->driver.thread, pthread_self());
}

static inline uint64_t mock_add(uint64_t left, uint64_t right)
{
    return left > UINT64_MAX - right ? UINT64_MAX : left + right;
}

/* xorshift64*; never 0. */
static inline uint64_t mock_random(uint64_t *state)
{
    assert(*state != 0);
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* Addresses travel as integers; this is the one place where they become pointers. */
static inline void *mock_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* ---- release.c, control.c ---- */

/* A queued release. Its address is the cookie of the kit's entry. */
struct mock_leaving {
    uint64_t cookie;
    uint64_t number; /* in the order of submission */
    struct mock_object *object;
    bool due; /* every fence point was reached */
    uint32_t point_count;
    struct mock_point points[]; /* with a reference to each clock */
};

extern const struct moor_kit_queue_callbacks mock_queue_callbacks;
extern const struct moor_abi_release_table mock_release_table;

void mock_control_init(struct moor_mock *mock);

#endif
