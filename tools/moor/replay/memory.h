/* SPDX-License-Identifier: MIT */
/*
 * The memory of a replay: what an LLM server would do with Moorage, on the public host API alone.
 *
 * One holder of role KV on the pool of the first device, one binding, one decode stream. A seat is one
 * request's memory, block by block. There are two ways to have blocks: in one reserved range of addresses,
 * with shared ones mapped into it (virtual), or each as a buffer of its own (eager), as a host without
 * virtual memory has them. What is counted is the same in both.
 *
 * Functions return false with a failure when the library refuses what the model says must work; the run is
 * over then, and replay_memory_close() still gives everything back.
 */
#ifndef MOOR_REPLAY_MEMORY_H
#define MOOR_REPLAY_MEMORY_H

#include "replay/config.h"

#include <moorage/memory.h>

struct replay_memory;
struct replay_seat;
struct tool_failure;

/* The memory of a block, for those who share it: a moor_segment (virtual) or a moor_buffer (eager). */
typedef uint64_t replay_handle;

/* Loads the provider and opens everything. config: [borrowed] until close. ret_memory: [out, owned]. */
bool replay_memory_open(const struct replay_config *config, struct replay_memory **ret_memory,
                        struct tool_failure *failure);
/* Gives up seats that are left, then everything else; with a failure if something would not go. Handles that
 * were published must have been dropped or taken back. NULL is a no-op. */
bool replay_memory_close(struct replay_memory *memory, struct tool_failure *failure);

/* What has become of the configuration on this provider. */
struct replay_terms {
    const char *mode;         /* "virtual" or "eager" */
    uint64_t footprint_bytes; /* what the provider takes for a block */
    uint64_t capacity_blocks; /* that fit into the capacity, by their footprint */
};
struct replay_terms replay_memory_get_terms(const struct replay_memory *memory);

/* What a request starts with. */
struct replay_admission {
    uint64_t row;
    uint64_t total_blocks;            /* in the end; not 0 */
    uint64_t prompt_blocks;           /* at once */
    uint64_t hit_blocks;              /* of the prompt's, shared: hit_handles */
    const replay_handle *hit_handles; /* [borrowed] for the call */
    const int64_t *ids; /* [borrowed] until the seat has gone; identities of the first id_count blocks */
    uint64_t id_count;
};

/* Takes the hits in, reserves what is needed to the end with the governor, and makes the other prompt blocks:
 * shareable ones unless the policy is none. ret_seat: [out, owned] until replay_seat_leave. */
bool replay_seat_start(struct replay_memory *memory, const struct replay_admission *admission,
                       struct replay_seat **ret_seat, struct tool_failure *failure);
/* Makes one more block, from what was reserved. */
bool replay_seat_grow(struct replay_seat *seat, uint64_t block, struct tool_failure *failure);
/* Makes one of the seat's own prompt blocks shareable. ret_handle: [out, owned] until it is dropped or taken
 * back; the seat goes on using it. */
bool replay_seat_publish(struct replay_seat *seat, uint64_t block, replay_handle *ret_handle,
                         struct tool_failure *failure);
/* Makes a published block that this seat alone still uses its own again: it goes when the seat goes. */
void replay_seat_take_back(struct replay_seat *seat, uint64_t block, replay_handle handle);
/* The request is done: its own blocks stay behind the decode fence, and so are pending; of those that are
 * somebody else's it lets go. The fence passes at replay_seat_leave. */
bool replay_seat_finish(struct replay_seat *seat, struct tool_failure *failure);
/* Lets the decode fence pass: what was behind it is back when this returns. Frees the seat. */
bool replay_seat_leave(struct replay_seat *seat, struct tool_failure *failure);

/* Gives up a published block that no seat uses. */
bool replay_memory_drop(struct replay_memory *memory, replay_handle handle, struct tool_failure *failure);
/* Takes back what is due without waiting. */
bool replay_memory_settle(struct replay_memory *memory, struct tool_failure *failure);

/* The three books, and what the model says. */
struct replay_books {
    uint64_t ledger_bytes;
    uint64_t provider_bytes;
    uint64_t kernel_bytes;
    bool has_provider; /* the provider tells what it holds */
    bool has_kernel;   /* the operating system tells it too */
    uint64_t samples;
    bool balanced;      /* in all samples */
    char mismatch[256]; /* the first sample that was out of balance */
};

/* Compares the books with the model's blocks; a difference is kept in books and is no failure. */
bool replay_memory_sample(struct replay_memory *memory, uint64_t expected_blocks, struct replay_books *books,
                          struct tool_failure *failure);

#endif
