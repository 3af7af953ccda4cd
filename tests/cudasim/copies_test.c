/* SPDX-License-Identifier: MIT */
/* Copies and memsets: directions, pageable memory, devices without access, bytes that are not mapped. */
#include "drive.h"
#include "slow_memory.h"
#include <string.h>
#include <unistd.h>

static unsigned char pattern[8192];

static void open_with_pattern(const char *settings)
{
    drive_open(settings);
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (unsigned char)(i * 7 + 3);
}

static void *pinned(void)
{
    void *host;
    OK(cuMemHostAlloc(&host, sizeof(pattern), 0));
    return host;
}

Test(copies, go_in_all_directions)
{
    open_with_pattern("");
    CUstream stream = drive_stream();
    CUdeviceptr block = drive_allocate(sizeof(pattern));
    CUdeviceptr mapped = drive_mapped(2);
    CUdeviceptr across = mapped + GRANULE - 1000; /* two mappings of one reservation */
    unsigned char *from = pinned();
    unsigned char *to = pinned();
    memcpy(from, pattern, sizeof(pattern));
    OK(cuMemcpyHtoDAsync(block, from, sizeof(pattern), stream));
    OK(cuMemcpyDtoDAsync(across, block, sizeof(pattern), stream));
    OK(cuMemcpyDtoHAsync(to, across, sizeof(pattern), stream));
    OK(cuMemcpyDtoHAsync(to, across, 0, stream));
    cr_assert_eq(moor_cudasim.waits(), 0, "pinned memory is waited for by nobody");
    OK(cuStreamSynchronize(stream));
    cr_assert_eq(memcmp(to, pattern, sizeof(pattern)), 0);
    memset(to, 0, sizeof(pattern));
    OK(cuMemcpyDtoH(to, across, sizeof(pattern)));
    cr_assert_eq(memcmp(to, pattern, sizeof(pattern)), 0);
    OK(cuMemFreeHost(from));
    OK(cuMemFreeHost(to));
    OK(cuMemFree(block));
    drive_unmapped(mapped, 2);
    OK(cuStreamDestroy(stream));
    drive_close();
}

static void delay(void *unused, void *const *bytes)
{
    (void)unused;
    (void)bytes;
}

/* To the device: the call waits for the queued work and then reads the bytes. */
Test(copies, of_pageable_memory_wait_and_read_it_at_once)
{
    static unsigned char pageable[sizeof(pattern)];
    open_with_pattern("");
    CUstream stream = drive_stream();
    CUdeviceptr block = drive_allocate(sizeof(pattern));
    moor_cudasim.settle();
    memcpy(pageable, pattern, sizeof(pattern));
    OK((CUresult)moor_cudasim.hold(stream)); /* an empty queue: no wait */
    OK(cuMemcpyHtoDAsync(block, pageable, sizeof(pattern), stream));
    cr_assert_eq(moor_cudasim.waits(), 0);
    memset(pageable, 0, sizeof(pageable));
    OK((CUresult)moor_cudasim.open(stream));
    OK(cuMemcpyDtoHAsync(pageable, block, sizeof(pattern), stream)); /* done when the call returns */
    cr_assert_eq(memcmp(pageable, pattern, sizeof(pattern)), 0);
    OK(cuStreamQuery(stream));
    uint64_t waits = moor_cudasim.waits();
    cr_assert_eq(moor_cudasim.configure("delay_us=20000,seed=3"), 0);
    for (int i = 0; i < 10; i++)
        OK((CUresult)moor_cudasim.launch(stream, NULL, 0, delay, NULL));
    OK(cuMemcpyHtoDAsync(block, pageable, sizeof(pattern), stream));
    cr_assert_eq(moor_cudasim.waits(), waits + 1);
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree(block));
    OK(cuStreamDestroy(stream));
    drive_close();
}

/* Memory that was registered without PORTABLE is pageable to other contexts. */
Test(copies, of_memory_that_another_context_has_registered)
{
    static unsigned char bytes[4096];
    CUcontext other;
    open_with_pattern("devices=2");
    OK(cuMemHostRegister(bytes, sizeof(bytes), 0));
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxPushCurrent(other));
    CUdeviceptr block = drive_allocate(100);
    CUstream stream = drive_stream();
    moor_cudasim.pause();
    OK(cuMemcpyHtoDAsync(block, bytes, 100, stream));
    moor_cudasim.resume();
    OK(cuMemcpyDtoHAsync(bytes, block, 100, stream));
    cr_assert_eq(moor_cudasim.waits(), 1);
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(block));
    OK(cuCtxPopCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(1));
    OK(cuMemHostUnregister(bytes));
    drive_close();
}

