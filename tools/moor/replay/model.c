/* SPDX-License-Identifier: MIT */
/*
 * Replay model R1.
 *
 * Requests arrive, queue, are prefilled one at a time, grow while they decode, and finish; their memory
 * returns one fence later. The model keeps its own accounts in blocks,
 *
 *     used = committed + reserved and not yet committed
 *     committed = private and shared blocks of live requests + cached blocks + pending blocks
 *
 * It takes every decision from them and carries each step out through memory.h. It never asks the library for
 * free memory: a disagreement between the two is an error that the run has found.
 */
#include "replay/model.h"
#include "replay/events.h"
#include "replay/index.h"
#include "tool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SAMPLE_EVENTS 500 /* events between two comparisons of the accounts */

/* A request between arrival and fence. */
struct run {
    int64_t arrival_us;
    int64_t prefill_done_us;
    uint64_t hit_blocks;
    uint64_t prompt_blocks;
    uint64_t total_blocks;
    uint64_t next_block;     /* the next block to add */
    uint64_t full_blocks;    /* prompt blocks that can be published */
    uint64_t leaving_blocks; /* blocks behind the decode fence */
    /* full_blocks entries: the index's block in this slot, or NULL if it is private */
    struct replay_block **shared;
    struct replay_sequence *sequence; /* NULL for a request without blocks */
};

/* Large: the queue, the accounts in blocks, the clock and the figures of one simulation. */
struct model {
    const struct replay_config *config;
    const struct replay_trace *trace;
    struct replay_memory *memory;
    struct tool_failure *failure;
    struct replay_counts counts;
    struct replay_accounts accounts;
    struct replay_events events;
    struct replay_index index;
    uint64_t capacity_blocks;
    struct run *runs; /* one per row */
    size_t *queue;    /* rows in order of arrival, of rows_max entries */
    size_t queue_head;
    size_t queue_tail;
    bool prefilling;
    uint64_t used_blocks;
    uint64_t committed_blocks;
    uint64_t pending_blocks;
    uint64_t live_requests;
    int64_t now_us;
    int64_t *waits_us; /* waits of started requests, one entry per row */
    size_t wait_count;
};

static void raise_to(uint64_t *peak, uint64_t value)
{
    if (value > *peak)
        *peak = value;
}

static uint64_t blocks_of(const struct model *model, uint64_t tokens)
{
    uint64_t block_tokens = model->config->block_tokens;
    return (tokens + block_tokens - 1) / block_tokens;
}

/* Adds an event. Simulated time is bounded, so the sum is checked. */
static bool schedule(struct model *model, int64_t start_us, uint64_t count, uint64_t step_us,
                     enum replay_event_kind kind, size_t row)
{
    int64_t delay_us = 0;
    int64_t time_us = 0;
    if (__builtin_mul_overflow(count, step_us, &delay_us) ||
        __builtin_add_overflow(start_us, delay_us, &time_us))
        return tool_fail(model->failure, TOOL_BAD_INPUT, MOOR_OVERFLOW,
                         "event %zu: simulated time does not fit", row + 1);
    replay_events_push(&model->events, time_us, kind, row);
    return true;
}

/* ---- start ---- */

/* Returns the number of resident blocks that the request can share: never its whole prompt, because at least
 * one token must be computed. */
static uint64_t count_hits(struct model *model, const struct replay_request *request, uint64_t full_blocks)
{
    uint64_t hits = 0;
    const int64_t *ids = model->trace->ids + request->first_id;
    if (model->config->policy == REPLAY_NONE)
        return 0;
    while (hits < full_blocks && replay_index_find(&model->index, ids[hits]) != NULL)
        hits++;
    if (hits > 0 && hits * model->config->block_tokens >= request->input_tokens)
        hits--;
    return hits;
}

/* References the hits, which makes them unevictable, and evicts blocks until the request fits. Returns false,
 * with nothing changed, if it cannot fit. Sets *ret_evicted. */
