/* SPDX-License-Identifier: MIT */
/*
 * Copies from and to pageable memory, in stream order, without a wait of the caller. A copy of the driver's
 * would wait for the stream, and a submission must not. So the data goes through pinned memory of the
 * stream's, chunk by chunk: a host function copies between pageable and pinned memory, the device between
 * pinned memory and its own. The order of the stream makes each chunk wait for the one before.
 *
 * One job stands for all chunks of a copy, since they run one after the other. The job frees itself after its
 * last run. In a lost context the driver calls no more functions, except one that it was about to call, and
 * there is no way to find out whether there is one: so the remaining jobs are cancelled and stay in memory
 * until the process ends. A call of a cancelled job does nothing. The code of providers stays
 * mapped, too.
 */
#include "stream.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct cuda_job {
    /* By jobs_lock. */
    struct cuda_job *next;
    struct cuda_job *previous;
    struct cuda_job **list; /* the list of the stream, or `abandoned` */
    uint64_t uses;          /* launched runs that have not ended, and one for the submission */
    bool is_cancelled;
    bool is_running;
    /* By the run at work: runs do not overlap. */
    char *destination; /* end of the next chunk */
    const char *source;
    uint64_t bytes_left;
    uint64_t chunk_bytes;
    char *memory; /* the end that stays the same for each chunk, between host and device; NULL: none */
};

/* One lock for all streams: a job changes its list, and drivers call one host function at a time anyway. */
static pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_job *abandoned; /* jobs that the driver of a lost context may still call */

/* Requires jobs_lock, as the next three. */
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
    assert(cuda_is_locked(&jobs_lock));
    if (job->next)
        job->next->previous = job->previous;
    if (job->previous)
        job->previous->next = job->next;
    else
        *job->list = job->next;
}

/* Frees the job after its last use. */
static void end_use(struct cuda_job *job)
{
    assert(job->uses > 0 && cuda_is_locked(&jobs_lock));
    if (--job->uses > 0)
        return;
    assert(!job->is_running);
    unlink_job(job);
    free(job);
}

/* Gives a running memcpy a moment to end. Releases jobs_lock while waiting. */
static void wait_for_run(void)
{
    const struct timespec pause = {.tv_nsec = 100000};
    pthread_mutex_unlock(&jobs_lock);
    (void)nanosleep(&pause, NULL); /* a shorter sleep is harmless: the caller checks again */
    pthread_mutex_lock(&jobs_lock);
}

static void copy_chunk(struct cuda_job *job)
{
    uint64_t bytes = job->bytes_left < job->chunk_bytes ? job->bytes_left : job->chunk_bytes;
    assert(bytes > 0);
    memcpy(job->destination, job->source, bytes);
    job->bytes_left -= bytes;
    if (job->destination != job->memory)
        job->destination += bytes;
    if (job->source != job->memory)
        job->source += bytes;
}

/* The host function, called by a thread of the driver's. */
static void CUDA_CB run(void *user)
{
    struct cuda_job *job = user;
    pthread_mutex_lock(&jobs_lock);
    bool is_cancelled = job->is_cancelled;
    assert(!job->is_running);
    job->is_running = true;
    pthread_mutex_unlock(&jobs_lock);
    if (!is_cancelled)
        copy_chunk(job);
    pthread_mutex_lock(&jobs_lock);
    job->is_running = false;
    end_use(job);
    pthread_mutex_unlock(&jobs_lock);
}

static struct cuda_job *create_job(struct cuda_staging *staging, uint64_t bytes, uint64_t chunk_bytes)
{
    struct cuda_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    assert(bytes > 0 && chunk_bytes > 0);
    job->bytes_left = bytes;
    job->chunk_bytes = chunk_bytes;
    job->uses = 1;
    pthread_mutex_lock(&jobs_lock);
    link_job(job, &staging->jobs);
    pthread_mutex_unlock(&jobs_lock);
    return job;
}

/* Ends the submission of a job. After a failure the launched runs do nothing any more. */
static void end_submission(struct cuda_job *job, bool has_failed)
{
    pthread_mutex_lock(&jobs_lock);
    job->is_cancelled = job->is_cancelled || has_failed;
    while (has_failed && job->is_running)
        wait_for_run();
    end_use(job);
    pthread_mutex_unlock(&jobs_lock);
}

static int32_t launch(const struct cuda_target *target, struct cuda_job *job, struct moor_abi_error *error)
{
    pthread_mutex_lock(&jobs_lock);
    job->uses++;
    pthread_mutex_unlock(&jobs_lock);
    int32_t status =
        CUDA_CALL(target->device, MOOR_HOST_NOMEM, error, cuLaunchHostFunc, target->native, run, job);
    if (status) {
        pthread_mutex_lock(&jobs_lock);
        end_use(job); /* not the last one: the submission still uses the job */
        pthread_mutex_unlock(&jobs_lock);
    }
    return status;
}

