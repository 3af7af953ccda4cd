/* SPDX-License-Identifier: MIT */
/*
 * Reads Mooncake traces: JSON lines, plain or gzip, with LF or CRLF.
 *
 * Every property that a replay relies on is checked here, so that a bad line is reported before the provider
 * is loaded. The ids of one file form a trie: an id stands for a whole prefix, so it has the same parent
 * wherever it occurs. Two files do not share ids.
 */
#include "replay/trace.h"
#include "hash.h"
#include "replay/config.h"
#include "tool.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define LINE_BYTES_MAX (UINT64_C(64) << 20)
#define NO_PARENT (-1)

struct known_id {
    int64_t id; /* in the file */
    int64_t parent;
    uint64_t event; /* the last event that had it */
    UT_hash_handle hh;
};

struct reader {
    const struct replay_config *config;
    struct replay_trace *trace;
    struct tool_failure *failure;
    const char *path;
    int64_t id_base; /* added to the file's ids */
    gzFile file;
    char *line;
    size_t line_size;
    size_t line_capacity;
    bool line_ended; /* with a newline */
    uint64_t line_number;
    uint64_t event; /* counted from 1 */
    int64_t last_ms;
    struct known_id *known;
};

static bool refuse(struct reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(struct reader *reader, const char *format, ...)
{
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(reason, sizeof reason, format, arguments); /* cuts a longer text */
    va_end(arguments);
    return tool_fail(reader->failure, TOOL_BAD_INPUT, MOOR_INVALID, "%s:%" PRIu64 ": event %" PRIu64 ": %s",
                     reader->path, reader->line_number, reader->event, reason);
}

struct replay_request *replay_trace_append(struct replay_trace *trace, size_t id_count)
{
    if (trace->request_count == trace->request_capacity) {
        trace->request_capacity = 2 * trace->request_capacity + 1024;
        trace->requests = tool_reallocate(trace->requests, trace->request_capacity, sizeof *trace->requests);
    }
    /* Allocate also for a request without blocks: `ids` is never NULL once there is a request. */
    if (trace->id_capacity - trace->id_count < id_count || trace->id_capacity == 0) {
        trace->id_capacity = 2 * trace->id_capacity + id_count + 1024;
        trace->ids = tool_reallocate(trace->ids, trace->id_capacity, sizeof *trace->ids);
    }
    struct replay_request *request = &trace->requests[trace->request_count++];
    *request = (struct replay_request){.first_id = trace->id_count, .id_count = id_count};
    trace->id_count += id_count;
    return request;
}

void replay_trace_finish(struct replay_trace *trace)
{
    free(trace->requests);
    free(trace->ids);
    *trace = (struct replay_trace){0};
}

/* Reads the next line, without its end, into reader->line. Returns false at the end of the file or after a
 * failure. */
static bool read_line(struct reader *reader)
{
    reader->line_size = 0;
    reader->line_ended = false;
    int byte;
    while ((byte = gzgetc(reader->file)) != -1) {
        if (byte == '\n') {
            reader->line_ended = true;
            break;
        }
        if (reader->line_size == reader->line_capacity) {
            if (reader->line_capacity >= LINE_BYTES_MAX)
                return refuse(reader, "the line is longer than %" PRIu64 " bytes", (uint64_t)LINE_BYTES_MAX);
            reader->line_capacity = reader->line_capacity != 0 ? 2 * reader->line_capacity : 4096;
            reader->line = tool_reallocate(reader->line, reader->line_capacity, 1);
        }
        reader->line[reader->line_size++] = (char)byte;
    }
    int zlib_error = Z_OK;
    const char *text = gzerror(reader->file, &zlib_error);
    if (!reader->line_ended && zlib_error != Z_OK && zlib_error != Z_STREAM_END)
        return refuse(reader, "%s", zlib_error == Z_BUF_ERROR ? "truncated gzip stream" : text);
    if (reader->line_size > 0 && reader->line[reader->line_size - 1] == '\r')
        reader->line_size--;
    return reader->line_ended || reader->line_size > 0;
}

static bool line_is_blank(const struct reader *reader)
{
    for (size_t i = 0; i < reader->line_size; i++)
        if (strchr(" \t", reader->line[i]) == NULL || reader->line[i] == '\0')
            return false;
    return true;
}

/* Reads one whole number of the object, from 0 to max. */
static bool take_number(struct reader *reader, const json_t *object, const char *key, int64_t max,
                        int64_t *ret_value)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        return refuse(reader, "no '%s'", key);
    if (!json_is_integer(value))
        return refuse(reader, "'%s' is not a whole number", key);
    json_int_t number = json_integer_value(value);
    if (number < 0)
        return refuse(reader, "'%s' is negative: %" JSON_INTEGER_FORMAT, key, number);
    if (number > max)
        return refuse(reader, "'%s' is too large: %" JSON_INTEGER_FORMAT " is more than %" PRId64, key,
                      number, max);
    *ret_value = number;
    return true;
}

