/* SPDX-License-Identifier: MIT */
/* The host's trace function. What it is told is told where it happens. */
#include "observe/trace.h"

#include "util/error.h"

moor_status moor_runtime_set_trace(struct moor_runtime *runtime, moor_trace_function trace, void *user)
{
    moor_status status = moor__enter(runtime);
    if (status)
        return moor__leave(status);
    runtime->trace_user = user;
    runtime->trace = trace;
    return MOOR_OK;
}
