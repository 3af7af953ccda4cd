/* SPDX-License-Identifier: MIT */
/* The simulation: replay model R1 over real memory. */
#ifndef MOOR_REPLAY_MODEL_H
#define MOOR_REPLAY_MODEL_H

#include "replay/config.h"
#include "replay/memory.h"
#include "replay/trace.h"

/* What happened. Counts of blocks come from the model's own books, never from the library's. */
struct replay_counts {
    uint64_t rows;
    uint64_t done;
    uint64_t reject;
    uint64_t share;      /* shared blocks mapped */
    uint64_t new_blocks; /* made: = evict + freed + resident_end */
    uint64_t evict;
    uint64_t grow;
    uint64_t freed;
    uint64_t resident_end;
    uint64_t peak_used;    /* reserved or committed */
    uint64_t peak_active;  /* used, without cached blocks that nobody references */
    uint64_t peak_commit;  /* physically there, cached and pending ones included */
    uint64_t peak_pending; /* see finish() in model.c */
    uint64_t max_live;
    double wait_mean_s; /* from arrival to start, of those that started */
    double wait_p99_s;
    double makespan_s; /* time of the last event */
};

/* Runs the whole trace, then gives back what the prefix index retained. ret_books: the samples up to the last
 * event; out of balance is no failure here. */
bool replay_model_run(const struct replay_config *config, const struct replay_trace *trace,
                      struct replay_memory *memory, struct replay_counts *ret_counts,
                      struct replay_books *ret_books, struct tool_failure *failure);

#endif
