/* SPDX-License-Identifier: MIT */
/*
 * The functions of the CUDA driver that this provider calls, each in the version of
 * the signature that the code uses: SYMBOL(name, version). cuGetProcAddress takes that version, and the
 * function's type in cudaTypedefs.h ends with it. A newer driver returns the same function, even if its
 * header gives the name another signature.
 */
#ifndef MOORAGE_CUDA_SYMBOLS_H
#define MOORAGE_CUDA_SYMBOLS_H

#define CUDA_SYMBOLS(SYMBOL)                                                                                 \
    /* driver and devices */                                                                                 \
    SYMBOL(cuInit, 2000)                                                                                     \
    SYMBOL(cuDriverGetVersion, 2020)                                                                         \
    SYMBOL(cuGetErrorName, 6000)                                                                             \
    SYMBOL(cuGetErrorString, 6000)                                                                           \
    SYMBOL(cuDeviceGetCount, 2000)                                                                           \
    SYMBOL(cuDeviceGet, 2000)                                                                                \
    SYMBOL(cuDeviceGetName, 2000)                                                                            \
    SYMBOL(cuDeviceGetUuid, 11040)                                                                           \
    SYMBOL(cuDeviceTotalMem, 3020)                                                                           \
    SYMBOL(cuDeviceGetAttribute, 2000)                                                                       \
    SYMBOL(cuDeviceCanAccessPeer, 4000)                                                                      \
    /* contexts */                                                                                           \
    SYMBOL(cuDevicePrimaryCtxRetain, 7000)                                                                   \
    SYMBOL(cuDevicePrimaryCtxRelease, 11000)                                                                 \
    SYMBOL(cuCtxPushCurrent, 4000)                                                                           \
    SYMBOL(cuCtxPopCurrent, 4000)                                                                            \
    SYMBOL(cuThreadExchangeStreamCaptureMode, 10010)                                                         \
    /* memory */                                                                                             \
    SYMBOL(cuMemAlloc, 3020)                                                                                 \
    SYMBOL(cuMemFree, 3020)                                                                                  \
    SYMBOL(cuMemAllocManaged, 6000)                                                                          \
    SYMBOL(cuMemHostAlloc, 2020)                                                                             \
    SYMBOL(cuMemFreeHost, 2000)                                                                              \
    SYMBOL(cuMemHostGetDevicePointer, 3020)                                                                  \
    SYMBOL(cuMemHostRegister, 6050)                                                                          \
    SYMBOL(cuMemHostUnregister, 4000)                                                                        \
    SYMBOL(cuMemGetInfo, 3020)                                                                               \
    SYMBOL(cuPointerGetAttribute, 4000)                                                                      \
    /* virtual memory */                                                                                     \
    SYMBOL(cuMemGetAllocationGranularity, 10020)                                                             \
    SYMBOL(cuMemAddressReserve, 10020)                                                                       \
    SYMBOL(cuMemAddressFree, 10020)                                                                          \
    SYMBOL(cuMemCreate, 10020)                                                                               \
    SYMBOL(cuMemRelease, 10020)                                                                              \
    SYMBOL(cuMemMap, 10020)                                                                                  \
    SYMBOL(cuMemUnmap, 10020)                                                                                \
    SYMBOL(cuMemSetAccess, 10020)                                                                            \
    /* streams */                                                                                            \
    SYMBOL(cuStreamCreate, 2000)                                                                             \
    SYMBOL(cuStreamDestroy, 4000)                                                                            \
    SYMBOL(cuStreamGetCtx, 9020)                                                                             \
    SYMBOL(cuStreamGetFlags, 5050)                                                                           \
    SYMBOL(cuStreamIsCapturing, 10000)                                                                       \
    SYMBOL(cuStreamQuery, 2000)                                                                              \
    SYMBOL(cuStreamSynchronize, 2000)                                                                        \
    SYMBOL(cuStreamWaitEvent, 3020)                                                                          \
    SYMBOL(cuStreamWriteValue64, 11070)                                                                      \
    SYMBOL(cuStreamWaitValue64, 11070)                                                                       \
    SYMBOL(cuLaunchHostFunc, 10000)                                                                          \
    SYMBOL(cuEventCreate, 2000)                                                                              \
    SYMBOL(cuEventDestroy, 4000)                                                                             \
    SYMBOL(cuEventRecord, 2000)                                                                              \
    SYMBOL(cuEventQuery, 2000)                                                                               \
    /* copies */                                                                                             \
    SYMBOL(cuMemcpyHtoDAsync, 3020)                                                                          \
    SYMBOL(cuMemcpyDtoHAsync, 3020)                                                                          \
    SYMBOL(cuMemcpyDtoDAsync, 3020)                                                                          \
    SYMBOL(cuMemcpyPeerAsync, 4000)                                                                          \
    SYMBOL(cuMemsetD8Async, 3020)                                                                            \
    SYMBOL(cuMemsetD16Async, 3020)                                                                           \
    SYMBOL(cuMemsetD32Async, 3020)

#endif
