/* SPDX-License-Identifier: MIT */
/* Grants from the inside, for those who make them of what is reserved. */
#ifndef MOOR_GOVERNOR_GRANT_H
#define MOOR_GOVERNOR_GRANT_H

#include "governor/thread_cache.h"

struct moor__grant {
    struct moor__slot slot;
    struct moor_holder *holder;
    _Atomic uint64_t remaining; /* bytes */
};

/* Slots for so many grants; and back, those from the first on that were not used, and the list. */
moor_status moor__grants_take(struct moor_runtime *runtime, size_t count, struct moor__slot ***ret_slots);
void moor__grants_give(struct moor_runtime *runtime, struct moor__slot **slots, size_t unused);
/* A slot becomes a grant of bytes that are reserved, and counted as one. */
moor_grant moor__grant_publish(struct moor_runtime *runtime, struct moor__slot *slot,
                               struct moor_holder *holder, uint64_t bytes);
/* So many more grants of the holder's, without bytes. */
void moor__count_grants(struct moor_holder *holder, uint64_t change);

/* Finds a grant and keeps it, until unpinned: by then it may be gone for all others. */
moor_status moor__grant_pin(struct moor_runtime *runtime, moor_grant handle, struct moor__grant **ret_grant);
void moor__grant_unpin(struct moor__grant *grant);
/* It is pinned, or nobody else has it. OVER_BUDGET: it has less left. */
moor_status moor__grant_draw(struct moor__grant *grant, uint64_t bytes);

#endif
