/* SPDX-License-Identifier: MIT */
/*
 * What a thread keeps for itself of one runtime: cells, each its share of one holder's account, and slots of
 * handles that are free. Only the thread itself uses it; others may take what is in the cells, see books.h.
 * When the thread ends, the next new one takes it over as it is.
 */
#ifndef MOOR_GOVERNOR_LOCAL_H
#define MOOR_GOVERNOR_LOCAL_H

#include "governor/governor.h"

#define MOOR__CELLS 64
#define MOOR__LOCAL_SLOTS 16
_Static_assert(MOOR__CELLS <= 64, "a bit for each, in 64");

struct moor__cell {
    _Atomic(struct moor_holder *) holder; /* NULL: it is empty */
    _Atomic(struct moor_authority *) authority;
    struct moor__books books;
    _Atomic uint64_t charged; /* of the figures, all charged ones; and how high that has been: for peaks */
    _Atomic uint64_t highest;
};

struct moor__local_slots {
    uint32_t count;
    struct moor__slot *slot[MOOR__LOCAL_SLOTS];
};

struct moor__local {
    _Atomic uint32_t inside; /* the thread is at a cell */
    uint32_t tag;            /* of its runtime */
    bool is_owned;           /* by a thread; local.c, as the entries */
    LIST_ENTRY(moor__local) of_runtime;
    LIST_ENTRY(moor__local) of_thread;
    /* A bit for each cell that has ever been filled. The thread writes it under the lock of the authority
     * that it fills the cell from, so that whoever empties those sees it. */
    _Atomic uint64_t used;
    struct moor__local_slots grants;
    struct moor__local_slots leases;
    struct moor__cell cells[MOOR__CELLS];
};

struct moor__local_cache {
    uint32_t tag; /* of the runtime; tags are not used twice, so it cannot be another one's */
    struct moor__local *local;
};
/* Small enough for the space that loaders keep for libraries that come late. */
extern _Thread_local struct moor__local_cache moor__local_cached __attribute__((tls_model("initial-exec")));

/* Makes it, or finds it in the thread's list; NULL: no memory, and then the thread does without. */
struct moor__local *moor__local_find(struct moor_runtime *runtime);

/* It is the runtime that this thread has called last. */
static inline bool moor__local_is_cached(const struct moor_runtime *runtime)
{
    return __builtin_expect(moor__local_cached.tag == runtime->grants.tag, 1);
}

static inline struct moor__local *moor__local_of(struct moor_runtime *runtime)
{
    return moor__local_is_cached(runtime) ? moor__local_cached.local : moor__local_find(runtime);
}

/* All that threads keep of this runtime, one after another: see books.c. */
void moor__locals_visit(struct moor_runtime *runtime, void (*visit)(struct moor__local *local, void *user),
                        void *user);
/* The runtime ends. */
void moor__locals_free(struct moor_runtime *runtime);

/* A slot of a table of grants or leases, from what the thread keeps of them or anew; and back. */
static inline moor_status moor__local_take(struct moor__handles *handles, struct moor__local_slots *slots,
                                           struct moor__slot **ret_slot)
{
    if (!slots || slots->count == 0)
        return moor__handles_take(handles, ret_slot);
    *ret_slot = slots->slot[--slots->count];
    return MOOR_OK;
}
static inline void moor__local_give(struct moor__handles *handles, struct moor__local_slots *slots,
                                    struct moor__slot *slot)
{
    if (!slots || slots->count == MOOR__LOCAL_SLOTS)
        moor__handles_free(handles, slot);
    else if (moor__handles_renew(slot))
        slots->slot[slots->count++] = slot;
}

#define MOOR__GRANTS_OF(runtime, local) &(runtime)->grants, (local) ? &(local)->grants : NULL
#define MOOR__LEASES_OF(runtime, local) &(runtime)->leases, (local) ? &(local)->leases : NULL

#endif
