/* SPDX-License-Identifier: MIT */
/* Events for the host's trace function. */
#ifndef MOOR_UTIL_TRACE_H
#define MOOR_UTIL_TRACE_H

#include "util/runtime.h"

/* Reports one event, after the step that caused it. Requires no lock. */
static inline void moor__trace(struct moor_runtime *runtime, uint32_t kind, struct moor_authority *authority,
                               struct moor_holder *holder, uint64_t bytes, uint64_t object)
{
    moor__assert_unlocked("the host's trace function");
    if (__builtin_expect(runtime->trace.function != NULL, 0))
        runtime->trace.function(
            runtime->trace.user,
            &(struct moor_trace_event){
                .kind = kind, .authority = authority, .holder = holder, .bytes = bytes, .object = object});
}

#endif
