/* SPDX-License-Identifier: MIT */
/*
 * One world: a runtime with a simulated device, the host's objects, and the model.
 *
 * The model contains the state that a host can know without looking into the library: the live handles, the
 * owner of each byte, the values written, and the progress of each stream. The progress comes from probes: a
 * host function of the simulation behind each piece of work. Where the library has a choice, the model has a
 * span: a release may complete as soon as its last uses are done, and must complete in the first reap after
 * all work that its streams had then.
 */
#ifndef MOOR_SIM_WORLD_H
#define MOOR_SIM_WORLD_H

#include "governor.h"

#include <moorage/mock.h>
#include <moorage/stats.h>
#include <moorage/stream.h>

/* ---- work and its uses ---- */

/* The last uses of an object per stream: the number of the piece of work. A stream's place is reused, with
 * another serial, when its work is done. */
struct sim_uses {
    uint32_t streams; /* bit i: of[i] is valid */
    struct {
        uint32_t serial;
        uint32_t place;
        bool writes;
    } of[SIM_STREAMS];
};

/* Bytes of one value. */
struct sim_block {
    int16_t value;
    struct sim_uses uses; /* through any address */
};

enum sim_stream_state { SIM_STREAM_FREE, SIM_STREAM_OPEN, SIM_STREAM_CLOSED };

/* Large: the handle and the progress of a stream, as the probes show it. */
struct sim_stream {
    enum sim_stream_state state;
    struct sim_world *world;
    struct moor_stream *stream;
    uint64_t native;
    int device;
    uint32_t serial;
    uint32_t submitted; /* pieces of work, each followed by a probe */
    uint32_t done;      /* probes that have run */
    uint32_t recorded;  /* pieces of work covered by a record of the host */
    bool held;
    bool seen_closed; /* a reap has seen the stream destroyed and its work done */
    struct moor_fence fence;
    uint32_t fence_place;
    uint32_t ordered[SIM_STREAMS]; /* ordered behind this piece of work of the other stream */
    uint32_t ordered_serial[SIM_STREAMS];
    /* For each probe under way: the bytes that a copy to the host must have written. */
    struct {
        int area; /* SIM_NONE: no copy */
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
    uint32_t live; /* buffers, ranges and segments with an owner */
};

struct sim_buffer {
    moor_buffer handle;
    int binding;
    int area; /* the wrapped area; SIM_NONE: an allocation */
    uint64_t bytes;
    uint64_t requested;
    uint64_t leased;
    uint64_t unit_bytes;
    uint32_t units;
    struct moor_view view;
    struct sim_uses own[SIM_UNITS];
    struct sim_block blocks[SIM_UNITS]; /* contents of an allocation */
};

enum sim_granule_state { SIM_FREE, SIM_COMMITTED, SIM_MAPPED, SIM_LEAVING };

struct sim_granule {
    enum sim_granule_state state;
    int segment; /* if mapped */
    uint32_t index;
    bool writable;
    struct sim_uses own;    /* uses through this address */
    struct sim_block block; /* if committed */
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
    moor_segment handle; /* 0: released; the mappings keep the segment */
    int binding;
    uint64_t granule_bytes;
    uint32_t count;
    bool sealed;
    uint32_t mapped; /* mappings without a pending release */
    struct sim_block blocks[SIM_SEGMENT_GRANULES];
};

struct sim_area {
    unsigned char *memory;
    struct sim_block blocks[SIM_UNITS];
};

/* ---- releases ---- */

enum sim_release_kind { SIM_GONE_BUFFER, SIM_GONE_PIECE, SIM_GONE_MAPPING, SIM_GONE_RANGE, SIM_GONE_SEGMENT };

struct sim_release {
    enum sim_release_kind kind;
    bool stuck; /* quarantined until a retry */
    bool kept;  /* a segment with quarantined mappings: it is counted like them, and follows them */
    bool fresh; /* the records take effect when the clock is next read */
    int binding;
    int holder;
    uint64_t bytes;
    uint64_t requested;
    int range; /* range of a part or mapping; SIM_NONE: the range is gone too */
    uint32_t first;
    uint32_t count;
    int segment; /* segment of a mapping; SIM_NONE: the mapping was the last owner */
    uint32_t streams;
    struct {
        uint32_t serial;
        uint32_t earliest; /* not before this piece of work is done */
        uint32_t latest;   /* in the first reap after this piece of work */
    } of[SIM_STREAMS];
};

/* Pending bytes of which some may have returned. */
struct sim_pending {
    uint64_t least; /* certainly pending */
    uint64_t most;  /* possibly pending */
};

/* ---- the world ---- */

struct sim_geometry {
    uint32_t devices;
    bool shared_pool; /* one pool for all devices */
    uint64_t granule_bytes;
    uint64_t total_bytes; /* per pool */
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

/* A released handle. */
struct sim_stale {
    enum sim_handle_kind kind;
    uint64_t handle;
};

#define SIM_SETTINGS_MAX 16

/* The provider's settings. */
struct sim_settings {
    struct moor_setting list[SIM_SETTINGS_MAX];
    char values[SIM_SETTINGS_MAX][24];
    size_t count;
};

/* The state of the current operation. */
struct sim_present {
    uint64_t calls_before;
    const uint64_t *output; /* the call writes it on success only; NULL: none */
    struct moor_error error_before;
    bool fault_hit;
    bool effective; /* the operation changed something */
    moor_status status;
};

/* Large: the runtime, the tables of the host's objects, and the model of each. */
struct sim_world {
    struct sim_geometry geometry;
    struct sim_settings settings;
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    const char *path; /* [borrowed] path of the provider */
    struct moor_load_options load;
    uint32_t loads;
    const struct moor_mock_control *control;
    const struct sim_foreign *foreign;
    bool host_access; /* the host may read memory by address */

