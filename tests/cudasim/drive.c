/* SPDX-License-Identifier: MIT */
#include "drive.h"
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

char drive_trace[DRIVE_TRACE_MAX + 1];
unsigned drive_traced;

static uint64_t expected;

void drive_expect(CUresult wanted, CUresult found, const char *call, const char *file, int line)
{
    const char *name = "an unknown code";
    (void)cuGetErrorName(found, &name);
    cr_assert(found == wanted, "%s:%d: %s answers %s (%d), not %d", file, line, call, name, (int)found,
              (int)wanted);
}

void drive_start(const char *settings)
{
    cr_assert_eq(moor_cudasim.configure("violations=count,delay_us=0"), 0);
    cr_assert_eq(moor_cudasim.configure(settings), 0);
    OK(cuInit(0));
}

void drive_open(const char *settings)
{
    CUcontext context;
    drive_start(settings);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxPushCurrent(context));
}

void drive_close(void)
{
    OK(cuCtxPopCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(0));
    struct moor_cudasim_live live = drive_live();
    struct moor_cudasim_live nothing = {0};
    cr_assert(memcmp(&live, &nothing, sizeof(live)) == 0);
    cr_assert_eq(moor_cudasim.violations(), expected, "%s", moor_cudasim.violation(expected));
}

void drive_violated(const char *words)
{
    cr_assert_eq(moor_cudasim.violations(), expected + 1, "%d violations instead of one: %s",
                 (int)(moor_cudasim.violations() - expected), moor_cudasim.violation(expected + 1));
    const char *text = moor_cudasim.violation(expected);
    cr_assert(strstr(text, words), "\"%s\" is not in \"%s\"", words, text);
    expected++;
}

int drive_child_status(pid_t child)
{
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    return status;
}

void drive_note(void *letter, void *const *bytes)
{
    (void)bytes;
    if (drive_traced < DRIVE_TRACE_MAX)
        drive_trace[drive_traced++] = *(const char *)letter;
}

void drive_kernel(CUstream stream, const char *letter)
{
    OK((CUresult)moor_cudasim.launch(stream, NULL, 0, drive_note, (void *)(uintptr_t)letter));
}

CUstream drive_stream(void)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

CUdeviceptr drive_allocate(uint64_t size_bytes)
{
    CUdeviceptr address;
    OK(cuMemAlloc(&address, size_bytes));
    return address;
}

struct moor_cudasim_live drive_live(void)
{
    struct moor_cudasim_live live;
    moor_cudasim.live(&live);
    return live;
}

uint64_t drive_free_bytes(void)
{
    size_t free_bytes;
    size_t total_bytes;
    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    return free_bytes;
}

CUmemAllocationProp drive_property(int device)
{
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    property.location.id = device;
    return property;
}

CUmemGenericAllocationHandle drive_handle(void)
{
    CUmemAllocationProp property = drive_property(0);
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, GRANULE, &property, 0));
    return handle;
}

CUdeviceptr drive_reserve(uint64_t granules)
{
    CUdeviceptr address;
    OK(cuMemAddressReserve(&address, granules * GRANULE, 0, 0, 0));
    return address;
}

CUmemAccessDesc drive_access(int device, CUmemAccess_flags flags)
{
    return (CUmemAccessDesc){.location = drive_property(device).location, .flags = flags};
}

CUdeviceptr drive_mapped(uint64_t granules)
{
    CUdeviceptr address = drive_reserve(granules);
    CUmemAccessDesc access = drive_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    for (uint64_t i = 0; i < granules; i++) {
        CUmemGenericAllocationHandle handle = drive_handle();
        OK(cuMemMap(address + i * GRANULE, GRANULE, 0, handle, 0));
        OK(cuMemRelease(handle));
    }
    OK(cuMemSetAccess(address, granules * GRANULE, &access, 1));
    return address;
}

void drive_unmapped(CUdeviceptr address, uint64_t granules)
{
    OK(cuMemUnmap(address, granules * GRANULE));
    OK(cuMemAddressFree(address, granules * GRANULE));
}
