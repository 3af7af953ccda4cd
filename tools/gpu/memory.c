/* SPDX-License-Identifier: MIT */
/*
 * Allocations: cuMemAlloc, and cuMemAllocAsync from the device's default pool. The pool keeps freed memory up
 * to its release threshold and returns the rest whenever a stream is synchronised.
 */
#include "raw.h"

#include <stdio.h>

#define FLIGHT 1000u
#define SMALL_BYTES (64 * KIB)
#define LARGE_BYTES (2 * MIB)

/* Variants; combined by addition. */
#define LARGE 1u
#define KEEP 2u /* the pool keeps all freed memory */
#define WAIT 4u /* until the stream has executed the calls */

static uint64_t bytes_of(unsigned variant)
{
    return variant & LARGE ? LARGE_BYTES : SMALL_BYTES;
}

static CUresult run_alloc(struct raw *raw, unsigned variant, double *ret_us)
{
    CUdeviceptr address;
    if (raw->call.cuMemAlloc == NULL || raw->call.cuMemFree == NULL)
        return raw_missing(raw, "cuMemAlloc");
    uint64_t start_ns = raw_clock_ns();
    CUresult result = raw_did(raw, "cuMemAlloc", raw->call.cuMemAlloc(&address, bytes_of(variant)));
    if (result == CUDA_SUCCESS)
        result = raw_did(raw, "cuMemFree", raw->call.cuMemFree(address));
    *ret_us = raw_us_since(start_ns);
    return result;
}

/* ---- the default pool ---- */