static bool make_room(struct model *model, const struct run *run, const int64_t *ids, uint64_t *ret_evicted)
{
    uint64_t wanted = model->used_blocks + run->total_blocks - run->hit_blocks;
    uint64_t capacity = model->capacity_blocks;
    uint64_t short_blocks = wanted > capacity ? wanted - capacity : 0;
    uint64_t evictable = model->index.evictable_count;
    for (uint64_t i = 0; i < run->hit_blocks; i++)
        if (replay_index_find(&model->index, ids[i])->references == 0)
            evictable--;
    if (short_blocks > evictable)
        return false;
    for (uint64_t i = 0; i < run->hit_blocks; i++) {
        run->shared[i] = replay_index_find(&model->index, ids[i]);
        replay_index_reference(&model->index, run->shared[i]);
    }
    for (uint64_t i = 0; i < short_blocks; i++) {
        replay_handle handle = replay_index_remove(&model->index, model->index.evictable);
        (void)replay_memory_drop(model->memory, handle, model->failure); /* start() reports the failure */
    }
    model->used_blocks -= short_blocks;
    model->committed_blocks -= short_blocks;
    model->counts.evict += short_blocks;
    *ret_evicted = short_blocks;
    return true;
}

static bool open_seat(struct model *model, size_t row)
{
    const struct replay_request *request = &model->trace->requests[row];
    struct run *run = &model->runs[row];
    if (run->total_blocks == 0)
        return true; /* a request without blocks */
    replay_handle *hits = tool_allocate(run->hit_blocks, sizeof *hits);
    for (uint64_t i = 0; i < run->hit_blocks; i++)
        hits[i] = run->shared[i]->handle;
    struct replay_admission admission = {
        .row = row,
        .total_blocks = run->total_blocks,
        .prompt_blocks = run->prompt_blocks,
        .hit_blocks = run->hit_blocks,
        .hit_handles = hits,
        .ids = model->trace->ids + request->first_id,
        .id_count = run->full_blocks,
    };
    bool opened = replay_sequence_start(model->memory, &admission, &run->sequence, model->failure);
    free(hits);
    return opened;
}

static bool start(struct model *model, size_t row, uint64_t evicted)
{
    const struct replay_request *request = &model->trace->requests[row];
    struct run *run = &model->runs[row];
    struct replay_counts *counts = &model->counts;
    if (evicted > 0 && !replay_memory_reap(model->memory, model->failure))
        return false;
    if (model->failure->exit_status != TOOL_DONE || !open_seat(model, row))
        return false;

    uint64_t own_blocks = run->prompt_blocks - run->hit_blocks;
    model->used_blocks += run->total_blocks - run->hit_blocks;
    model->committed_blocks += own_blocks;
    model->live_requests++;
    model->prefilling = true;
    model->waits_us[model->wait_count++] = model->now_us - run->arrival_us;
    counts->share += run->hit_blocks;
    counts->new_blocks += own_blocks;
    raise_to(&counts->peak_used, model->used_blocks);
    raise_to(&counts->peak_active, model->used_blocks - model->index.evictable_count);
    raise_to(&counts->peak_commit, model->committed_blocks);
    raise_to(&counts->max_live, model->live_requests);
    return schedule(model, model->now_us,
                    request->input_tokens - run->hit_blocks * model->config->block_tokens,
                    model->config->prefill_us, REPLAY_PREFILL_DONE, row);
}

/* Starts the head of the queue if it fits. Rejects requests that never fit. */
static bool try_start(struct model *model)
{
    while (!model->prefilling && model->queue_head < model->queue_tail) {
        size_t row = model->queue[model->queue_head];
        const struct replay_request *request = &model->trace->requests[row];
        struct run *run = &model->runs[row];
        uint64_t evicted = 0;
        run->total_blocks = blocks_of(model, request->input_tokens + request->output_tokens);
        if (run->total_blocks > model->capacity_blocks) {
            model->counts.reject++;
            model->queue_head++;
            continue;
        }
        run->prompt_blocks = blocks_of(model, request->input_tokens);
        run->next_block = run->prompt_blocks;
        run->full_blocks = request->input_tokens / model->config->block_tokens;
        run->hit_blocks = count_hits(model, request, run->full_blocks);
        if (run->shared == NULL)
            run->shared = tool_allocate(run->full_blocks, sizeof *run->shared);
        if (!make_room(model, run, model->trace->ids + request->first_id, &evicted))
            return true; /* the request waits */
        model->queue_head++;
        if (!start(model, row, evicted))
            return false;
    }
    return true;
}

/* ---- the other events ---- */

