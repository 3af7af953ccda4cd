/* SPDX-License-Identifier: MIT */
/* The prefix index. A request unreferences its deepest block first, so the list holds a block before the
 * prefix blocks that it depends on. */
#include "replay/index.h"
#include "tool.h"

#include <assert.h>
#include <stdlib.h>
#include <utlist.h>

struct replay_block *replay_index_find(struct replay_index *index, int64_t id)
{
    struct replay_block *block = NULL;
    HASH_FIND(hh, index->blocks, &id, sizeof id, block);
    return block;
}

struct replay_block *replay_index_add(struct replay_index *index, int64_t id, replay_handle handle)
{
    struct replay_block *block = tool_allocate(1, sizeof *block);
    block->id = id;
    block->references = 1;
    block->handle = handle;
    HASH_ADD(hh, index->blocks, id, sizeof block->id, block);
    index->resident_count++;
    return block;
}

void replay_index_reference(struct replay_index *index, struct replay_block *block)
{
    if (block->references++ == 0) {
        DL_DELETE(index->evictable, block);
        index->evictable_count--;
    }
}

void replay_index_unreference(struct replay_index *index, struct replay_block *block)
{
    assert(block->references > 0);
    if (--block->references == 0) {
        DL_APPEND(index->evictable, block);
        index->evictable_count++;
    }
}

replay_handle replay_index_remove(struct replay_index *index, struct replay_block *block)
{
    replay_handle handle = block->handle;
    assert(block->references == 0);
    DL_DELETE(index->evictable, block);
    index->evictable_count--;
    HASH_DEL(index->blocks, block);
    index->resident_count--;
    free(block);
    return handle;
}

void replay_index_finish(struct replay_index *index)
{
    struct replay_block *block = NULL;
    struct replay_block *next = NULL;
    HASH_ITER(hh, index->blocks, block, next)
    {
        HASH_DEL(index->blocks, block);
        free(block);
    }
    *index = (struct replay_index){0};
}
