/* SPDX-License-Identifier: MIT */
/*
 * Address space and pages.
 *
 * Reservations are private anonymous memory with no access. Three properties need a reason.
 *
 * MADV_DONTFORK: a child of fork does not use device memory (promise I13). Without it fork would copy the
 * page tables of everything, and each later write of the parent would copy a page: time, and bytes that no
 * holder is charged for.
 *
 * One anon_vma for the whole: the kernel merges neighbouring mappings only if they share the object that it
 * creates at their first fault. Parts that are backed in random order would each create one and never merge
 * again, up to the limit on maps. So one page is touched and dropped while the reservation is still one
 * mapping.
 *
 * MADV_HUGEPAGE or MADV_NOHUGEPAGE over the whole: with granules smaller than a large page, the kernel must
 * not put a large page across several granules. Dropping one granule would then free nothing, and khugepaged
 * would fill the gaps.
 */
#include "cpu.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* From Linux 5.14 and 5.18; older libc headers lack both. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

/* The kernel's own count differs by a few maps from the lines of the file. */
#define MAPS_SLACK 8u

static uint64_t count_maps(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return 0;
    uint64_t count = 0;
    for (int c = getc_unlocked(maps); c != EOF; c = getc_unlocked(maps))
        count += c == '\n';
    (void)fclose(maps); /* read only: nothing is lost */
    return count;
}

static uint64_t read_maps_max(void)
{
    unsigned long long maps_max = UINT64_MAX;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (!file)
        return UINT64_MAX;
    if (fscanf(file, "%llu", &maps_max) != 1)
        maps_max = UINT64_MAX;
    (void)fclose(file); /* read only: nothing is lost */
    return maps_max;
}

int32_t cpu_pages_fail(struct moor_abi_error *error, int32_t otherwise, int code, const char *call,
                       uint64_t bytes)
{
    uint64_t maps_max = code == ENOMEM ? read_maps_max() : UINT64_MAX;
    if (maps_max != UINT64_MAX && count_maps() + MAPS_SLACK >= maps_max)
        return moor_kit_fail(error, MOOR_LIMIT, code,
                             "%s of %llu bytes: the process has used up its %llu maps "
                             "(vm.max_map_count)",
                             call, (unsigned long long)bytes, (unsigned long long)maps_max);
    return moor_kit_fail(error, otherwise, code, "%s of %llu bytes: %s", call, (unsigned long long)bytes,
                         strerrorname_np(code));
}