/* Compares an id with its earlier occurrences, and records it. */
static bool check_id(struct reader *reader, int64_t id, int64_t parent)
{
    struct known_id *known = NULL;
    HASH_FIND(hh, reader->known, &id, sizeof id, known);
    if (known == NULL) {
        known = tool_allocate(1, sizeof *known);
        *known = (struct known_id){.id = id, .parent = parent, .event = reader->event};
        HASH_ADD(hh, reader->known, id, sizeof known->id, known);
        return true;
    }
    if (known->event == reader->event)
        return refuse(reader, "id %" PRId64 " occurs twice in 'hash_ids'", id);
    if (known->parent != parent)
        return refuse(reader, "id %" PRId64 " follows %" PRId64 " here and %" PRId64 " before (-1: is first)",
                      id, parent, known->parent);
    known->event = reader->event;
    return true;
}

static bool take_ids(struct reader *reader, const json_t *object, uint64_t input_tokens)
{
    const json_t *list = json_object_get(object, "hash_ids");
    if (list == NULL)
        return refuse(reader, "no 'hash_ids'");
    if (!json_is_array(list))
        return refuse(reader, "'hash_ids' is not a list");
    uint64_t block_tokens = reader->config->block_tokens;
    uint64_t expected = (input_tokens + block_tokens - 1) / block_tokens;
    size_t count = json_array_size(list);
    if (count != expected)
        return refuse(reader, "%zu ids, but %" PRIu64 " tokens in blocks of %" PRIu64 " need %" PRIu64, count,
                      input_tokens, block_tokens, expected);
    struct replay_request *request = replay_trace_append(reader->trace, count);
    int64_t parent = NO_PARENT;
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        int64_t id = json_integer_value(value);
        if (!json_is_integer(value))
            return refuse(reader, "id %zu of 'hash_ids' is not a whole number", i + 1);
        if (id < 0 || id > REPLAY_BLOCK_ID_MAX)
            return refuse(reader, "id %" PRId64 " of 'hash_ids' is %s", id,
                          id < 0 ? "negative" : "too large");
        if (!check_id(reader, id, parent))
            return false;
        reader->trace->ids[request->first_id + i] = reader->id_base + id;
        parent = id;
    }
    return true;
}

static bool take_request(struct reader *reader, const json_t *object)
{
    int64_t timestamp_ms = 0;
    int64_t input_tokens = 0;
    int64_t output_tokens = 0;
    if (!json_is_object(object))
        return refuse(reader, "not an object");
    if (!take_number(reader, object, "timestamp", REPLAY_TIMESTAMP_MS_MAX, &timestamp_ms) ||
        !take_number(reader, object, "input_length", REPLAY_TOKENS_MAX, &input_tokens) ||
        !take_number(reader, object, "output_length", REPLAY_TOKENS_MAX, &output_tokens))
        return false;
    if (timestamp_ms < reader->last_ms)
        return refuse(reader, "out of order: %" PRId64 " ms after %" PRId64 " ms", timestamp_ms,
                      reader->last_ms);
    reader->last_ms = timestamp_ms;
    if (!take_ids(reader, object, (uint64_t)input_tokens))
        return false;
    struct replay_request *request = &reader->trace->requests[reader->trace->request_count - 1];
    request->timestamp_ms = timestamp_ms;
    request->input_tokens = (uint64_t)input_tokens;
    request->output_tokens = (uint64_t)output_tokens;
    return true;
}

static bool take_line(struct reader *reader)
{
    json_error_t error;
    json_t *object = json_loadb(reader->line, reader->line_size, JSON_REJECT_DUPLICATES, &error);
    if (object == NULL) {
        if (!reader->line_ended)
            return refuse(reader, "truncated last line");
        return refuse(reader, "not JSON: %s", error.text);
    }
    bool taken = take_request(reader, object);
    json_decref(object);
    return taken;
}

static void forget_ids(struct reader *reader)
{
    struct known_id *known = NULL;
    struct known_id *next = NULL;
    HASH_ITER(hh, reader->known, known, next)
    {
        HASH_DEL(reader->known, known);
        free(known);
    }
}

static void read_file(struct reader *reader)
{
    errno = 0;
    reader->file = gzopen(reader->path, "rbe");
    if (reader->file == NULL) {
        (void)tool_fail(reader->failure, TOOL_BAD_INPUT, MOOR_INVALID, "%s: %s", reader->path,
                        errno != 0 ? strerror(errno) : "cannot be opened");
        return;
    }
    (void)gzbuffer(reader->file, 1u << 17); /* a failure costs only speed */
    while (reader->trace->request_count < reader->config->rows_max) {
        reader->line_number++;
        reader->event++;
        if (!read_line(reader))
            break;
        if (line_is_blank(reader))
            reader->event--;
        else if (!take_line(reader))
            break;
    }
    (void)gzclose(reader->file); /* only read */
    free(reader->line);
    forget_ids(reader);
}

bool replay_trace_read(const struct replay_config *config, struct replay_trace *ret_trace,
                       struct tool_failure *failure)
{
    struct replay_trace trace = {0};
    if (config->trace_count > REPLAY_FILES_MAX)
        return tool_fail(failure, TOOL_USAGE, MOOR_LIMIT, "more than %d traces", REPLAY_FILES_MAX);
    for (size_t i = 0; i < config->trace_count && failure->exit_status == TOOL_DONE; i++) {
        struct reader reader = {
            .config = config,
            .trace = &trace,
            .failure = failure,
            .path = config->traces[i],
            .id_base = (int64_t)i * (REPLAY_BLOCK_ID_MAX + 1),
        };
        read_file(&reader);
    }
    if (failure->exit_status != TOOL_DONE) {
        replay_trace_finish(&trace);
        return false;
    }
    *ret_trace = trace;
    return true;
}
