/* SPDX-License-Identifier: MIT */
/* Reservations, handles, mappings, access: every demand of the documentation has a case. */
#include "drive.h"
#include <string.h>

static CUmemAccessDesc read_write(void)
{
    return drive_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* ---- reservations ---- */

Test(reservations, are_multiples_of_the_granule)
{
    CUdeviceptr address;
    drive_open("granule_min=64KiB,granule=2MiB");
    VIOLATES("cuMemAddressReserve", CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 0, 0, 0, 0));
    VIOLATES("size 0x8000", CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 32 * KIB, 0, 0, 0));
    VIOLATES("alignment 0x3", CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 64 * KIB, 3, 0, 0));
    VIOLATES("address 0x1000", CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 64 * KIB, 0, 4096, 0));
    VIOLATES("flags 0x1", CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 64 * KIB, 0, 0, 1));
    OK(cuMemAddressReserve(&address, 64 * KIB, 0, 0, 0));
    cr_assert_eq(address % (128 * KIB), 64 * KIB, "no more aligned than it must be");
    OK(cuMemAddressFree(address, 64 * KIB));
    OK(cuMemAddressReserve(&address, 64 * KIB, 4 * MIB, 0, 0));
    cr_assert_eq(address % (4 * MIB), 0);
    OK(cuMemAddressFree(address, 64 * KIB));
    drive_close();
}

Test(reservations, are_freed_whole)
{
    drive_open("");
    CUdeviceptr address = drive_reserve(4);
    VIOLATES("is not a whole reservation", CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 2 * GRANULE));
    VIOLATES("is not a whole reservation", CUDA_ERROR_INVALID_VALUE,
             cuMemAddressFree(address + GRANULE, 3 * GRANULE));
    OK(cuMemAddressFree(address, 4 * GRANULE));
    VIOLATES("is not a whole reservation", CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 4 * GRANULE));
    drive_close();
}

Test(reservations, with_mappings_in_them_stay)
{
    drive_open("");
    CUdeviceptr address = drive_mapped(1);
    VIOLATES("has mappings in it", CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, GRANULE));
    drive_unmapped(address, 1);
    drive_close();
}

/* ---- handles ---- */

Test(handles, are_made_of_whole_granules_of_a_device)
{
    CUmemAllocationProp property = drive_property(0);
    CUmemGenericAllocationHandle handle;
    size_t granule;
    drive_open("granule_min=64KiB,granule=2MiB");
    OK(cuMemGetAllocationGranularity(&granule, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    cr_assert_eq(granule, 64 * KIB);
    OK(cuMemGetAllocationGranularity(&granule, &property, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    cr_assert_eq(granule, 2 * MIB);
    VIOLATES("cuMemCreate", CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 4 * KIB, &property, 0));
    VIOLATES("cuMemCreate", CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 0, &property, 0));
    VIOLATES("flags 0x1", CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 64 * KIB, &property, 1));
    property.location.id = 1;
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&handle, 64 * KIB, &property, 0));
    property = drive_property(0);
    property.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    VIOLATES("properties", CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 64 * KIB, &property, 0));
    drive_close();
}

Test(handles, are_not_on_every_device)
{
    CUmemAllocationProp property = drive_property(0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t granule;
    drive_open("vmm=0");
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, GRANULE, &property, 0));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED,
           cuMemGetAllocationGranularity(&granule, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    drive_close();
}

/* The memory lives until both its handle and its mapping are gone, in either order. */
Test(handles, that_are_released_live_on_in_their_mappings)
{
    drive_open("");
    uint64_t before = drive_free_bytes();
    CUdeviceptr address = drive_mapped(1);
    unsigned char byte = 77;
    cr_assert_eq(drive_live().handles, 0);
    cr_assert_eq(before - drive_free_bytes(), GRANULE);
    OK(moor_cudasim.poke(address, &byte, 1));
    CUmemGenericAllocationHandle handle = drive_handle();
    CUdeviceptr other = drive_reserve(1);
    OK(cuMemMap(other, GRANULE, 0, handle, 0));
    OK(cuMemUnmap(other, GRANULE));
    cr_assert_eq(before - drive_free_bytes(), 2 * GRANULE, "the handle keeps its bytes");
    OK(cuMemRelease(handle));
    cr_assert_eq(before - drive_free_bytes(), GRANULE);
    drive_unmapped(address, 1);
    OK(cuMemAddressFree(other, GRANULE));
    cr_assert_eq(drive_free_bytes(), before);
    drive_close();
}

