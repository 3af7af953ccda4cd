/* SPDX-License-Identifier: MIT */
/* The runtime from the inside: the tables of handles, and the registry of providers and authorities. */
#ifndef MOOR_MEMORY_RUNTIME_H
#define MOOR_MEMORY_RUNTIME_H

#include "util/handles.h"

#include <moorage/trace.h>
#include <sys/queue.h>

struct moor__queue;

struct moor_runtime {
    uint64_t *alive; /* a page of its own that reads 0 in a forked child */
    moor_log_function log_function;
    void *log_user;
    struct moor__handles buffers;
    struct moor__handles ranges;
    struct moor__handles segments;
    struct moor__handles range_parts;
    struct moor__handles grants;
    struct moor__handles leases;
    struct moor__handles tickets;
    moor_trace_function trace; /* NULL: nobody is told */
    void *trace_user;
    struct moor__queue *queue;                     /* requests that wait */
    LIST_HEAD(, moor__thread_cache) thread_caches; /* what threads keep of it; governor/thread_cache.c */

    struct moor__lock lock;             /* the registry; lock order: see core/README.md */
    pthread_cond_t visited;             /* a provider's visitors dropped to 0 */
    pthread_cond_t moved;               /* a provider came, went, or stayed after all; CLOCK_MONOTONIC */
    struct moor_provider *providers;    /* lock; whole ones, that anybody may find */
    struct moor_provider *moving;       /* lock; those on their way in or out */
    struct moor_authority *authorities; /* lock; entries stay until the end */
};

/* It is there, and the parent's no more than this process's. */
static inline bool moor__may_enter(const struct moor_runtime *runtime)
{
    return __builtin_expect(runtime && *(volatile const uint64_t *)runtime->alive, 1);
}
/* It may not: INVALID for NULL, FORKED in a child. */
moor_status moor__enter_refused(const struct moor_runtime *runtime);
/* First in every public call. */
static inline moor_status moor__enter(const struct moor_runtime *runtime)
{
    return moor__may_enter(runtime) ? MOOR_OK : moor__enter_refused(runtime);
}

void moor__log(struct moor_runtime *runtime, uint32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
