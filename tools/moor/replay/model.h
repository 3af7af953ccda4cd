/* SPDX-License-Identifier: MIT */
/* The simulation: replay model R1 over real memory. */
#ifndef MOOR_REPLAY_MODEL_H
#define MOOR_REPLAY_MODEL_H

#include "replay/config.h"
#include "replay/memory.h"
#include "replay/trace.h"

/* Large: the figures of the report. Counts of blocks come from the model's own accounts, never from the
 * library. */
struct replay_counts {
    uint64_t rows;
    uint64_t done;
    uint64_t reject;
    uint64_t share;      /* shared blocks mapped */
    uint64_t new_blocks; /* blocks made: evict + freed + resident_end */
    uint64_t evict;
    uint64_t grow;
    uint64_t freed;
    uint64_t resident_end;
    uint64_t peak_used;    /* reserved or committed */
    uint64_t peak_active;  /* used, without unreferenced cached blocks */
    uint64_t peak_commit;  /* committed blocks, cached and pending ones included */
    uint64_t peak_pending; /* see finish() in model.c */
    uint64_t max_live;
    double wait_mean_s; /* from arrival to start, over started requests */
    double wait_p99_s;
    double makespan_s; /* time of the last event */
};

/* Replays the whole trace, then releases the blocks of the prefix index. ret_accounts: the comparisons up to
 * the last event; an imbalance is not a failure here. */
bool replay_model_run(const struct replay_config *config, const struct replay_trace *trace,
                      struct replay_memory *memory, struct replay_counts *ret_counts,
                      struct replay_accounts *ret_accounts, struct tool_failure *failure);

#endif
