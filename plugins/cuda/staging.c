/* SPDX-License-Identifier: MIT */
/*
 * Copies in which the host's processor takes part, in stream order. A copy of the driver's from or to
 * pageable memory waits for the stream, and no call of ours may. So such memory goes through pinned memory of
 * the stream's, chunk by chunk: a host function copies between the two, and the device between that and its
 * own. The order of the stream is what makes each chunk wait for the one before.
 *
 * One job stands for all chunks of a copy, since they run one after the other. It frees itself when the last
 * has run. In a lost context functions are not called any more, but for one that the driver was about to call,
 * and nothing tells whether there is one: so what is left then does nothing when it is called, and stays where
 * the driver finds it until the process ends. Providers stay mapped as well.
 */
#include "provider.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct cuda_job {
    struct cuda_job *next; /* by jobs_lock, as the next five */
    struct cuda_job *previous;
    uint64_t runs_left; /* and one while it is being submitted */
    bool is_cancelled;
    bool is_running;
    struct cuda_job **list; /* its stream's, or `abandoned` */
    char *destination;      /* of the next chunk */
    const char *source;
    uint64_t bytes_left;
    uint64_t chunk_bytes;
    char *memory; /* the end that stays where it is, between host and device; NULL: none does */
};

/* One for all streams: a job changes its list, and drivers call one function at a time. */
static pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_job *abandoned; /* the driver has a call of them, or had when its context was lost */

/* jobs_lock is held, in all three. */
static void link_job(struct cuda_job *job, struct cuda_job **list)
{
    job->list = list;
    job->previous = NULL;
    job->next = *list;
    if (job->next)
        job->next->previous = job;
    *list = job;
}

static void unlink_job(struct cuda_job *job)
{
    if (job->next)
        job->next->previous = job->previous;
    if (job->previous)
        job->previous->next = job->next;
    else
        *job->list = job->next;
}

static void drop_runs(struct cuda_job *job, uint64_t count)
{
    job->runs_left -= count;
    if (job->runs_left > 0)
        return;
    unlink_job(job);
    free(job);
}

static void copy_chunk(struct cuda_job *job)
{
    uint64_t bytes = job->bytes_left < job->chunk_bytes ? job->bytes_left : job->chunk_bytes;
    memcpy(job->destination, job->source, bytes);
    job->bytes_left -= bytes;
    if (job->destination != job->memory)
        job->destination += bytes;
    if (job->source != job->memory)
        job->source += bytes;
}

/* The host function: on a thread of the driver's. */
static void CUDA_CB run(void *user)
{
    struct cuda_job *job = user;
    pthread_mutex_lock(&jobs_lock);
    bool is_cancelled = job->is_cancelled;
    job->is_running = true;
    pthread_mutex_unlock(&jobs_lock);
    if (!is_cancelled)
        copy_chunk(job);
    pthread_mutex_lock(&jobs_lock);
    job->is_running = false;
    drop_runs(job, 1);
    pthread_mutex_unlock(&jobs_lock);
}

static struct cuda_job *create_job(struct cuda_staging *staging, uint64_t bytes, uint64_t chunk_bytes)
{
    struct cuda_job *job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->bytes_left = bytes;
    job->chunk_bytes = chunk_bytes;
    job->runs_left = 1 + bytes / chunk_bytes + (bytes % chunk_bytes != 0);
    pthread_mutex_lock(&jobs_lock);
    link_job(job, &staging->jobs);
    pthread_mutex_unlock(&jobs_lock);
    return job;
}

/* jobs_lock is held, and given up for a moment, in which a memcpy may end by itself. */
static void wait_for_a_run(void)
{
    const struct timespec pause = {.tv_nsec = 100000};
    pthread_mutex_unlock(&jobs_lock);
    (void)nanosleep(&pause, NULL); /* cut short: who calls looks again */
    pthread_mutex_lock(&jobs_lock);
}

/* The end of its submission; on failure the runs that have been launched do nothing any more. */
static void submitted(struct cuda_job *job, uint64_t not_launched, bool has_failed)
{
    pthread_mutex_lock(&jobs_lock);
    job->is_cancelled = job->is_cancelled || has_failed;
    while (has_failed && job->is_running) /* it stays: the submission itself counts as a run */
        wait_for_a_run();
    drop_runs(job, not_launched + 1);
    pthread_mutex_unlock(&jobs_lock);
}

static int32_t launch(const struct cuda_lane *lane, struct cuda_job *job, struct moor_abi_error *error)
{
    return cuda_check(lane->device, cuda_driver_of(lane->device)->cuLaunchHostFunc(lane->native, run, job),
                      MOOR_HOST_NOMEM, "cuLaunchHostFunc", error);
}

int32_t cuda_staging_copy_host(struct moor_abi_stream *stream, const struct cuda_lane *lane,
                               uint64_t destination, uint64_t source, uint64_t bytes,
                               struct moor_abi_error *error)
{
    struct cuda_job *job = create_job(&stream->rest->staging, bytes, bytes);
    if (!job)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a copy's record");
    job->destination = cuda_pointer(destination);
    job->source = cuda_pointer(source);
    int32_t status = launch(lane, job, error);
    submitted(job, status == MOOR_OK ? 0 : 1, status != MOOR_OK);
    return status;
}

/* ---- through pinned memory ---- */

