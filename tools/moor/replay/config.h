/* SPDX-License-Identifier: MIT */
/* What a replay is asked to do, as the command line gave it. */
#ifndef MOOR_REPLAY_CONFIG_H
#define MOOR_REPLAY_CONFIG_H

#include "tool.h"

/* How blocks are had. */
enum replay_mode {
    REPLAY_AUTO,    /* virtual where the provider can */
    REPLAY_VIRTUAL, /* in ranges of addresses */
    REPLAY_EAGER,   /* each as a buffer */
};

/* Which blocks are shared, and how long. */
enum replay_policy {
    REPLAY_NONE,   /* nothing is shared */
    REPLAY_LIVE,   /* prompt blocks are shared while a request uses them */
    REPLAY_RETAIN, /* and stay until the room is needed */
};

/* How much of each new block is written, and read back where it is shared. */
enum replay_touch {
    REPLAY_TOUCH_NONE,
    REPLAY_TOUCH_PAGE, /* its first 4 KiB */
    REPLAY_TOUCH_FULL,
};

/* Bounds that keep simulated time, in microseconds, far from the end of 64 bits. */
#define REPLAY_STEP_US_MAX UINT64_C(10000000) /* per token, and of a fence */
#define REPLAY_SCALE_MAX 1000.0
#define REPLAY_ROWS_MAX (UINT64_C(1) << 24)
#define REPLAY_BLOCK_TOKENS_MAX (UINT64_C(1) << 20)

struct replay_config {
    char **traces; /* [borrowed] the command line */
    size_t trace_count;
    const char *provider;
    struct tool_settings settings;
    enum replay_mode mode;
    enum replay_policy policy;
    enum replay_touch touch;
    uint64_t capacity_bytes; /* 0: capacity_blocks was given */
    uint64_t capacity_blocks;
    uint64_t kv_bytes_per_token;
    uint64_t block_tokens;
    uint64_t block_bytes;
    uint64_t rows_max; /* of all traces together */
    double scale;
    uint64_t prefill_us; /* per token */
    uint64_t decode_us;  /* per token */
    uint64_t fence_us;
    bool generate;
    uint64_t generate_rows;
    uint64_t generate_seed;
    const char *generate_out; /* NULL: the generated trace is only replayed */
    bool json;
};

/* Fills config from the command line. False, with a usage failure, if it makes no sense. */
bool replay_config_parse(int argc, char **argv, bool json, struct replay_config *config,
                         struct tool_failure *failure);
void replay_config_finish(struct replay_config *config);

const char *replay_policy_name(enum replay_policy policy);

#endif
