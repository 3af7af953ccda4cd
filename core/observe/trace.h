/* SPDX-License-Identifier: MIT */
/* Where trace events come from: one call after each step, with no lock held. */
#ifndef MOOR_OBSERVE_TRACE_H
#define MOOR_OBSERVE_TRACE_H

#include "util/runtime.h"

#include <moorage/trace.h>

static inline void moor__trace(struct moor_runtime *runtime, uint32_t kind, struct moor_authority *authority,
                               struct moor_holder *holder, uint64_t bytes, uint64_t object)
{
    moor__assert_unlocked("the host's trace function");
    if (__builtin_expect(runtime->trace != NULL, 0))
        runtime->trace(
            runtime->trace_user,
            &(struct moor_trace_event){
                .kind = kind, .authority = authority, .holder = holder, .bytes = bytes, .object = object});
}

#endif
