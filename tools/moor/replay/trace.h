/* SPDX-License-Identifier: MIT */
/* A request trace in memory, checked completely before the replay starts. */
#ifndef MOOR_REPLAY_TRACE_H
#define MOOR_REPLAY_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPLAY_TIMESTAMP_MS_MAX INT64_C(1000000000000) /* 31 years */
#define REPLAY_TOKENS_MAX INT64_C(0x7fffffff)
/* within a file; the bits above hold the file's number */
#define REPLAY_BLOCK_ID_MAX ((INT64_C(1) << 44) - 1)
#define REPLAY_FILES_MAX (1 << 18)

struct replay_request {
    int64_t timestamp_ms;
    uint64_t input_tokens;
    uint64_t output_tokens;
    size_t first_id; /* index into the trace's ids */
    size_t id_count; /* ceil(input_tokens / block_tokens) */
};

struct replay_trace {
    struct replay_request *requests; /* file after file, each in order of time */
    size_t request_count;
    size_t request_capacity;
    int64_t *ids; /* block identities: an equal id means an equal prefix */
    size_t id_count;
    size_t id_capacity;
};

struct replay_config;
struct tool_failure;

/* Reads and checks all files of the command line, up to config->rows_max requests. The failure names file,
 * line, event and reason. ret_trace: [out, owned]. */
bool replay_trace_read(const struct replay_config *config, struct replay_trace *ret_trace,
                       struct tool_failure *failure);
/* generate.c: generates a trace like the Mooncake conversation trace. */
void replay_trace_generate(const struct replay_config *config, struct replay_trace *ret_trace);
/* generate.c: writes a trace as Mooncake .jsonl. */
bool replay_trace_write(const struct replay_trace *trace, const char *path, struct tool_failure *failure);

/* Appends a request with room for id_count ids, and sets its id fields. */
struct replay_request *replay_trace_append(struct replay_trace *trace, size_t id_count);
void replay_trace_finish(struct replay_trace *trace);

#endif
