/* SPDX-License-Identifier: MIT */
/* Buffers from the inside. */
#ifndef MOOR_MEMORY_BUFFER_H
#define MOOR_MEMORY_BUFFER_H

#include "memory/object.h"
#include "memory/uses.h"

enum moor__origin {
    MOOR__ALLOCATED,     /* made and freed by the provider */
    MOOR__WRAPPED,       /* the host's memory, never freed */
    MOOR__WRAPPED_PINNED /* the host's memory, locked by the provider */
};

struct moor__buffer {
    struct moor__object object; /* bytes: taken by the provider; 0 for wrapped memory */
    enum moor__origin origin;
    uint64_t handle; /* the provider's, of the allocation or the pin */
    uint64_t address;
    uint64_t native;        /* the device API's name for the buffer; 0: none */
    uint64_t size_bytes;    /* requested by the host */
    uint64_t leased_bytes;  /* charged for wrapped memory */
    struct moor__lock lock; /* guards uses */
    struct moor__uses uses;
};

static inline struct moor__buffer *moor__buffer_of(struct moor__object *object)
{
    assert(object->ops->kind == MOOR__KIND_BUFFER);
    return (struct moor__buffer *)object;
}

/* Finds a live buffer and keeps it, like moor__object_pin. */
static inline moor_status moor__buffer_pin(struct moor_runtime *runtime, moor_buffer handle,
                                           struct moor__buffer **ret_buffer)
{
    struct moor__object *object;
    moor_status status = moor__object_pin(runtime, MOOR__KIND_BUFFER, handle, &object);
    if (!status)
        *ret_buffer = moor__buffer_of(object);
    return status;
}

#endif
