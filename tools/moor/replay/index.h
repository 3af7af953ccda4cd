/* SPDX-License-Identifier: MIT */
/*
 * The prefix index: published blocks by identity with a reference count, and the unreferenced ones in the
 * order of their last use.
 */
#ifndef MOOR_REPLAY_INDEX_H
#define MOOR_REPLAY_INDEX_H

#include "hash.h"
#include "replay/memory.h"

struct replay_block {
    int64_t id;
    uint64_t references;       /* requests that use the block; 0: evictable, and in the list */
    replay_handle handle;      /* memory of the block, owned by the index */
    struct replay_block *prev; /* in the list of evictable blocks */
    struct replay_block *next;
    UT_hash_handle hh;
};

struct replay_index {
    struct replay_block *blocks;    /* by id */
    struct replay_block *evictable; /* the longest unused first */
    uint64_t resident_count;
    uint64_t evictable_count;
};

/* Returns NULL if the block is not resident. */
struct replay_block *replay_index_find(struct replay_index *index, int64_t id);
/* Adds a block with one reference. Requires that the id is not in the index. */
struct replay_block *replay_index_add(struct replay_index *index, int64_t id, replay_handle handle);
void replay_index_reference(struct replay_index *index, struct replay_block *block);
/* Drops a reference. After the last one the block is the youngest evictable block. */
void replay_index_unreference(struct replay_index *index, struct replay_block *block);
/* Removes an evictable block and frees the entry. The caller owns the returned handle. */
replay_handle replay_index_remove(struct replay_index *index, struct replay_block *block);
/* Frees all entries. Requires that their handles have been released. */
void replay_index_finish(struct replay_index *index);

#endif
