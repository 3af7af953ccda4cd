/* SPDX-License-Identifier: MIT */
/*
 * Each thread has a list of what it keeps, one for each runtime that it has called; each runtime a list of
 * what threads keep of it. Both are guarded by one lock of the process, which is held for list work only. A
 * thread that ends leaves its things in the runtimes' lists, without an owner; a runtime that ends frees
 * them, whoever owns them. The library is never unmapped (-z nodelete), for threads end after it might have
 * been.
 */
#include "governor/local.h"

#include <stdlib.h>
#include <unistd.h>

LIST_HEAD(thread_list, moor__local);

/* What the end of the thread needs to know. */
struct thread_record {
    struct thread_list locals; /* lists_lock */
    pid_t process;             /* a forked child leaves alone what its parent's thread had */
};

_Thread_local struct moor__local_cache moor__local_cached;

static struct moor__lock lists_lock = MOOR__LOCK(MOOR__RANK_LOCALS, "local.c's lock");
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
    while (!LIST_EMPTY(&record->locals)) {
        struct moor__local *local = LIST_FIRST(&record->locals);
        LIST_REMOVE(local, of_thread);
        local->is_owned = false;
    }
    moor__lock_release(&lists_lock);
    moor__local_cached = (struct moor__local_cache){0};
}

/* A forked child gets the lists whole, and the lock free. */
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

/* The thread's end will be heard of. */
static bool enroll(void)
{
    pthread_once(&once, make_key);
    if (!has_key)
        return false;
    if (pthread_getspecific(at_end) && thread.process == getpid())
        return true;
    LIST_INIT(&thread.locals); /* in a forked child: what it had was the parent's */
    thread.process = getpid();
    return pthread_setspecific(at_end, &thread) == 0;
}

/* lists_lock held. One of the runtime's that is this thread's, or nobody's. */
static struct moor__local *find(struct moor_runtime *runtime)
{
    struct moor__local *local, *orphan = NULL;
    LIST_FOREACH(local, &thread.locals, of_thread)
    if (local->tag == runtime->grants.tag)
        return local;
    LIST_FOREACH(local, &runtime->locals, of_runtime)
    if (!local->is_owned)
        orphan = local;
    if (orphan) {
        orphan->is_owned = true;
        LIST_INSERT_HEAD(&thread.locals, orphan, of_thread);
    }
    return orphan;
}

struct moor__local *moor__local_find(struct moor_runtime *runtime)
{
    if (!enroll())
        return NULL;
    moor__lock_acquire(&lists_lock);
    struct moor__local *local = find(runtime);
    moor__lock_release(&lists_lock);
    if (!local) {
        local = calloc(1, sizeof *local);
        if (!local)
            return NULL;
        local->tag = runtime->grants.tag;
        local->is_owned = true;
        moor__lock_acquire(&lists_lock);
        LIST_INSERT_HEAD(&thread.locals, local, of_thread);
        LIST_INSERT_HEAD(&runtime->locals, local, of_runtime);
        moor__lock_release(&lists_lock);
    }
    moor__local_cached = (struct moor__local_cache){local->tag, local};
    return local;
}

void moor__locals_visit(struct moor_runtime *runtime, void (*visit)(struct moor__local *local, void *user),
                        void *user)
{
    struct moor__local *local;
    moor__lock_acquire(&lists_lock);
    LIST_FOREACH(local, &runtime->locals, of_runtime)
    visit(local, user);
    moor__lock_release(&lists_lock);
}

void moor__locals_free(struct moor_runtime *runtime)
{
    moor__lock_acquire(&lists_lock);
    while (!LIST_EMPTY(&runtime->locals)) {
        struct moor__local *local = LIST_FIRST(&runtime->locals);
        LIST_REMOVE(local, of_runtime);
        if (local->is_owned)
            LIST_REMOVE(local, of_thread);
        free(local);
    }
    moor__lock_release(&lists_lock);
}
