/* SPDX-License-Identifier: MIT */
/*
 * The runtime from the inside: the struct in which every folder keeps its part, the check at the head of each
 * public call, the host's log. memory/runtime.c creates and destroys it.
 */
#ifndef MOOR_UTIL_RUNTIME_H
#define MOOR_UTIL_RUNTIME_H

#include "util/handles.h"

#include <moorage/trace.h>
#include <sys/queue.h>

struct moor__governor;

#define MOOR__OBJECT_KINDS (MOOR__KIND_RANGE_PART + 1)

struct moor__host_log {
    moor_log_function function; /* NULL: lines are dropped */
    void *user;
};

struct moor__host_trace {
    moor_trace_function function; /* NULL: events are dropped */
    void *user;
};

struct moor_runtime {
    uint64_t *alive; /* a page of its own that reads 0 in a forked child */
    struct moor__host_log log;
    struct moor__host_trace trace;
    struct moor__governor *governor;
    struct moor__handles objects[MOOR__OBJECT_KINDS]; /* by kind, memory/object.h; entry 0 is unused */

    struct moor__lock lock;          /* guards the registry, all fields below */
    pthread_cond_t visited;          /* signalled when the last visitor leaves a provider */
    pthread_cond_t moved;            /* CLOCK_MONOTONIC; a provider was added, removed or reopened */
    struct moor_provider *providers; /* loaded ones */
    struct moor_provider *moving;    /* providers that are being loaded or unloaded */
};

/* Returns true if the runtime is not NULL and belongs to this process, not to its parent. */
static inline bool moor__may_enter(const struct moor_runtime *runtime)
{
    return __builtin_expect(runtime && *(volatile const uint64_t *)runtime->alive, 1);
}
/* Writes the error for a runtime that may not be entered: INVALID for NULL, FORKED in a child. */
moor_status moor__enter_refused(const struct moor_runtime *runtime);
/* Begins every public call that takes a runtime, or an object of one. */
static inline moor_status moor__enter(const struct moor_runtime *runtime)
{
    return moor__may_enter(runtime) ? MOOR_OK : moor__enter_refused(runtime);
}

/* Calls the host's log function with one line. Requires no lock. */
void moor__log(const struct moor_runtime *runtime, uint32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
