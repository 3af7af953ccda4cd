/* SPDX-License-Identifier: MIT */
/*
 * The life of a runtime: created empty, destroyed when nothing in it is alive. The library has no exit
 * handlers and no destructors: at exit() nothing happens. A page that the kernel empties in forked children
 * shows a child that the runtime is its parent's, without a system call for each call.
 */
#include "util/runtime.h"

#include "governor/governor.h"
#include "memory/buffer.h"
#include "memory/range.h"
#include "memory/release.h"
#include "memory/segment.h"
#include "util/error.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Takes a tag that no other runtime of this process has or had: a handle of one is foreign to all others. */
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
        return moor__fail_errno(MOOR_HOST_NOMEM, errno, "no page for the check of forked children");
    if (madvise(page, page_bytes, MADV_WIPEONFORK)) {
        int error = errno;
        munmap(page, page_bytes);
        return moor__fail_errno(MOOR_UNSUPPORTED, error, "the system has no MADV_WIPEONFORK");
    }
    *ret_page = page;
    **ret_page = 1;
    return MOOR_OK;
}

static void init_objects(struct moor_runtime *runtime, uint32_t tag)
{
    static const size_t slot_bytes[MOOR__OBJECT_KINDS] = {
        [MOOR__KIND_BUFFER] = sizeof(struct moor__buffer),
        [MOOR__KIND_RANGE] = sizeof(struct moor__range),
        [MOOR__KIND_SEGMENT] = sizeof(struct moor__segment),
        [MOOR__KIND_RANGE_PART] = sizeof(struct moor__range_part),
    };
    for (int kind = 1; kind < MOOR__OBJECT_KINDS; kind++)
        moor__handles_init(&runtime->objects[kind], (enum moor__kind)kind, tag, slot_bytes[kind]);
}

moor_status moor_runtime_create(const struct moor_runtime_options *options, struct moor_runtime **ret_runtime)
{
    static const struct moor__governor_port port = {
        .clock = moor_clock_ns,
        .reap = moor__poll,
        .reap_until = moor__poll_until,
        .refresh_external = moor__external_refresh,
    };
    if (!ret_runtime)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_runtime is NULL"));
    struct moor_runtime *runtime = calloc(1, sizeof *runtime);
    if (!runtime)
        return moor__leave(moor__fail(MOOR_HOST_NOMEM, "no memory for a runtime"));
    uint32_t tag = 0;
    moor_status status = take_tag(&tag);
    if (!status)
        status = moor__governor_create(runtime, &port, tag, options ? options->patience_ns : 0,
                                       &runtime->governor);
    if (!status)
        status = map_alive_page(&runtime->alive);
    if (status) {
        moor__governor_destroy(runtime->governor);
        free(runtime);
        return moor__leave(status);
    }
    if (options)
        runtime->log = (struct moor__host_log){options->log, options->log_user};
    init_objects(runtime, tag);
    moor__lock_init(&runtime->lock, MOOR__RANK_RUNTIME, "runtime.lock");
    pthread_cond_init(&runtime->visited, NULL);
    moor__condition_init(&runtime->moved);
    *ret_runtime = runtime;
    return MOOR_OK;
}

static void free_runtime(struct moor_runtime *runtime)
{
    moor__governor_destroy(runtime->governor);
    for (int kind = 1; kind < MOOR__OBJECT_KINDS; kind++)
        moor__handles_finish(&runtime->objects[kind]);
    pthread_cond_destroy(&runtime->moved);
    pthread_cond_destroy(&runtime->visited);
    moor__lock_finish(&runtime->lock);
    munmap(runtime->alive, (size_t)sysconf(_SC_PAGESIZE));
    free(runtime);
}

moor_status moor_runtime_destroy(struct moor_runtime *runtime)
{
    if (!runtime)
        return MOOR_OK;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__governor_check_idle(runtime->governor);
    if (!status)
        status = moor__providers_unload(runtime);
    if (!status)
        free_runtime(runtime);
    return moor__leave(status);
}
