/* SPDX-License-Identifier: MIT */
/*
 * Generation handles: 64 bits that name an object of one kind in one runtime, and never anything else
 * (promise I10).
 *
 *     kind:3 | runtime tag:16 | generation:23 | index:22
 *
 * A slot's life: free -> taken (private) -> published (live: handles find it) -> retired (handles are stale,
 * pins and the provider may still hold it) -> free, with the next generation. A slot whose generations are
 * used up is never used again.
 */
#ifndef MOOR_UTIL_HANDLES_H
#define MOOR_UTIL_HANDLES_H

#include <moorage/error.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum moor__kind {
    MOOR__KIND_BUFFER = 1,
    MOOR__KIND_RANGE,
    MOOR__KIND_SEGMENT,
    MOOR__KIND_PIECE, /* a part of a range on its way out; never shown to hosts */
    MOOR__KIND_GRANT,
    MOOR__KIND_LEASE,
    MOOR__KIND_COUNT
};

/* The head of every object that has a handle. */
struct moor__slot {
    _Atomic uint64_t word; /* generation, live bit, pins */
    uint32_t index;
    _Atomic uint32_t next_free;
};

#define MOOR__HANDLE_CHUNKS 16 /* chunk k holds 64 << k slots: 4,194,240 in all */
#define MOOR__TAG_BITS 16
#define MOOR__TAG_MAX ((1u << MOOR__TAG_BITS) - 1) /* tags are never used again, so as many runtimes */

struct moor__handles {
    enum moor__kind kind;
    uint32_t tag;
    size_t slot_bytes;
    _Atomic uint64_t free_head; /* ABA count:32 | index + 1:32 */
    pthread_mutex_t grow_lock;
    _Atomic uint32_t used; /* slots ever taken; written under grow_lock */
    _Atomic(char *) chunks[MOOR__HANDLE_CHUNKS];
};

/* slot_bytes: of the object that starts with a struct moor__slot. */
void moor__handles_init(struct moor__handles *handles, enum moor__kind kind, uint32_t tag, size_t slot_bytes);
/* No slot is in use any more. */
void moor__handles_finish(struct moor__handles *handles);

/* Takes a zeroed object, not yet visible. HOST_NOMEM, LIMIT. */
moor_status moor__handles_take(struct moor__handles *handles, struct moor__slot **ret_slot);
/* Its handle; valid from publication on. */
uint64_t moor__handles_name(const struct moor__handles *handles, const struct moor__slot *slot);
/* Makes the handle find it. */
void moor__handles_publish(struct moor__slot *slot);
/* Finds a live object and keeps it from being finished: STALE, FOREIGN or INVALID. */
moor_status moor__handles_pin(struct moor__handles *handles, uint64_t handle, struct moor__slot **ret_slot);
/* True: it was retired and this was the last pin; the caller finishes the object. */
bool moor__handles_unpin(struct moor__slot *slot);
/* Makes the handle stale; the caller holds a pin. STALE if somebody else was first. */
moor_status moor__handles_retire(struct moor__slot *slot);
/* Gives a retired slot without pins its next generation, to be published; false if there is none left. */
bool moor__handles_renew(struct moor__slot *slot);
/* Gives a slot back that is not live. */
void moor__handles_free(struct moor__handles *handles, struct moor__slot *slot);
/* A slot that is taken or retired and has this handle, or NULL: how completions find their object. */
struct moor__slot *moor__handles_find_retired(struct moor__handles *handles, uint64_t handle);

/* The kind that a handle claims to be. */
uint32_t moor__handle_kind(uint64_t handle);

#endif
