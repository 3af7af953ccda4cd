/* SPDX-License-Identifier: MIT */
/*
 * The cost to the host of each way to learn that a stream has reached a point, and the speed of copies to and
 * from the device: from pinned memory, which the device reads directly, and from pageable memory, which the
 * driver stages.
 */
#include "raw.h"

#include <stdlib.h>
#include <string.h>

#define COPIED_BYTES (64 * MIB)
#define PEAK_BYTES (256 * MIB)
#define CALLS 64u /* calls per sample: a stream accepts more without blocking */

static CUevent event;
static uint64_t *word; /* pinned, and mapped for the device */
static CUdeviceptr word_address;
static void *pinned;
static void *pageable;
static CUdeviceptr copied;

static CUresult drain(struct raw *raw)
{
    return raw_did(raw, "cuStreamSynchronize", raw->call.cuStreamSynchronize(raw->stream));
}

/* ---- fences ---- */

static CUresult run_event(struct raw *raw, unsigned variant, double *ret_us)
{
    (void)variant;
    CUresult result = CUDA_SUCCESS;
    if (event == NULL)
        return raw_missing(raw, "event");
    uint64_t start_ns = raw_clock_ns();
    for (unsigned i = 0; i < CALLS && result == CUDA_SUCCESS; i++) {
        result = raw_did(raw, "cuEventRecord", raw->call.cuEventRecord(event, raw->stream));
        CUresult query = raw->call.cuEventQuery(event);
        if (result == CUDA_SUCCESS && query != CUDA_ERROR_NOT_READY)
            result = raw_did(raw, "cuEventQuery", query);
    }
    *ret_us = raw_us_since(start_ns) / CALLS;
    return result == CUDA_SUCCESS ? drain(raw) : result;
}

static CUresult run_write(struct raw *raw, unsigned variant, double *ret_us)
{
    (void)variant;
    CUresult result = CUDA_SUCCESS;
    if (word == NULL || raw->call.cuStreamWriteValue64 == NULL)
        return raw_missing(raw, "cuStreamWriteValue64");
    uint64_t start_ns = raw_clock_ns();
    for (unsigned i = 0; i < CALLS && result == CUDA_SUCCESS; i++)
        result = raw_did(raw, "cuStreamWriteValue64",
                         raw->call.cuStreamWriteValue64(raw->stream, word_address, i, 0));
    *ret_us = raw_us_since(start_ns) / CALLS;
    return result == CUDA_SUCCESS ? drain(raw) : result;
}

static void CUDA_CB do_nothing(void *user)
{
    (void)user;
}

/* variant: wait until each has run */
static CUresult run_host_function(struct raw *raw, unsigned variant, double *ret_us)
{
    CUresult result = CUDA_SUCCESS;
    if (raw->call.cuLaunchHostFunc == NULL)
        return raw_missing(raw, "cuLaunchHostFunc");
    uint64_t start_ns = raw_clock_ns();
    for (unsigned i = 0; i < CALLS && result == CUDA_SUCCESS; i++) {
        result = raw_did(raw, "cuLaunchHostFunc", raw->call.cuLaunchHostFunc(raw->stream, do_nothing, NULL));
        if (result == CUDA_SUCCESS && variant)
            result = drain(raw);
    }
    *ret_us = raw_us_since(start_ns) / CALLS;
    return result == CUDA_SUCCESS ? drain(raw) : result;
}

/* ---- copies ---- */

#define PINNED 1u
#define BACK 2u
#define PEAK 4u

