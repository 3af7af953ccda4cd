/* SPDX-License-Identifier: MIT */
/* Buffers from the inside. */
#ifndef MOOR_MEMORY_BUFFER_H
#define MOOR_MEMORY_BUFFER_H

#include "memory/object.h"
#include "memory/uses.h"

enum moor__origin {
    MOOR__ALLOCATED,     /* by the provider, which frees it */
    MOOR__WRAPPED,       /* the host's: never freed */
    MOOR__WRAPPED_PINNED /* the host's, locked by the provider */
};

struct moor__buffer {
    struct moor__object object; /* bytes: what the provider took; for wrapped memory 0, see leased_bytes */
    enum moor__origin origin;
    uint64_t handle; /* the provider's, of the allocation or the pin */
    uint64_t address;
    uint64_t native;        /* the device API's name for it, or 0 */
    uint64_t size_bytes;    /* as asked */
    uint64_t leased_bytes;  /* charged for wrapped memory */
    struct moor__lock lock; /* uses */
    struct moor__uses uses;
};

/* Finds and pins a live buffer. */
moor_status moor__buffer_pin(struct moor_runtime *runtime, moor_buffer handle,
                             struct moor__buffer **ret_buffer);
/* The last pin of a released buffer sends it on its way. */
void moor__buffer_unpin(struct moor__buffer *buffer);

#endif
