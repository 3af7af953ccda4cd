/* SPDX-License-Identifier: MIT */
/* Buffers from the inside. */
#ifndef MOOR_MEMORY_BUFFER_H
#define MOOR_MEMORY_BUFFER_H

#include "memory/access.h"

enum moor__origin {
    MOOR__ALLOCATED,     /* made and freed by the provider */
    MOOR__WRAPPED,       /* the host's memory, never freed */
    MOOR__WRAPPED_PINNED /* the host's memory, locked by the provider */
};

struct moor__buffer {
    struct moor__memory memory; /* object.bytes: taken by the provider; 0 for wrapped memory */
    enum moor__origin origin;
    uint64_t native;       /* the device API's name for the buffer; 0: none */
    uint64_t leased_bytes; /* charged for wrapped memory */
};

static inline struct moor__buffer *moor__buffer_of(struct moor__object *object)
{
    assert(object->ops->kind == MOOR__KIND_BUFFER);
    return (struct moor__buffer *)object;
}

#endif
