/* SPDX-License-Identifier: MIT */
/* The runtime from the inside: the tables of handles, and the registry of providers and authorities. */
#ifndef MOOR_MEMORY_RUNTIME_H
#define MOOR_MEMORY_RUNTIME_H

#include "governor/governor.h"

struct moor_runtime {
    struct moor__governor governor; /* first: see moor__governor_of */
    uint64_t *alive;                /* a page of its own that reads 0 in a forked child */
    moor_log_function log_function;
    void *log_user;
    struct moor__handles buffers;
    struct moor__handles ranges;
    struct moor__handles segments;
    struct moor__handles range_parts;

    struct moor__lock lock;          /* the registry; lock order: see core/README.md */
    pthread_cond_t visited;          /* a provider's visitors dropped to 0 */
    pthread_cond_t moved;            /* a provider came, went, or stayed after all; CLOCK_MONOTONIC */
    struct moor_provider *providers; /* lock; whole ones, that anybody may find */
    struct moor_provider *moving;    /* lock; those on their way in or out */
};

_Static_assert(offsetof(struct moor_runtime, governor) == 0, "a runtime begins with its governor");

/* Returns true if the runtime is there and was made by this process. */
static inline bool moor__may_enter(struct moor_runtime *runtime)
{
    return moor__governor_may_enter(moor__governor_of(runtime));
}
/* Comes first in every public call. INVALID for NULL, FORKED in a forked child. */
static inline moor_status moor__enter(struct moor_runtime *runtime)
{
    return moor__governor_enter(moor__governor_of(runtime));
}

/* Reports an event to the host's trace function. Requires that the thread holds no lock. */
static inline void moor__trace(struct moor_runtime *runtime, uint32_t kind, struct moor_authority *authority,
                               struct moor_holder *holder, uint64_t bytes, uint64_t object)
{
    moor__governor_trace(&runtime->governor, kind, authority, holder, bytes, object);
}

void moor__log(struct moor_runtime *runtime, uint32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
