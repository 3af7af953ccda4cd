/* SPDX-License-Identifier: MIT */
/*
 * What the CUDA driver's own calls cost, without Moorage: the figures that the provider's stand beside. The driver
 * is opened at run time; a function that it does not have leaves out the cases that need it.
 */
#ifndef MOOR_GPU_RAW_H
#define MOOR_GPU_RAW_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each in the version whose signature is used: see cuGetProcAddress. */
#define RAW_SYMBOLS(SYMBOL)                                                                                  \
    SYMBOL(cuInit, 2000)                                                                                     \
    SYMBOL(cuDriverGetVersion, 2020)                                                                         \
    SYMBOL(cuGetErrorName, 6000)                                                                             \
    SYMBOL(cuDeviceGetCount, 2000)                                                                           \
    SYMBOL(cuDeviceGet, 2000)                                                                                \
    SYMBOL(cuDeviceGetName, 2000)                                                                            \
    SYMBOL(cuDeviceGetUuid, 11040)                                                                           \
    SYMBOL(cuDeviceTotalMem, 3020)                                                                           \
    SYMBOL(cuDeviceGetAttribute, 2000)                                                                       \
    SYMBOL(cuDeviceGetDefaultMemPool, 11020)                                                                 \
    SYMBOL(cuDevicePrimaryCtxRetain, 7000)                                                                   \
    SYMBOL(cuDevicePrimaryCtxRelease, 11000)                                                                 \
    SYMBOL(cuCtxPushCurrent, 4000)                                                                           \
    SYMBOL(cuCtxPopCurrent, 4000)                                                                            \
    SYMBOL(cuMemAlloc, 3020)                                                                                 \
    SYMBOL(cuMemFree, 3020)                                                                                  \
    SYMBOL(cuMemAllocAsync, 11020)                                                                           \
    SYMBOL(cuMemFreeAsync, 11020)                                                                            \
    SYMBOL(cuMemPoolSetAttribute, 11020)                                                                     \
    SYMBOL(cuMemPoolGetAttribute, 11020)                                                                     \
    SYMBOL(cuMemPoolTrimTo, 11020)                                                                           \
    SYMBOL(cuMemHostAlloc, 2020)                                                                             \
    SYMBOL(cuMemFreeHost, 2000)                                                                              \
    SYMBOL(cuMemHostGetDevicePointer, 3020)                                                                  \
    SYMBOL(cuMemGetInfo, 3020)                                                                               \
    SYMBOL(cuMemGetAllocationGranularity, 10020)                                                             \
    SYMBOL(cuMemAddressReserve, 10020)                                                                       \
    SYMBOL(cuMemAddressFree, 10020)                                                                          \
    SYMBOL(cuMemCreate, 10020)                                                                               \
    SYMBOL(cuMemRelease, 10020)                                                                              \
    SYMBOL(cuMemMap, 10020)                                                                                  \
    SYMBOL(cuMemUnmap, 10020)                                                                                \
    SYMBOL(cuMemSetAccess, 10020)                                                                            \
    SYMBOL(cuStreamCreate, 2000)                                                                             \
    SYMBOL(cuStreamDestroy, 4000)                                                                            \
    SYMBOL(cuStreamSynchronize, 2000)                                                                        \
    SYMBOL(cuStreamWriteValue64, 11070)                                                                      \
    SYMBOL(cuLaunchHostFunc, 10000)                                                                          \
    SYMBOL(cuEventCreate, 2000)                                                                              \
    SYMBOL(cuEventDestroy, 4000)                                                                             \
    SYMBOL(cuEventRecord, 2000)                                                                              \
    SYMBOL(cuEventQuery, 2000)                                                                               \
    SYMBOL(cuMemcpyHtoDAsync, 3020)                                                                          \
    SYMBOL(cuMemcpyDtoHAsync, 3020)                                                                          \
    SYMBOL(cuMemsetD8Async, 3020)

struct raw_driver {
#define RAW_MEMBER(name, version) PFN_##name##_v##version name;
    RAW_SYMBOLS(RAW_MEMBER)
#undef RAW_MEMBER
};

#define RAW_ROUNDS_MAX 1000u
#define RAW_PARTS_MAX 8u

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

struct raw {
    struct raw_driver call;
    const char *library;  /* as given */
    unsigned index;       /* of the device */
    size_t rounds;        /* at most RAW_ROUNDS_MAX */
    uint64_t deadline_ns; /* monotonic: no round begins after it */
    bool simulated;
    CUdevice device;
    CUcontext context; /* the primary one, current; NULL: not yet */
    CUstream stream;
    uint64_t granule_bytes;         /* at least 2 MiB; 0: no virtual memory management */
    CUmemAllocationProp properties; /* of physical memory of this device */
    json_t *facts;
    json_t *results;
    json_t *left_out;
    char reason[256]; /* what failed last */
};

/* A case: one call of `run` gives one sample of each part. A part's name is NULL where there are no more. */
struct raw_case {
    const char *names[RAW_PARTS_MAX];
    const char *param;
    const char *unit;
    CUresult (*run)(struct raw *raw, unsigned variant, double *ret_values);
    unsigned variant;
    size_t rounds_max; /* 0: as many as were asked for */
};

/* Opens driver and device. 0, or the exit status of the program; then `reason` says why. */
int raw_open(struct raw *raw);
void raw_close(struct raw *raw);

/* One turn of all cases in each round. One that fails when it is tried first is left out, with the reason. */
void raw_measure(struct raw *raw, const struct raw_case *cases, size_t count);

/* Notes what failed; returns the result. */
CUresult raw_did(struct raw *raw, const char *what, CUresult result);
/* Notes that the driver lacks a function. */
CUresult raw_missing(struct raw *raw, const char *function);

uint64_t raw_clock_ns(void);
double raw_us_since(uint64_t start_ns);
void raw_fact(struct raw *raw, const char *key, json_t *value); /* takes the reference */

/* The groups; each tells facts and measures its cases. */
void raw_device(struct raw *raw);  /* device.c: what it is */
void raw_memory(struct raw *raw);  /* memory.c: allocations */
void raw_virtual(struct raw *raw); /* virtual.c: physical memory, maps */
void raw_work(struct raw *raw);    /* work.c: what a fence costs, and copies */

#endif