static bool prefill_done(struct model *model, size_t row)
{
    const struct replay_request *request = &model->trace->requests[row];
    const struct replay_config *config = model->config;
    struct run *run = &model->runs[row];
    const int64_t *ids = model->trace->ids + request->first_id;
    model->prefilling = false;
    run->prefill_done_us = model->now_us;
    for (uint64_t i = run->hit_blocks; config->policy != REPLAY_NONE && i < run->full_blocks; i++) {
        replay_handle handle = 0;
        if (replay_index_find(&model->index, ids[i]) != NULL)
            continue; /* the block is known: this copy stays private */
        if (!replay_sequence_publish(run->sequence, i, &handle, model->failure))
            return false;
        run->shared[i] = replay_index_add(&model->index, ids[i], handle);
    }
    if (run->next_block < run->total_blocks &&
        !schedule(model, model->now_us, run->next_block * config->block_tokens - request->input_tokens,
                  config->decode_us, REPLAY_GROW, row))
        return false;
    return schedule(model, model->now_us, request->output_tokens, config->decode_us, REPLAY_FINISH, row);
}

static bool grow(struct model *model, size_t row)
{
    const struct replay_request *request = &model->trace->requests[row];
    const struct replay_config *config = model->config;
    struct run *run = &model->runs[row];
    if (!replay_sequence_grow(run->sequence, run->next_block, model->failure))
        return false;
    run->next_block++;
    model->committed_blocks++;
    model->counts.grow++;
    model->counts.new_blocks++;
    raise_to(&model->counts.peak_commit, model->committed_blocks);
    return run->next_block == run->total_blocks ||
           schedule(model, run->prefill_done_us,
                    run->next_block * config->block_tokens - request->input_tokens, config->decode_us,
                    REPLAY_GROW, row);
}

/*
 * Reads the peak of pending blocks after the private blocks have become pending, and before policy live
 * releases the published blocks: the expected figures are defined so.
 */
static bool finish(struct model *model, size_t row)
{
    struct run *run = &model->runs[row];
    uint64_t private_blocks = run->total_blocks;
    for (uint64_t i = 0; i < run->full_blocks; i++)
        private_blocks -= run->shared[i] != NULL;
    model->pending_blocks += private_blocks;
    run->leaving_blocks = private_blocks;
    raise_to(&model->counts.peak_pending, model->pending_blocks);

    for (uint64_t i = run->full_blocks; i-- > 0;) {
        struct replay_block *block = run->shared[i];
        if (block == NULL)
            continue;
        replay_index_unreference(&model->index, block);
        if (model->config->policy == REPLAY_LIVE && block->references == 0) {
            replay_sequence_take_back(run->sequence, i, replay_index_remove(&model->index, block));
            model->pending_blocks++;
            run->leaving_blocks++;
        }
    }
    free(run->shared);
    run->shared = NULL;
    model->live_requests--;
    model->counts.done++;
    return (run->sequence == NULL || replay_sequence_finish(run->sequence, model->failure)) &&
           replay_memory_reap(model->memory, model->failure) &&
           schedule(model, model->now_us, 1, model->config->fence_us, REPLAY_FENCE_PASSED, row);
}

static bool fence_passed(struct model *model, size_t row)
{
    struct run *run = &model->runs[row];
    struct replay_sequence *sequence = run->sequence;
    run->sequence = NULL;
    model->pending_blocks -= run->leaving_blocks;
    model->committed_blocks -= run->leaving_blocks;
    model->used_blocks -= run->leaving_blocks;
    model->counts.freed += run->leaving_blocks;
    return sequence == NULL || replay_sequence_end(sequence, model->failure);
}

/* ---- the run ---- */

static bool handle(struct model *model, const struct replay_event *event)
{
    bool handled = false;
    model->now_us = event->time_us;
    switch (event->kind) {
    case REPLAY_ARRIVAL:
        model->queue[model->queue_tail++] = event->row;
        handled = true;
        break;
    case REPLAY_PREFILL_DONE:
        handled = prefill_done(model, event->row);
        break;
    case REPLAY_GROW:
        handled = grow(model, event->row);
        break;
    case REPLAY_FINISH:
        handled = finish(model, event->row);
        break;
    case REPLAY_FENCE_PASSED:
        handled = fence_passed(model, event->row);
        break;
    }
    return handled && try_start(model);
}

