/* SPDX-License-Identifier: MIT */
/*
 * Generation handles: 64 bits that name an object of one kind in one runtime, and never anything else
 * (promise I10).
 *
 *     kind:3 | runtime tag:16 | generation:23 | index:22
 *
 * A slot's life: free -> taken (private) -> published (live: handles find it) -> retired (handles are stale,
 * pins and the provider may still hold it) -> free, with the next generation. A slot without a next
 * generation is never used again.
 */
#ifndef MOOR_UTIL_HANDLES_H
#define MOOR_UTIL_HANDLES_H

#include "util/lock.h"

#include <moorage/error.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum moor__kind {
    MOOR__KIND_BUFFER = 1,
    MOOR__KIND_RANGE,
    MOOR__KIND_SEGMENT,
    MOOR__KIND_RANGE_PART, /* a part of a range that is being released; never shown to hosts */
    MOOR__KIND_GRANT,
    MOOR__KIND_LEASE,
    MOOR__KIND_TICKET,
    MOOR__KIND_COUNT
};

/* The first field of every object that has a handle. */
struct moor__slot {
    _Atomic uint64_t word; /* generation, live bit and pins */
    uint32_t index;
    _Atomic uint32_t next_free;
};

#define MOOR__HANDLE_CHUNKS 16 /* chunk k holds 64 << k slots: 4,194,240 in all */
#define MOOR__FIRST_CHUNK_BITS 6
#define MOOR__FIRST_CHUNK (1u << MOOR__FIRST_CHUNK_BITS)
#define MOOR__TAG_BITS 16
/* Tags are never used again: the limit of runtimes in a process. */
#define MOOR__TAG_MAX ((1u << MOOR__TAG_BITS) - 1)

struct moor__handles {
    enum moor__kind kind;
    uint64_t shape; /* kind and tag, shifted to their place in a handle */
    size_t slot_bytes;
    _Atomic uint64_t free_head; /* ABA count:32 | index + 1:32 */
    struct moor__lock grow_lock;
    _Atomic uint32_t used;                       /* slots ever taken; written under grow_lock */
    _Atomic(char *) chunks[MOOR__HANDLE_CHUNKS]; /* aligned to MOOR__CACHE_LINE */
    void *memory[MOOR__HANDLE_CHUNKS];           /* the same chunks as allocated; written under grow_lock */
};

#define MOOR__INDEX_BITS 22
#define MOOR__GENERATION_BITS 23
#define MOOR__TAG_SHIFT (MOOR__INDEX_BITS + MOOR__GENERATION_BITS)
#define MOOR__KIND_SHIFT 61
#define MOOR__INDEX_MAX ((1u << MOOR__INDEX_BITS) - 1)
#define MOOR__GENERATION_MAX ((UINT64_C(1) << MOOR__GENERATION_BITS) - 1)

/* The word of a slot: generation:23 | live:1 | pins:32, from bit 55 down. */
#define MOOR__SLOT_LIVE (UINT64_C(1) << 32)
#define MOOR__SLOT_PINS UINT64_C(0xffffffff)
#define MOOR__GENERATION_SHIFT 33

/* Slots of tables with many concurrent users have this size, so that no two slots share a cache line. */
#define MOOR__CACHE_LINE 64

/* Makes an empty table. slot_bytes: size of the object that starts with a struct moor__slot. */
void moor__handles_init(struct moor__handles *handles, enum moor__kind kind, uint32_t tag, size_t slot_bytes);
/* Frees the table. Requires that no slot is in use. */
void moor__handles_finish(struct moor__handles *handles);

/* Takes a slot with a zeroed object that no handle finds yet.
 * HOST_NOMEM: no memory for more slots. LIMIT: all slots are in use. */