Test(handles, are_not_used_after_their_release)
{
    drive_open("");
    CUdeviceptr address = drive_reserve(1);
    CUmemGenericAllocationHandle handle = drive_handle();
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemRelease(handle));
    VIOLATES("was released before", CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    OK(cuMemUnmap(address, GRANULE));
    VIOLATES("was released before", CUDA_ERROR_INVALID_VALUE, cuMemMap(address, GRANULE, 0, handle, 0));
    VIOLATES("no handle of cuMemCreate", CUDA_ERROR_INVALID_VALUE, cuMemMap(address, GRANULE, 0, 12345, 0));
    OK(cuMemAddressFree(address, GRANULE));
    drive_close();
}

Test(handles, can_be_retained_by_address)
{
    CUmemGenericAllocationHandle again;
    drive_open("");
    CUdeviceptr address = drive_reserve(1);
    CUmemGenericAllocationHandle handle = drive_handle();
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + 5)));
    cr_assert_eq(again, handle);
    OK(cuMemRelease(handle));
    OK(cuMemRelease(again));
    drive_unmapped(address, 1);
    drive_close();
}

/* Memory that is mapped at two addresses is the same memory. */
Test(handles, can_be_mapped_twice)
{
    drive_open("");
    CUdeviceptr address = drive_reserve(2);
    CUmemGenericAllocationHandle handle = drive_handle();
    char found[6];
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemMap(address + GRANULE, GRANULE, 0, handle, 0));
    OK(moor_cudasim.poke(address + 10, "hello", 6));
    OK(moor_cudasim.peek(address + GRANULE + 10, found, 6));
    cr_assert_str_eq(found, "hello");
    OK(cuMemRelease(handle));
    drive_unmapped(address, 2);
    drive_close();
}

/* ---- mappings ---- */

Test(mappings, lie_within_a_reservation)
{
    drive_open("");
    CUdeviceptr address = drive_reserve(2);
    CUmemGenericAllocationHandle handle = drive_handle();
    VIOLATES("not within one reservation", CUDA_ERROR_INVALID_VALUE,
             cuMemMap(address + 2 * GRANULE, GRANULE, 0, handle, 0));
    VIOLATES("larger than the allocation", CUDA_ERROR_INVALID_VALUE,
             cuMemMap(address, 2 * GRANULE, 0, handle, 0));
    VIOLATES("not multiples of the granule", CUDA_ERROR_INVALID_VALUE,
             cuMemMap(address + 4096, GRANULE, 0, handle, 0));
    VIOLATES("not multiples of the granule", CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 4096, 0, handle, 0));
    VIOLATES("an offset or flags", CUDA_ERROR_INVALID_VALUE, cuMemMap(address, GRANULE, GRANULE, handle, 0));
    VIOLATES("an offset or flags", CUDA_ERROR_INVALID_VALUE, cuMemMap(address, GRANULE, 0, handle, 1));
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    VIOLATES("something is mapped there", CUDA_ERROR_INVALID_VALUE, cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemUnmap(address, GRANULE));
    OK(cuMemAddressFree(address, 2 * GRANULE));
    drive_close();
}

/* Two adjacent reservations stay two. */
Test(mappings, do_not_cross_reservations)
{
    drive_open("");
    CUdeviceptr first = drive_reserve(1);
    CUdeviceptr second = first + GRANULE;
    CUdeviceptr placed;
    CUmemAllocationProp property = drive_property(0);
    CUmemGenericAllocationHandle handle;
    OK(cuMemAddressReserve(&placed, GRANULE, 0, second, 0));
    cr_assert_eq(placed, second, "the hint is taken where it is free");
    OK(cuMemCreate(&handle, 2 * GRANULE, &property, 0));
    VIOLATES("not within one reservation", CUDA_ERROR_INVALID_VALUE,
             cuMemMap(first, 2 * GRANULE, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(first, GRANULE));
    OK(cuMemAddressFree(placed, GRANULE));
    drive_close();
}

Test(mappings, are_unmapped_whole)
{
    drive_open("");
    CUdeviceptr address = drive_reserve(5);
    CUmemAllocationProp property = drive_property(0);
    CUmemGenericAllocationHandle large;
    CUmemGenericAllocationHandle small = drive_handle();
    OK(cuMemCreate(&large, 2 * GRANULE, &property, 0));
    OK(cuMemMap(address, 2 * GRANULE, 0, large, 0));
    OK(cuMemMap(address + 2 * GRANULE, GRANULE, 0, small, 0));
    OK(cuMemMap(address + 4 * GRANULE, GRANULE, 0, small, 0));
    VIOLATES("is not whole mappings", CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, GRANULE));
    VIOLATES("is not whole mappings", CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address + GRANULE, GRANULE));
    VIOLATES("is not whole mappings", CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address + GRANULE, 2 * GRANULE));
    VIOLATES("is not whole mappings", CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, 5 * GRANULE));
    VIOLATES("is not whole mappings", CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, 0));
    OK(cuMemUnmap(address, 3 * GRANULE)); /* two whole mappings */
    VIOLATES("is not whole mappings", CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, 2 * GRANULE));
    OK(cuMemUnmap(address + 4 * GRANULE, GRANULE));
    OK(cuMemRelease(small));
    OK(cuMemRelease(large));
    OK(cuMemAddressFree(address, 5 * GRANULE));
    drive_close();
}

