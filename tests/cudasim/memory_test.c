/* SPDX-License-Identifier: MIT */
/* Allocations of every kind: their addresses, contents, sizes and wrong frees. */
#include "drive.h"
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

Test(memory, small_blocks_share_a_chunk)
{
    drive_open("");
    uint64_t before = drive_free_bytes();
    CUdeviceptr first = drive_allocate(1000);
    CUdeviceptr second = drive_allocate(1000);
    cr_assert_eq(before - drive_free_bytes(), GRANULE);
    CUdeviceptr large = drive_allocate(3 * MIB);
    cr_assert_eq(before - drive_free_bytes(), 3 * GRANULE, "3 MiB take 4");
    OK(cuMemFree(large));
    OK(cuMemFree(first));
    cr_assert_eq(before - drive_free_bytes(), GRANULE, "the other block keeps the chunk");
    OK(cuMemFree(second));
    cr_assert_eq(drive_free_bytes(), before);
    drive_close();
}

Test(memory, is_aligned_to_256_and_not_to_more)
{
    drive_open("");
    CUdeviceptr blocks[] = {drive_allocate(1), drive_allocate(1000), drive_allocate(2 * MIB),
                            drive_allocate(5 * MIB)};
    for (size_t i = 0; i < 4; i++) {
        cr_assert_eq(blocks[i] % 256, 0);
        cr_assert_neq(blocks[i] % 512, 0);
        OK(cuMemFree(blocks[i]));
    }
    drive_close();
}

static void expect_garbage(CUdeviceptr address, uint64_t size_bytes)
{
    unsigned char *bytes = malloc(size_bytes);
    OK(moor_cudasim.peek(address, bytes, size_bytes));
    for (uint64_t i = 0; i + 8 <= size_bytes; i += 8)
        cr_assert(memcmp(bytes + i, "\0\0\0\0\0\0\0\0", 8) != 0, "zero at %d", (int)i);
    free(bytes);
}

/* Reused memory is full of garbage, too. */
Test(memory, is_full_of_garbage)
{
    unsigned char zeros[4096] = {0};
    drive_open("");
    for (int i = 0; i < 2; i++) {
        CUdeviceptr small = drive_allocate(sizeof(zeros));
        CUdeviceptr large = drive_allocate(9 * MIB);
        expect_garbage(small, sizeof(zeros));
        expect_garbage(large, 9 * MIB);
        OK(moor_cudasim.poke(small, zeros, sizeof(zeros)));
        OK(moor_cudasim.poke(large, zeros, sizeof(zeros)));
        OK(cuMemFree(small));
        OK(cuMemFree(large));
    }
    CUdeviceptr mapped = drive_mapped(1);
    expect_garbage(mapped, GRANULE);
    drive_unmapped(mapped, 1);
    drive_close();
}

Test(memory, addresses_are_given_again)
{
    drive_open("");
    CUdeviceptr first = drive_allocate(4 * MIB);
    OK(cuMemFree(first));
    CUdeviceptr second = drive_allocate(4 * MIB);
    cr_assert_eq(first, second);
    OK(cuMemFree(second));
    drive_close();
}

static sigjmp_buf back;

static void faulted(int signal_number)
{
    (void)signal_number;
    siglongjmp(back, 1);
}

static bool can_read(uint64_t address)
{
    struct sigaction action = {.sa_handler = faulted};
    struct sigaction before;
    (void)sigaction(SIGSEGV, &action, &before);
    bool good = false;
    if (sigsetjmp(back, 1) == 0) {
        (void)*(volatile const char *)(uintptr_t)address;
        good = true;
    }
    (void)sigaction(SIGSEGV, &before, NULL);
    return good;
}

Test(memory, of_the_device_faults_for_the_host)
{
    drive_open("");
    CUdeviceptr block = drive_allocate(100);
    CUdeviceptr mapped = drive_mapped(1);
    CUstream stream = drive_stream();
    cr_assert(can_read((uintptr_t)&block));
    cr_assert_not(can_read(block));
    cr_assert_not(can_read(mapped));
    cr_assert_not(can_read((uintptr_t)stream), "nor is a handle a pointer");
    OK(cuStreamDestroy(stream));
    drive_unmapped(mapped, 1);
    OK(cuMemFree(block));
    drive_close();
}