static CUresult set_threshold(struct raw *raw, unsigned variant)
{
    CUmemoryPool pool;
    cuuint64_t threshold = variant & KEEP ? UINT64_MAX : 0;
    if (raw->call.cuDeviceGetDefaultMemPool == NULL || raw->call.cuMemPoolSetAttribute == NULL ||
        raw->call.cuMemAllocAsync == NULL || raw->call.cuMemFreeAsync == NULL ||
        raw->call.cuMemPoolTrimTo == NULL || raw->call.cuMemsetD8Async == NULL)
        return raw_missing(raw, "cuMemAllocAsync");
    CUresult result =
        raw_did(raw, "cuDeviceGetDefaultMemPool", raw->call.cuDeviceGetDefaultMemPool(&pool, raw->device));
    if (result == CUDA_SUCCESS)
        result =
            raw_did(raw, "cuMemPoolSetAttribute",
                    raw->call.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    if (result == CUDA_SUCCESS && !(variant & KEEP))
        result = raw_did(raw, "cuMemPoolTrimTo", raw->call.cuMemPoolTrimTo(pool, 0));
    return result;
}

static CUresult alloc_once(struct raw *raw, unsigned variant, bool fill)
{
    CUdeviceptr address;
    CUresult filled = CUDA_SUCCESS;
    CUresult result =
        raw_did(raw, "cuMemAllocAsync", raw->call.cuMemAllocAsync(&address, bytes_of(variant), raw->stream));
    if (result != CUDA_SUCCESS)
        return result;
    if (fill)
        filled = raw_did(raw, "cuMemsetD8Async",
                         raw->call.cuMemsetD8Async(address, 0x2a, bytes_of(variant), raw->stream));
    result = raw_did(raw, "cuMemFreeAsync", raw->call.cuMemFreeAsync(address, raw->stream));
    return filled != CUDA_SUCCESS ? filled : result;
}

static CUresult drain(struct raw *raw)
{
    return raw_did(raw, "cuStreamSynchronize", raw->call.cuStreamSynchronize(raw->stream));
}

static CUresult run_pool(struct raw *raw, unsigned variant, double *ret_us)
{
    CUresult result = set_threshold(raw, variant);
    if (result == CUDA_SUCCESS)
        result = alloc_once(raw, variant, false); /* replaces the state that the last case left */
    if (result == CUDA_SUCCESS)
        result = drain(raw);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t start_ns = raw_clock_ns();
    result = alloc_once(raw, variant, false);
    if (result == CUDA_SUCCESS && variant & WAIT)
        result = drain(raw);
    *ret_us = raw_us_since(start_ns);
    return result == CUDA_SUCCESS ? drain(raw) : result;
}

/* ---- many buffers in flight ---- */

static CUresult run_pool_flight(struct raw *raw, unsigned variant, double *ret_us)
{
    CUresult result = set_threshold(raw, variant);
    uint64_t start_ns = raw_clock_ns();
    for (unsigned i = 0; i < FLIGHT && result == CUDA_SUCCESS; i++)
        result = alloc_once(raw, variant, true);
    CUresult drained = drain(raw);
    *ret_us = raw_us_since(start_ns) / FLIGHT;
    return result != CUDA_SUCCESS ? result : drained;
}

/* A host without a release queue waits and then frees. */
static CUresult run_plain_flight(struct raw *raw, unsigned variant, double *ret_us)
{
    static CUdeviceptr addresses[FLIGHT];
    unsigned made = 0;
    CUresult result = CUDA_SUCCESS;
    if (raw->call.cuMemAlloc == NULL || raw->call.cuMemFree == NULL || raw->call.cuMemsetD8Async == NULL)
        return raw_missing(raw, "cuMemAlloc");
    uint64_t start_ns = raw_clock_ns();
    while (made < FLIGHT && result == CUDA_SUCCESS) {
        result = raw_did(raw, "cuMemAlloc", raw->call.cuMemAlloc(&addresses[made], bytes_of(variant)));
        if (result == CUDA_SUCCESS)
            result =
                raw_did(raw, "cuMemsetD8Async",
                        raw->call.cuMemsetD8Async(addresses[made++], 0x2a, bytes_of(variant), raw->stream));
    }
    CUresult drained = drain(raw);
    for (unsigned i = 0; i < made; i++)
        (void)raw->call.cuMemFree(addresses[i]); /* a driver error here appears again in the next case */
    *ret_us = raw_us_since(start_ns) / FLIGHT;
    return result != CUDA_SUCCESS ? result : drained;
}

/* ---- facts ---- */

#define PROBES 64u

/* The decrease of free memory for one block, and per block for many. */
static json_t *loss_of(struct raw *raw, uint64_t bytes)
{
    CUdeviceptr addresses[PROBES];
    size_t before = 0, first = 0, after = 0, total;
    unsigned made = 0;
    if (raw->call.cuMemGetInfo(&before, &total) != CUDA_SUCCESS)
        return json_null();
    for (; made < PROBES && raw->call.cuMemAlloc(&addresses[made], bytes) == CUDA_SUCCESS; made++)
        if (made == 0)
            (void)raw->call.cuMemGetInfo(&first, &total); /* the same call succeeded just before */
    (void)raw->call.cuMemGetInfo(&after, &total);
    for (unsigned i = 0; i < made; i++)
        (void)raw->call.cuMemFree(addresses[i]);
    if (made == 0)
        return json_null();
    return json_pack("{s:I, s:I, s:i, s:I}", "bytes", (json_int_t)bytes, "first_loses",
                     (json_int_t)before - (json_int_t)first, "blocks", (int)made, "all_lose",
                     (json_int_t)before - (json_int_t)after);
}

/* Returns true if blocks of whole 2 MiB lie at multiples of 2 MiB, null if no block could be allocated. */
static json_t *large_are_aligned(struct raw *raw)
{
    static const uint64_t sizes[] = {1, 2, 3, 8, 32};
    CUdeviceptr addresses[3 * sizeof sizes / sizeof *sizes], small;
    unsigned made = 0;
    bool aligned = true;
    /* A small block first, so that the alignment of the large ones is no accident of the start address. */
    bool has_small = raw->call.cuMemAlloc(&small, 1) == CUDA_SUCCESS;
    for (unsigned i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (raw->call.cuMemAlloc(&addresses[made], sizes[i % 5] * LARGE_BYTES) == CUDA_SUCCESS)
            aligned &= addresses[made++] % LARGE_BYTES == 0;
    for (unsigned i = 0; i < made; i++)
        (void)raw->call.cuMemFree(addresses[i]);
    if (has_small)
        (void)raw->call.cuMemFree(small);
    return made == 0 ? json_null() : json_boolean(aligned);
}

static void report_facts(struct raw *raw)
{
    static const uint64_t sizes[] = {1, 64 * KIB, 1 * MIB, 2 * MIB, 3 * MIB};
    json_t *losses = json_array();
    if (raw->call.cuMemAlloc == NULL || raw->call.cuMemFree == NULL || raw->call.cuMemGetInfo == NULL)
        return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        (void)json_array_append_new(losses, loss_of(raw, sizes[i]));
    raw_fact(raw, "alloc_loses", losses);
    raw_fact(raw, "alloc_2_mib_aligned", large_are_aligned(raw));
}

#define POOLED(text) "raw/cuMemAllocAsync + cuMemFreeAsync, " text

void raw_memory(struct raw *raw)
{
    static const struct raw_case cases[] = {
        {{"raw/cuMemAlloc + cuMemFree"}, "2 MiB", "us", run_alloc, LARGE, 0},
        {{"raw/cuMemAlloc + cuMemFree"}, "64 KiB", "us", run_alloc, 0, 0},
        {{POOLED("threshold 0")}, "2 MiB", "us", run_pool, LARGE, 0},
        {{POOLED("threshold 0")}, "64 KiB", "us", run_pool, 0, 0},
        {{POOLED("threshold 0, waited for")}, "2 MiB", "us", run_pool, LARGE | WAIT, 0},
        {{POOLED("threshold 0, waited for")}, "64 KiB", "us", run_pool, WAIT, 0},
        {{POOLED("threshold max")}, "2 MiB", "us", run_pool, LARGE | KEEP, 0},
        {{POOLED("threshold max")}, "64 KiB", "us", run_pool, KEEP, 0},
        {{POOLED("threshold max, waited for")}, "2 MiB", "us", run_pool, LARGE | KEEP | WAIT, 0},
        {{POOLED("threshold max, waited for")}, "64 KiB", "us", run_pool, KEEP | WAIT, 0},
        {{"raw/cuMemAllocAsync + fill + cuMemFreeAsync"}, "64 KiB x1000", "us", run_pool_flight, KEEP, 21},
        {{"raw/cuMemAlloc + fill, waited for, cuMemFree"}, "64 KiB x1000", "us", run_plain_flight, 0, 21},
    };
    report_facts(raw);
    raw_measure(raw, cases, sizeof cases / sizeof *cases);
    (void)set_threshold(raw, 0); /* restores it; a missing pool has been reported */
}