/* ---- access ---- */

static unsigned long long access_at(CUdeviceptr address, int device)
{
    unsigned long long flags = 99;
    CUmemLocation location = drive_property(device).location;
    OK(cuMemGetAccess(&flags, &location, address));
    return flags;
}

Test(access, is_none_at_first_and_after_each_mapping)
{
    drive_open("");
    CUdeviceptr address = drive_mapped(1);
    CUmemGenericAllocationHandle handle = drive_handle();
    cr_assert_eq(access_at(address, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemUnmap(address, GRANULE));
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    cr_assert_eq(access_at(address, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuMemRelease(handle));
    drive_unmapped(address, 1);
    drive_close();
}

Test(access, is_set_for_whole_mappings_alone)
{
    drive_open("");
    CUmemAccessDesc access = read_write();
    CUdeviceptr address = drive_reserve(3);
    CUmemGenericAllocationHandle handle = drive_handle();
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemMap(address + 2 * GRANULE, GRANULE, 0, handle, 0));
    VIOLATES("not whole mappings", CUDA_ERROR_INVALID_VALUE,
             cuMemSetAccess(address, 3 * GRANULE, &access, 1));
    VIOLATES("not whole mappings", CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, 4096, &access, 1));
    VIOLATES("no location", CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, GRANULE, &access, 0));
    OK(cuMemMap(address + GRANULE, GRANULE, 0, handle, 0));
    OK(cuMemSetAccess(address, 3 * GRANULE, &access, 1));
    access.flags = (CUmemAccess_flags)2;
    VIOLATES("flags 0x2", CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, GRANULE, &access, 1));
    access = drive_access(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess(address, GRANULE, &access, 1));
    OK(cuMemRelease(handle));
    drive_unmapped(address, 3);
    drive_close();
}

Test(access, of_other_devices_needs_a_peer)
{
    drive_open("devices=2,peer.1=none");
    CUmemAccessDesc access = drive_access(1, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CUdeviceptr address = drive_mapped(1);
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess(address, GRANULE, &access, 1));
    cr_assert_eq(access_at(address, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    drive_unmapped(address, 1);
    drive_close();
}

Test(access, to_read_may_be_refused)
{
    drive_open("read=801");
    CUmemAccessDesc access = drive_access(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CUdeviceptr address = drive_mapped(1);
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemSetAccess(address, GRANULE, &access, 1));
    cr_assert_eq(access_at(address, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "nothing has changed");
    cr_assert_eq(moor_cudasim.configure("read=0"), 0);
    OK(cuMemSetAccess(address, GRANULE, &access, 1));
    cr_assert_eq(access_at(address, 0), CU_MEM_ACCESS_FLAGS_PROT_READ);
    drive_unmapped(address, 1);
    drive_close();
}

/* Expects the violation of an operation that runs without access. */
static void expect_fault(const char *words, void (*spoil)(CUdeviceptr address))
{
    drive_open("");
    CUstream stream = drive_stream();
    CUdeviceptr address = drive_mapped(2);
    OK(moor_cudasim.hold(stream));
    OK(cuMemsetD8Async(address + GRANULE - 8, 1, 16, stream));
    spoil(address);
    OK(moor_cudasim.open(stream));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    drive_violated(words);
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&address, 1)); /* the error sticks */
}

static void make_read_only(CUdeviceptr address)
{
    CUmemAccessDesc access = drive_access(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cuMemSetAccess(address + GRANULE, GRANULE, &access, 1));
}

Test(access, is_checked_when_an_operation_writes)
{
    expect_fault("read-only for this device", make_read_only);
}

static void take_access(CUdeviceptr address)
{
    CUmemAccessDesc access = drive_access(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuMemSetAccess(address, GRANULE, &access, 1));
}

Test(access, is_checked_when_an_operation_reads)
{
    expect_fault("is not accessible to this device", take_access);
}

static void take_memory(CUdeviceptr address)
{
    OK(cuMemUnmap(address + GRANULE, GRANULE));
    drive_violated("cuMemUnmap of");
}

Test(access, is_checked_when_an_operation_finds_no_memory)
{
    expect_fault("is not mapped", take_memory);
}
