/* SPDX-License-Identifier: MIT */
/*
 * The runtime: made empty, ended when nothing is alive in it. There are no exit handlers and no destructors:
 * at exit() nothing happens. A page that the kernel empties in forked children tells a child apart without a
 * system call per call.
 */
#include "memory/runtime.h"

#include "loader/device_stats.h"
#include "memory/buffer.h"
#include "memory/range.h"
#include "memory/release.h"
#include "memory/segment.h"
#include "util/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

void moor__log(struct moor_runtime *runtime, uint32_t level, const char *format, ...)
{
    moor__assert_unlocked("the host's log function");
    if (!runtime->log_function)
        return;
    char line[640];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args); /* cut short is good enough */
    va_end(args);
    runtime->log_function(runtime->log_user, level, line);
}

/* Runtimes get tags of their own, so that a handle of one is foreign to all others, past and future. */
static moor_status take_tag(uint32_t *ret_tag)
{
    static _Atomic uint32_t tags;
    uint32_t taken = atomic_load_explicit(&tags, memory_order_relaxed);
    do {
        if (taken == MOOR__TAG_MAX)
            return moor__fail(MOOR_LIMIT, "this process has made %u runtimes, the most it can", taken);
    } while (!atomic_compare_exchange_weak_explicit(&tags, &taken, taken + 1, memory_order_relaxed,
                                                    memory_order_relaxed));
    *ret_tag = taken + 1;
    return MOOR_OK;
}

static moor_status map_alive_page(uint64_t **ret_page)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return moor__fail_errno(MOOR_HOST_NOMEM, errno, "no page to tell a forked child by");
    if (madvise(page, page_bytes, MADV_WIPEONFORK)) {
        int error = errno;
        munmap(page, page_bytes);
        return moor__fail_errno(MOOR_UNSUPPORTED, error, "the system cannot tell forked children apart");
    }
    *ret_page = page;
    **ret_page = 1;
    return MOOR_OK;
}

moor_status moor_runtime_create(const struct moor_runtime_options *options, struct moor_runtime **ret_runtime)
{
    if (!ret_runtime)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_runtime is NULL"));
    struct moor_runtime *runtime = calloc(1, sizeof *runtime);
    if (!runtime)
        return moor__leave(moor__fail(MOOR_HOST_NOMEM, "no memory for a runtime"));
    uint32_t tag = 0;
    moor_status status = take_tag(&tag);
    if (!status)
        status = map_alive_page(&runtime->alive);
    if (status) {
        free(runtime);
        return moor__leave(status);
    }
    if (options) {
        runtime->log_function = options->log;
        runtime->log_user = options->log_user;
    }
    moor__handles_init(&runtime->buffers, MOOR__KIND_BUFFER, tag, sizeof(struct moor__buffer));
    moor__handles_init(&runtime->ranges, MOOR__KIND_RANGE, tag, sizeof(struct moor__range));
    moor__handles_init(&runtime->segments, MOOR__KIND_SEGMENT, tag, sizeof(struct moor__segment));
    moor__handles_init(&runtime->range_parts, MOOR__KIND_RANGE_PART, tag, sizeof(struct moor__range_part));
    const struct moor__governor_port port = {
        .runtime = runtime,
        .alive = runtime->alive,
        .clock = moor_clock_ns,
        .log = moor__log,
        .reap = moor__poll,
        .reap_until = moor__poll_until,
        .refresh_external = moor__external_refresh,
    };
    moor__governor_init(&runtime->governor, &port, tag, options ? options->patience_ns : 0);
    moor__lock_init(&runtime->lock, MOOR__RANK_RUNTIME, "runtime.lock");
    pthread_cond_init(&runtime->visited, NULL);
    moor__condition_init(&runtime->moved);
    *ret_runtime = runtime;
    return MOOR_OK;
}

moor_status moor_runtime_destroy(struct moor_runtime *runtime)
{
    if (!runtime)
        return MOOR_OK;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__governor_check_idle(&runtime->governor);
    if (!status)
        status = moor__providers_unload(runtime);
    if (status)
        return moor__leave(status);
    moor__governor_finish(&runtime->governor);
    struct moor__handles *const tables[] = {&runtime->buffers, &runtime->ranges, &runtime->segments,
                                            &runtime->range_parts};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        moor__handles_finish(tables[i]);
    pthread_cond_destroy(&runtime->moved);
    pthread_cond_destroy(&runtime->visited);
    moor__lock_finish(&runtime->lock);
    munmap(runtime->alive, (size_t)sysconf(_SC_PAGESIZE));
    free(runtime);
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
