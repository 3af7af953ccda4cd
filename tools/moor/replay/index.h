/* SPDX-License-Identifier: MIT */
/*
 * The prefix index: published blocks by identity, with the requests that use each counted, and the unused
 * ones in the order in which they fell out of use.
 */
#ifndef MOOR_REPLAY_INDEX_H
#define MOOR_REPLAY_INDEX_H

#include "hash.h"
#include "replay/memory.h"

struct replay_block {
    int64_t id;
    uint64_t references;       /* requests that have it mapped; 0: evictable, and in the list */
    replay_handle handle;      /* its memory, which the index owns */
    struct replay_block *prev; /* in the list of evictable blocks */
    struct replay_block *next;
    UT_hash_handle hh;
};

struct replay_index {
    struct replay_block *blocks;    /* by id */
    struct replay_block *evictable; /* the oldest first */
    uint64_t resident_count;
    uint64_t evictable_count;
};

/* NULL if it is not resident. */
struct replay_block *replay_index_find(struct replay_index *index, int64_t id);
/* A new block with one reference. The id is not in the index. */
struct replay_block *replay_index_add(struct replay_index *index, int64_t id, replay_handle handle);
void replay_index_reference(struct replay_index *index, struct replay_block *block);
/* The last reference makes it the youngest evictable block. */
void replay_index_unreference(struct replay_index *index, struct replay_block *block);
/* Takes an evictable block out and frees the entry; its handle becomes the caller's. */
replay_handle replay_index_remove(struct replay_index *index, struct replay_block *block);
/* Frees all entries, whatever their references. The handles must be gone already. */
void replay_index_finish(struct replay_index *index);

#endif
