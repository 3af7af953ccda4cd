/* SPDX-License-Identifier: MIT */
/*
 * The cost of the CUDA driver's own calls without Moorage, for comparison with the provider. The driver is
 * opened at run time. A case that needs a missing function is skipped.
 */
#ifndef MOOR_GPU_RAW_H
#define MOOR_GPU_RAW_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Symbol, and the version that has the signature used here: see cuGetProcAddress. */
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
    const char *library;  /* path from the command line */
    unsigned index;       /* index of the device */
    size_t rounds;        /* at most RAW_ROUNDS_MAX */
    uint64_t deadline_ns; /* monotonic: no round starts after it */
    bool simulated;
    CUdevice device;
    CUcontext context; /* the primary context, current; NULL: not yet */
    CUstream stream;
    uint64_t granule_bytes;         /* at least 2 MiB; 0: no virtual memory management */
    CUmemAllocationProp properties; /* properties of the device's physical memory */
    json_t *facts;
    json_t *results;
    json_t *skipped;
    char reason[256]; /* the last failure */
};

/* A case: one call of `run` gives one sample of each part. A NULL name ends the parts. */
struct raw_case {
    const char *names[RAW_PARTS_MAX];
    const char *param;
    const char *unit;
    CUresult (*run)(struct raw *raw, unsigned variant, double *ret_values);
    unsigned variant;
    size_t rounds_max; /* 0: the number on the command line */
};

/* Opens driver and device. Returns 0, or the program's exit status, with the text in `reason`. */
int raw_open(struct raw *raw);
void raw_close(struct raw *raw);

/* Each round runs every case once. A case that fails in its trial is skipped and listed with the reason. */
void raw_measure(struct raw *raw, const struct raw_case *cases, size_t count);

/* Records a failure in `reason`. Returns the result. */
CUresult raw_did(struct raw *raw, const char *what, CUresult result);
/* Records that the driver lacks a function. */
CUresult raw_missing(struct raw *raw, const char *function);

uint64_t raw_clock_ns(void);
double raw_us_since(uint64_t start_ns);
void raw_fact(struct raw *raw, const char *key, json_t *value); /* takes over the reference */

/* The groups. Each reports facts and measures its cases. */
void raw_device(struct raw *raw);  /* device.c: the device and its driver */
void raw_memory(struct raw *raw);  /* memory.c: allocations */
void raw_virtual(struct raw *raw); /* virtual.c: physical memory, maps */
void raw_work(struct raw *raw);    /* work.c: fences and copies */

#endif
