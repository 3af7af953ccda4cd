/* SPDX-License-Identifier: MIT */
/* Steps from the inside: those of the host API, with what only single calls can say. */
#ifndef MOOR_MEMORY_TRANSACT_H
#define MOOR_MEMORY_TRANSACT_H

#include <moorage/memory.h>

struct moor__step {
    uint32_t kind;   /* MOOR_STEP_* */
    uint32_t access; /* of the map; CREATE maps for writing */
    struct moor_binding *binding;
    moor_range range;
    moor_segment segment;
    uint64_t offset_bytes;
    uint64_t length_bytes;
    uint64_t granule_bytes; /* CREATE without a range; 0: the domain's recommended one */
    moor_grant grant;
};

/* A transaction of one. ret_segment: for CREATE. */
moor_status moor__transact_one(struct moor_runtime *runtime, const struct moor__step *step,
                               moor_segment *ret_segment);

#endif
