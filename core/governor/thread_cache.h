/* SPDX-License-Identifier: MIT */
/*
 * A thread's cache for one runtime: thread accounts, each its share of one holder's account, and free slots
 * of handles. Only the thread itself uses it; other threads may empty its thread accounts, see credit.h. When
 * the thread ends, the next new thread takes the cache over as it is.
 */
#ifndef MOOR_GOVERNOR_THREAD_CACHE_H
#define MOOR_GOVERNOR_THREAD_CACHE_H

#include "governor/objects.h"
#include "util/handles.h"

#include <assert.h>

#define MOOR__THREAD_ACCOUNTS 64
#define MOOR__THREAD_SLOTS 16
_Static_assert(MOOR__THREAD_ACCOUNTS <= 64, "`used` has a bit for each thread account");

struct moor__thread_account {
    _Atomic(struct moor_holder *) holder; /* NULL: it is empty */
    _Atomic(struct moor_authority *) authority;
    struct moor__account account;
    _Atomic uint64_t charged; /* sum of the charged lines */
    _Atomic uint64_t highest; /* the largest that sum has been, for peaks */
};

struct moor__thread_slots {
    uint32_t count;
    struct moor__slot *slot[MOOR__THREAD_SLOTS];
};

struct moor__thread_cache {
    _Atomic uint32_t inside; /* 1: the thread is using a thread account */
    uint32_t tag;            /* the runtime's */
    bool is_owned;           /* by a living thread; thread_cache.c's lock, as the two entries */
    LIST_ENTRY(moor__thread_cache) of_runtime;
    LIST_ENTRY(moor__thread_cache) of_thread;
    /* A bit for each thread account that has ever been filled. The thread sets it under the lock of the
     * authority that it fills the thread account from, so the thread that empties those sees it. */
    _Atomic uint64_t used;
    struct moor__thread_slots grants;
    struct moor__thread_slots leases;
    struct moor__thread_account thread_accounts[MOOR__THREAD_ACCOUNTS];
};

/* All threads' caches for one runtime. */
struct moor__thread_caches {
    uint32_t tag; /* the runtime's; no other runtime ever has it */
    LIST_HEAD(, moor__thread_cache) list;
};

/* The cache that this thread used last. Its tag says for which runtime. Small, because it takes the space
 * that dynamic linkers keep for libraries which are loaded late. */
struct moor__thread_cache_hint {
    uint32_t tag;
    struct moor__thread_cache *cache;
};
extern _Thread_local struct moor__thread_cache_hint moor__thread_cache_last
    __attribute__((tls_model("initial-exec")));

/* Returns this thread's cache, from its list or made now. NULL: no memory, and the thread works without a
 * cache. */
struct moor__thread_cache *moor__thread_cache_find(struct moor__thread_caches *caches);

/* Returns true if this thread's last call was to the same runtime. */
static inline bool moor__thread_cache_is_last(const struct moor__thread_caches *caches)
{
    return __builtin_expect(moor__thread_cache_last.tag == caches->tag, 1);
}

static inline struct moor__thread_cache *moor__thread_cache_of(struct moor__thread_caches *caches)
{
    return moor__thread_cache_is_last(caches) ? moor__thread_cache_last.cache
                                              : moor__thread_cache_find(caches);
}

static inline struct moor__thread_cache *moor__thread_cache_for(const struct moor_holder *holder)
{
    return moor__thread_cache_of(holder->authority->caches);
}

/* Calls `visit` for each cache of the runtime, one after another, under the lock of the lists. */
void moor__thread_caches_visit(struct moor__thread_caches *caches,
                               void (*visit)(struct moor__thread_cache *cache, void *user), void *user);
/* Frees all caches of a runtime that ends. */
void moor__thread_caches_free(struct moor__thread_caches *caches);

/* Returns the slots that the thread keeps of the table of grants or of leases. NULL: it has no cache. */
static inline struct moor__thread_slots *moor__thread_slots_of(struct moor__thread_cache *cache,
                                                               const struct moor__handles *handles)
{
    assert(handles->kind == MOOR__KIND_GRANT || handles->kind == MOOR__KIND_LEASE);
    if (!cache)
        return NULL;
    return handles->kind == MOOR__KIND_GRANT ? &cache->grants : &cache->leases;
}

/* Takes a slot from those that the thread keeps, or else from the table. cache: may be NULL. */
static inline moor_status moor__thread_slot_take(struct moor__thread_cache *cache,
                                                 struct moor__handles *handles, struct moor__slot **ret_slot)
{
    struct moor__thread_slots *slots = moor__thread_slots_of(cache, handles);
    if (!slots || slots->count == 0)
        return moor__handles_take(handles, ret_slot);
    assert(slots->count <= MOOR__THREAD_SLOTS);
    *ret_slot = slots->slot[--slots->count];
    return MOOR_OK;
}

/* Keeps a retired slot for the thread, or returns it to the table. */
static inline void moor__thread_slot_return(struct moor__thread_cache *cache, struct moor__handles *handles,
                                            struct moor__slot *slot)
{
    struct moor__thread_slots *slots = moor__thread_slots_of(cache, handles);
    if (!slots || slots->count == MOOR__THREAD_SLOTS)
        moor__handles_free(handles, slot);
    else if (moor__handles_renew(slot))
        slots->slot[slots->count++] = slot;
}

#endif
