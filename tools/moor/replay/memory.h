/* SPDX-License-Identifier: MIT */
/*
 * The memory of a replay: an LLM server's use of Moorage through the public host API alone.
 *
 * The replay has one holder of role KV on the pool of the first device, one binding, and one decode stream. A
 * sequence is the memory of one request, block by block. Blocks are made in one of two ways: in a reserved
 * range of addresses into which shared blocks are mapped (virtual), or as one buffer each (eager), for hosts
 * without virtual memory. The counts are the same in both.
 *
 * Functions return false with a failure when the library refuses a call that must succeed by the model. The
 * run is over then, and replay_memory_close() still releases everything.
 */
#ifndef MOOR_REPLAY_MEMORY_H
#define MOOR_REPLAY_MEMORY_H

#include "replay/config.h"

#include <moorage/memory.h>

struct replay_memory;
struct replay_sequence;
struct tool_failure;

/* The memory of a shared block: a moor_segment (virtual) or a moor_buffer (eager). */
typedef uint64_t replay_handle;

/* Loads the provider and opens all objects. config: [borrowed] until close. ret_memory: [out, owned]. */
bool replay_memory_open(const struct replay_config *config, struct replay_memory **ret_memory,
                        struct tool_failure *failure);
/* Releases the remaining sequences and all objects; sets a failure if an object could not be released.
 * Requires that published handles have been dropped or taken back. NULL does nothing. */
bool replay_memory_close(struct replay_memory *memory, struct tool_failure *failure);

/* The parameters of the replay on this provider. */
struct replay_terms {
    const char *mode;         /* "virtual" or "eager" */
    uint64_t footprint_bytes; /* bytes that the provider takes for a block */
    uint64_t capacity_blocks; /* blocks that fit into the capacity */
};
struct replay_terms replay_memory_get_terms(const struct replay_memory *memory);

/* The demand of a new request. */
struct replay_admission {
    uint64_t row;
    uint64_t total_blocks;            /* at its end; not 0 */
    uint64_t prompt_blocks;           /* at its start */
    uint64_t hit_blocks;              /* shared prompt blocks: hit_handles */
    const replay_handle *hit_handles; /* [borrowed] for the call */
    const int64_t *ids; /* [borrowed] until replay_sequence_end; identities of the first id_count blocks */
    uint64_t id_count;
};

/* Adds the hits, reserves the bytes that the request needs until its end, and makes the other prompt blocks,
 * shareable unless the policy is none. ret_sequence: [out, owned] until replay_sequence_end. */
bool replay_sequence_start(struct replay_memory *memory, const struct replay_admission *admission,
                           struct replay_sequence **ret_sequence, struct tool_failure *failure);
/* Makes one more block from the reservation. */
bool replay_sequence_grow(struct replay_sequence *sequence, uint64_t block, struct tool_failure *failure);
/* Makes one of the sequence's own prompt blocks shareable. ret_handle: [out, owned] until it is dropped or
 * taken back; the sequence continues to use the block. */
bool replay_sequence_publish(struct replay_sequence *sequence, uint64_t block, replay_handle *ret_handle,
                             struct tool_failure *failure);
/* Returns a published block to the sequence, its only user: the block is released with the sequence. */
void replay_sequence_take_back(struct replay_sequence *sequence, uint64_t block, replay_handle handle);
/* Ends a request: shared blocks leave the sequence, and its own blocks are released behind the decode fence,
 * so they are pending. The fence passes in replay_sequence_end. */
bool replay_sequence_finish(struct replay_sequence *sequence, struct tool_failure *failure);
/* Lets the decode fence pass, and returns when the memory behind it is free. Frees the sequence. */
bool replay_sequence_end(struct replay_sequence *sequence, struct tool_failure *failure);

/* Releases a published block that no sequence uses. */
bool replay_memory_drop(struct replay_memory *memory, replay_handle handle, struct tool_failure *failure);
/* Reaps the due releases without waiting. */
bool replay_memory_reap(struct replay_memory *memory, struct tool_failure *failure);

/* The held bytes by three sources, compared with the model. */
struct replay_accounts {
    uint64_t ledger_bytes;
    uint64_t provider_bytes;
    uint64_t kernel_bytes;
    bool has_provider; /* the provider reports held_bytes */
    bool has_kernel;   /* the provider reports system_held_bytes */
    uint64_t samples;
    bool balanced;      /* true if every sample was */
    char mismatch[256]; /* the first unbalanced sample */
};

/* Compares the accounts with the model's blocks. A difference is recorded in ret_accounts and is not a
 * failure. */
bool replay_memory_sample(struct replay_memory *memory, uint64_t expected_blocks,
                          struct replay_accounts *accounts, struct tool_failure *failure);

#endif