static int32_t create_block(struct cuda_device *device, struct cuda_block **ret_block,
                            struct moor_abi_error *error)
{
    struct cuda_block *block = calloc(1, sizeof(*block));
    if (!block)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a block's record");
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status == MOOR_OK) {
        status = cuda_check(device,
                            cuda_driver_of(device)->cuMemHostAlloc(
                                &block->memory, device->instance->staging_bytes, CU_MEMHOSTALLOC_PORTABLE),
                            MOOR_HOST_NOMEM, "cuMemHostAlloc", error);
        cuda_leave(&scope);
    }
    if (status == MOOR_OK)
        *ret_block = block;
    else
        free(block);
    return status;
}

static int32_t get_block(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_staging *staging = &stream->rest->staging;
    struct cuda_device *device = stream->context->device;
    if (staging->block)
        return MOOR_OK;
    pthread_mutex_lock(&device->lock);
    staging->block = device->spare_blocks;
    if (staging->block)
        device->spare_blocks = staging->block->next;
    pthread_mutex_unlock(&device->lock);
    return staging->block ? MOOR_OK : create_block(device, &staging->block, error);
}

/* Freeing pinned memory makes the driver wait for the whole device, so a stream's is kept for the next one. */
static void give_block(struct cuda_device *device, struct cuda_staging *staging)
{
    struct cuda_block *block = staging->block;
    if (!block)
        return;
    staging->block = NULL;
    pthread_mutex_lock(&device->lock);
    block->next = device->spare_blocks;
    device->spare_blocks = block;
    pthread_mutex_unlock(&device->lock);
}

void cuda_blocks_free(struct cuda_device *device)
{
    while (device->spare_blocks) {
        struct cuda_block *block = device->spare_blocks;
        device->spare_blocks = block->next;
        if (cuda_out_of_reach(device) == CUDA_SUCCESS)
            (void)cuda_driver_of(device)->cuMemFreeHost(
                block->memory); /* goes with the context in any case */
        free(block);
    }
}

static int32_t transfer(const struct cuda_lane *lane, bool to_device, uint64_t device_address, void *memory,
                        uint64_t bytes, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(lane->device);
    CUresult code = to_device ? driver->cuMemcpyHtoDAsync(device_address, memory, bytes, lane->native)
                              : driver->cuMemcpyDtoHAsync(memory, device_address, bytes, lane->native);
    return cuda_check(lane->device, code, MOOR_HOST_NOMEM,
                      to_device ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync", error);
}

/* Submits the chunks; on failure how many runs have been launched, and whether the device has work with it.
 * */
static int32_t submit_chunks(const struct cuda_lane *lane, struct cuda_job *job, bool to_device,
                             uint64_t device_address, uint64_t bytes, uint64_t *ret_launched,
                             bool *ret_has_transfers, struct moor_abi_error *error)
{
    uint64_t chunk_bytes = job->chunk_bytes;
    for (uint64_t at = 0; at < bytes; at += chunk_bytes) {
        uint64_t size = bytes - at < chunk_bytes ? bytes - at : chunk_bytes;
        int32_t status = MOOR_OK;
        for (int step = 0; step < 2 && status == MOOR_OK; step++) {
            bool is_run = (step == 0) == to_device;
            status = is_run ? launch(lane, job, error)
                            : transfer(lane, to_device, device_address + at, job->memory, size, error);
            if (status == MOOR_OK && is_run)
                ++*ret_launched;
            else if (status == MOOR_OK)
                *ret_has_transfers = true;
        }
        if (status != MOOR_OK)
            return status;
    }
    return MOOR_OK;
}

int32_t cuda_staging_copy_device(struct moor_abi_stream *stream, const struct cuda_lane *lane, bool to_device,
                                 uint64_t device_address, uint64_t host_address, uint64_t bytes,
                                 struct moor_abi_error *error)
{
    struct cuda_staging *staging = &stream->rest->staging;
    uint64_t chunk_bytes = lane->device->instance->staging_bytes;
    int32_t status = get_block(stream, error);
    if (status != MOOR_OK)
        return status;
    struct cuda_job *job = create_job(staging, bytes, chunk_bytes);
    if (!job)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a copy's record");
    uint64_t runs = job->runs_left - 1;
    job->memory = staging->block->memory;
    job->destination = to_device ? job->memory : cuda_pointer(host_address);
    job->source = to_device ? cuda_pointer(host_address) : job->memory;
    uint64_t launched = 0;
    bool has_transfers = false;
    status = submit_chunks(lane, job, to_device, device_address, bytes, &launched, &has_transfers, error);
    submitted(job, runs - launched, status != MOOR_OK);
    /* Nor must the device touch its own end later. That is rare enough to wait for. */
    if (status != MOOR_OK && status != MOOR_DEVICE_LOST && has_transfers)
        (void)cuda_driver_of(lane->device)->cuStreamSynchronize(lane->native);
    return status;
}

void cuda_staging_cancel(struct cuda_staging *staging)
{
    pthread_mutex_lock(&jobs_lock);
    struct cuda_job *job = staging->jobs;
    while (job) {
        job->is_cancelled = true;
        if (job->is_running) {
            wait_for_a_run();
            job = staging->jobs; /* it may be gone */
        } else {
            job = job->next;
        }
    }
    pthread_mutex_unlock(&jobs_lock);
}

void cuda_staging_finish(struct cuda_device *device, struct cuda_staging *staging)
{
    cuda_staging_cancel(staging);
    pthread_mutex_lock(&jobs_lock);
    while (staging->jobs) { /* of a stream that was lost */
        struct cuda_job *job = staging->jobs;
        unlink_job(job);
        link_job(job, &abandoned);
    }
    pthread_mutex_unlock(&jobs_lock);
    give_block(device, staging);
}
