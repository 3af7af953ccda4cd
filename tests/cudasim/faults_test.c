/* SPDX-License-Identifier: MIT */
/* Injected failures: calls by number, lost contexts, and the work that fails with them. */
#include "drive.h"
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static CUresult try_allocate(void)
{
    CUdeviceptr address;
    CUresult result = cuMemAlloc(&address, 1);
    if (result == CUDA_SUCCESS)
        OK(cuMemFree(address));
    return result;
}

Test(faults, are_by_function_and_number)
{
    drive_open("");
    cr_assert_eq(moor_cudasim.configure("fault=cuMemAlloc:3:2,fault=cuMemAlloc:5:46:2"), 0);
    OK(try_allocate());
    OK(try_allocate());
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, try_allocate());
    OK(try_allocate());
    EXPECT(CUDA_ERROR_DEVICE_UNAVAILABLE, try_allocate());
    EXPECT(CUDA_ERROR_DEVICE_UNAVAILABLE, try_allocate());
    OK(try_allocate());
    cr_assert_eq(moor_cudasim.calls("cuMemAlloc"), 7);
    cr_assert_eq(moor_cudasim.configure("fault=cuMemAlloc:1:2:all"), 0);
    for (int i = 0; i < 10; i++)
        EXPECT(CUDA_ERROR_OUT_OF_MEMORY, try_allocate());
    cr_assert_eq(moor_cudasim.configure("faults=none"), 0);
    OK(try_allocate());
    drive_close();
}

Test(faults, of_cuinit)
{
    cr_assert_eq(moor_cudasim.configure("fault=cuInit:1:34:all"), 0);
    EXPECT(CUDA_ERROR_STUB_LIBRARY, cuInit(0));
    EXPECT(CUDA_ERROR_STUB_LIBRARY, cuInit(0));
}

/* An error that cuda.h calls fatal sticks to its context alone. */
Test(faults, of_some_codes_stick)
{
    CUcontext other;
    CUcontext context;
    drive_open("devices=2");
    CUevent mark;
    CUstream stream = drive_stream();
    OK(cuEventCreate(&mark, 0));
    cr_assert_eq(moor_cudasim.configure("fault=cuMemAlloc:1:214"), 0);
    EXPECT(CUDA_ERROR_ECC_UNCORRECTABLE, try_allocate());
    EXPECT(CUDA_ERROR_ECC_UNCORRECTABLE, try_allocate());
    EXPECT(CUDA_ERROR_ECC_UNCORRECTABLE, cuStreamQuery(stream));
    EXPECT(CUDA_ERROR_ECC_UNCORRECTABLE, cuStreamDestroy(stream));
    EXPECT(CUDA_ERROR_ECC_UNCORRECTABLE, cuEventQuery(mark));
    EXPECT(CUDA_ERROR_ECC_UNCORRECTABLE, cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxPushCurrent(other));
    OK(try_allocate());
    OK(cuCtxPopCurrent(NULL));
    OK(cuCtxPopCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(1));
    OK(cuDevicePrimaryCtxRelease(0)); /* objects in a lost context are no violation */
    cr_assert_eq(moor_cudasim.violations(), 0);
    EXPECT(CUDA_ERROR_ECC_UNCORRECTABLE, cuDevicePrimaryCtxRetain(&context, 0));
}

Test(faults, spread_to_waiting_streams)
{
    CUcontext other;
    drive_open("devices=2");
    CUstream stream = drive_stream();
    CUevent mark;
    OK(cuEventCreate(&mark, 0));
    OK((CUresult)moor_cudasim.hold(stream));
    OK(cuEventRecord(mark, stream));
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxPushCurrent(other));
    CUstream waiting = drive_stream();
    OK(cuStreamWaitEvent(waiting, mark, 0));
    moor_cudasim.lose(0, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(waiting));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuEventQuery(mark));
}

/* ---- violations end the process ---- */

static int run_child(const char *settings)
{
    pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)!freopen("/dev/null", "w", stderr);
        if (moor_cudasim.configure(settings) || cuInit(0))
            _exit(3);
        _exit(cuCtxPopCurrent(NULL) == CUDA_ERROR_INVALID_CONTEXT ? 0 : 1);
    }
    return drive_child_status(child);
}

Test(violations, abort_unless_they_are_counted)
{
    int status = run_child("");
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%d", status);
    cr_assert_eq(run_child("violations=count"), 0);
    cr_assert_eq(run_child("strict=0"), 0);
}