static CUresult run_copy(struct raw *raw, unsigned variant, double *ret_gib_per_s)
{
    uint64_t bytes = variant & PEAK ? PEAK_BYTES : COPIED_BYTES;
    void *host = variant & PINNED ? pinned : pageable;
    if (raw->call.cuMemcpyHtoDAsync == NULL || raw->call.cuMemcpyDtoHAsync == NULL)
        return raw_missing(raw, "cuMemcpyHtoDAsync");
    if (host == NULL || copied == 0)
        return raw_did(raw, "memory to copy", CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t start_ns = raw_clock_ns();
    CUresult result = variant & BACK ? raw_did(raw, "cuMemcpyDtoHAsync",
                                               raw->call.cuMemcpyDtoHAsync(host, copied, bytes, raw->stream))
                                     : raw_did(raw, "cuMemcpyHtoDAsync",
                                               raw->call.cuMemcpyHtoDAsync(copied, host, bytes, raw->stream));
    CUresult drained = drain(raw);
    *ret_gib_per_s = (double)bytes / (double)(1024 * MIB) / (raw_us_since(start_ns) / 1e6);
    return result != CUDA_SUCCESS ? result : drained;
}

/* ---- set-up ---- */

/* An object that cannot be made stays NULL, and its cases are skipped. */
static void make_all(struct raw *raw)
{
    void *memory = NULL;
    if (raw->call.cuEventCreate != NULL && raw->call.cuEventDestroy != NULL &&
        raw->call.cuEventRecord != NULL && raw->call.cuEventQuery != NULL &&
        raw->call.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        event = NULL;
    pageable = malloc(COPIED_BYTES);
    if (pageable != NULL)
        memset(pageable, 1, COPIED_BYTES);
    if (raw->call.cuMemAlloc != NULL && raw->call.cuMemFree != NULL &&
        raw->call.cuMemAlloc(&copied, PEAK_BYTES) != CUDA_SUCCESS)
        copied = 0;
    if (raw->call.cuMemHostAlloc == NULL || raw->call.cuMemFreeHost == NULL)
        return;
    if (raw->call.cuMemHostAlloc(&memory, PEAK_BYTES, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS) {
        memset(memory, 1, PEAK_BYTES);
        pinned = memory;
    }
    if (raw->call.cuMemHostGetDevicePointer == NULL ||
        raw->call.cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) !=
            CUDA_SUCCESS)
        return;
    word = memory;
    if (raw->call.cuMemHostGetDevicePointer(&word_address, word, 0) != CUDA_SUCCESS) {
        (void)raw->call.cuMemFreeHost(word);
        word = NULL;
    }
}

static void free_all(struct raw *raw)
{
    if (event != NULL)
        (void)raw->call.cuEventDestroy(event); /* here and below: the program ends next */
    if (word != NULL)
        (void)raw->call.cuMemFreeHost(word);
    if (pinned != NULL)
        (void)raw->call.cuMemFreeHost(pinned);
    if (copied != 0)
        (void)raw->call.cuMemFree(copied);
    free(pageable);
}

void raw_work(struct raw *raw)
{
    static const struct raw_case cases[] = {
        {{"raw/cuEventRecord + cuEventQuery"}, "-", "us", run_event, 0, 0},
        {{"raw/cuStreamWriteValue64"}, "-", "us", run_write, 0, 0},
        {{"raw/cuLaunchHostFunc"}, "-", "us", run_host_function, 0, 0},
        {{"raw/cuLaunchHostFunc, waited for"}, "-", "us", run_host_function, 1, 21},
        {{"raw/copy 64 MiB, host to device"}, "pageable", "GiB/s", run_copy, 0, 21},
        {{"raw/copy 64 MiB, device to host"}, "pageable", "GiB/s", run_copy, BACK, 21},
        {{"raw/copy 64 MiB, host to device"}, "pinned", "GiB/s", run_copy, PINNED, 21},
        {{"raw/copy 64 MiB, device to host"}, "pinned", "GiB/s", run_copy, PINNED | BACK, 21},
        {{"raw/copy 256 MiB, host to device"}, "pinned", "GiB/s", run_copy, PINNED | PEAK, 10},
        {{"raw/copy 256 MiB, device to host"}, "pinned", "GiB/s", run_copy, PINNED | BACK | PEAK, 10},
    };
    make_all(raw);
    raw_measure(raw, cases, sizeof cases / sizeof *cases);
    free_all(raw);
}
