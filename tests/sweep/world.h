/* SPDX-License-Identifier: MIT */
/*
 * The world of one trial: a runtime with a provider in which things are made to fail, memory and streams on
 * it, and what must not change when a call fails. Whatever is not as it must be ends the process with a line
 * that says so.
 */
#ifndef MOOR_TESTS_SWEEP_WORLD_H
#define MOOR_TESTS_SWEEP_WORLD_H

#include "account.h"

#include <moorage/cudasim.h>
#include <moorage/fault.h>
#include <moorage/mock.h>
#include <moorage/moorage.h>
#include <stdbool.h>
#include <stdio.h>

/* What is swept: a provider inside fault.so, and another one beside it. */
struct target {
    const char *name;
    const char *fault_path;
    const char *inner_path;
    const char *far_path;
    bool threads;            /* host functions run on the provider's threads, and may block there */
    const char *driver_path; /* the simulated CUDA driver; NULL: it has none */
    const char *timeline;    /* its streams' timelines */
};

#define SETTINGS_MAX 5u

#define THINGS 3u /* of a kind, in a world */
#define PAGE_BYTES 4096u
#define HOST_BYTES 65536u
#define SMALL_BYTES "16MiB" /* of a device that can be filled */

struct world {
    const struct target *target;
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    const struct moor_fault_control *control; /* NULL without a provider */
    const struct moor_mock_control *mock;     /* NULL: the provider within is not a simulated device */
    const struct moor_cudasim *driver;        /* NULL: there is no simulated driver */
    struct moor_cudasim_live driver_live;     /* what it had before */
    uint64_t driver_violations;               /* and had seen */
    bool driver_is_ending;                    /* a fault of it is in the end of the provider */
    bool driver_keeps_context;                /* it was made to refuse to end one */
    bool driver_has_ended;                    /* one has ended by an error */
    struct moor_device *device;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *stream;
    struct moor_abi_domain_info domain;
    uint64_t granule; /* bytes */

    /* The other provider, loaded as it is. */
    struct moor_provider *far_provider;
    struct moor_device *far_device;
    struct moor_holder *far_holder;
    struct moor_binding *far_binding;
    struct moor_abi_domain_info far_domain;

    /* What a scenario works with; 0 or NULL is none. All of it is given back at the end. */
    moor_buffer buffers[THINGS];
    moor_range ranges[THINGS];
    moor_segment segments[THINGS];
    moor_grant grant;
    moor_grant grants[THINGS];
    moor_lease lease;
    moor_ticket ticket;
    struct moor_stream *other;
    struct moor_runtime *second_runtime;
    struct moor_holder *second_holder;
    struct moor_binding *second_binding;
    struct moor_fence fence;
    uint64_t victim_bytes;  /* size of the buffers that a victim has (pressure.c) */
    uint64_t unit;          /* and what each of them is charged */
    moor_lease given_lease; /* what it has instead of them; 0: nothing */
    unsigned char *host;    /* HOST_BYTES, whole pages */

    /* What nothing may touch: a buffer full of WITNESS, and handles of things that are gone. */
    moor_buffer witness;
    moor_buffer stale_buffer;
    moor_range stale_range;
    moor_segment stale_segment;

    _Atomic uint32_t ran;     /* host functions */
    _Atomic uint32_t given;   /* things that a pressure function has let go */
    bool emptied;             /* the quarantine was tried again: a grant does not get back what it paid for */
    bool never_holds;         /* streams will be lost, for which their work must come to an end */
    _Atomic uint64_t held;    /* the native name of a stream that the simulated device holds; 0: none */
    _Atomic int gate;         /* 1: a host function waits on the held stream */
    uint64_t injected;        /* failures, or calls of the driver, before those of the trial */
    char faults[128];         /* the setting of loads to come; "": none */
    bool is_small;            /* those have a device of SMALL_BYTES */
    _Atomic uint32_t logged;  /* warnings and errors */
    _Atomic uint32_t told;    /* lines of log that name a call as made to fail */
    _Atomic uint32_t unasked; /* lines that say that nobody will be asked */
    struct account accounts[ACCOUNTS]; /* of the runtime */
};

/* The trial that is under way, for messages. */
extern char world_trial[256];

/* Says what is wrong, and ends the process. */
void world_fail(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
#define FAIL(...) world_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition_, ...)                                                                               \
    do {                                                                                                     \
        if (!(condition_))                                                                                   \
            FAIL(__VA_ARGS__);                                                                               \
    } while (0)
/* A call that has no reason to answer anything else. */
void world_expect(moor_status expected, moor_status status, const char *call, const char *file, int line);
#define MUST(call_) world_expect(MOOR_OK, (call_), #call_, __FILE__, __LINE__)
#define EXPECT(status_, call_) world_expect((status_), (call_), #call_, __FILE__, __LINE__)

/* Life, in steps that scenarios use as well. */
void world_start(struct world *world, const struct target *target);
void world_start_runtime(struct world *world);
moor_status world_load(struct world *world);
/* Of a load of the provider; returns how many there are. */
uint32_t world_settings(const struct world *world, struct moor_setting settings[SETTINGS_MAX]);
void world_forget_provider(struct world *world); /* it has gone, with all that was of it */
void world_open(struct world *world, bool witnesses);
void world_open_far(struct world *world);
void world_close(struct world *world); /* checks that nothing is left of it */

/* All work done, nobody asked for memory any more, and all that is on its way out gone. */
void world_settle(struct world *world);

/* What a stream was held for goes on. Any thread. */
void world_open_gate(struct world *world);

/* What a host does that has had enough of the quarantine: to close what is in use changes nothing, but tries
 * again. */
void world_empty_quarantine(struct world *world);

/* Has the stream stop behind what is submitted next, until the world is settled, where the provider can do
 * that. */
void world_hold(struct world *world, struct moor_stream *stream);

/* The books, as they are when all is settled; checked to be equal to what the providers hold, and to the
 * trace. */
struct world_state {
    struct moor_authority_stats stats;
    struct moor_holder_stats holders[THINGS]; /* of that authority */
    struct moor_authority_stats far_stats;
    struct moor_object_counts counts;
    uint64_t grant_bytes;
    uint64_t held_bytes;
};
struct world_state world_state(struct world *world);
/* Nothing has changed, but for what is in quarantine now: that is charged, held, and no longer alive. */
void world_same(const struct world_state *before, const struct world_state *after, const char *when);
/* The witness is whole, and what is gone is stale. */
void world_check_witnesses(struct world *world);

/* ---- memory ---- */

/* Reserves a range of the smallest granules. */
moor_range world_reserve(struct world *world, uint64_t granules);
struct moor_view world_buffer_view(struct world *world, moor_buffer buffer);
struct moor_view world_range_view(struct world *world, moor_range range, uint64_t first, uint64_t granules);
/* Fills, and does not wait. */
void world_fill(struct world *world, const struct moor_view *view, uint8_t value);
/* Waits for the memory's last uses and looks. */
bool world_is_full_of(struct world *world, const struct moor_view *view, uint8_t value);
void world_expect_full_of(struct world *world, const struct moor_view *view, uint8_t value);

#endif
