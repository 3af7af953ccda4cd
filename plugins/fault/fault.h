/* SPDX-License-Identifier: MIT */
/*
 * The inside of the fault provider: it loads another provider, the inner one, forwards every call to it, and
 * makes some calls fail.
 *
 * Contexts and streams are this provider's own, because calls on them must find the instance. Handles,
 * addresses, native names and cookies are the inner provider's. An instance, a context and a stream have the
 * same type in both providers: fields named `inner` belong to the inner provider, and are never dereferenced
 * here.
 *
 * Locks: moor_fault.lock and moor_abi_context.lock. No call is forwarded under either, except watermark,
 * which never waits.
 */
#ifndef MOORAGE_FAULT_INSIDE_H
#define MOORAGE_FAULT_INSIDE_H

#include "include/moorage/fault.h"
#include <assert.h>
#include <moorage/kit/check.h>
#include <moorage/kit/provider.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- inner.c: the inner provider ---- */

struct fault_inner {
    struct moor_abi_prefix prefix;
    struct moor_abi_base_table base;
    struct moor_abi_alloc_table alloc;
    struct moor_abi_stream_table stream;
    struct moor_abi_release_table release;
    struct moor_abi_copy_table
        copy; /* without the capability all zero, with the tables below; fault_enter refuses calls */
    struct moor_abi_virtual_table virtual_;
    struct moor_abi_shared_table shared;
    struct moor_abi_pinned_table pinned;
    struct moor_abi_stats_table stats;
};

/* Loads the inner provider; its code stays in the process. path: absolute. INVALID, REFUSED, VERSION. */
int32_t fault_inner_load(const char *path, struct fault_inner *ret_inner, struct moor_abi_error *error);

/* ---- plan.c: the faults ---- */

/* The calls that can fail: enum fault_call, the name in a plan, the capability that the call needs (0: one
 * that is required), and true if its work can be undone. FREE is no call: the free of a released object. */
#define FAULT_CALLS(CALL)                                                                                    \
    CALL(INIT, "init", 0, false)                                                                             \
    CALL(SHUTDOWN, "shutdown", 0, false)                                                                     \
    CALL(DEVICE_COUNT, "device_count", 0, false)                                                             \
    CALL(DEVICE_INFO, "device_info", 0, false)                                                               \
    CALL(DOMAIN_INFO, "domain_info", 0, false)                                                               \
    CALL(CONTEXT_OPEN, "context_open", 0, true)                                                              \
    CALL(CONTEXT_CLOSE, "context_close", 0, false)                                                           \
    CALL(CONTEXT_NATIVE, "context_native", 0, false)                                                         \
    CALL(GET_EXTENSION, "get_extension", 0, false)                                                           \
    CALL(FOOTPRINT, "footprint", 0, false)                                                                   \
    CALL(ALLOCATE, "allocate", 0, true)                                                                      \
    CALL(STREAM_CREATE, "stream.create", 0, true)                                                            \
    CALL(STREAM_DESTROY, "stream.destroy", 0, false)                                                         \
    CALL(RECORD, "record", 0, false)                                                                         \
    CALL(WATERMARK, "watermark", 0, false)                                                                   \
    CALL(WAIT, "wait", 0, false)                                                                             \
    CALL(WAIT_STREAM, "wait_stream", 0, false)                                                               \
    CALL(HOST_FUNCTION, "host_function", 0, false)                                                           \
    CALL(STREAM_NATIVE, "stream.native", 0, false)                                                           \
    CALL(RELEASE, "release", 0, false)                                                                       \
    CALL(REAP, "reap", 0, false)                                                                             \
    CALL(COPY, "copy", MOOR_ABI_CAP_COPY, false)                                                             \
    CALL(FILL, "fill", MOOR_ABI_CAP_COPY, false)                                                             \
    CALL(RESERVE, "reserve", MOOR_ABI_CAP_VIRTUAL, true)                                                     \
    CALL(COMMIT, "commit", MOOR_ABI_CAP_VIRTUAL, true)                                                       \
    CALL(COMMITTED, "committed", MOOR_ABI_CAP_VIRTUAL, false)                                                \
    CALL(SHARED_CREATE, "shared.create", MOOR_ABI_CAP_SHARED, true)                                          \
    CALL(MAP, "map", MOOR_ABI_CAP_SHARED, false)                                                             \
    CALL(PROTECT, "protect", MOOR_ABI_CAP_SHARED, false)                                                     \
    CALL(PIN, "pin", MOOR_ABI_CAP_PINNED, true)                                                              \
    CALL(STATS, "stats", MOOR_ABI_CAP_STATS, false)                                                          \
    CALL(FREE, "free", 0, false)