moor_status moor__handles_take(struct moor__handles *handles, struct moor__slot **ret_slot);
/* Returns the slot's handle, valid from publication on. */
static inline uint64_t moor__handle_of(const struct moor__handles *handles, const struct moor__slot *slot)
{
    uint64_t generation = atomic_load_explicit(&slot->word, memory_order_relaxed) >> MOOR__GENERATION_SHIFT;
    return handles->shape | generation << MOOR__INDEX_BITS | slot->index;
}
/* Makes the handle valid. */
static inline void moor__handles_publish(struct moor__slot *slot)
{
    /* No other thread writes the word before publication. Release: a thread that finds the object live sees
     * it complete. */
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    atomic_store_explicit(&slot->word, word | MOOR__SLOT_LIVE, memory_order_release);
}
/* Finds a live object and pins it, so that it is not finished.
 * STALE, FOREIGN, INVALID: the handle names no live object here. */
moor_status moor__handles_pin(struct moor__handles *handles, uint64_t handle, struct moor__slot **ret_slot);
/* Removes a pin. Returns true if the object is retired and this was its last pin: the caller then finishes
 * it. */
bool moor__handles_unpin(struct moor__slot *slot);
/* Makes the handle stale. Requires a pin.
 * STALE: another thread was first. */
moor_status moor__handles_retire(struct moor__slot *slot);
/* Returns the slot of an index. Requires index < used. Chunk k starts at index 64 * (2^k - 1). */
static inline struct moor__slot *moor__slot_at(const struct moor__handles *handles, uint32_t index)
{
    uint32_t place = index + MOOR__FIRST_CHUNK;
    /* the highest bit; the lower bits are the place in the chunk */
    uint32_t top = 31u ^ (uint32_t)__builtin_clz(place);
    /* Acquire: pairs with the release store that published the chunk. */
    char *base = atomic_load_explicit(&handles->chunks[top - MOOR__FIRST_CHUNK_BITS], memory_order_acquire);
    return (struct moor__slot *)(void *)(base + (size_t)(place ^ 1u << top) * handles->slot_bytes);
}

/* Finds a live object without pins and makes its handle stale, in one atomic step. The caller then finishes
 * the object. Returns false, and leaves the last error unchanged, if there is no such object. */
static inline bool moor__handles_remove(struct moor__handles *handles, uint64_t handle,
                                        struct moor__slot **ret_slot)
{
    uint32_t index = (uint32_t)handle & MOOR__INDEX_MAX;
    if ((handle ^ handles->shape) >> MOOR__TAG_SHIFT ||
        index >= atomic_load_explicit(&handles->used, memory_order_acquire))
        return false;
    struct moor__slot *slot = moor__slot_at(handles, index);
    uint64_t generation = handle >> MOOR__INDEX_BITS & MOOR__GENERATION_MAX;
    uint64_t word = generation << MOOR__GENERATION_SHIFT | MOOR__SLOT_LIVE; /* live, and no pins */
    *ret_slot = slot;
    /* Acquire: pairs with moor__handles_publish. */
    return atomic_compare_exchange_strong_explicit(&slot->word, &word, word & ~MOOR__SLOT_LIVE,
                                                   memory_order_acq_rel, memory_order_relaxed);
}
/* Moves a retired slot without pins to its next generation, ready to be published. Returns false if none is
 * left. */
static inline bool moor__handles_renew(struct moor__slot *slot)
{
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    if (word >> MOOR__GENERATION_SHIFT == MOOR__GENERATION_MAX)
        return false;
    atomic_store_explicit(&slot->word, ((word >> MOOR__GENERATION_SHIFT) + 1) << MOOR__GENERATION_SHIFT,
                          memory_order_release);
    return true;
}
/* Returns a slot to the table. Requires a slot that is neither live nor pinned. */
void moor__handles_free(struct moor__handles *handles, struct moor__slot *slot);
/* Returns the taken or retired slot that has this handle, or NULL. A completion finds its object this way. */
struct moor__slot *moor__handles_find_retired(struct moor__handles *handles, uint64_t handle);

/* Returns the kind in a handle's bits, which may be invalid. */
uint32_t moor__handle_kind(uint64_t handle);

#endif