Test(memory, is_limited_and_shared_with_other_processes)
{
    CUdeviceptr address;
    drive_open("total=64MiB,context=2MiB");
    cr_assert_eq(drive_free_bytes(), 62 * MIB);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address, 63 * MIB));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address, SIZE_MAX));
    cr_assert_eq(moor_cudasim.configure("other=60MiB"), 0);
    cr_assert_eq(drive_free_bytes(), 2 * MIB);
    address = drive_allocate(2 * MIB);
    CUmemAllocationProp property = drive_property(0);
    CUmemGenericAllocationHandle handle;
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, GRANULE, &property, 0));
    OK(cuMemFree(address));
    cr_assert_eq(moor_cudasim.configure("query=800"), 0);
    size_t bytes;
    EXPECT(CUDA_ERROR_NOT_PERMITTED, cuMemGetInfo(&bytes, &bytes));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&address, 0));
    drive_close();
}

Test(memory, addresses_are_limited)
{
    CUdeviceptr address;
    drive_open("address=16MiB");
    CUdeviceptr most = drive_reserve(7);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&address, 4 * GRANULE, 0, 0, 0));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address, 8 * MIB));
    OK(cuMemAddressFree(most, 7 * GRANULE));
    drive_close();
}

/* ---- wrong frees ---- */

Test(memory, freed_twice_or_by_the_wrong_function_is_a_violation)
{
    void *host;
    char pageable[64];
    drive_open("");
    CUdeviceptr block = drive_allocate(100);
    CUdeviceptr mapped = drive_mapped(1);
    OK(cuMemHostAlloc(&host, 100, 0));
    VIOLATES("is not from cuMemAlloc", CUDA_ERROR_INVALID_VALUE, cuMemFree((uintptr_t)host));
    VIOLATES("is not from cuMemAlloc", CUDA_ERROR_INVALID_VALUE, cuMemFree(mapped));
    VIOLATES("nothing was allocated", CUDA_ERROR_INVALID_VALUE, cuMemFree(block + 1));
    VIOLATES("not from cuMemHostAlloc", CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pageable));
    VIOLATES("not registered", CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(host));
    OK(cuMemFreeHost(host));
    VIOLATES("freed before", CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
    OK(cuMemFree(block));
    VIOLATES("freed before", CUDA_ERROR_INVALID_VALUE, cuMemFree(block));
    drive_unmapped(mapped, 1);
    drive_close();
}

Test(memory, errors_without_strict_are_no_violations)
{
    drive_open("strict=0");
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(4096));
    drive_close();
}

/* Frees memory that an operation of a held stream still needs. */
Test(memory, in_use_cannot_be_freed)
{
    char registered[4096];
    void *host;
    drive_open("");
    CUstream stream = drive_stream();
    CUdeviceptr block = drive_allocate(100);
    CUdeviceptr large = drive_allocate(4 * MIB);
    CUdeviceptr mapped = drive_mapped(2);
    OK(cuMemHostAlloc(&host, 100, 0));
    OK(cuMemHostRegister(registered, sizeof(registered), 0));
    OK(moor_cudasim.hold(stream));
    OK(cuMemcpyHtoDAsync(block, host, 100, stream));
    OK(cuMemsetD8Async(large + 10, 0, 10, stream));
    OK(cuMemcpyDtoDAsync(mapped + GRANULE, mapped, 10, stream));
    OK(cuMemcpyDtoHAsync(registered + 5, large, 10, stream));
    OK(cuMemFree(block));
    drive_violated("cuMemFree of");
    OK(cuMemFreeHost(host));
    drive_violated("which a copy that is queued still uses");
    OK(cuMemFree(large));
    drive_violated("which a memset that is queued");
    OK(cuMemUnmap(mapped, GRANULE));
    drive_violated("cuMemUnmap of");
    OK(cuMemHostUnregister(registered));
    drive_violated("cuMemHostUnregister of");
    OK(moor_cudasim.open(stream));
    VIOLATES("which is not mapped", CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

/* A word for which a stream waits, or which it will write, is in use. */
Test(memory, with_a_word_that_a_stream_waits_for_is_in_use)
{
    void *host;
    CUdeviceptr word;
    drive_open("");
    CUstream stream = drive_stream();
    OK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&word, host, 0));
    *(uint64_t *)host = 0;
    OK(moor_cudasim.hold(stream)); /* else the wait faults as well */
    OK(cuStreamWaitValue64(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemFreeHost(host));
    drive_violated("which a wait for a value that is queued still uses");
}

/* ---- host memory ---- */

Test(host_memory, has_a_device_address_if_asked_for)
{
    void *plain;
    void *mapped;
    void *combined;
    CUdeviceptr address;
    drive_open("");
    OK(cuMemHostAlloc(&plain, 100, 0));
    OK(cuMemHostAlloc(&mapped, 100, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostAlloc(&combined, 100, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(&address, plain, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(&address, mapped, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(&address, &plain, 0));
    OK(cuMemHostGetDevicePointer(&address, mapped, 0));
    cr_assert_eq(address, (uintptr_t)mapped);
    OK(cuMemHostGetDevicePointer(&address, combined, 0));
    cr_assert_neq(address, (uintptr_t)combined);
    cr_assert_not(can_read(address));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&plain, 0, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&plain, 1, 64));
    OK(cuMemFreeHost(plain));
    OK(cuMemFreeHost(mapped));
    OK(cuMemFreeHost(combined));
    drive_close();
}

Test(host_memory, is_limited)
{
    void *host;
    char page[4096];
    drive_open("pinned=4KiB");
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&host, 4097, 0));
    OK(cuMemHostAlloc(&host, 4096, 0));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostRegister(page, 1, 0));
    OK(cuMemFreeHost(host));
    drive_close();
}

