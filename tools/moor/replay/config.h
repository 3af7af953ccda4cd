/* SPDX-License-Identifier: MIT */
/* The options of a replay. */
#ifndef MOOR_REPLAY_CONFIG_H
#define MOOR_REPLAY_CONFIG_H

#include "tool.h"

/* The memory of a block. */
enum replay_mode {
    REPLAY_AUTO,    /* REPLAY_VIRTUAL where the provider has VIRTUAL */
    REPLAY_VIRTUAL, /* granules of a range */
    REPLAY_EAGER,   /* one buffer per block */
};

/* The sharing of blocks. */
enum replay_policy {
    REPLAY_NONE,   /* no block is shared */
    REPLAY_LIVE,   /* prompt blocks are shared while a request uses them */
    REPLAY_RETAIN, /* and remain cached until their memory is needed */
};

/* The part of each new block that is written, and read back where the block is shared. */
enum replay_touch {
    REPLAY_TOUCH_NONE,
    REPLAY_TOUCH_PAGE, /* the first 4 KiB */
    REPLAY_TOUCH_FULL,
};

/* Bounds that keep simulated microseconds far below the end of 64 bits. */
#define REPLAY_STEP_US_MAX UINT64_C(10000000) /* per token, and for a fence */
#define REPLAY_SCALE_MAX 1000.0
#define REPLAY_ROWS_MAX (UINT64_C(1) << 24)
#define REPLAY_BLOCK_TOKENS_MAX (UINT64_C(1) << 20)

/* Large: one field per option. */
struct replay_config {
    char **traces; /* [borrowed] from argv */
    size_t trace_count;
    const char *provider;
    struct tool_settings settings;
    enum replay_mode mode;
    enum replay_policy policy;
    enum replay_touch touch;
    uint64_t capacity_bytes; /* 0: capacity_blocks is set instead */
    uint64_t capacity_blocks;
    uint64_t kv_bytes_per_token;
    uint64_t block_tokens;
    uint64_t block_bytes;
    uint64_t rows_max; /* limit for all traces together */
    double scale;
    uint64_t prefill_us; /* per token */
    uint64_t decode_us;  /* per token */
    uint64_t fence_us;
    bool generate;
    uint64_t generate_rows;
    uint64_t generate_seed;
    const char *generate_out; /* NULL: the generated trace is replayed without being written */
    bool json;
};

/* Fills config from the command line. Returns false, with a usage failure, if the options are invalid. */
bool replay_config_parse(int argc, char **argv, bool json, struct replay_config *config,
                         struct tool_failure *failure);
void replay_config_finish(struct replay_config *config);

const char *replay_policy_name(enum replay_policy policy);

#endif
