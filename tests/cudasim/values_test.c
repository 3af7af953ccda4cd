/* SPDX-License-Identifier: MIT */
/* Values that streams write and wait for, and host functions. */
#include "drive.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static void end(CUstream stream)
{
    OK(cuStreamDestroy(stream));
}

/* ---- values ---- */

static uint64_t *words(CUdeviceptr *ret_address)
{
    void *host;
    OK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(ret_address, host, 0));
    memset(host, 0, 4096);
    return host;
}

Test(values, are_written_and_waited_for_in_order)
{
    CUdeviceptr address;
    drive_open("");
    uint64_t *word = words(&address);
    CUstream first = drive_stream();
    CUstream second = drive_stream();
    OK(cuStreamWaitValue64(second, address, 5, CU_STREAM_WAIT_VALUE_GEQ));
    drive_kernel(second, "b");
    OK((CUresult)moor_cudasim.hold(first));
    drive_kernel(first, "a");
    OK(cuStreamWriteValue64(first, address, 5, 0));
    moor_cudasim.settle();
    cr_assert_eq(drive_traced, 0);
    cr_assert_eq(__atomic_load_n(word, __ATOMIC_ACQUIRE), 0);
    OK((CUresult)moor_cudasim.open(first));
    OK(cuStreamSynchronize(second));
    cr_assert_str_eq(drive_trace, "ab");
    cr_assert_eq(__atomic_load_n(word, __ATOMIC_ACQUIRE), 5);
    OK(cuMemFreeHost(word));
    end(first);
    end(second);
    drive_close();
}

static void expect_wait(uint64_t *word, CUdeviceptr address, CUstream stream, unsigned flags, uint64_t wanted,
                        uint64_t not_yet, uint64_t enough)
{
    __atomic_store_n(word, not_yet, __ATOMIC_RELEASE);
    OK(cuStreamWaitValue64(stream, address, wanted, flags));
    moor_cudasim.settle();
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    __atomic_store_n(word, enough, __ATOMIC_RELEASE); /* written by the host, without a call */
    OK(cuStreamSynchronize(stream));
}

Test(values, are_compared_by_the_flags)
{
    CUdeviceptr address;
    CUdeviceptr managed;
    drive_open("");
    uint64_t *word = words(&address);
    CUstream stream = drive_stream();
    expect_wait(word, address, stream, CU_STREAM_WAIT_VALUE_GEQ, 7, 6, 9);
    /* the comparison wraps */
    expect_wait(word, address, stream, CU_STREAM_WAIT_VALUE_GEQ, 1, UINT64_MAX - 1, 3);
    expect_wait(word, address, stream, CU_STREAM_WAIT_VALUE_EQ, 7, 9, 7);
    expect_wait(word, address, stream, CU_STREAM_WAIT_VALUE_AND, 6, 1, 2);
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuStreamWaitValue64(stream, address, 0, CU_STREAM_WAIT_VALUE_NOR));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuStreamWaitValue64(stream, address, 0, CU_STREAM_WAIT_VALUE_FLUSH));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuStreamWriteValue64(stream, address, 0, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
    VIOLATES("no word at", CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(stream, address + 4, 0, 0));
    VIOLATES("no word at", CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(stream, 64, 0, 0));
    OK(cuMemAllocManaged(&managed, 8, CU_MEM_ATTACH_GLOBAL));
    VIOLATES("managed memory", CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(stream, managed, 0, 0));
    OK(cuMemFree(managed));
    OK(cuMemFreeHost(word));
    end(stream);
    drive_close();
}

/* Registered memory has a device address, and the call needs that one. */
Test(values, lie_at_device_addresses)
{
    static uint64_t word __attribute__((aligned(8)));
    CUdeviceptr address;
    drive_open("");
    CUstream stream = drive_stream();
    OK(cuMemHostRegister(&word, sizeof(word), CU_MEMHOSTREGISTER_DEVICEMAP));
    VIOLATES("no word at", CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(stream, (uintptr_t)&word, 3, 0));
    OK(cuMemHostGetDevicePointer(&address, &word, 0));
    OK(cuStreamWriteValue64(stream, address, 3, 0));
    OK(cuStreamSynchronize(stream));
    cr_assert_eq(word, 3);
    OK(cuMemHostUnregister(&word));
    end(stream);
    drive_close();
}

