/* SPDX-License-Identifier: MIT */
/*
 * What is behind memory.h. memory.c has the provider, the account and the books; seat.c the life of a
 * request's memory; mapped.c and eager.c the two ways to have blocks.
 */
#ifndef MOOR_REPLAY_SEAT_H
#define MOOR_REPLAY_SEAT_H

#include "replay/memory.h"
#include "replay/touch.h"

#include <moorage/moorage.h>
#include <pthread.h>

/* A way to have blocks. Functions that are NULL have nothing to do there. */
struct replay_backend {
    const char *name;
    /* What the provider takes for a block. Fails if it cannot make them. */
    bool (*measure)(struct replay_memory *memory, uint64_t *ret_bytes, struct tool_failure *failure);
    /* The place for all blocks of a seat, with the hits in it. */
    bool (*place)(struct replay_seat *seat, struct tool_failure *failure);
    /* Makes blocks of the seat's own, prompt blocks or others, from its grant. A part that was made before a
     * failure goes with the seat. */
    bool (*make)(struct replay_seat *seat, uint64_t first, uint64_t end, struct tool_failure *failure);
    /* From the first block on as many of those up to end as lie together. */
    bool (*view)(const struct replay_seat *seat, uint64_t first, uint64_t end, struct moor_view *ret_view,
                 struct tool_failure *failure);
    /* From here on the contents of a prompt block do not change. */
    bool (*seal)(struct replay_seat *seat, uint64_t block, struct tool_failure *failure);
    /* Takes a block that is somebody else's out of the seat's place. */
    bool (*part)(struct replay_seat *seat, uint64_t block, struct tool_failure *failure);
    /* Gives up a handle. 0 is a no-op. */
    moor_status (*drop)(struct moor_runtime *runtime, replay_handle handle);
};

extern const struct replay_backend replay_mapped; /* mapped.c: needs VIRTUAL, and SHARED to share */
extern const struct replay_backend replay_eager;  /* eager.c: needs nothing */

struct replay_domain {
    struct moor_device *device;
    uint32_t index;
};

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
    uint64_t footprint_bytes; /* of a block */
    uint64_t capacity_blocks;
    struct replay_domain *pool; /* every domain of the provider on this authority */
    size_t pool_count;
    struct replay_toucher toucher;
    struct replay_seat *seats;
};

/* Holds the decode stream until the simulation opens it. */
struct replay_gate {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    bool open;           /* mutex */
    pthread_t submitter; /* set before submission */
    bool ran_inline;     /* written by the submitting thread alone */
};

struct replay_seat {
    struct replay_seat *prev; /* all seats of the memory */
    struct replay_seat *next;
    struct replay_memory *memory;
    struct replay_admission admission;
    replay_handle *handles; /* of each block; 0: it is not there yet, or is backed in the range itself */
    bool *owned;            /* of each block: it goes with the seat; not so what is shared */
    moor_grant grant;
    moor_range range;      /* virtual: one slot per block; else 0 */
    struct moor_view view; /* of the whole range */
    struct replay_gate gate;
    struct moor_fence fence;
    bool submitted; /* the gate is on the decode stream, the fence behind it */
};

/* After a run that broke off: gives up all seats. */
void replay_seats_abandon(struct replay_memory *memory);

#endif