Test(host_memory, that_is_registered_has_another_address_for_devices)
{
    static char bytes[10000];
    CUdeviceptr address;
    CUdeviceptr found;
    drive_open("");
    OK(cuMemHostRegister(bytes + 100, 5000, CU_MEMHOSTREGISTER_DEVICEMAP));
    EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(bytes, 200, 0));
    OK(cuMemHostGetDevicePointer(&address, bytes + 200, 0));
    cr_assert_neq(address, (uintptr_t)bytes + 200);
    cr_assert_not(can_read(address));
    OK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (uintptr_t)bytes + 200));
    cr_assert_eq(found, address);
    OK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
    cr_assert_eq(found, (uintptr_t)bytes + 200);
    VIOLATES("is not registered", CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(bytes));
    OK(cuMemHostUnregister(bytes + 100));
    drive_close();
}

Test(host_memory, may_have_one_address_for_all)
{
    static char bytes[100];
    CUdeviceptr address;
    drive_open("registered_same=1");
    OK(cuMemHostRegister(bytes, 100, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&address, bytes, 0));
    cr_assert_eq(address, (uintptr_t)bytes);
    OK(cuMemHostUnregister(bytes));
    drive_close();
}

Test(host_memory, outside_the_process_is_not_registered)
{
    drive_open("");
    CUdeviceptr block = drive_allocate(4096);
    void *hole = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(munmap((char *)hole + 4096, 4096) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(hole, 8192, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(hole, 0, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(NULL, 1, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(hole, 1, 64));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister((void *)(uintptr_t)block, 16, 0));
    OK(cuMemHostRegister(hole, 4096, 0));
    (void)munmap(hole, 4096);
    OK(cuMemHostUnregister(hole));
    drive_violated("was unmapped while it was registered");
    OK(cuMemFree(block));
    drive_close();
}

Test(managed_memory, has_one_address_for_host_and_device)
{
    CUdeviceptr address;
    unsigned managed;
    drive_open("");
    CUstream stream = drive_stream();
    OK(cuMemAllocManaged(&address, 100, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemsetD8Async(address, 9, 100, stream));
    OK(cuStreamSynchronize(stream));
    cr_assert_eq(*(const char *)(uintptr_t)address, 9);
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    cr_assert_eq(managed, 1);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&address, 100, 0));
    OK(cuMemFree(address));
    OK(cuStreamDestroy(stream));
    drive_close();
}

Test(managed_memory, is_not_on_every_device)
{
    CUdeviceptr address;
    drive_open("managed=0");
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemAllocManaged(&address, 100, CU_MEM_ATTACH_GLOBAL));
    drive_close();
}

/* ---- attributes of an address ---- */

Test(pointers, have_attributes_by_kind)
{
    char pageable;
    void *host;
    unsigned type;
    int device = -1;
    CUcontext context;
    CUcontext current;
    CUdeviceptr start;
    size_t size_bytes;
    drive_open("devices=2");
    CUdeviceptr block = drive_allocate(100);
    CUdeviceptr mapped = drive_mapped(1);
    OK(cuMemHostAlloc(&host, 100, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&pageable));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block + 99));
    cr_assert_eq(type, CU_MEMORYTYPE_DEVICE);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block + 100));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)host));
    cr_assert_eq(type, CU_MEMORYTYPE_HOST);
    OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, mapped));
    cr_assert_eq(device, 0);
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block));
    OK(cuCtxGetCurrent(&current));
    cr_assert_eq(context, current);
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block + 50));
    OK(cuPointerGetAttribute(&size_bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, block + 50));
    cr_assert(start == block && size_bytes == 100);
    OK(cuMemFreeHost(host));
    OK(cuMemFree(block));
    drive_unmapped(mapped, 1);
    drive_close();
}
