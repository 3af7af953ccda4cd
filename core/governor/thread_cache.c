/* SPDX-License-Identifier: MIT */
/*
 * Each thread has a list of its caches, one for each runtime that it has called; each runtime has a list of
 * all threads' caches. One lock of the process guards both, held for list work only. A thread that ends
 * leaves its caches in the runtimes' lists, without an owner; a runtime that ends frees its caches, owned or
 * not. The library is never unmapped (-z nodelete), because threads may end after the host has closed it.
 */
#include "governor/thread_cache.h"

#include <stdlib.h>
#include <unistd.h>

LIST_HEAD(thread_list, moor__thread_cache);

/* The state that the end of the thread needs. */
struct thread_record {
    struct thread_list caches; /* lists_lock */
    pid_t process;             /* a forked child leaves the caches of its parent's thread alone */
};

_Thread_local struct moor__thread_cache_hint moor__thread_cache_last;

static struct moor__lock lists_lock = MOOR__LOCK(MOOR__RANK_THREAD_CACHES, "thread_cache.c's lock");
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_end;
static bool has_key;
static _Thread_local struct thread_record thread;

static void thread_ended(void *user)
{
    struct thread_record *record = user;
    if (record->process != getpid())
        return;
    moor__lock_acquire(&lists_lock);
    while (!LIST_EMPTY(&record->caches)) {
        struct moor__thread_cache *cache = LIST_FIRST(&record->caches);
        assert(cache->is_owned && !cache->inside);
        LIST_REMOVE(cache, of_thread);
        cache->is_owned = false;
    }
    moor__lock_release(&lists_lock);
    moor__thread_cache_last = (struct moor__thread_cache_hint){0};
}

/* With the lock held across the fork, a forked child gets whole lists and a free lock. */
static void before_fork(void)
{
    moor__lock_acquire(&lists_lock);
}

static void after_fork(void)
{
    moor__lock_release(&lists_lock);
}

static void make_key(void)
{
    has_key = pthread_atfork(before_fork, after_fork, after_fork) == 0 &&
              pthread_key_create(&at_end, thread_ended) == 0;
}

/* Makes sure that thread_ended will run for this thread. */
static bool enroll(void)
{
    pthread_once(&once, make_key);
    if (!has_key)
        return false;
    if (pthread_getspecific(at_end) && thread.process == getpid())
        return true;
    LIST_INIT(&thread.caches); /* in a forked child the old list is the parent's */
    thread.process = getpid();
    return pthread_setspecific(at_end, &thread) == 0;
}

/* Returns this thread's cache, or one without an owner, which becomes this thread's. Requires lists_lock. */
static struct moor__thread_cache *find(struct moor__thread_caches *caches)
{
    struct moor__thread_cache *cache, *orphan = NULL;
    LIST_FOREACH (cache, &thread.caches, of_thread)
        if (cache->tag == caches->tag)
            return cache;
    LIST_FOREACH (cache, &caches->list, of_runtime)
        if (!cache->is_owned)
            orphan = cache;
    if (orphan) {
        orphan->is_owned = true;
        LIST_INSERT_HEAD(&thread.caches, orphan, of_thread);
    }
    return orphan;
}

struct moor__thread_cache *moor__thread_cache_find(struct moor__thread_caches *caches)
{
    if (!enroll())
        return NULL;
    moor__lock_acquire(&lists_lock);
    struct moor__thread_cache *cache = find(caches);
    moor__lock_release(&lists_lock);
    if (!cache) {
        cache = calloc(1, sizeof *cache);
        if (!cache)
            return NULL;
        cache->tag = caches->tag;
        cache->is_owned = true;
        moor__lock_acquire(&lists_lock);
        LIST_INSERT_HEAD(&thread.caches, cache, of_thread);
        LIST_INSERT_HEAD(&caches->list, cache, of_runtime);
        moor__lock_release(&lists_lock);
    }
    assert(cache->tag == caches->tag);
    moor__thread_cache_last = (struct moor__thread_cache_hint){cache->tag, cache};
    return cache;
}

void moor__thread_caches_visit(struct moor__thread_caches *caches,
                               void (*visit)(struct moor__thread_cache *cache, void *user), void *user)
{
    struct moor__thread_cache *cache;
    moor__lock_acquire(&lists_lock);
    LIST_FOREACH (cache, &caches->list, of_runtime)
        visit(cache, user);
    moor__lock_release(&lists_lock);
}

void moor__thread_caches_free(struct moor__thread_caches *caches)
{
    moor__lock_acquire(&lists_lock);
    while (!LIST_EMPTY(&caches->list)) {
        struct moor__thread_cache *cache = LIST_FIRST(&caches->list);
        LIST_REMOVE(cache, of_runtime);
        if (cache->is_owned)
            LIST_REMOVE(cache, of_thread);
        free(cache);
    }
    moor__lock_release(&lists_lock);
}
