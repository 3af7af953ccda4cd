/* SPDX-License-Identifier: MIT */
/* The services of a runtime that every folder uses: the fork check, the log, the trace, the clock, the version. */
#include "util/runtime.h"

#include "util/error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

moor_status moor__enter_refused(const struct moor_runtime *runtime)
{
    assert(!moor__may_enter(runtime));
    if (!runtime)
        return moor__fail(MOOR_INVALID, "the runtime is NULL");
    return moor__fail(MOOR_FORKED, "the runtime belongs to the parent process");
}

void moor__log(const struct moor_runtime *runtime, uint32_t level, const char *format, ...)
{
    moor__assert_unlocked("the host's log function");
    if (!runtime->log.function)
        return;
    char line[640];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args); /* a long line is cut */
    va_end(args);
    runtime->log.function(runtime->log.user, level, line);
}

moor_status moor_runtime_set_trace(struct moor_runtime *runtime, moor_trace_function trace, void *user)
{
    moor_status status = moor__enter(runtime);
    if (status)
        return moor__leave(status);
    runtime->trace = (struct moor__host_trace){trace, user};
    return MOOR_OK;
}

uint64_t moor_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const char *moor_version(void)
{
    return MOOR_VERSION_TEXT;
}
