/* SPDX-License-Identifier: MIT */
/*
 * The world of one trial: a runtime with a provider that can be made to fail, memory and streams on it, and
 * the state that a failed call must not change. A failed check ends the process with a line.
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

/* The swept provider, inside fault.so, and another one beside it. */
struct target {
    const char *name;
    const char *fault_path;
    const char *inner_path;
    const char *far_path;
    bool threads;            /* host functions run on the provider's threads and may block there */
    const char *driver_path; /* the simulated CUDA driver; NULL: the provider has none */
    const char *timeline;    /* the timeline of its streams */
};

#define SETTINGS_MAX 5u

#define THINGS 3u /* objects of each kind in a world */
#define PAGE_BYTES 4096u
#define HOST_BYTES 65536u
#define SMALL_BYTES "16MiB" /* total of a device that can be filled */

struct world {
    const struct target *target;
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    const struct moor_fault_control *control; /* NULL without a provider */
    const struct moor_mock_control *mock;     /* NULL: the provider inside is not a simulated device */
    const struct moor_cudasim *driver;        /* NULL: there is no simulated driver */
    struct moor_cudasim_live driver_live;     /* objects before the world */
    uint64_t driver_violations;               /* the violations before the world */
    bool driver_is_ending;                    /* a fault hits the end of the provider */
    bool driver_keeps_context;                /* a fault keeps it from destroying a context */
    bool driver_has_ended;                    /* a context has ended by an error */
    struct moor_device *device;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *stream;
    struct moor_abi_domain_info domain;
    uint64_t granule; /* bytes */

    /* The other provider, without faults. */
    struct moor_provider *far_provider;
    struct moor_device *far_device;
    struct moor_holder *far_holder;
    struct moor_binding *far_binding;
    struct moor_abi_domain_info far_domain;

    /* The objects of a scenario; 0 or NULL is none. world_close() releases all of them. */
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
    uint64_t victim_bytes;  /* size of a victim's buffers (pressure.c) */
    uint64_t unit;          /* charge of each of them */
    moor_lease given_lease; /* the victim's lease in place of buffers; 0: none */
    unsigned char *host;    /* HOST_BYTES, whole pages */

    /* Objects that no trial may change: a buffer full of WITNESS, and handles of released objects. */
    moor_buffer witness;
    moor_buffer stale_buffer;
    moor_range stale_range;
    moor_segment stale_segment;

    _Atomic uint32_t ran;     /* host functions that have run */
    _Atomic uint32_t given;   /* objects that a pressure function has evicted */
    bool emptied;             /* the quarantine was retried: a grant does not get back its bytes */
    bool never_holds;         /* streams will be lost, so their work must end before */
    _Atomic uint64_t held;    /* the native name of a stream that the simulated device holds; 0: none */
    _Atomic int gate;         /* 1: a host function waits on the held stream */
    uint64_t injected;        /* failures, or driver calls, before the trial's own */
    char faults[128];         /* the setting of later loads; "": no faults */
    bool is_small;            /* later loads have a device of SMALL_BYTES */
    _Atomic uint32_t logged;  /* warnings and errors of the log */
    _Atomic uint32_t told;    /* lines of the log that name a failed call */
    _Atomic uint32_t unasked; /* lines of the log that rule out a pressure request */
    struct account accounts[ACCOUNTS]; /* the runtime's accounts */
};

/* The present trial, for messages. */
extern char world_trial[256];

/* Prints the failure and ends the process. */
void world_fail(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
#define FAIL(...) world_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition_, ...)                                                                               \
    do {                                                                                                     \
        if (!(condition_))                                                                                   \
            FAIL(__VA_ARGS__);                                                                               \
    } while (0)
/* Expects the status of a call. */
void world_expect(moor_status expected, moor_status status, const char *call, const char *file, int line);
#define MUST(call_) world_expect(MOOR_OK, (call_), #call_, __FILE__, __LINE__)
#define EXPECT(status_, call_) world_expect((status_), (call_), #call_, __FILE__, __LINE__)

/* The steps of a world's life, which scenarios use, too. */
void world_start(struct world *world, const struct target *target);
void world_start_runtime(struct world *world);
moor_status world_load(struct world *world);
/* Fills in the settings of a load; returns their number. */
uint32_t world_settings(const struct world *world, struct moor_setting settings[SETTINGS_MAX]);
void world_forget_provider(struct world *world); /* the provider is gone with all its objects */
void world_open(struct world *world, bool witnesses);
void world_open_far(struct world *world);
void world_close(struct world *world); /* checks that no object is left */

/* Waits until all work is done, all pressure requests have ended, and all pending releases are complete. */
void world_settle(struct world *world);

/* Opens the stream's gate. Any thread may call it. */
void world_open_gate(struct world *world);

/* Retries the quarantine as a host would: closing a binding in use fails, but tries the quarantined objects
 * again. */
void world_empty_quarantine(struct world *world);

/* Stops the stream before the work submitted next, until the world is settled, if the provider can. */
void world_hold(struct world *world, struct moor_stream *stream);

/* The settled accounts; world_state() checks that they equal the providers' figures and the trace. */
struct world_state {
    struct moor_authority_stats stats;
    struct moor_holder_stats holders[THINGS]; /* holders of that authority */
    struct moor_authority_stats far_stats;
    struct moor_object_counts counts;
    uint64_t grant_bytes;
    uint64_t held_bytes;
};
struct world_state world_state(struct world *world);
/* Checks that the state is unchanged, except for quarantined objects: they are charged, held, and not
 * alive. */
void world_same(const struct world_state *before, const struct world_state *after, const char *when);
/* Checks that the witness is whole and released objects are stale. */
void world_check_witnesses(struct world *world);

/* ---- memory ---- */

/* Reserves a range of the smallest granules. */
moor_range world_reserve(struct world *world, uint64_t granules);
struct moor_view world_buffer_view(struct world *world, moor_buffer buffer);
struct moor_view world_range_view(struct world *world, moor_range range, uint64_t first, uint64_t granules);
/* Submits a fill without waiting. */
void world_fill(struct world *world, const struct moor_view *view, uint8_t value);
/* Waits for the memory's last uses and reads the bytes. */
bool world_is_full_of(struct world *world, const struct moor_view *view, uint8_t value);
void world_expect_full_of(struct world *world, const struct moor_view *view, uint8_t value);

#endif
