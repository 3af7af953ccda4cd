/* SPDX-License-Identifier: MIT */
/* The host's trace function, and the one call that reports an event to it. */
#ifndef MOOR_UTIL_TRACE_H
#define MOOR_UTIL_TRACE_H

#include "util/lock.h"

#include <moorage/trace.h>
#include <stddef.h>

struct moor__tracer {
    moor_trace_function function; /* NULL: events are dropped */
    void *user;
};

/* Reports one event, after the step that caused it. Requires that the thread holds no lock. */
static inline void moor__tracer_report(const struct moor__tracer *tracer, uint32_t kind,
                                       struct moor_authority *authority, struct moor_holder *holder,
                                       uint64_t bytes, uint64_t object)
{
    moor__assert_unlocked("the host's trace function");
    if (__builtin_expect(tracer->function != NULL, 0))
        tracer->function(
            tracer->user,
            &(struct moor_trace_event){
                .kind = kind, .authority = authority, .holder = holder, .bytes = bytes, .object = object});
}

#endif
