/* SPDX-License-Identifier: MIT */
/*
 * One world: a runtime with a simulated device, what the host holds of it, and the model.
 *
 * The model is what a host may know without looking into the library: which handles live, whose bytes they
 * are, what was written where, and how far each stream is. The last it knows from probes: a host function
 * of the simulation's own behind each piece of work. What the library is free to choose is a span in the
 * model: a release may complete from when its last uses are done, and must have completed in a reap after
 * all that its streams had been given by then.
 */
#ifndef MOOR_SIM_WORLD_H
#define MOOR_SIM_WORLD_H

#include "governor.h"

#include <moorage/mock.h>
#include <moorage/stats.h>
#include <moorage/stream.h>

/* ---- work, and what it used ---- */

/* The last uses of something, by stream: the n-th piece of work on it. A stream's place in the table serves
 * again when its work is done, with another serial. */
struct sim_uses {
    uint32_t streams; /* bit i: of[i] counts */
    struct {
        uint32_t serial;
        uint32_t place;
        bool writes;
    } of[SIM_STREAMS];
};

/* Bytes that are one value. */
struct sim_block {
    int16_t value;
    struct sim_uses uses; /* through whatever address */
};

enum sim_stream_state { SIM_STREAM_FREE, SIM_STREAM_OPEN, SIM_STREAM_CLOSED };

struct sim_stream {
    enum sim_stream_state state;
    struct sim_world *world;
    struct moor_stream *stream;
    uint64_t native;
    int device;
    uint32_t serial;
    uint32_t submitted; /* pieces of work, a probe behind each */
    uint32_t done;      /* probes that have run */
    uint32_t recorded;  /* pieces of work that a record of the host's own is behind */
    bool held;
    bool seen_closed; /* the host has asked the library since it was given up and its work was done */
    struct moor_fence fence;
    uint32_t fence_place;
    uint32_t ordered[SIM_STREAMS]; /* behind the other's piece of work with this number */
    uint32_t ordered_serial[SIM_STREAMS];
    /* What a copy to the host must have brought, for each probe under way. */
    struct {
        int area; /* SIM_NONE: nothing */
        uint32_t first;
        uint32_t count;
        int16_t values[SIM_UNITS];
    } probes[SIM_IN_FLIGHT];
};

struct sim_fence {
    bool live;
    int stream;
    uint32_t place;
    struct moor_fence fence;
};

/* ---- memory ---- */

struct sim_binding {
    struct moor_binding *binding;
    int device;
    int holder;
    uint32_t live; /* buffers, ranges, segments that have an owner */
};

struct sim_buffer {
    moor_buffer handle;
    int binding;
    int area; /* wrapped; SIM_NONE: allocated */
    uint64_t bytes;
    uint64_t requested;
    uint64_t leased;
    uint64_t unit_bytes;
    uint32_t units;
    struct moor_view view;
    struct sim_uses own[SIM_UNITS];
    struct sim_block blocks[SIM_UNITS]; /* unless wrapped */
};

enum sim_granule_state { SIM_FREE, SIM_COMMITTED, SIM_MAPPED, SIM_LEAVING };

struct sim_granule {
    enum sim_granule_state state;
    int segment; /* mapped */
    uint32_t index;
    bool writable;
    struct sim_uses own;    /* through this address */
    struct sim_block block; /* committed */
};

struct sim_range {
    moor_range handle;
    int binding;
    uint64_t granule_bytes;
    uint32_t count;
    struct moor_view view;
    struct sim_granule granules[SIM_GRANULES];
};

struct sim_segment {
    bool used;
    moor_segment handle; /* 0: given up; mappings keep it */
    int binding;
    uint64_t granule_bytes;
    uint32_t count;
    bool sealed;
    uint32_t mapped; /* mappings that are not leaving */
    struct sim_block blocks[SIM_SEGMENT_GRANULES];
};

struct sim_area {
    unsigned char *memory;
    struct sim_block blocks[SIM_UNITS];
};

/* ---- on the way out ---- */

