/* SPDX-License-Identifier: MIT */
/* Threads that use the simulated driver correctly, all at once: no violation, right bytes, no object left.
 * Also run under ThreadSanitizer. */
#include <cuda.h>
#include <moorage/cudasim.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define ROUNDS 150
#define BYTES 5000
#define GRANULE (2u << 20)

extern const struct moor_cudasim moor_cudasim;

#define OK(call) check(call, #call, __LINE__)
static void check(CUresult result, const char *call, int line)
{
    if (result == CUDA_SUCCESS)
        return;
    (void)fprintf(stderr, "%d: %s: %d\n", line, call, (int)result);
    abort();
}

static CUcontext context;
static uint64_t *word;
static CUdeviceptr word_address;

static void touch(void *counter)
{
    ++*(int *)counter;
}

static CUdeviceptr map_one(void)
{
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {.location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    OK(cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
    OK(cuMemCreate(&handle, GRANULE, &property, 0));
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemSetAccess(address, GRANULE, &access, 1));
    return address;
}

/* Sends bytes through two kinds of memory and two streams, and back. */
static void round_trip(const CUstream streams[2], CUevent event, unsigned char *host, int number)
{
    int counter = 0;
    CUdeviceptr block;
    CUdeviceptr mapped = map_one();
    OK(cuMemAlloc(&block, BYTES));
    memset(host, number, BYTES);
    OK(cuMemcpyHtoDAsync(block, host, BYTES, streams[0]));
    OK(cuLaunchHostFunc(streams[0], touch, &counter));
    OK(cuEventRecord(event, streams[0]));
    OK(cuStreamWaitEvent(streams[1], event, 0));
    OK(cuMemcpyDtoDAsync(mapped + 100, block, BYTES, streams[1]));
    OK(cuMemsetD8Async(mapped + 100, number + 1, 1, streams[1]));
    OK(cuMemcpyDtoHAsync(host, mapped + 100, BYTES, streams[1]));
    while (cuStreamQuery(streams[1]) == CUDA_ERROR_NOT_READY)
        ;
    if (counter != 1 || host[0] != (unsigned char)(number + 1) || host[1] != (unsigned char)number ||
        host[BYTES - 1] != (unsigned char)number)
        abort();
    OK(cuMemFree(block));
    OK(cuMemUnmap(mapped, GRANULE));
    OK(cuMemAddressFree(mapped, GRANULE));
}

static void *work(void *argument)
{
    int number = (int)(intptr_t)argument;
    CUstream streams[2];
    CUevent event;
    void *host;
    OK(cuCtxPushCurrent(context));
    OK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&streams[1], number % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemHostAlloc(&host, BYTES, CU_MEMHOSTALLOC_PORTABLE));
    for (int i = 0; i < ROUNDS; i++) {
        round_trip(streams, event, host, number + i);
        OK(cuStreamWriteValue64(streams[0], word_address + (unsigned)number * 64, (unsigned)i, 0));
        while (__atomic_load_n(&word[number * 8], __ATOMIC_ACQUIRE) != (unsigned)i)
            ;
    }
    OK(cuMemFreeHost(host));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(streams[0]));
    OK(cuStreamDestroy(streams[1]));
    OK(cuCtxPopCurrent(NULL));
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    void *host;
    if (moor_cudasim.configure("delay_us=50,leaks=1") != 0)
        return 1;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxPushCurrent(context));
    OK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&word_address, host, 0));
    word = host;
    memset(word, 0xff, 4096);
    for (intptr_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    OK(cuMemFreeHost(host));
    OK(cuCtxPopCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(0));
    (void)printf("%d threads, %d rounds each: no violation\n", THREADS, ROUNDS);
    return 0;
}