Test(values, are_not_on_every_device)
{
    CUdeviceptr address;
    drive_open("memops=0");
    uint64_t *word = words(&address);
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuStreamWriteValue64(NULL, address, 3, 0));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuStreamWaitValue64(NULL, address, 3, 0));
    OK(cuMemFreeHost(word));
    drive_close();
}

/* ---- host functions ---- */

static void call_cuda(void *result)
{
    size_t bytes;
    *(CUresult *)result = cuMemGetInfo(&bytes, &bytes);
}

Test(host_functions, call_no_cuda)
{
    CUresult result = CUDA_SUCCESS;
    drive_open("");
    CUstream stream = drive_stream();
    OK(cuLaunchHostFunc(stream, call_cuda, &result));
    OK(cuStreamSynchronize(stream));
    drive_violated("cuMemGetInfo is called from a host function");
    cr_assert_eq(result, CUDA_ERROR_NOT_PERMITTED);
    end(stream);
    drive_close();
}

static pthread_barrier_t barrier;

static void block(void *unused)
{
    (void)unused;
    (void)pthread_barrier_wait(&barrier);
}

/* A host function that blocks holds up its own stream, but not the other work of other streams. */
Test(host_functions, may_block_their_stream)
{
    drive_open("");
    CUstream first = drive_stream();
    CUstream second = drive_stream();
    (void)pthread_barrier_init(&barrier, NULL, 2);
    OK(cuLaunchHostFunc(first, block, NULL));
    drive_kernel(first, "b");
    drive_kernel(second, "a");
    OK(cuStreamSynchronize(second));
    cr_assert_eq(drive_traced, 1);
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(first));
    (void)pthread_barrier_wait(&barrier);
    OK(cuStreamSynchronize(first));
    drive_trace[drive_traced] = '\0';
    cr_assert_str_eq(drive_trace, "ab");
    end(first);
    end(second);
    drive_close();
}

/* Two host functions that wait for each other run where the driver has two threads for them; a real driver
 * need not. */
Test(host_functions, may_run_at_the_same_time_if_set)
{
    drive_open("callers=2");
    CUstream first = drive_stream();
    CUstream second = drive_stream();
    (void)pthread_barrier_init(&barrier, NULL, 2);
    OK(cuLaunchHostFunc(first, block, NULL));
    OK(cuLaunchHostFunc(second, block, NULL));
    OK(cuCtxSynchronize());
    end(first);
    end(second);
    drive_close();
}

static void block_twice(void *unused)
{
    block(unused);
    block(unused);
}

static void note_call(void *letter)
{
    drive_note(letter, NULL);
}

Test(host_functions, run_one_at_a_time)
{
    char letter[] = "a";
    drive_open("");
    CUstream first = drive_stream();
    CUstream second = drive_stream();
    (void)pthread_barrier_init(&barrier, NULL, 2);
    OK(cuLaunchHostFunc(first, block_twice, NULL));
    (void)pthread_barrier_wait(&barrier);
    OK(cuLaunchHostFunc(second, note_call, letter));
    (void)usleep(20000);
    cr_assert_eq(drive_traced, 0, "the other one is still running");
    (void)pthread_barrier_wait(&barrier);
    OK(cuStreamSynchronize(second));
    cr_assert_eq(drive_traced, 1);
    end(first);
    end(second);
    drive_close();
}

Test(host_functions, are_not_called_in_a_lost_context)
{
    char letter[] = "a";
    drive_open("");
    CUstream stream = drive_stream();
    OK((CUresult)moor_cudasim.hold(stream));
    OK(cuLaunchHostFunc(stream, note_call, letter));
    moor_cudasim.lose(0, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream));
    moor_cudasim.settle();
    cr_assert_eq(drive_traced, 0);
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuLaunchHostFunc(stream, note_call, letter));
}

/* The exception: a function that the driver was about to call. */
Test(host_functions, may_be_called_after_the_loss)
{
    char letter[] = "a";
    drive_open("");
    CUstream stream = drive_stream();
    (void)moor_cudasim.hold_begun(1);
    OK(cuLaunchHostFunc(stream, note_call, letter));
    while (moor_cudasim.hold_begun(1) == 0)
        (void)usleep(100);
    moor_cudasim.lose(0, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream));
    cr_assert_eq(drive_traced, 0);
    (void)moor_cudasim.hold_begun(0);
    moor_cudasim.settle();
    cr_assert_eq(drive_traced, 1);
}