static bool sample(struct model *model)
{
    return replay_memory_sample(model->memory, model->committed_blocks, &model->accounts, model->failure);
}

/* Prints to a terminal only. */
static void show_progress(const struct model *model, bool end)
{
    if (!isatty(STDERR_FILENO))
        return;
    if (end)
        fprintf(stderr, "\r\033[K");
    else
        fprintf(stderr, "\r%5.1f %%  %zu of %zu requests",
                100.0 * (double)model->queue_head / (double)model->trace->request_count, model->queue_head,
                model->trace->request_count);
}

static bool run_events(struct model *model)
{
    struct replay_event event;
    uint64_t event_count = 0;
    while (replay_events_pop(&model->events, &event)) {
        if (!handle(model, &event))
            return false;
        if (++event_count % SAMPLE_EVENTS == 0) {
            if (!sample(model))
                return false;
            show_progress(model, false);
        }
    }
    return sample(model);
}

static void schedule_arrivals(struct model *model)
{
    for (size_t row = 0; row < model->trace->request_count; row++) {
        int64_t time_us =
            llround((double)(model->trace->requests[row].timestamp_ms * 1000) * model->config->scale);
        model->runs[row].arrival_us = time_us;
        replay_events_push(&model->events, time_us, REPLAY_ARRIVAL, row);
    }
}

static int compare_times(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void sum_up(struct model *model)
{
    struct replay_counts *counts = &model->counts;
    size_t count = model->wait_count;
    counts->rows = model->trace->request_count;
    counts->resident_end = model->index.resident_count;
    counts->makespan_s = (double)model->now_us / 1e6;
    if (count == 0)
        return;
    double sum_us = 0; /* whole numbers, normally below 2^53: exact, so equal in every run */
    for (size_t i = 0; i < count; i++)
        sum_us += (double)model->waits_us[i];
    qsort(model->waits_us, count, sizeof *model->waits_us, compare_times);
    counts->wait_mean_s = sum_us / (double)count / 1e6;
    counts->wait_p99_s = (double)model->waits_us[(count - 1) * 99 / 100] / 1e6;
}

/* Releases the blocks of the index: the retained ones at the end, all of them after a failure. */
static void drop_index(struct model *model)
{
    struct replay_block *block = NULL;
    struct replay_block *next = NULL;
    HASH_ITER(hh, model->index.blocks, block, next)
    {
        (void)replay_memory_drop(model->memory, block->handle,
                                 model->failure); /* reported at the end, if it is the first */
    }
    replay_index_finish(&model->index);
}

static void check_identity(struct model *model)
{
    const struct replay_counts *counts = &model->counts;
    if (counts->new_blocks != counts->evict + counts->freed + counts->resident_end ||
        model->committed_blocks != counts->resident_end || model->used_blocks != counts->resident_end)
        (void)tool_fail(model->failure, TOOL_FAILED, MOOR_CORRUPT, "model: the counts do not add up");
}

bool replay_model_run(const struct replay_config *config, const struct replay_trace *trace,
                      struct replay_memory *memory, struct replay_counts *ret_counts,
                      struct replay_accounts *ret_accounts, struct tool_failure *failure)
{
    size_t rows = trace->request_count;
    struct model model = {
        .config = config,
        .trace = trace,
        .memory = memory,
        .failure = failure,
        .capacity_blocks = replay_memory_get_terms(memory).capacity_blocks,
        .accounts.balanced = true,
        .runs = tool_allocate(rows, sizeof *model.runs),
        .queue = tool_allocate(rows, sizeof *model.queue),
        .waits_us = tool_allocate(rows, sizeof *model.waits_us),
    };
    schedule_arrivals(&model);
    bool done = run_events(&model);
    show_progress(&model, true);
    if (done) {
        sum_up(&model);
        check_identity(&model);
    }
    drop_index(&model);
    for (size_t row = 0; row < rows; row++)
        free(model.runs[row].shared);
    free(model.runs);
    free(model.queue);
    free(model.waits_us);
    replay_events_finish(&model.events);
    *ret_counts = model.counts;
    *ret_accounts = model.accounts;
    return failure->exit_status == TOOL_DONE;
}
