/* SPDX-License-Identifier: MIT */
/* A step of a transaction while it is done, or undone: between transact.c and its first phase, prepare.c. */
#ifndef MOOR_MEMORY_WORK_H
#define MOOR_MEMORY_WORK_H

#include "memory/range.h"
#include "memory/transact.h"

/* How far a step has come; undo starts there. */
enum moor__stage {
    MOOR__STAGE_NONE,
    MOOR__STAGE_PREPARED,
    MOOR__STAGE_RESERVED,
    MOOR__STAGE_BACKED,
    MOOR__STAGE_MAPPED,
};

struct moor__work {
    struct moor_runtime *runtime;
    const struct moor__step *step;
    struct moor__range *range;     /* pinned; NULL: a segment that is mapped nowhere */
    struct moor__segment *segment; /* CREATE: new; MAP: pinned */
    struct moor__range_part *part; /* for the undo */
    struct moor__reservation reservation;
    uint64_t first; /* granule */
    uint64_t count;
    enum moor__stage stage;
    bool charged;
};

/* Takes all that the step needs before it costs anything: on failure nothing of it is left. */
moor_status moor__work_prepare(struct moor__work *work);
/* Its granules are FREE again. */
void moor__work_free_granules(struct moor__work *work);
/* Unpins its range, if it has one. */
void moor__work_drop_range(struct moor__work *work);

#endif
