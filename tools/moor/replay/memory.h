/* SPDX-License-Identifier: MIT */
/*
 * The memory of a replay: what an LLM server would do with Moorage, on the public host API alone.
 *
 * One holder of role KV on the pool of the first device, one binding, one decode stream. A seat is one
 * request's memory: a reserved range of one slot per block. Functions return false with a failure when the
 * library refuses what the model says must work; the run is over then, and replay_memory_close() still gives
 * everything back.
 */
#ifndef MOOR_REPLAY_MEMORY_H
#define MOOR_REPLAY_MEMORY_H

#include "replay/config.h"

#include <moorage/memory.h>

struct replay_memory;
struct replay_seat;
struct tool_failure;

/* Loads the provider and opens everything; capacity is set to config->capacity_blocks. config: [borrowed]
 * until close. ret_memory: [out, owned]. */
bool replay_memory_open(const struct replay_config *config, struct replay_memory **ret_memory,
                        struct tool_failure *failure);
/* Gives up seats that are left, then everything else; with a failure if something would not go. Segments that
 * were handed out must have been dropped. NULL is a no-op. */
bool replay_memory_close(struct replay_memory *memory, struct tool_failure *failure);

/* What a request starts with. */
struct replay_admission {
    uint64_t row;
    uint64_t total_blocks;  /* in the end; not 0 */
    uint64_t prompt_blocks; /* at once */
    uint64_t hit_blocks;    /* of the prompt's, shared from hit_segments */
    const moor_segment *hit_segments;
    const int64_t *ids; /* [borrowed] until the seat has gone; identities of the first id_count blocks */
    uint64_t id_count;
};

/* Reserves addresses, maps the hits, reserves what is needed to the end with the governor, and makes the
 * other prompt blocks: shareable ones unless the policy is none. ret_seat: [out, owned] until
 * replay_seat_leave. */
bool replay_seat_start(struct replay_memory *memory, const struct replay_admission *admission,
                       struct replay_seat **ret_seat, struct tool_failure *failure);
/* Backs one more block, from what was reserved. */
bool replay_seat_grow(struct replay_seat *seat, uint64_t block, struct tool_failure *failure);
/* Makes one of the seat's own prompt blocks shareable. ret_segment: [out, owned] until replay_memory_drop;
 * the seat keeps it mapped. */
bool replay_seat_publish(struct replay_seat *seat, uint64_t block, moor_segment *ret_segment,
                         struct tool_failure *failure);
/* The request is done. Blocks with leaving[i] stay behind the decode fence, and so are pending; the others
 * are somebody else's too and are only unmapped. The fence passes at replay_seat_leave. */
bool replay_seat_finish(struct replay_seat *seat, const bool *leaving, struct tool_failure *failure);
/* Lets the decode fence pass: what was behind it is back when this returns. Frees the seat. */
bool replay_seat_leave(struct replay_seat *seat, struct tool_failure *failure);

/* Gives up a published block. */
bool replay_memory_drop(struct replay_memory *memory, moor_segment segment, struct tool_failure *failure);
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

/* Compares the books with the model's bytes; a difference is kept in books and is no failure. */
bool replay_memory_sample(struct replay_memory *memory, uint64_t expected_bytes, struct replay_books *books,
                          struct tool_failure *failure);

#endif
