/* SPDX-License-Identifier: MIT */
/*
 * Copies in which the host's processor takes part, in stream order. A copy of the driver's from or to
 * pageable memory waits for the stream, and no call of ours may. So such memory goes through pinned memory of
 * the stream's, chunk by chunk: a host function copies between the two, and the device between that and its
 * own. The order of the stream is what makes each chunk wait for the one before.
 *
 * One job stands for all chunks of a copy, since they run one after the other. It frees itself when the last
 * has run; the jobs of a stream that is lost are freed with its rest.
 */
#include "provider.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct cuda_job {
    struct cuda_job *next; /* by staging->lock, as the next four */
    struct cuda_job *previous;
    uint64_t runs_left; /* and one while it is being submitted */
    bool is_cancelled;
    bool is_running;
    struct cuda_staging *staging;
    char *destination; /* of the next chunk */
    const char *source;
    uint64_t bytes_left;
    uint64_t chunk_bytes;
    bool moves_destination; /* the other end is the staging memory, and stays where it is */
    bool moves_source;
};

/* staging->lock is held, in both. */
static void link_job(struct cuda_job *job)
{
    job->next = job->staging->jobs;
    if (job->next)
        job->next->previous = job;
    job->staging->jobs = job;
}

static void unlink_job(struct cuda_job *job)
{
    if (job->next)
        job->next->previous = job->previous;
    if (job->previous)
        job->previous->next = job->next;
    else
        job->staging->jobs = job->next;
}

/* staging->lock is held. */
static void drop_runs_and_unlock(struct cuda_job *job, uint64_t count)
{
    struct cuda_staging *staging = job->staging;
    job->runs_left -= count;
    bool is_over = job->runs_left == 0;
    if (is_over)
        unlink_job(job);
    pthread_mutex_unlock(&staging->lock);
    if (is_over)
        free(job);
}

static void copy_chunk(struct cuda_job *job)
{
    uint64_t bytes = job->bytes_left < job->chunk_bytes ? job->bytes_left : job->chunk_bytes;
    memcpy(job->destination, job->source, bytes);
    job->bytes_left -= bytes;
    if (job->moves_destination)
        job->destination += bytes;
    if (job->moves_source)
        job->source += bytes;
}

/* The host function: on a thread of the driver's. */
static void CUDA_CB run(void *user)
{
    struct cuda_job *job = user;
    struct cuda_staging *staging = job->staging;
    pthread_mutex_lock(&staging->lock);
    bool is_cancelled = job->is_cancelled;
    job->is_running = true;
    pthread_mutex_unlock(&staging->lock);
    if (!is_cancelled)
        copy_chunk(job);
    pthread_mutex_lock(&staging->lock);
    job->is_running = false;
    drop_runs_and_unlock(job, 1);
}

static struct cuda_job *create_job(struct cuda_staging *staging, uint64_t bytes, uint64_t chunk_bytes)
{
    struct cuda_job *job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->staging = staging;
    job->bytes_left = bytes;
    job->chunk_bytes = chunk_bytes;
    job->runs_left = 1 + bytes / chunk_bytes + (bytes % chunk_bytes != 0);
    pthread_mutex_lock(&staging->lock);
    link_job(job);
    pthread_mutex_unlock(&staging->lock);
    return job;
}