enum sim_release_kind { SIM_GONE_BUFFER, SIM_GONE_PIECE, SIM_GONE_MAPPING, SIM_GONE_RANGE, SIM_GONE_SEGMENT };

struct sim_release {
    enum sim_release_kind kind;
    bool stuck; /* in quarantine, until it is tried again */
    bool kept;  /* a segment whose last mappings are: it counts as they do, and follows them */
    bool fresh; /* records that were made for it are still to take effect, when the clock is next looked at */
    int binding;
    int holder;
    uint64_t bytes;
    uint64_t requested;
    uint32_t ticket; /* 1 + the place of the one that it was let go for; 0: none */
    uint32_t ticket_serial;
    int range; /* of a piece or mapping; SIM_NONE: it has gone too */
    uint32_t first;
    uint32_t count;
    int segment; /* of a mapping; SIM_NONE: it has no other owner any more */
    uint32_t streams;
    struct {
        uint32_t serial;
        uint32_t earliest; /* not before this piece of work is done */
        uint32_t latest;   /* in the next reap after this one */
    } of[SIM_STREAMS];
};

/* Bytes on their way out. */
struct sim_pending {
    uint64_t least; /* cannot have gone */
    uint64_t most;  /* nobody knows that they have */
};

/* ---- the world ---- */

struct sim_geometry {
    uint32_t devices;
    bool shared_pool; /* all devices take from one */
    uint64_t granule_bytes;
    uint64_t total_bytes; /* of each pool */
};

enum sim_handle_kind {
    SIM_HANDLE_BUFFER,
    SIM_HANDLE_RANGE,
    SIM_HANDLE_SEGMENT,
    SIM_HANDLE_GRANT,
    SIM_HANDLE_LEASE,
    SIM_HANDLE_TICKET,
    SIM_HANDLE_KINDS,
};

/* Handles of another runtime. */
struct sim_foreign {
    uint64_t handles[SIM_HANDLE_KINDS];
};

/* A handle that was given up. */
struct sim_stale {
    enum sim_handle_kind kind;
    uint64_t handle;
};

#define SIM_SETTINGS_MAX 16

/* What the provider is loaded with. */
struct sim_settings {
    struct moor_setting list[SIM_SETTINGS_MAX];
    char values[SIM_SETTINGS_MAX][24];
    size_t count;
};

/* Of one operation; one that a pressure function carries out within another has its own. */
struct sim_present {
    uint64_t calls_before;
    const uint64_t *output; /* that its call writes if it succeeds, and only then; NULL: it has none */
    struct moor_error error_before;
    bool fault_hit;
    bool effective; /* it did something, and not in vain */
    moor_status status;
};

struct sim_world {
    struct sim_geometry geometry;
    struct sim_settings settings;
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    const char *path; /* [borrowed] of the provider */
    struct moor_load_options load;
    uint32_t loads;
    const struct moor_mock_control *control;
    const struct sim_foreign *foreign;
    bool host_access; /* memory may be read by its address */

    struct moor_device *devices[SIM_DEVICES];
    uint64_t external[SIM_DEVICES]; /* held by others */
    uint64_t held[SIM_DEVICES];     /* by us, as last seen */
    uint64_t live[SIM_DEVICES];     /* by the model: what is alive */
    struct sim_authority authorities[SIM_DEVICES];
    int authority_of[SIM_DEVICES];
    struct sim_holder holders[SIM_HOLDERS];
    struct sim_binding bindings[SIM_BINDINGS];
    struct sim_grant grants[SIM_GRANTS];
    struct sim_lease leases[SIM_LEASES];
    struct sim_ticket tickets[SIM_TICKETS];
    struct sim_buffer buffers[SIM_BUFFERS];
    struct sim_range ranges[SIM_RANGES];
    struct sim_segment segments[SIM_SEGMENTS];
    struct sim_stream streams[SIM_STREAMS];
    struct sim_fence fences[SIM_FENCES];
    struct sim_area areas[SIM_AREAS];
    struct moor_step steps[SIM_STEPS];
    struct sim_op step_ops[SIM_STEPS]; /* what they were made from */
    uint32_t step_count;
    struct sim_release releases[SIM_RELEASES];
    uint32_t release_count;
    uint32_t serials; /* of streams, given so far */
    uint32_t held_streams;
    struct sim_stale stale[SIM_STALE]; /* the latest ones */
    uint32_t stale_count;

