/* SPDX-License-Identifier: MIT */
/*
 * Generates a trace like the Mooncake conversation trace from that trace's published statistics alone: 12,031
 * requests in 3,537 s arriving in batches 3 s apart; input tokens mean 12,035, median 6,909, 90 % below
 * 27,367, 99 % below 85,401, at most 126,195; output tokens mean 343, median 350, 99 % below 1,120, at most
 * 2,000; block 0 common to all, 63 % of blocks new, 37 % of tokens a prefix seen before.
 *
 * Lengths are drawn by inverse transform: the published quantiles are knots of a distribution function that
 * is linear between them. The other knots are chosen to give the published means. A request continues an
 * earlier conversation with a fixed chance: its prefix is all full blocks of an earlier, shorter request, the
 * longest of a few candidates, and it replaces that conversation. Otherwise it shares block 0.
 *
 * All arithmetic uses whole numbers, so a seed gives the same trace on every machine.
 */
#include "replay/config.h"
#include "replay/trace.h"
#include "tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_MS 3000
#define BATCH_REQUESTS_MIN 4
#define BATCH_REQUESTS_MAX 16 /* 10, and sometimes one more: mean 10.2 */
#define BATCH_EXTRA_PER_1000 200
#define CONVERSATIONS_MAX 512 /* conversations that can be continued */
#define CONTINUE_PER_1000 510
#define CANDIDATES 12

struct knot {
    uint32_t per_mille; /* share of requests of at most this length */
    uint32_t tokens;
};

static const struct knot input_knots[] = {{0, 890},     {250, 2900},  {500, 6909},  {750, 13200},
                                          {900, 27367}, {970, 47000}, {990, 85401}, {1000, 126195}};
static const struct knot output_knots[] = {{0, 1},     {200, 30},   {500, 350},  {800, 520},
                                           {950, 760}, {990, 1120}, {1000, 2000}};

struct generator {
    uint64_t state;
    uint64_t block_tokens;
    int64_t next_id;
    size_t conversations[CONVERSATIONS_MAX]; /* row of the last request of each */
    size_t conversation_count;
};

/* SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
static uint64_t next_random(struct generator *generator)
{
    uint64_t z = generator->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Returns 0 to bound - 1. bound is far below 2^32, so the bias of the multiplication is below 2^-20. */
static uint64_t random_below(struct generator *generator, uint64_t bound)
{
    return ((next_random(generator) >> 32) * bound) >> 32;
}

static uint64_t draw_length(struct generator *generator, const struct knot *knots)
{
    uint64_t at = random_below(generator, 1000000); /* in millionths */
    size_t i = 1;
    while (at >= knots[i].per_mille * UINT64_C(1000))
        i++;
    uint64_t low = knots[i - 1].per_mille * UINT64_C(1000);
    uint64_t width = knots[i].per_mille * UINT64_C(1000) - low;
    return knots[i - 1].tokens + (knots[i].tokens - knots[i - 1].tokens) * (at - low) / width;
}

/* Returns the conversation to continue by a request of that many tokens, or CONVERSATIONS_MAX for a new
 * one. */
static size_t pick_conversation(struct generator *generator, const struct replay_trace *trace,
                                uint64_t input_tokens)
{
    size_t best = CONVERSATIONS_MAX;
    uint64_t best_tokens = 0;
    if (generator->conversation_count == 0 || random_below(generator, 1000) >= CONTINUE_PER_1000)
        return best;
    for (int i = 0; i < CANDIDATES; i++) {
        size_t candidate = random_below(generator, generator->conversation_count);
        uint64_t tokens = trace->requests[generator->conversations[candidate]].input_tokens;
        if (tokens < input_tokens && tokens > best_tokens) {
            best = candidate;
            best_tokens = tokens;
        }
    }
    return best;
}

static void remember(struct generator *generator, size_t row, size_t continued)
{
    if (continued == CONVERSATIONS_MAX)
        continued = generator->conversation_count < CONVERSATIONS_MAX
                        ? generator->conversation_count++
                        : (size_t)random_below(generator, CONVERSATIONS_MAX);
    generator->conversations[continued] = row;
}

static void add_request(struct generator *generator, struct replay_trace *trace, int64_t timestamp_ms)
{
    size_t row = trace->request_count;
    uint64_t input_tokens = draw_length(generator, input_knots);
    uint64_t output_tokens = draw_length(generator, output_knots);
    size_t continued = pick_conversation(generator, trace, input_tokens);
    size_t id_count = (size_t)((input_tokens + generator->block_tokens - 1) / generator->block_tokens);
    struct replay_request *request = replay_trace_append(trace, id_count);
    request->timestamp_ms = timestamp_ms;
    request->input_tokens = input_tokens;
    request->output_tokens = output_tokens;

    int64_t *ids = trace->ids + request->first_id;
    size_t shared = 0;
    if (continued != CONVERSATIONS_MAX) {
        const struct replay_request *earlier = &trace->requests[generator->conversations[continued]];
        shared = (size_t)(earlier->input_tokens / generator->block_tokens);
        memcpy(ids, trace->ids + earlier->first_id, shared * sizeof *ids);
    }
    if (shared == 0)
        ids[shared++] = 0; /* the block of the system prompt; every request has one block at least */
    for (size_t i = shared; i < id_count; i++)
        ids[i] = generator->next_id++;
    remember(generator, row, continued);
}

void replay_trace_generate(const struct replay_config *config, struct replay_trace *ret_trace)
{
    struct generator *generator = tool_allocate(1, sizeof *generator);
    struct replay_trace trace = {0};
    uint64_t rows = config->generate_rows < config->rows_max ? config->generate_rows : config->rows_max;
    *generator = (struct generator){
        .state = config->generate_seed, .block_tokens = config->block_tokens, .next_id = 1};
    for (int64_t timestamp_ms = 0; trace.request_count < rows; timestamp_ms += BATCH_MS) {
        uint64_t batch = BATCH_REQUESTS_MIN +
                         random_below(generator, BATCH_REQUESTS_MAX - BATCH_REQUESTS_MIN + 1) +
                         (random_below(generator, 1000) < BATCH_EXTRA_PER_1000);
        for (uint64_t i = 0; i < batch && trace.request_count < rows; i++)
            add_request(generator, &trace, timestamp_ms);
    }
    free(generator);
    *ret_trace = trace;
}

bool replay_trace_write(const struct replay_trace *trace, const char *path, struct tool_failure *failure)
{
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return tool_fail(failure, TOOL_FAILED, MOOR_INVALID, "%s: %s", path, strerror(errno));
    for (size_t row = 0; row < trace->request_count; row++) {
        const struct replay_request *request = &trace->requests[row];
        fprintf(file,
                "{\"timestamp\": %" PRId64 ", \"input_length\": %" PRIu64 ", \"output_length\": %" PRIu64
                ", \"hash_ids\": [",
                request->timestamp_ms, request->input_tokens, request->output_tokens);
        for (size_t i = 0; i < request->id_count; i++)
            fprintf(file, "%s%" PRId64, i > 0 ? ", " : "", trace->ids[request->first_id + i]);
        fprintf(file, "]}\n");
    }
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed)
        return tool_fail(failure, TOOL_FAILED, MOOR_INVALID, "%s: cannot be written", path);
    return true;
}