/* The end of its submission; on failure the runs that have been launched do nothing any more. */
static void submitted(struct cuda_job *job, uint64_t not_launched, bool has_failed)
{
    pthread_mutex_lock(&job->staging->lock);
    job->is_cancelled = has_failed;
    drop_runs_and_unlock(job, not_launched + 1);
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

static int32_t get_memory(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct cuda_staging *staging = &stream->rest->staging;
    struct cuda_device *device = stream->context->device;
    if (staging->memory)
        return MOOR_OK;
    pthread_mutex_lock(&device->lock);
    void *memory = device->spare_staging;
    if (memory)
        memcpy(&device->spare_staging, memory, sizeof(memory));
    pthread_mutex_unlock(&device->lock);
    struct cuda_scope scope;
    int32_t status = memory ? MOOR_OK : cuda_enter(device, &scope, error);
    if (!memory && status == MOOR_OK) {
        status = cuda_check(device,
                            cuda_driver_of(device)->cuMemHostAlloc(&memory, device->instance->staging_bytes,
                                                                   CU_MEMHOSTALLOC_PORTABLE),
                            MOOR_HOST_NOMEM, "cuMemHostAlloc", error);
        cuda_leave(&scope);
    }
    if (status == MOOR_OK)
        staging->memory = memory;
    return status;
}

/* Freeing pinned memory makes the driver wait for the whole device, so a stream's is kept for the next one.
 * */
static void give_memory(struct cuda_device *device, struct cuda_staging *staging)
{
    if (!staging->memory || cuda_has_gone(device))
        return;
    pthread_mutex_lock(&device->lock);
    memcpy(staging->memory, &device->spare_staging, sizeof(device->spare_staging));
    device->spare_staging = staging->memory;
    pthread_mutex_unlock(&device->lock);
    staging->memory = NULL;
}

void cuda_stagings_free(struct cuda_device *device)
{
    while (device->spare_staging && cuda_out_of_reach(device) == CUDA_SUCCESS) {
        void *memory = device->spare_staging;
        memcpy(&device->spare_staging, memory, sizeof(memory));
        (void)cuda_driver_of(device)->cuMemFreeHost(memory); /* goes with the context in any case */
    }
    device->spare_staging = NULL;
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
    void *memory = job->staging->memory;
    for (uint64_t at = 0; at < bytes; at += chunk_bytes) {
        uint64_t size = bytes - at < chunk_bytes ? bytes - at : chunk_bytes;
        int32_t status = MOOR_OK;
        for (int step = 0; step < 2 && status == MOOR_OK; step++) {
            bool is_run = (step == 0) == to_device;
            status = is_run ? launch(lane, job, error)
                            : transfer(lane, to_device, device_address + at, memory, size, error);
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
    int32_t status = get_memory(stream, error);
    if (status != MOOR_OK)
        return status;
    struct cuda_job *job = create_job(staging, bytes, chunk_bytes);
    if (!job)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a copy's record");
    uint64_t runs = job->runs_left - 1;
    job->destination = to_device ? staging->memory : cuda_pointer(host_address);
    job->source = to_device ? cuda_pointer(host_address) : staging->memory;
    job->moves_destination = !to_device;
    job->moves_source = to_device;
    uint64_t launched = 0;
    bool has_transfers = false;
    status = submit_chunks(lane, job, to_device, device_address, bytes, &launched, &has_transfers, error);
    submitted(job, runs - launched, status != MOOR_OK);
    /* A copy that failed must not touch the caller's memory later. That is rare enough to wait for. */
    if (status != MOOR_OK && status != MOOR_DEVICE_LOST && has_transfers)
        (void)cuda_driver_of(lane->device)->cuStreamSynchronize(lane->native);
    return status;
}

bool cuda_staging_is_empty(struct cuda_staging *staging)
{
    pthread_mutex_lock(&staging->lock);
    bool is_empty = staging->jobs == NULL;
    pthread_mutex_unlock(&staging->lock);
    return is_empty;
}

void cuda_staging_finish(struct cuda_device *device, struct cuda_staging *staging)
{
    const struct timespec pause = {.tv_nsec = 100000};
    pthread_mutex_lock(&staging->lock);
    while (staging->jobs) { /* of a stream that was lost */
        struct cuda_job *job = staging->jobs;
        if (job->is_running) {
            pthread_mutex_unlock(&staging->lock);
            (void)nanosleep(&pause, NULL); /* a memcpy, which ends by itself */
            pthread_mutex_lock(&staging->lock);
            continue;
        }
        unlink_job(job);
        free(job);
    }
    pthread_mutex_unlock(&staging->lock);
    give_memory(device, staging);
}
