/* SPDX-License-Identifier: MIT */
/*
 * The memory of a replay.
 *
 * A seat's range has one slot per block of the request. With sharing, prompt blocks are segments, so that
 * they can be published: each is made mapped writable in the seat that fills it, sealed when published, and
 * from then on mapped read-only wherever its prefix comes up again. What only this request can use (the
 * blocks it grows by, and with policy none all of them) is committed in the range itself.
 *
 * Simulated fences are real ones: a finished request puts a host function on the decode stream that uses its
 * leaving blocks and stands at a gate until the simulation opens it. One stream and one fence time for all:
 * gates are opened in the order in which they were submitted. A device without asynchronous work would stand
 * at the gate inside the call; there the gate lets it pass, and the range is kept until its fence time
 * instead.
 */
#include "replay/memory.h"
#include "replay/touch.h"
#include "tool.h"

#include <inttypes.h>
#include <moorage/moorage.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#define WAIT_NS (UINT64_C(60) * 1000 * 1000 * 1000) /* a stuck device must not hang the tool */
#define STEPS_MAX 1024                              /* of one transaction */
#define PRIVATE_IDENTITY (UINT64_C(1) << 63)        /* of private blocks: apart from all ids */

struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    bool open;           /* mutex */
    pthread_t submitter; /* set before submission */
    bool ran_inline;     /* written by the submitting thread alone */
};

struct replay_seat {
    struct replay_seat *prev; /* all seats of the memory */
    struct replay_seat *next;
    struct replay_memory *memory;
    struct replay_admission admission;
    moor_range range;
    moor_grant grant;
    struct moor_view view;  /* the whole range */
    moor_segment *segments; /* prompt_blocks entries: those whose handle is the seat's, else 0 */
    struct gate gate;
    struct moor_fence fence;
    bool submitted; /* the gate is on the decode stream, the fence behind it */
};

struct domain {
    struct moor_device *device;
    uint32_t index;
};

struct replay_memory {
    const struct replay_config *config;
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    struct moor_device *device;
    struct moor_abi_domain_info domain_info;
    uint32_t domain;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *decode;
    struct moor_stream *work; /* fills and copies of touched blocks */
    uint64_t granule_bytes;
    struct domain *pool; /* every domain of the provider on this authority */
    size_t pool_count;
    struct replay_toucher toucher;
    struct replay_seat *seats;
};

/* ---- gates ---- */

