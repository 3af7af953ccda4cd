/* SPDX-License-Identifier: MIT */
/*
 * The inside of the fault provider: it loads another one, passes every call on to it, and lets some of them
 * fail.
 *
 * Contexts and streams are our own, for calls on them must find the instance; handles, addresses, native
 * names and cookies are those of the provider within. What the contract calls an instance, a context or a
 * stream has one type on both sides: fields called `inner` are the other provider's, and nobody here looks
 * into them.
 *
 * Locks: moor_fault.lock and moor_abi_context.lock; no call is passed on under either but watermark, which
 * never waits.
 */
#ifndef MOORAGE_FAULT_INSIDE_H
#define MOORAGE_FAULT_INSIDE_H

#include "include/moorage/fault.h"
#include <moorage/kit/check.h>
#include <moorage/kit/provider.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- inner.c: the provider within ---- */

struct fault_inner {
    struct moor_abi_prefix prefix;
    struct moor_abi_base_table base;
    struct moor_abi_alloc_table alloc;
    struct moor_abi_stream_table stream;
    struct moor_abi_release_table release;
    struct moor_abi_copy_table
        copy; /* without the capability all zero, here and below: fault_enter keeps calls away */
    struct moor_abi_virtual_table virtual_;
    struct moor_abi_shared_table shared;
    struct moor_abi_pinned_table pinned;
    struct moor_abi_stats_table stats;
};

/* path: absolute. INVALID, REFUSED or VERSION, and why. Its code stays in the process. */
int32_t fault_inner_load(const char *path, struct fault_inner *ret_inner, struct moor_abi_error *error);

/* ---- plan.c: what is to go wrong ---- */

enum fault_call {
    FAULT_INIT,
    FAULT_SHUTDOWN,
    FAULT_DEVICE_COUNT,
    FAULT_DEVICE_INFO,
    FAULT_DOMAIN_INFO,
    FAULT_CONTEXT_OPEN,
    FAULT_CONTEXT_CLOSE,
    FAULT_CONTEXT_NATIVE,
    FAULT_GET_EXTENSION,
    FAULT_FOOTPRINT,
    FAULT_ALLOCATE,
    FAULT_STREAM_CREATE,
    FAULT_STREAM_DESTROY,
    FAULT_RECORD,
    FAULT_WATERMARK,
    FAULT_WAIT,
    FAULT_WAIT_STREAM,
    FAULT_HOST_FUNCTION,
    FAULT_STREAM_NATIVE,
    FAULT_RELEASE,
    FAULT_REAP,
    FAULT_COPY,
    FAULT_FILL,
    FAULT_RESERVE,
    FAULT_COMMIT,
    FAULT_COMMITTED,
    FAULT_SHARED_CREATE,
    FAULT_MAP,
    FAULT_PROTECT,
    FAULT_PIN,
    FAULT_STATS,
    FAULT_FREE, /* no call: the carrying out of a release */
    FAULT_CALL_COUNT
};

#define FAULT_PLANS_MAX 64u

struct fault_armed {
    uint32_t call; /* enum fault_call; FAULT_CALL_COUNT: any but FREE */
    uint64_t from; /* of the calls that it counts, the first that it concerns */
    uint64_t to;   /* and the last */
    uint64_t seen;
    int32_t status;
    bool after;
    uint64_t delay_ns;
};

struct moor_fault {
    pthread_mutex_t lock; /* all below */
    struct fault_armed armed[FAULT_PLANS_MAX];
    uint32_t armed_count;
    uint64_t calls[FAULT_CALL_COUNT];
    uint64_t injected;
    struct moor_fault_control control; /* constant after init */
};

/* NULL, or text in the form of the setting `faults`. */
int32_t fault_plan_init(struct moor_fault *fault, const char *text, struct moor_abi_error *error);
void fault_plan_finish(struct moor_fault *fault);

/* First in every call: counts it and holds it up. OK: pass it on; anything else is its answer. ret_after:
 * NULL, or what it answers after its work was done and taken back; OK: nothing of the kind. */
int32_t fault_enter(struct moor_abi_instance *instance, enum fault_call call, int32_t *ret_after,
                    struct moor_abi_error *error);

/* Last in a call whose work was taken back. */
int32_t fault_told_after(enum fault_call call, int32_t status, struct moor_abi_error *error);

/* ---- provider.c ---- */

struct moor_abi_instance {
    const struct moor_abi_host *host;
    struct fault_inner within;
    struct moor_abi_instance *inner;
    struct moor_fault fault;
};

/* A completion of ours, told when its points are reached: of a release that fails, or one that was in the
 * way. */
struct fault_kept;

struct moor_abi_context {
    struct moor_abi_instance *instance;
    struct moor_abi_context *inner;
    pthread_mutex_t lock;     /* all below */
    struct fault_kept *kept;  /* oldest first */
    struct fault_kept **last; /* where the next is linked */
    uint64_t undo_count;      /* releases of ours that have not completed */
};

struct moor_abi_stream {
    struct moor_abi_context *context;
    struct moor_abi_stream *inner;
    atomic_bool lost; /* one of its calls was made to answer DEVICE_LOST */
};

static inline const struct fault_inner *fault_within(const struct moor_abi_context *context)
{
    return &context->instance->within;
}

/* ---- release.c ---- */

void fault_release_init(struct moor_abi_context *context);
void fault_release_finish(struct moor_abi_context *context);
/* Takes back what a call has just made, and nobody has seen. */
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