int32_t cuda_staging_copy_host(struct moor_abi_stream *stream, const struct cuda_target *target,
                               uint64_t destination, uint64_t source, uint64_t bytes,
                               struct moor_abi_error *error)
{
    assert(cuda_is_locked(&stream->submit.lock));
    struct cuda_job *job = create_job(&stream->parts->staging, bytes, bytes);
    if (!job)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "copy: no memory for its record");
    job->destination = cuda_pointer(destination);
    job->source = cuda_pointer(source);
    int32_t status = launch(target, job, error);
    end_submission(job, status != MOOR_OK);
    return status;
}

/* ---- through pinned memory ---- */

static int32_t create_block(struct cuda_device *device, struct cuda_block **ret_block,
                            struct moor_abi_error *error)
{
    struct cuda_block *block = calloc(1, sizeof *block);
    if (!block)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "copy: no memory for a block's record");
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status == MOOR_OK) {
        status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuMemHostAlloc, &block->memory,
                           device->instance->settings.staging_bytes, CU_MEMHOSTALLOC_PORTABLE);
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
    struct cuda_staging *staging = &stream->parts->staging;
    struct cuda_device *device = stream->kit.context->device;
    assert(cuda_is_locked(&stream->submit.lock));
    if (staging->block)
        return MOOR_OK;
    pthread_mutex_lock(&device->streams.lock);
    staging->block = device->streams.spare_blocks;
    if (staging->block)
        device->streams.spare_blocks = staging->block->next;
    pthread_mutex_unlock(&device->streams.lock);
    return staging->block ? MOOR_OK : create_block(device, &staging->block, error);
}

/* Keeps the block for a later stream: freeing pinned memory makes the driver wait for the whole device. */
static void return_block(struct cuda_device *device, struct cuda_staging *staging)
{
    struct cuda_block *block = staging->block;
    if (!block)
        return;
    staging->block = NULL;
    pthread_mutex_lock(&device->streams.lock);
    block->next = device->streams.spare_blocks;
    device->streams.spare_blocks = block;
    pthread_mutex_unlock(&device->streams.lock);
}

void cuda_blocks_free(struct cuda_device *device)
{
    while (device->streams.spare_blocks) {
        struct cuda_block *block = device->streams.spare_blocks;
        device->streams.spare_blocks = block->next;
        if (cuda_out_of_reach(device) == CUDA_SUCCESS)
            (void)cuda_driver_of(device)->cuMemFreeHost(block->memory); /* else the context's end frees it */
        free(block);
    }
}

/* Submits the chunks. *has_transfers: the device has a transfer, even after a failure. */
static int32_t submit_chunks(const struct cuda_target *target, struct cuda_job *job, bool to_device,
                             uint64_t device_address, uint64_t bytes, bool *has_transfers,
                             struct moor_abi_error *error)
{
    uint64_t chunk_bytes = job->chunk_bytes;
    for (uint64_t at = 0; at < bytes; at += chunk_bytes) {
        uint64_t size = bytes - at < chunk_bytes ? bytes - at : chunk_bytes;
        int32_t status = to_device ? launch(target, job, error) : MOOR_OK;
        if (status == MOOR_OK)
            status = cuda_transfer(target->device, target->native, to_device, device_address + at,
                                   job->memory, size, error);
        if (status)
            return status;
        *has_transfers = true;
        status = to_device ? MOOR_OK : launch(target, job, error);
        if (status)
            return status;
    }
    return MOOR_OK;
}

int32_t cuda_staging_copy_device(struct moor_abi_stream *stream, const struct cuda_target *target,
                                 bool to_device, uint64_t device_address, uint64_t host_address,
                                 uint64_t bytes, struct moor_abi_error *error)
{
    struct cuda_staging *staging = &stream->parts->staging;
    int32_t status = get_block(stream, error);
    if (status)
        return status;
    struct cuda_job *job = create_job(staging, bytes, target->device->instance->settings.staging_bytes);
    if (!job)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "copy: no memory for its record");
    job->memory = staging->block->memory;
    job->destination = to_device ? job->memory : cuda_pointer(host_address);
    job->source = to_device ? cuda_pointer(host_address) : job->memory;
    bool has_transfers = false;
    status = submit_chunks(target, job, to_device, device_address, bytes, &has_transfers, error);
    end_submission(job, status != MOOR_OK);
    /* After a failure the device must not touch its own end later, either. The case is rare enough to
     * wait. */
    if (status && status != MOOR_DEVICE_LOST && has_transfers)
        (void)cuda_driver_of(target->device)->cuStreamSynchronize(target->native);
    return status;
}

/* ---- the end of a stream ---- */

void cuda_staging_cancel(struct cuda_staging *staging)
{
    pthread_mutex_lock(&jobs_lock);
    struct cuda_job *job = staging->jobs;
    while (job) {
        job->is_cancelled = true;
        if (job->is_running) {
            wait_for_run();
            job = staging->jobs; /* the job may have freed itself */
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
    while (staging->jobs) { /* the stream was lost */
        struct cuda_job *job = staging->jobs;
        assert(job->is_cancelled && !job->is_running);
        unlink_job(job);
        link_job(job, &abandoned);
    }
    pthread_mutex_unlock(&jobs_lock);
    return_block(device, staging);
}