    uint32_t ticket_serials; /* given so far, as the next two */
    uint64_t arrivals;
    uint64_t creations; /* of holders */
    uint64_t asks;
    uint32_t answers;   /* functions that have acted */
    uint32_t listeners; /* holders with a function */
    struct sim_line line;
    struct sim_request *request; /* the driver's, under way; NULL: none */

    struct sim_present now;
    uint32_t places[SIM_TABLE_COUNT]; /* that the operation is about to fill: nobody else may */
    uint64_t added[SIM_HOLDERS];      /* bytes that it may have charged, for the peaks */

    uint64_t checks;
    char failure[512]; /* what was expected, and what was seen; empty: nothing is wrong */
};

/* Loads the provider into a fresh runtime. false: the world's failure says why. */
bool sim_world_create(struct sim_world *world, const char *path, const struct sim_geometry *geometry,
                      uint64_t seed, const struct sim_foreign *foreign);
/* Lets all work end, gives everything back and ends the runtime, checking that nothing is left. */
void sim_world_destroy(struct sim_world *world);
/* The same, after a device has been lost. */
void sim_world_lose(struct sim_world *world, uint32_t device);
/* The last part of both: nothing is left, the provider is unloaded. */
void sim_world_end(struct sim_world *world);
/* Handles of another runtime, for those who are to be refused; it stays to the end of the process. */
bool sim_foreign_create(const char *path, struct sim_foreign *ret_foreign, char *ret_why, size_t why_bytes);
/* Lets all work be done that is not held; or opens what is held before. */
void sim_run_dry(struct sim_world *world);
void sim_let_run(struct sim_world *world);