Test(copies, in_wrong_directions_are_refused)
{
    unsigned char *host;
    open_with_pattern("");
    host = pinned();
    CUdeviceptr block = drive_allocate(100);
    CUdeviceptr other = drive_allocate(100);
    VIOLATES("is a device address", CUDA_ERROR_INVALID_VALUE,
             cuMemcpyHtoDAsync(block, (void *)(uintptr_t)other, 10, NULL));
    VIOLATES("is a device address", CUDA_ERROR_INVALID_VALUE,
             cuMemcpyDtoHAsync((void *)(uintptr_t)other, block, 10, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync((uintptr_t)pattern, host, 10, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoHAsync(host, (uintptr_t)pattern, 10, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(block, (uintptr_t)pattern, 10, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(block, NULL, 10, NULL));
    VIOLATES("pinned up to its middle", CUDA_ERROR_INVALID_VALUE,
             cuMemcpyHtoDAsync(block, host + sizeof(pattern) - 5, 10, NULL));
    OK(cuMemFreeHost(host));
    OK(cuMemFree(block));
    OK(cuMemFree(other));
    drive_close();
}

/* Beyond an allocation there may be another one, which the copy must not touch. */
Test(copies, stay_within_an_allocation)
{
    open_with_pattern("");
    CUdeviceptr first = drive_allocate(256);
    CUdeviceptr second = drive_allocate(256);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(first, second + 1, 256, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(first, 0, 257, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32Async(first, 0, SIZE_MAX / 2, NULL));
    OK(cuMemFree(first));
    OK(cuMemFree(second));
    drive_close();
}

Test(memsets, write_elements)
{
    unsigned char found[32];
    open_with_pattern("");
    CUdeviceptr block = drive_allocate(32);
    CUstream stream = drive_stream();
    OK(cuMemsetD8Async(block, 0xee, 32, stream));
    OK(cuMemsetD16Async(block + 2, 0x1234, 2, stream));
    OK(cuMemsetD32Async(block + 8, 0xa1b2c3d4, 2, stream));
    OK(cuMemsetD8Async(block + 31, 1, 1, stream));
    OK(cuMemsetD8Async(block, 1, 0, stream));
    OK(cuStreamSynchronize(stream));
    OK((CUresult)moor_cudasim.peek(block, found, 32));
    static const unsigned char wanted[32] =
        "\xee\xee\x34\x12\x34\x12\xee\xee\xd4\xc3\xb2\xa1\xd4\xc3\xb2\xa1"
        "\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\x01";
    cr_assert_eq(memcmp(found, wanted, 32), 0);
    VIOLATES("2-byte elements", CUDA_ERROR_INVALID_VALUE, cuMemsetD16Async(block + 1, 0, 1, stream));
    VIOLATES("4-byte elements", CUDA_ERROR_INVALID_VALUE, cuMemsetD32Async(block + 2, 0, 1, stream));
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(block));
    drive_close();
}

/* ---- a copy at work when its context is lost ---- */

/* A kernel, called on the thread that copies. */
static void signal_begin(void *unused, void *const *bytes)
{
    (void)unused;
    (void)bytes;
    slow_memory_let_in();
}

/* A caller that learns of the loss may unmap its memory. */
Test(copies, that_have_begun_end_before_a_loss_is_reported)
{
    open_with_pattern("");
    CUstream stream = drive_stream();
    CUdeviceptr block = drive_allocate(sizeof(pattern));
    void *slow = mmap(NULL, sizeof(pattern), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(slow, MAP_FAILED);
    OK(cuMemHostRegister(slow, sizeof(pattern), 0));
    OK((CUresult)moor_cudasim.launch(stream, NULL, 0, signal_begin, NULL));
    OK(cuStreamSynchronize(stream));
    cr_assert_eq(slow_memory_begin(slow, sizeof(pattern)), 0);
    OK(cuMemcpyDtoHAsync(slow, block, sizeof(pattern), stream));
    while (!atomic_load(&slow_memory_was_in))
        usleep(100);
    moor_cudasim.lose(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_not(atomic_load(&slow_memory_is_in), "it is still copying");
    cr_assert_eq(munmap(slow, sizeof(pattern)), 0);
}

/* ---- two devices ---- */

struct pair {
    CUcontext contexts[2];
    CUdeviceptr blocks[2];
    CUstream stream; /* memory of device 0 */
};

static struct pair open_pair(const char *settings)
{
    struct pair pair;
    open_with_pattern(settings);
    OK(cuCtxGetCurrent(&pair.contexts[0]));
    pair.blocks[0] = drive_allocate(100);
    pair.stream = drive_stream();
    OK(cuDevicePrimaryCtxRetain(&pair.contexts[1], 1));
    OK(cuCtxPushCurrent(pair.contexts[1]));
    pair.blocks[1] = drive_allocate(100);
    OK(cuCtxPopCurrent(NULL));
    return pair;
}

Test(peers, are_copied_between_by_their_contexts)
{
    struct pair pair = open_pair("devices=2,peer=none");
    unsigned char found[100];
    OK((CUresult)moor_cudasim.poke(pair.blocks[0], pattern, 100));
    OK(cuMemcpyPeerAsync(pair.blocks[1], pair.contexts[1], pair.blocks[0], pair.contexts[0], 100,
                         pair.stream));
    OK(cuStreamSynchronize(pair.stream));
    OK((CUresult)moor_cudasim.peek(pair.blocks[1], found, 100));
    cr_assert_eq(memcmp(found, pattern, 100), 0);
    VIOLATES("cuMemcpyPeerAsync: no such context", CUDA_ERROR_INVALID_CONTEXT,
             cuMemcpyPeerAsync(pair.blocks[1], NULL, pair.blocks[0], pair.contexts[0], 1, NULL));
}

/* The contexts must be those of the memory. */
Test(peers, are_not_reached_by_the_wrong_context)
{
    struct pair pair = open_pair("devices=2");
    OK(cuMemcpyPeerAsync(pair.blocks[1], pair.contexts[0], pair.blocks[0], pair.contexts[0], 100,
                         pair.stream));
    VIOLATES("is not accessible to this device", CUDA_ERROR_ILLEGAL_ADDRESS,
             cuStreamSynchronize(pair.stream));
}

Test(peers, do_not_reach_each_others_allocations)
{
    struct pair pair = open_pair("devices=2");
    OK(cuMemcpyDtoDAsync(pair.blocks[0], pair.blocks[1], 100, pair.stream));
    VIOLATES("is not accessible to this device", CUDA_ERROR_ILLEGAL_ADDRESS,
             cuStreamSynchronize(pair.stream));
}

Test(peers, reach_mappings_that_they_have_access_to)
{
    struct pair pair = open_pair("devices=2");
    unsigned char found[100];
    CUdeviceptr mapped = drive_mapped(1); /* device 0's memory */
    CUmemAccessDesc access = drive_access(1, CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK((CUresult)moor_cudasim.poke(mapped, pattern, 100));
    OK(cuMemSetAccess(mapped, GRANULE, &access, 1));
    OK(cuCtxPushCurrent(pair.contexts[1]));
    CUstream stream = drive_stream();
    OK(cuMemcpyDtoDAsync(pair.blocks[1], mapped, 100, stream));
    OK(cuStreamSynchronize(stream));
    OK((CUresult)moor_cudasim.peek(pair.blocks[1], found, 100));
    cr_assert_eq(memcmp(found, pattern, 100), 0);
    OK(cuMemcpyDtoDAsync(mapped, pair.blocks[1], 100, stream));
    VIOLATES("read-only for this device", CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    (void)drive_free_bytes; /* device 0 still works */
    OK(cuCtxPopCurrent(NULL));
    OK(cuStreamSynchronize(pair.stream));
}

/* ---- kernels ---- */

static void add(void *user, void *const *bytes)
{
    for (int i = 0; i < 100; i++)
        ((unsigned char *)bytes[1])[i] = (unsigned char)(((unsigned char *)bytes[0])[i] + *(int *)user);
}

Test(kernels, of_freed_spans_are_violations)
{
    int number = 5;
    open_with_pattern("");
    CUstream stream = drive_stream();
    CUdeviceptr from = drive_allocate(100);
    CUdeviceptr to = drive_allocate(100);
    struct moor_cudasim_span spans[] = {{from, 100, MOOR_CUDASIM_READ, 0}, {to, 100, MOOR_CUDASIM_WRITE, 0}};
    OK((CUresult)moor_cudasim.poke(from, pattern, 100));
    OK((CUresult)moor_cudasim.hold(stream));
    OK((CUresult)moor_cudasim.launch(stream, spans, 2, add, &number));
    OK(cuMemFree(from));
    drive_violated("which a kernel that is queued still uses");
    OK((CUresult)moor_cudasim.open(stream));
    VIOLATES("a kernel reads", CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

Test(kernels, read_and_write_their_spans)
{
    int number = 5;
    unsigned char found[100];
    open_with_pattern("");
    CUstream stream = drive_stream();
    CUdeviceptr from = drive_allocate(100);
    CUdeviceptr to = drive_allocate(100);
    struct moor_cudasim_span spans[] = {{from, 100, MOOR_CUDASIM_READ, 0}, {to, 100, MOOR_CUDASIM_WRITE, 0}};
    OK((CUresult)moor_cudasim.poke(from, pattern, 100));
    OK((CUresult)moor_cudasim.launch(stream, spans, 2, add, &number));
    OK(cuStreamSynchronize(stream));
    OK((CUresult)moor_cudasim.peek(to, found, 100));
    for (int i = 0; i < 100; i++)
        cr_assert_eq(found[i], (unsigned char)(pattern[i] + 5));
    EXPECT(CUDA_ERROR_INVALID_VALUE, (CUresult)moor_cudasim.peek(to, found, 101));
    OK(cuMemFree(from));
    OK(cuMemFree(to));
    OK(cuStreamDestroy(stream));
    drive_close();
}
