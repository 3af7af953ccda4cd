/* SPDX-License-Identifier: MIT */
/* The steps of transactions, with the same operations for each kind. transact.c runs them in phases and knows
 * no kind. */
#ifndef MOOR_MEMORY_STEP_H
#define MOOR_MEMORY_STEP_H

#include "memory/charge.h"
#include "memory/range.h"

/* The progress of a step; undo starts there. MADE: the provider has made the step's memory, and it is
 * charged. MAPPED: and mapped it. A step that fails to become MADE leaves nothing behind but its granules. */
enum moor__stage {
    MOOR__STAGE_NONE,
    MOOR__STAGE_PREPARED,
    MOOR__STAGE_RESERVED,
    MOOR__STAGE_MADE,
    MOOR__STAGE_MAPPED
};

struct moor__work {
    struct moor_runtime *runtime;
    const struct moor__step_ops *ops; /* of the step's kind */
    struct moor_step step;            /* the host's; publish sets the segment of a CREATE */
    uint32_t access;                  /* the mapping's, MOOR_ACCESS_* */

    struct moor_binding *payer;    /* pays step.length_bytes; NULL: the step costs nothing */
    struct moor__range *range;     /* pinned; NULL: a segment that is mapped nowhere */
    struct moor__segment *segment; /* CREATE: new; MAP: pinned */
    struct moor__range_part *part; /* holds the BUSY granules; NULL: no range, or its release has begun */
    struct moor__reservation reservation;
    uint64_t first; /* granule */
    uint64_t count;
    enum moor__stage stage;
};

struct moor__step_ops {
    uint32_t access; /* of the mapping that a step of a public transaction makes, MOOR_ACCESS_* */
    /* Returns true if the host's step sets a field that its kind does not name. */
    bool (*has_strange_field)(const struct moor_step *step);
    /* Checks the arguments, pins their objects, takes granules and records: everything that may fail and
     * costs nothing. */
    moor_status (*prepare)(struct moor__work *work);
    /* Has the provider make the step's memory and mapping. */
    moor_status (*make)(struct moor__work *work);
    /* Makes the step visible. Cannot fail. */
    void (*publish)(struct moor__work *work);
    /* Takes a step back from its stage; at NONE, the part of prepare that has been done. The reservation is
     * returned. */
    void (*undo)(struct moor__work *work);
};

/* Returns the operations of a kind, MOOR_STEP_*, or NULL if the kind is unknown. */
const struct moor__step_ops *moor__step_ops(uint32_t kind);

#endif