static void gate_pass(void *user)
{
    struct gate *gate = user;
    if (pthread_equal(pthread_self(), gate->submitter)) {
        gate->ran_inline = true;
        return;
    }
    pthread_mutex_lock(&gate->mutex);
    while (!gate->open)
        pthread_cond_wait(&gate->opened, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

static void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    gate->open = true;
    pthread_cond_broadcast(&gate->opened);
    pthread_mutex_unlock(&gate->mutex);
}

/* ---- opening and closing ---- */

static bool load(struct replay_memory *memory, struct tool_failure *failure)
{
    const struct replay_config *config = memory->config;
    struct moor_load_options options = {.settings = config->settings, .setting_count = config->setting_count};
    struct moor_provider_info info;
    if (moor_runtime_create(NULL, &memory->runtime) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "runtime");
    char *path = tool_absolute_path(config->provider);
    moor_status status = moor_provider_load(memory->runtime, path, &options, &memory->provider);
    free(path);
    if (status != MOOR_OK) /* the library's text names the file */
        return tool_fail(failure, TOOL_REFUSED, status, "%s", moor_last_error()->text);
    if (moor_provider_get_info(memory->provider, &info) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "provider");
    if (info.device_count == 0)
        return tool_fail(failure, TOOL_NO_DEVICE, MOOR_UNSUPPORTED, "%s has no device", info.path);
    if (moor_provider_get_device(memory->provider, 0, &memory->device) != MOOR_OK ||
        moor_device_find_domain(memory->device, MOOR_ABI_DOMAIN_DEVICE, &memory->domain) != MOOR_OK ||
        moor_device_get_domain_info(memory->device, memory->domain, &memory->domain_info) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "the first device's own memory");
    return true;
}

/* What a replay needs of the domain, and the granule: as coarse as a block allows, since every granule is a
 * map. */
static bool check_domain(struct replay_memory *memory, struct tool_failure *failure)
{
    const struct replay_config *config = memory->config;
    uint64_t capabilities = memory->domain_info.capabilities;
    bool host_access = (memory->domain_info.flags & MOOR_ABI_DOMAIN_HOST_ACCESS) != 0;
    const char *missing = NULL;
    if (!(capabilities & MOOR_ABI_CAP_VIRTUAL))
        missing = "VIRTUAL";
    else if (config->policy != REPLAY_NONE && !(capabilities & MOOR_ABI_CAP_SHARED))
        missing = "SHARED (--policy none does without)";
    else if (config->touch != REPLAY_TOUCH_NONE && !host_access && !(capabilities & MOOR_ABI_CAP_COPY))
        missing = "COPY (--touch none does without)";
    if (missing != NULL)
        return tool_fail(failure, TOOL_REFUSED, MOOR_UNSUPPORTED, "the device's memory has no %s", missing);
    memory->granule_bytes = config->block_bytes & -config->block_bytes;
    if (memory->granule_bytes < memory->domain_info.granule_min_bytes)
        return tool_fail(failure, TOOL_REFUSED, MOOR_UNSUPPORTED,
                         "blocks of %" PRIu64 " bytes are not whole granules of %" PRIu64,
                         config->block_bytes, memory->domain_info.granule_min_bytes);
    return true;
}

/* The domains whose memory the ledger of this authority counts. */
static bool find_pool(struct replay_memory *memory, struct tool_failure *failure)
{
    struct moor_provider_info info;
    if (moor_provider_get_info(memory->provider, &info) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "provider");
    for (uint32_t i = 0; i < info.device_count; i++) {
        struct moor_device *device = NULL;
        struct moor_abi_device_info device_info = {.struct_size = sizeof device_info};
        if (moor_provider_get_device(memory->provider, i, &device) != MOOR_OK ||
            moor_device_get_info(device, &device_info) != MOOR_OK)
            return tool_fail_last(failure, TOOL_REFUSED, "device");
        for (uint32_t j = 0; j < device_info.domain_count; j++) {
            struct moor_authority *authority = NULL;
            if (moor_device_get_authority(device, j, &authority) != MOOR_OK)
                return tool_fail_last(failure, TOOL_REFUSED, "authority");
            if (authority != memory->authority)
                continue;
            memory->pool = tool_reallocate(memory->pool, memory->pool_count + 1, sizeof *memory->pool);
            memory->pool[memory->pool_count++] = (struct domain){.device = device, .index = j};
        }
    }
    return true;
}

static bool open_account(struct replay_memory *memory, struct tool_failure *failure)
{
    const struct replay_config *config = memory->config;
    struct moor_holder_options options = {.name = "replay", .role = MOOR_ROLE_KV};
    uint64_t capacity_bytes = config->capacity_blocks * config->block_bytes;
    if (moor_device_get_authority(memory->device, memory->domain, &memory->authority) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "authority");
    if (moor_authority_set_capacity(memory->authority, capacity_bytes) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "capacity");
    if (moor_holder_create(memory->authority, &options, &memory->holder) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "holder");
    if (moor_binding_open(memory->device, memory->domain, memory->holder, &memory->binding) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "binding");
    if (moor_stream_create(memory->device, NULL, &memory->decode) != MOOR_OK ||
        moor_stream_create(memory->device, NULL, &memory->work) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "stream");
    return true;
}

bool replay_memory_open(const struct replay_config *config, struct replay_memory **ret_memory,
                        struct tool_failure *failure)
{
    struct replay_memory *memory = tool_allocate(1, sizeof *memory);
    memory->config = config;
    if (!load(memory, failure) || !check_domain(memory, failure) || !open_account(memory, failure) ||
        !find_pool(memory, failure)) {
        (void)replay_memory_close(memory, failure); /* the first failure is kept */
        return false;
    }
    bool host_access = (memory->domain_info.flags & MOOR_ABI_DOMAIN_HOST_ACCESS) != 0;
    replay_toucher_init(&memory->toucher, config, host_access, memory->work);
    *ret_memory = memory;
    return true;
}

/* All that a seat holds, without waiting. */
static void seat_release(struct replay_seat *seat)
{
    struct moor_runtime *runtime = seat->memory->runtime;
    for (uint64_t i = 0; i < seat->admission.prompt_blocks; i++) {
        (void)moor_segment_release(runtime, seat->segments[i]); /* what stays is found when closing */
        seat->segments[i] = 0;
    }
    (void)moor_range_release(runtime, seat->range); /* likewise */
    (void)moor_grant_release(runtime, seat->grant); /* likewise */
    seat->range = 0;
    seat->grant = 0;
}

static void seat_free(struct replay_seat *seat)
{
    DL_DELETE(seat->memory->seats, seat);
    pthread_cond_destroy(&seat->gate.opened);
    pthread_mutex_destroy(&seat->gate.mutex);
    free(seat->segments);
    free(seat);
}

/* After a run that broke off. A seat whose fence does not pass is left alone: its gate may still be in use.
 */
static void abandon_seats(struct replay_memory *memory)
{
    struct replay_seat *seat = NULL;
    struct replay_seat *next = NULL;
    DL_FOREACH(memory->seats, seat)
    {
        gate_open(&seat->gate);
        seat_release(seat);
    }
    DL_FOREACH_SAFE(memory->seats, seat, next)
    {
        if (!seat->submitted || moor_fence_wait(&seat->fence, moor_clock_ns() + WAIT_NS) == MOOR_OK)
            seat_free(seat);
    }
}

bool replay_memory_close(struct replay_memory *memory, struct tool_failure *failure)
{
    if (memory == NULL)
        return true;
    abandon_seats(memory);
    replay_toucher_finish(&memory->toucher);
    if (memory->runtime != NULL) {
        (void)moor_stream_destroy(memory->work);
        (void)moor_stream_destroy(memory->decode);
        (void)moor_runtime_reap(memory->runtime,
                                moor_clock_ns() + WAIT_NS); /* what is left shows in the next calls */
        if (moor_binding_close(memory->binding) != MOOR_OK ||
            moor_holder_destroy(memory->holder) != MOOR_OK ||
            (memory->provider != NULL && moor_provider_unload(memory->provider) != MOOR_OK) ||
            moor_runtime_destroy(memory->runtime) != MOOR_OK)
            (void)tool_fail_last(failure, TOOL_FAILED, "closing");
    }
    bool closed = failure->exit_status == TOOL_DONE;
    free(memory->pool);
    free(memory);
    return closed;
}

/* ---- seats ---- */

static bool block_view(const struct replay_seat *seat, uint64_t block, uint64_t block_count,
                       struct moor_view *ret_view, struct tool_failure *failure)
{
    uint64_t block_bytes = seat->memory->config->block_bytes;
    if (moor_view_slice(&seat->view, block * block_bytes, block_count * block_bytes, ret_view) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "view of a block");
    return true;
}

/* What a block's contents are made from: its prefix where others may know it, else the request and the slot.
 */
static uint64_t block_identity(const struct replay_seat *seat, uint64_t block)
{
    const struct replay_admission *admission = &seat->admission;
    if (block < admission->id_count)
        return (uint64_t)admission->ids[block];
    return PRIVATE_IDENTITY | (admission->row << 32) | block;
}

static bool touch_blocks(struct replay_seat *seat, uint64_t first, uint64_t end, struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    for (uint64_t i = first; i < end; i++) {
        struct moor_view view;
        if (!block_view(seat, i, 1, &view, failure) ||
            !replay_toucher_write(&memory->toucher, &view, block_identity(seat, i), failure))
            return false;
    }
    return replay_toucher_wait(&memory->toucher, failure);
}

static bool map_hits(struct replay_seat *seat, struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    uint64_t block_bytes = memory->config->block_bytes;
    for (uint64_t i = 0; i < seat->admission.hit_blocks; i++) {
        struct moor_view view;
        if (moor_segment_map(memory->runtime, seat->admission.hit_segments[i], seat->range, i * block_bytes,
                             MOOR_ACCESS_READ) != MOOR_OK)
            return tool_fail_last(failure, TOOL_FAILED, "mapping a shared block");
        if (!block_view(seat, i, 1, &view, failure) ||
            !replay_toucher_verify(&memory->toucher, &view, block_identity(seat, i), failure))
            return false;
    }
    return true;
}

/* The prompt's own blocks as segments mapped in their slots. Each transaction is all or nothing; after a
 * failure between two of them the caller gives up the whole seat. */
static bool create_segments(struct replay_seat *seat, struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    uint64_t block_bytes = memory->config->block_bytes;
    uint64_t end = seat->admission.prompt_blocks;
    struct moor_step *steps = tool_allocate(STEPS_MAX, sizeof *steps);
    bool done = true;
    for (uint64_t first = seat->admission.hit_blocks; done && first < end;) {
        size_t count = 0;
        for (; count < STEPS_MAX && first + count < end; count++)
            steps[count] = (struct moor_step){.kind = MOOR_STEP_CREATE,
                                              .binding = memory->binding,
                                              .range = seat->range,
                                              .offset_bytes = (first + count) * block_bytes,
                                              .length_bytes = block_bytes,
                                              .grant = seat->grant};
        if (moor_transact(memory->runtime, steps, count, NULL) != MOOR_OK)
            done = tool_fail_last(failure, TOOL_FAILED, "making prompt blocks");
        for (size_t i = 0; done && i < count; i++)
            seat->segments[first + i] = steps[i].segment;
        first += count;
    }
    free(steps);
    return done;
}

static bool commit_blocks(struct replay_seat *seat, uint64_t first, uint64_t count,
                          struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    uint64_t block_bytes = memory->config->block_bytes;
    if (moor_range_commit(memory->runtime, seat->range, first * block_bytes, count * block_bytes,
                          seat->grant) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "committing blocks that were granted");
    return true;
}

static bool seat_fill(struct replay_seat *seat, struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    const struct replay_admission *admission = &seat->admission;
    uint64_t block_bytes = memory->config->block_bytes;
    struct moor_range_options options = {.granule_bytes = memory->granule_bytes};
    if (moor_range_reserve(memory->binding, admission->total_blocks * block_bytes, &options, &seat->range) !=
            MOOR_OK ||
        moor_range_get_view(memory->runtime, seat->range, &seat->view) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "reserving addresses");
    if (!map_hits(seat, failure))
        return false;
    uint64_t needed_bytes = (admission->total_blocks - admission->hit_blocks) * block_bytes;
    if (needed_bytes > 0 && moor_grant_reserve(memory->holder, needed_bytes, &seat->grant) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "the model has room and the governor has not");
    uint64_t own_blocks = admission->prompt_blocks - admission->hit_blocks;
    if (own_blocks == 0)
        return true;
    bool made = memory->config->policy == REPLAY_NONE
                    ? commit_blocks(seat, admission->hit_blocks, own_blocks, failure)
                    : create_segments(seat, failure);
    return made && touch_blocks(seat, admission->hit_blocks, admission->prompt_blocks, failure);
}

bool replay_seat_start(struct replay_memory *memory, const struct replay_admission *admission,
                       struct replay_seat **ret_seat, struct tool_failure *failure)
{
    struct replay_seat *seat = tool_allocate(1, sizeof *seat);
    seat->memory = memory;
    seat->admission = *admission;
    seat->segments = tool_allocate(admission->prompt_blocks, sizeof *seat->segments);
    pthread_mutex_init(&seat->gate.mutex, NULL);
    pthread_cond_init(&seat->gate.opened, NULL);
    DL_APPEND(memory->seats, seat);
    bool filled = seat_fill(seat, failure);
    seat->admission.hit_segments = NULL; /* borrowed for this call */
    if (!filled) {
        seat_release(seat);
        seat_free(seat);
        return false;
    }
    *ret_seat = seat;
    return true;
}

bool replay_seat_grow(struct replay_seat *seat, uint64_t block, struct tool_failure *failure)
{
    return commit_blocks(seat, block, 1, failure) && touch_blocks(seat, block, block + 1, failure);
}

bool replay_seat_publish(struct replay_seat *seat, uint64_t block, moor_segment *ret_segment,
                         struct tool_failure *failure)
{
    /* Nothing waits: the prefill is done, and touched blocks were waited for. */
    if (moor_segment_seal(seat->memory->runtime, seat->segments[block], MOOR_NO_WAIT) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "sealing a published block");
    *ret_segment = seat->segments[block];
    seat->segments[block] = 0;
    return true;
}

/* Puts the gate on the decode stream, using every leaving block. Runs of blocks make few views. */
static bool submit_gate(struct replay_seat *seat, const bool *leaving, struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    uint64_t total = seat->admission.total_blocks;
    struct moor_view *views = tool_allocate(total, sizeof *views);
    size_t view_count = 0;
    bool done = true;
    for (uint64_t first = 0; done && first < total;) {
        uint64_t end = first;
        while (end < total && leaving[end])
            end++;
        if (end > first)
            done = block_view(seat, first, end - first, &views[view_count++], failure);
        first = end + 1;
    }
    seat->gate.submitter = pthread_self();
    if (done &&
        moor_stream_host_function(memory->decode, gate_pass, &seat->gate, views, view_count) != MOOR_OK)
        done = tool_fail_last(failure, TOOL_FAILED, "decode fence");
    free(views);
    if (!done)
        return false;
    if (moor_stream_record(memory->decode, &seat->fence) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "decode fence");
    seat->submitted = true;
    return true;
}

/* A grant is exactly what the request came to need. */
static bool check_grant_used_up(struct replay_seat *seat, struct tool_failure *failure)
{
    uint64_t remaining = 0;
    if (seat->grant == 0)
        return true;
    if (moor_grant_get_remaining(seat->memory->runtime, seat->grant, &remaining) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "grant");
    if (remaining != 0)
        return tool_fail(failure, TOOL_FAILED, MOOR_CORRUPT,
                         "a finished request left %" PRIu64 " bytes of its grant", remaining);
    return true;
}

bool replay_seat_finish(struct replay_seat *seat, const bool *leaving, struct tool_failure *failure)
{
    if (!check_grant_used_up(seat, failure) || !submit_gate(seat, leaving, failure))
        return false;
    if (!seat->gate.ran_inline)
        seat_release(seat);
    return true;
}

bool replay_seat_leave(struct replay_seat *seat, struct tool_failure *failure)
{
    struct replay_memory *memory = seat->memory;
    gate_open(&seat->gate);
    if (moor_fence_wait(&seat->fence, moor_clock_ns() + WAIT_NS) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "waiting for the decode fence");
    seat_release(seat); /* nothing is left of it unless the gate ran inline */
    seat_free(seat);
    return replay_memory_settle(memory, failure);
}

bool replay_memory_drop(struct replay_memory *memory, moor_segment segment, struct tool_failure *failure)
{
    if (moor_segment_release(memory->runtime, segment) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "giving up a block");
    return true;
}

bool replay_memory_settle(struct replay_memory *memory, struct tool_failure *failure)
{
    moor_status status = moor_runtime_reap(memory->runtime, MOOR_NO_WAIT);
    if (status != MOOR_OK && status != MOOR_PENDING) /* pending: other requests' fences */
        return tool_fail_last(failure, TOOL_FAILED, "taking memory back");
    return true;
}

/* ---- books ---- */

bool replay_memory_sample(struct replay_memory *memory, uint64_t expected_bytes, struct replay_books *books,
                          struct tool_failure *failure)
{
    struct moor_authority_stats ledger;
    if (moor_authority_get_stats(memory->authority, &ledger, NULL, 0, NULL) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "ledger");
    books->ledger_bytes = ledger.charged_bytes - ledger.external_bytes;
    books->provider_bytes = 0;
    books->kernel_bytes = 0;
    books->has_provider = true;
    books->has_kernel = true;
    for (size_t i = 0; i < memory->pool_count; i++) {
        struct moor_device_stats stats = {0};
        moor_status status = moor_device_get_stats(memory->pool[i].device, memory->pool[i].index, &stats);
        if (status != MOOR_OK && status != MOOR_UNSUPPORTED)
            return tool_fail_last(failure, TOOL_FAILED, "device statistics");
        books->has_provider = books->has_provider && (stats.valid & MOOR_ABI_STAT_HELD) != 0;
        books->has_kernel = books->has_kernel && (stats.valid & MOOR_ABI_STAT_SYSTEM_HELD) != 0;
        books->provider_bytes += stats.held_bytes;
        books->kernel_bytes += stats.system_held_bytes;
    }
    books->samples++;
    if (books->ledger_bytes == expected_bytes &&
        (!books->has_provider || books->provider_bytes == expected_bytes) &&
        (!books->has_kernel || books->kernel_bytes == expected_bytes))
        return true;
    if (books->balanced)
        (void)snprintf(books->mismatch, sizeof books->mismatch,
                       "sample %" PRIu64 ": model %" PRIu64 ", ledger %" PRIu64 ", provider %" PRIu64
                       ", kernel %" PRIu64 " bytes",
                       books->samples, expected_bytes, books->ledger_bytes, books->provider_bytes,
                       books->kernel_bytes); /* fits */
    books->balanced = false;
    return true;
}
