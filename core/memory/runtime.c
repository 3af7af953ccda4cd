/* SPDX-License-Identifier: MIT */
/*
 * The life of a runtime: created empty, destroyed when nothing in it is alive. The library has no exit
 * handlers and no destructors: at exit() nothing happens. A page that the kernel empties in forked children
 * shows a child that the runtime is its parent's, without a system call for each call.
 */
#include "util/runtime.h"

#include "governor/account.h"
#include "governor/queue.h"
#include "loader/provider.h"
#include "memory/buffer.h"
#include "memory/range.h"
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
    if (!ret_runtime)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_runtime is NULL"));
    struct moor_runtime *runtime = calloc(1, sizeof *runtime);
    if (!runtime)
        return moor__leave(moor__fail(MOOR_HOST_NOMEM, "no memory for a runtime"));
    uint32_t tag = 0;
    moor_status status = take_tag(&tag);
    if (!status)
        status = moor__queue_create(options ? options->patience_ns : 0, &runtime->queue);
    if (!status)
        status = map_alive_page(&runtime->alive);
    if (status) {
        moor__queue_destroy(runtime->queue);
        free(runtime);
        return moor__leave(status);
    }
    moor__credit_init();
    LIST_INIT(&runtime->thread_caches);
    if (options)
        runtime->log = (struct moor__host_log){options->log, options->log_user};
    init_objects(runtime, tag);
    moor__grants_init(runtime, tag);
    moor__lock_init(&runtime->lock, MOOR__RANK_RUNTIME, "runtime.lock");
    pthread_cond_init(&runtime->visited, NULL);
    moor__condition_init(&runtime->moved);
    *ret_runtime = runtime;
    return MOOR_OK;
}

/* Returns BUSY if a grant, a lease, a ticket or a holder is left. */
static moor_status check_holders(struct moor_runtime *runtime)
{
    moor_status status = MOOR_OK;
    uint64_t grants, leases;
    moor__authorities_count(runtime, &grants, &leases);
    uint32_t tickets = moor__queue_count(runtime->queue);
    if (grants || leases || tickets)
        return moor__fail(MOOR_BUSY, "alive: %llu grants, %llu leases, %u tickets",
                          (unsigned long long)grants, (unsigned long long)leases, tickets);
    for (struct moor_authority *authority = runtime->authorities; authority && !status;
         authority = authority->next) {
        moor__lock_acquire(&authority->lock);
        if (authority->holder_count)
            status = moor__fail(MOOR_BUSY, "alive: %u holders of %s", authority->holder_count,
                                authority->pool_key);
        moor__lock_release(&authority->lock);
    }
    return status;
}

static void free_runtime(struct moor_runtime *runtime)
{
    moor__queue_destroy(runtime->queue); /* first, because its threads read authorities */
    moor__authorities_destroy(runtime);
    moor__thread_caches_free(runtime);
    for (int kind = 1; kind < MOOR__OBJECT_KINDS; kind++)
        moor__handles_finish(&runtime->objects[kind]);
    moor__handles_finish(&runtime->grants);
    moor__handles_finish(&runtime->leases);
    moor__handles_finish(&runtime->tickets);
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
    if (!status && moor__is_inside_pressure(runtime))
        status = moor__fail(MOOR_BUSY, "a pressure function of the runtime is running");
    if (!status)
        status = check_holders(runtime);
    if (!status)
        status = moor__providers_unload(runtime);
    if (!status)
        free_runtime(runtime);
    return moor__leave(status);
}
