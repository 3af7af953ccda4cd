/* SPDX-License-Identifier: MIT */
/*
 * The structs behind memory.h. memory.c has the provider, the holder and the accounts; sequence.c the lifetime
 * of a sequence; mapped.c and eager.c make the blocks.
 */
#ifndef MOOR_REPLAY_SEQUENCE_H
#define MOOR_REPLAY_SEQUENCE_H

#include "replay/memory.h"
#include "replay/touch.h"

#include <moorage/moorage.h>
#include <pthread.h>

/* One way to make blocks. A NULL function is not needed there. */
struct replay_backend {
    const char *name;
    /* Returns the bytes that the provider takes for a block. Fails if the provider cannot make blocks this
     * way. */
    bool (*measure)(struct replay_memory *memory, uint64_t *ret_bytes, struct tool_failure *failure);
    /* Makes the place of all blocks of a sequence, and puts the hits into it. */
    bool (*place)(struct replay_sequence *sequence, struct tool_failure *failure);
    /* Makes blocks that the sequence owns, from its grant. Blocks made before a failure are released with the
     * sequence. */
    bool (*make)(struct replay_sequence *sequence, uint64_t first, uint64_t end,
                 struct tool_failure *failure);
    /* Returns a view of the first block and the adjacent ones before `end`. */
    bool (*view)(const struct replay_sequence *sequence, uint64_t first, uint64_t end,
                 struct moor_view *ret_view, struct tool_failure *failure);
    /* Makes the contents of a prompt block immutable. */
    bool (*seal)(struct replay_sequence *sequence, uint64_t block, struct tool_failure *failure);
    /* Removes a shared block from the sequence. */
    bool (*part)(struct replay_sequence *sequence, uint64_t block, struct tool_failure *failure);
    /* Releases a handle. 0 does nothing. */
    moor_status (*drop)(struct moor_runtime *runtime, replay_handle handle);
};

extern const struct replay_backend replay_mapped; /* mapped.c: needs VIRTUAL, and SHARED to share */
extern const struct replay_backend replay_eager;  /* eager.c: needs nothing */

struct replay_domain {
    struct moor_device *device;
    uint32_t index;
};

/* Large: every object that the replay has open. */
struct replay_memory {
    const struct replay_config *config;
    const struct replay_backend *backend;
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    struct moor_device *device;
    struct moor_abi_domain_info domain_info;
    uint32_t domain;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *decode;
    struct moor_stream *work; /* fills and copies of touched blocks */
    uint64_t footprint_bytes; /* bytes taken by one block */
    uint64_t capacity_blocks;
    struct replay_domain *pool; /* every domain of the provider on this authority */
    size_t pool_count;
    struct replay_toucher toucher;
    struct replay_sequence *sequences;
};

/* Blocks the decode stream until the simulation opens the gate. */
struct replay_gate {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    bool open;           /* guarded by mutex */
    pthread_t submitter; /* set before submission */
    bool ran_inline;     /* accessed by the submitting thread alone */
};

struct replay_sequence {
    struct replay_sequence *prev; /* list of the memory's sequences */
    struct replay_sequence *next;
    struct replay_memory *memory;
    struct replay_admission admission;
    replay_handle *handles; /* one per block; 0: not made yet, or committed in the range */
    bool *owned;            /* one per block: true if the block is released with the sequence */
    moor_grant grant;
    moor_range range;      /* virtual: one slot per block; 0: eager */
    struct moor_view view; /* view of the whole range */
    struct replay_gate gate;
    struct moor_fence fence;
    bool submitted; /* the gate is on the decode stream, the fence behind it */
};

/* Releases all sequences after a run that broke off. */
void replay_sequences_abandon(struct replay_memory *memory);

#endif