    struct moor_device *devices[SIM_DEVICES];
    uint64_t external[SIM_DEVICES]; /* external bytes */
    uint64_t held[SIM_DEVICES];     /* our bytes, after the last operation */
    uint64_t live[SIM_DEVICES];     /* our bytes by the model, live memory only */
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
    struct sim_op step_ops[SIM_STEPS]; /* the operations of the steps */
    uint32_t step_count;
    struct sim_release releases[SIM_RELEASES];
    uint32_t release_count;
    uint32_t serials; /* streams created so far */
    uint32_t held_streams;
    struct sim_stale stale[SIM_STALE]; /* the latest ones */
    uint32_t stale_count;

    struct sim_present now;
    uint32_t places[SIM_TABLE_COUNT]; /* reserved for the current operation */
    uint64_t added[SIM_HOLDERS];      /* bytes that the operation may have charged, for the peaks */

    uint64_t checks;
    char failure[512]; /* expected and seen values; empty: no failure */
};

/* Loads the provider into a new runtime. Returns false with the world's failure. */
bool sim_world_create(struct sim_world *world, const char *path, const struct sim_geometry *geometry,
                      uint64_t seed, const struct sim_foreign *foreign);
/* Finishes all work, releases everything, destroys the runtime, and checks that nothing is left. */
void sim_world_destroy(struct sim_world *world);
/* The same after the loss of a device. */
void sim_world_lose(struct sim_world *world, uint32_t device);
/* The last part of both: nothing is left, and the provider is unloaded. */
void sim_world_end(struct sim_world *world);
/* Makes handles of another runtime, which calls must refuse. The runtime stays until the process ends. */
bool sim_foreign_create(const char *path, struct sim_foreign *ret_foreign, char *ret_why, size_t why_bytes);
/* sim_run_dry finishes all work that is not held; sim_let_run first opens the held streams. */
void sim_run_dry(struct sim_world *world);
void sim_let_run(struct sim_world *world);

/* Records a failure. The first one counts. */
void sim_fail(struct sim_world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts a check, and fails unless it is good. */
static inline void sim_check(struct sim_world *world, bool good, const char *what, uint64_t expected,
                             uint64_t seen)
{
    world->checks++;
    if (!good)
        sim_fail(world, "%s: expected %llu, saw %llu", what, (unsigned long long)expected,
                 (unsigned long long)seen);
}

/* ---- calls ---- */

/* The value of an output before the call. */
#define SIM_UNTOUCHED UINT64_C(0x5a5a5a5a5a5a5a5a)

/* Around the call of an operation: sim_begin arms the fault, sim_end judges the status and returns true on
 * success. sim_begin_with: for a call with an output, set to SIM_UNTOUCHED before. */
void sim_begin_with(struct sim_world *world, const struct sim_op *op, const struct sim_verdict *verdict,
                    const uint64_t *output);
void sim_begin(struct sim_world *world, const struct sim_op *op, const struct sim_verdict *verdict);
bool sim_end(struct sim_world *world, const struct sim_op *op, moor_status status,
             const struct sim_verdict *verdict);
/* For calls that the simulation makes for itself. */
bool sim_expect_ok(struct sim_world *world, const char *what, moor_status status);

/* Returns 0 or MOOR_FOREVER; never MOOR_FOREVER while a stream is held. */
uint64_t sim_deadline(const struct sim_world *world, uint64_t arg);

/* After each operation: the visible figures must be those of the model. */
void sim_check_accounts(struct sim_world *world);
void sim_check_equal(struct sim_world *world, const char *what, uint64_t expected, uint64_t seen);
void sim_check_span(struct sim_world *world, const char *what, uint64_t least, uint64_t most, uint64_t seen);
/* Checks every handle, grant and granule. */
void sim_check_all(struct sim_world *world);

/* ---- model ---- */

bool sim_is_done(const struct sim_world *world, uint32_t stream, uint32_t serial, uint32_t place);
bool sim_may_be_done(const struct sim_world *world, uint32_t stream, uint32_t serial, uint32_t place);
void sim_uses_add(struct sim_uses *uses, const struct sim_stream *stream, int index, uint32_t place,
                  bool writes);
/* Adds the statuses of calls that wait for these uses with MOOR_NO_WAIT. exact: the call waits for no other
 * uses. */
void sim_uses_pending(const struct sim_world *world, const struct sim_uses *uses, bool exact,
                      struct sim_verdict *verdict);

/* Starts a release that waits for nothing yet; its bytes are no longer live. A full table fails the world and
 * reuses the last entry. */
struct sim_release *sim_release_add(struct sim_world *world, enum sim_release_kind kind, int binding,
                                    uint64_t bytes, uint64_t requested);
/* Lets the release wait for these uses; not exact: it may wait for them. */
void sim_release_behind(const struct sim_world *world, struct sim_release *release,
                        const struct sim_uses *uses, bool exact);
/* Lets the release wait for the uses of the other; not exact: it may wait for them. */
void sim_release_behind_other(struct sim_release *release, const struct sim_release *other, bool exact);
bool sim_release_may_be_done(const struct sim_world *world, const struct sim_release *release);
bool sim_release_is_done(const struct sim_world *world, const struct sim_release *release);
/* Lets records behind finished work take effect. */
void sim_tick(struct sim_world *world);
/* After a reap: removes the releases that must have completed. */
void sim_reaped(struct sim_world *world);
/* Retries the quarantined releases of a device. SIM_NONE: of all devices. */
void sim_unstick(struct sim_world *world, int device);
/* Removes a release that a call has shown to be complete. */
void sim_release_gone(struct sim_world *world, uint32_t index);
/* The same for the releases of these granules. */
void sim_granules_gone(struct sim_world *world, int range, uint32_t first, uint32_t count);
/* Returns the pending release of a granule, or NULL. */
const struct sim_release *sim_leaving(const struct sim_world *world, int range, uint32_t granule);

struct sim_pending sim_pending_of_holder(const struct sim_world *world, int holder);
uint64_t sim_quarantined_of_holder(const struct sim_world *world, int holder);
/* Returns the requested bytes of the holder's pending releases. */
struct sim_pending sim_requested_of_holder(const struct sim_world *world, int holder);

/* Records a released handle. */
void sim_forget_handle(struct sim_world *world, enum sim_handle_kind kind, uint64_t handle);

/* Starts the release of a segment without owners, which follows its mappings. */
void sim_segment_drop(struct sim_world *world, int segment);

/* ---- targets of work ---- */

struct sim_unit {
    struct sim_uses *own;    /* uses through this owner; NULL: plain host memory */
    struct sim_block *block; /* NULL: no memory */
};

struct sim_target {
    struct moor_view view;
    int area; /* SIM_NONE: no area */
    uint32_t first;
    uint32_t count;
    uint64_t unit_bytes;
    struct sim_unit units[SIM_GRANULES];
    struct sim_verdict read; /* statuses of work on the target */
    struct sim_verdict write;
};

/* Returns the number of units of a thing, or 0 if it is missing. */
uint32_t sim_thing_units(const struct sim_world *world, uint64_t thing);
/* Returns false if the thing is missing or has too few units. */
bool sim_target_get(struct sim_world *world, uint64_t thing, uint32_t first, uint32_t count,
                    struct sim_target *ret_target);

/* Reads the target by address if the host may. Requires that no work on it is under way. */
void sim_read(struct sim_world *world, const struct sim_target *target);

/* Makes the stream wait for all work that would race. Returns false if that is impossible now. */
bool sim_order(struct sim_world *world, int stream, const struct sim_target *target, bool writes);
/* Returns true if the stream has room for another piece of work. */
bool sim_stream_has_room(const struct sim_world *world, int stream);
/* Records submitted work, and submits its probe. */
void sim_submitted(struct sim_world *world, int stream, const struct sim_target *targets, size_t count,
                   const bool *writes);
/* Submits a probe without work before it. */
void sim_probe(struct sim_world *world, int stream);

static inline bool sim_stream_is_open(const struct sim_world *world, uint64_t stream)
{
    return stream < SIM_STREAMS && world->streams[stream].state == SIM_STREAM_OPEN;
}

#endif