enum fault_call {
#define FAULT_NAME(call_, name_, capability_, undone_) FAULT_##call_,
    FAULT_CALLS(FAULT_NAME) FAULT_CALL_COUNT
#undef FAULT_NAME
};

#define FAULT_PLANS_MAX 64u

struct fault_armed {
    uint32_t call; /* enum fault_call; FAULT_CALL_COUNT: every call, but not FREE */
    uint64_t from; /* the first call that fails, among those that `seen` counts */
    uint64_t to;   /* the last one */
    uint64_t seen;
    int32_t status;
    bool after;
    uint64_t delay_ns;
};

struct moor_fault {
    pthread_mutex_t lock; /* guards all fields below */
    struct fault_armed armed[FAULT_PLANS_MAX];
    uint32_t armed_count;
    uint64_t calls[FAULT_CALL_COUNT];
    uint64_t injected;
    struct moor_fault_control control; /* constant after init */
};

/* Initialises the faults. text: [in] NULL, or the setting `faults`. INVALID, LIMIT. */
int32_t fault_plan_init(struct moor_fault *fault, const char *text, struct moor_abi_error *error);
void fault_plan_finish(struct moor_fault *fault);

/* Begins a call: counts it and delays it. Returns OK if the call is to be forwarded, else its result.
 * ret_after: [out] the result after its work was done and undone; OK: no such fault. NULL: its work cannot be
 * undone. */
int32_t fault_enter(struct moor_abi_instance *instance, enum fault_call call, int32_t *ret_after,
                    struct moor_abi_error *error);

/* Ends a call after its work was undone: fills the record and returns `status`. */
int32_t fault_fail_after(enum fault_call call, int32_t status, struct moor_abi_error *error);

/* ---- provider.c: instances, contexts, streams ---- */

struct moor_abi_instance {
    const struct moor_abi_host *host;
    struct fault_inner tables;
    struct moor_abi_instance *inner;
    struct moor_fault fault;
};

/* A completion of this provider, which is due when its points are reached: of a failed release, or of the
 * host's release that came before an undo. */
struct fault_kept;

struct moor_abi_context {
    struct moor_abi_instance *instance;
    struct moor_abi_context *inner;
    pthread_mutex_t lock;     /* guards all fields below */
    struct fault_kept *kept;  /* the oldest first */
    struct fault_kept **last; /* the link for the next one */
    uint64_t undo_count;      /* undo releases that have not completed */
};

struct moor_abi_stream {
    struct moor_abi_context *context;
    struct moor_abi_stream *inner;
    atomic_bool lost; /* a call was made to return DEVICE_LOST */
};

static inline const struct fault_inner *fault_tables(const struct moor_abi_context *context)
{
    return &context->instance->tables;
}

/* ---- release.c ---- */

void fault_release_init(struct moor_abi_context *context);
void fault_release_finish(struct moor_abi_context *context);
/* Releases an object, or a part of a range, that a call has just made and the host has not seen. */
void fault_undo(struct moor_abi_context *context, uint32_t kind, uint64_t handle, uint64_t offset_bytes,
                uint64_t length_bytes);

extern const struct moor_abi_alloc_table fault_alloc_table;
extern const struct moor_abi_stream_table fault_stream_table;
extern const struct moor_abi_release_table fault_release_table;
extern const struct moor_abi_copy_table fault_copy_table;
extern const struct moor_abi_virtual_table fault_virtual_table;
extern const struct moor_abi_shared_table fault_shared_table;
extern const struct moor_abi_pinned_table fault_pinned_table;
extern const struct moor_abi_stats_table fault_stats_table;

#endif
