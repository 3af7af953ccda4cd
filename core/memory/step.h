/* SPDX-License-Identifier: MIT */
/*
 * The steps of transactions: one file for each kind, with the operations below. transact.c runs them in
 * phases and knows no kind.
 */
#ifndef MOOR_MEMORY_STEP_H
#define MOOR_MEMORY_STEP_H

#include "memory/charge.h"
#include "memory/range.h"

/* A step as the host states it, with the arguments that single calls add. */
struct moor__step {
    uint32_t access; /* the mapping's, MOOR_ACCESS_* */
    struct moor_binding *binding;
    moor_range range;
    moor_segment segment;
    uint64_t offset_bytes;
    uint64_t length_bytes;
    uint64_t granule_bytes; /* CREATE without a range; 0: the domain's recommended one */
    moor_grant grant;
};

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
    const struct moor__step_ops *ops;
    struct moor_runtime *runtime;
    struct moor__step step;

    struct moor_binding *payer;    /* pays step.length_bytes; NULL: the step costs nothing */
    struct moor__range *range;     /* pinned; NULL: a segment that is mapped nowhere */
    struct moor__segment *segment; /* CREATE: new; MAP: pinned */
    struct moor__range_part
        *part; /* holds the granules, BUSY; NULL: without range, or its release has begun */
    struct moor__reservation reservation;
    uint64_t first; /* granule */
    uint64_t count;
    enum moor__stage stage;
    moor_segment created; /* handle of the published segment; 0: none */
};

struct moor__step_ops {
    /* Returns true if the host's step sets a field that its kind does not name. */
    bool (*has_strange_field)(const struct moor_step *step);
    /* Checks the arguments, pins their objects, takes granules and records: everything that may fail and
     * costs nothing. On failure nothing is left of it. */
    moor_status (*prepare)(struct moor__work *work);
    /* Has the provider make the step's memory and mapping. */
    moor_status (*make)(struct moor__work *work);
    /* Makes the step visible. Cannot fail. */
    void (*publish)(struct moor__work *work);
    /* Takes a step back from its stage, PREPARED or later. The reservation is returned. */
    void (*undo)(struct moor__work *work);
};

extern const struct moor__step_ops moor__step_commit;
extern const struct moor__step_ops moor__step_create;
extern const struct moor__step_ops moor__step_map;

/* ---- step.c ---- */

/* Pins the step's range and takes its granules. Returns FOREIGN if the range is of another domain than
 * `binding`, unless that is NULL. */
moor_status moor__step_claim(struct moor__work *work, const struct moor_binding *binding,
                             uint64_t length_bytes);
/* Frees the granules that the step still holds, and unpins its range. */
void moor__step_drop(struct moor__work *work);
/* Releases the mapping of the segment that the provider has made for the step, and with it the granules. */
void moor__step_unmap(struct moor__work *work);

#endif