static void advise(uint64_t address, uint64_t bytes, bool large)
{
    /* Advice: a kernel without large pages answers EINVAL, and a failure changes nothing but speed. */
    (void)madvise(cpu_pointer(address), bytes, MADV_DONTFORK);
    (void)madvise(cpu_pointer(address), bytes, large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

int32_t cpu_pages_reserve(uint64_t bytes, uint64_t alignment_bytes, bool large, uint64_t *ret_address,
                          struct moor_abi_error *error)
{
    if (bytes > CPU_ADDRESS_BYTES_MAX || alignment_bytes > CPU_ADDRESS_BYTES_MAX)
        return moor_kit_fail(error, MOOR_NO_VA, 0,
                             "%llu bytes aligned to %llu are requested: more than the address space",
                             (unsigned long long)bytes, (unsigned long long)alignment_bytes);
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    assert(moor_kit_is_power_of_two(alignment_bytes) && bytes % page_bytes == 0);
    uint64_t slack = alignment_bytes > page_bytes ? alignment_bytes - page_bytes : 0;
    void *raw = mmap(NULL, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return cpu_pages_fail(error, MOOR_NO_VA, errno, "mmap", bytes + slack);

    uint64_t start = (uint64_t)(uintptr_t)raw;
    uint64_t address = (start + alignment_bytes - 1) & ~(alignment_bytes - 1);
    uint64_t head = address - start;
    assert(head <= slack);
    if ((head && munmap(raw, head) != 0) ||
        (slack - head && munmap(cpu_pointer(address + bytes), slack - head) != 0)) {
        int code = errno;
        (void)munmap(raw,
                     /* at the limit on maps this may fail, too: addresses are lost, no memory */
                     bytes + slack);
        return cpu_pages_fail(error, MOOR_NO_VA, code, "munmap", slack);
    }
    advise(address, bytes, large);
    *ret_address = address;
    return MOOR_OK;
}

void cpu_pages_prime(uint64_t address)
{
    /* One page, not all: with overcommit forbidden, write access to the whole would count as used memory. The
     * page's mapping merges back and brings its anon_vma along. If this fails, there are more maps, no fault.
     * */
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = cpu_pointer(address);
    if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0)
        return;
    *(volatile char *)page = 0;
    (void)madvise(page, page_bytes, MADV_DONTNEED);
    (void)mprotect(page, page_bytes, PROT_NONE);
}

static int populate(uint64_t address, uint64_t bytes)
{
    if (madvise(cpu_pointer(address), bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL)
        return errno;
    /* Before Linux 5.14. The pool has checked that the memory is available, so the OOM killer does not run.
     * */
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t at = address; at < address + bytes; at += page_bytes)
        *(volatile char *)cpu_pointer(at) = 0;
    return 0;
}

static int discard(uint64_t address, uint64_t bytes)
{
    if (madvise(cpu_pointer(address), bytes, MADV_DONTNEED) == 0)
        return 0;
    /* EINVAL: the host has locked all its memory (mlockall). */
    if (errno == EINVAL && madvise(cpu_pointer(address), bytes, MADV_DONTNEED_LOCKED) == 0)
        return 0;
    return errno;
}

int32_t cpu_pages_back(uint64_t address, uint64_t bytes, struct moor_abi_error *error)
{
    assert(address != 0 && bytes > 0);
    if (mprotect(cpu_pointer(address), bytes, PROT_READ | PROT_WRITE) != 0)
        return cpu_pages_fail(error, MOOR_DEVICE_NOMEM, errno, "mprotect", bytes);
    int code = populate(address, bytes);
    if (code == 0)
        return MOOR_OK;
    (void)cpu_pages_unback(address, bytes,
                           NULL); /* frees the pages that exist; the first failure is reported */
    return cpu_pages_fail(error, MOOR_DEVICE_NOMEM, code, "populate", bytes);
}

int32_t cpu_pages_unback(uint64_t address, uint64_t bytes, struct moor_abi_error *error)
{
    /* Access first: if that fails (it may split a map), nothing has changed. */
    if (mprotect(cpu_pointer(address), bytes, PROT_NONE) != 0)
        return cpu_pages_fail(error, MOOR_PROVIDER, errno, "mprotect", bytes);
    int code = discard(address, bytes);
    if (code != 0)
        return cpu_pages_fail(error, MOOR_PROVIDER, code, "madvise", bytes);
    return MOOR_OK;
}

int32_t cpu_pages_reset(uint64_t address, uint64_t bytes, bool large, struct moor_abi_error *error)
{
    void *place = mmap(cpu_pointer(address), bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (place == MAP_FAILED)
        return cpu_pages_fail(error, MOOR_PROVIDER, errno, "mmap", bytes);
    advise(address, bytes, large);
    cpu_pages_prime(address);
    return MOOR_OK;
}

int32_t cpu_pages_unmap(uint64_t address, uint64_t bytes, struct moor_abi_error *error)
{
    if (munmap(cpu_pointer(address), bytes) != 0)
        return cpu_pages_fail(error, MOOR_PROVIDER, errno, "munmap", bytes);
    return MOOR_OK;
}

int32_t cpu_pages_map_file(uint64_t address, uint64_t bytes, int protection, int file, uint64_t offset,
                           struct moor_abi_error *error)
{
    void *place = mmap(cpu_pointer(address), bytes, protection, MAP_SHARED | MAP_FIXED, file, (off_t)offset);
    if (place == MAP_FAILED)
        return cpu_pages_fail(error, MOOR_NO_VA, errno, "mmap", bytes);
    (void)madvise(place, bytes, MADV_DONTFORK); /* advice, see above */
    return MOOR_OK;
}