/* Something is wrong; the first counts. */
void sim_fail(struct sim_world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* One check. */
static inline void sim_check(struct sim_world *world, bool good, const char *what, uint64_t expected,
                             uint64_t seen)
{
    world->checks++;
    if (!good)
        sim_fail(world, "%s: expected %llu, saw %llu", what, (unsigned long long)expected,
                 (unsigned long long)seen);
}

/* ---- calls ---- */

/* What an output is before the call. */
#define SIM_UNTOUCHED UINT64_C(0x5a5a5a5a5a5a5a5a)

/* Around each call that an operation is about: arms its fault, and judges the answer. True: it succeeded.
 * sim_begin_with: one that gives a handle, to be SIM_UNTOUCHED before. */
void sim_begin_with(struct sim_world *world, const struct sim_op *op, const struct sim_verdict *verdict,
                    const uint64_t *output);
void sim_begin(struct sim_world *world, const struct sim_op *op, const struct sim_verdict *verdict);
bool sim_end(struct sim_world *world, const struct sim_op *op, moor_status status,
             const struct sim_verdict *verdict);
/* Of calls that the simulation makes for itself, and that must succeed. */
bool sim_expect_ok(struct sim_world *world, const char *what, moor_status status);

/* 0 or for ever; not for ever while a stream is held. */
uint64_t sim_deadline(const struct sim_world *world, uint64_t arg);

/* After each operation: what can be seen must be what the model says. */
void sim_check_books(struct sim_world *world);
void sim_check_equal(struct sim_world *world, const char *what, uint64_t expected, uint64_t seen);
void sim_check_span(struct sim_world *world, const char *what, uint64_t least, uint64_t most, uint64_t seen);
/* Every handle, grant and granule. */
void sim_check_all(struct sim_world *world);

/* ---- model ---- */

bool sim_is_done(const struct sim_world *world, uint32_t stream, uint32_t serial, uint32_t place);
bool sim_may_be_done(const struct sim_world *world, uint32_t stream, uint32_t serial, uint32_t place);
void sim_uses_add(struct sim_uses *uses, const struct sim_stream *stream, int index, uint32_t place,
                  bool writes);
/* Adds what calls that wait for these uses may answer if there is no deadline. exact: it is just these. */
void sim_uses_pending(const struct sim_world *world, const struct sim_uses *uses, bool exact,
                      struct sim_verdict *verdict);

/* Begins one, which waits for nothing yet; its bytes are not alive any more. A full table ends the world: the
 * last one is lost, and this takes its place. */
struct sim_release *sim_release_add(struct sim_world *world, enum sim_release_kind kind, int binding,
                                    uint64_t bytes, uint64_t requested);
/* It waits for these uses; not exact: perhaps it does. */
void sim_release_behind(const struct sim_world *world, struct sim_release *release,
                        const struct sim_uses *uses, bool exact);
/* What the other waits for; not exact: perhaps. */
void sim_release_behind_other(struct sim_release *release, const struct sim_release *other, bool exact);
bool sim_release_may_be_done(const struct sim_world *world, const struct sim_release *release);
bool sim_release_is_done(const struct sim_world *world, const struct sim_release *release);
/* What is due now has happened: marks behind work that was done. */
void sim_tick(struct sim_world *world);
/* A reap has been: what must have gone has. */
void sim_reaped(struct sim_world *world);
/* What is in quarantine on a device (SIM_NONE: on all) is on its way out again. */
void sim_unstick(struct sim_world *world, int device);
/* The release has completed: the call's success says so. */
void sim_release_gone(struct sim_world *world, uint32_t index);
/* Likewise what leaves these granules. */
void sim_granules_gone(struct sim_world *world, int range, uint32_t first, uint32_t count);
/* The release that a granule leaves by. */
const struct sim_release *sim_leaving(const struct sim_world *world, int range, uint32_t granule);

struct sim_pending sim_pending_of_holder(const struct sim_world *world, int holder);
uint64_t sim_quarantined_of_holder(const struct sim_world *world, int holder);
/* What was asked for where that is on its way out. */
struct sim_pending sim_requested_of_holder(const struct sim_world *world, int holder);

/* A handle is gone for good. */
void sim_forget_handle(struct sim_world *world, enum sim_handle_kind kind, uint64_t handle);

/* Its last owner has gone: it follows its mappings. */
void sim_segment_drop(struct sim_world *world, int segment);

/* ---- targets: what work is done on ---- */

struct sim_unit {
    struct sim_uses *own;    /* through this owner; NULL: plain host memory */
    struct sim_block *block; /* NULL: nothing is behind it */
};

struct sim_target {
    struct moor_view view;
    int area; /* SIM_NONE: none */
    uint32_t first;
    uint32_t count;
    uint64_t unit_bytes;
    struct sim_unit units[SIM_GRANULES];
    struct sim_verdict read; /* what work on it may be told */
    struct sim_verdict write;
};

/* How many units a thing has; 0: it is not there. */
uint32_t sim_thing_units(const struct sim_world *world, uint64_t thing);
/* false: there is no such thing, or not so many units. */
bool sim_target_get(struct sim_world *world, uint64_t thing, uint32_t first, uint32_t count,
                    struct sim_target *ret_target);

/* The host reads it by its address, where it may; no work on it is under way. */
void sim_look(struct sim_world *world, const struct sim_target *target);

/* Has the stream wait for all work that this would race with. false: it cannot be done now. */
bool sim_order(struct sim_world *world, int stream, const struct sim_target *target, bool writes);
/* Room for another piece of work. */
bool sim_stream_has_room(const struct sim_world *world, int stream);
/* The work was submitted: it counts, and a probe follows it. */
void sim_submitted(struct sim_world *world, int stream, const struct sim_target *targets, size_t count,
                   const bool *writes);
/* A probe without work before it. */
void sim_probe(struct sim_world *world, int stream);

static inline bool sim_stream_is_open(const struct sim_world *world, uint64_t stream)
{
    return stream < SIM_STREAMS && world->streams[stream].state == SIM_STREAM_OPEN;
}

#endif
