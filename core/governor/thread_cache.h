/* SPDX-License-Identifier: MIT */
/*
 * What a thread keeps for itself of one runtime: thread_accounts, each its share of one holder's account, and slots of
 * handles that are free. Only the thread itself uses it; others may take what is in the thread_accounts, see account.h.
 * When the thread ends, the next new one takes it over as it is.
 */
#ifndef MOOR_GOVERNOR_LOCAL_H
#define MOOR_GOVERNOR_LOCAL_H

#include "governor/governor.h"

#define MOOR__THREAD_ACCOUNTS 64
#define MOOR__THREAD_SLOTS 16
_Static_assert(MOOR__THREAD_ACCOUNTS <= 64, "a bit for each, in 64");

struct moor__thread_account {
    _Atomic(struct moor_holder *) holder; /* NULL: it is empty */
    _Atomic(struct moor_authority *) authority;
    struct moor__account account;
    _Atomic uint64_t charged; /* of the lines, all charged ones; and how high that has been: for peaks */
    _Atomic uint64_t highest;
};

struct moor__thread_slots {
    uint32_t count;
    struct moor__slot *slot[MOOR__THREAD_SLOTS];
};

struct moor__thread_cache {
    _Atomic uint32_t inside; /* the thread is at a thread_account */
    uint32_t tag;            /* of its runtime */
    bool is_owned;           /* by a thread; cache.c, as the entries */
    LIST_ENTRY(moor__thread_cache) of_runtime;
    LIST_ENTRY(moor__thread_cache) of_thread;
    /* A bit for each thread_account that has ever been filled. The thread writes it under the lock of the authority
     * that it fills the thread_account from, so that whoever empties those sees it. */
    _Atomic uint64_t used;
    struct moor__thread_slots grants;
    struct moor__thread_slots leases;
    struct moor__thread_account thread_accounts[MOOR__THREAD_ACCOUNTS];
};

struct moor__thread_cache_hint {
    uint32_t tag; /* of the runtime; tags are not used twice, so it cannot be another one's */
    struct moor__thread_cache *cache;
};
/* Small enough for the space that loaders keep for libraries that come late. */
extern _Thread_local struct moor__thread_cache_hint moor__thread_cache_last
    __attribute__((tls_model("initial-exec")));

/* Makes it, or finds it in the thread's list; NULL: no memory, and then the thread does without. */
struct moor__thread_cache *moor__thread_cache_find(struct moor_runtime *runtime);

/* It is the runtime that this thread has called last. */
static inline bool moor__thread_cache_is_last(const struct moor_runtime *runtime)
{
    return __builtin_expect(moor__thread_cache_last.tag == runtime->grants.tag, 1);
}

static inline struct moor__thread_cache *moor__thread_cache_of(struct moor_runtime *runtime)
{
    return moor__thread_cache_is_last(runtime) ? moor__thread_cache_last.cache
                                               : moor__thread_cache_find(runtime);
}

/* All that threads keep of this runtime, one after another: see account.c. */
void moor__thread_caches_visit(struct moor_runtime *runtime,
                               void (*visit)(struct moor__thread_cache *cache, void *user), void *user);
/* The runtime ends. */
void moor__thread_caches_free(struct moor_runtime *runtime);

/* A slot of a table of grants or leases, from what the thread keeps of them or anew; and back. */
static inline moor_status moor__thread_cache_take(struct moor__handles *handles,
                                                  struct moor__thread_slots *slots,
                                                  struct moor__slot **ret_slot)
{
    if (!slots || slots->count == 0)
        return moor__handles_take(handles, ret_slot);
    *ret_slot = slots->slot[--slots->count];
    return MOOR_OK;
}
static inline void moor__thread_cache_return(struct moor__handles *handles, struct moor__thread_slots *slots,
                                             struct moor__slot *slot)
{
    if (!slots || slots->count == MOOR__THREAD_SLOTS)
        moor__handles_free(handles, slot);
    else if (moor__handles_renew(slot))
        slots->slot[slots->count++] = slot;
}

#define MOOR__GRANTS_OF(runtime, cache) &(runtime)->grants, (cache) ? &(cache)->grants : NULL
#define MOOR__LEASES_OF(runtime, cache) &(runtime)->leases, (cache) ? &(cache)->leases : NULL

#endif
