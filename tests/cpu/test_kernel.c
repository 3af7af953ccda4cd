/* SPDX-License-Identifier: MIT */
/* The two sources of the kernel's figures give the same. */
#include "cpu.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

Test(kernel, both_sources_agree)
{
    const uint64_t pages = 20000;
    char *memory =
        mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    madvise(memory, pages * 4096, MADV_NOHUGEPAGE);
    uint64_t touched = 0;
    for (uint64_t i = 0; i < pages; i += 3, touched++) /* more runs than one ioctl returns */
        memory[i * 4096] = 1;
    /* Pages of a mapped file do not count. */
    int file = memfd_create("x", 0);
    cr_assert_eq(ftruncate(file, 3 * 4096), 0);
    cr_assert_neq(mmap(memory, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0),
                  MAP_FAILED);
    memset(memory, 1, 3 * 4096);
    touched--;
    struct cpu_interval interval = {(uintptr_t)memory, (uintptr_t)memory + pages * 4096, true};
    int pagemap = open("/proc/self/pagemap", O_RDONLY);
    struct cpu_held read_held = {.huge_known = true};
    cr_assert_eq(cpu_kernel_read(pagemap, &interval, &read_held), 0);
    cr_assert_eq(read_held.bytes, touched * 4096);
    cr_assert_not(read_held.huge_known);
    struct cpu_held scan_held = {.huge_known = true};
    int code = cpu_kernel_scan(pagemap, &interval, &scan_held);
    close(pagemap);
    close(file);
    munmap(memory, pages * 4096);
    if (code == ENOTTY)
        cr_skip_test("this kernel has one way only");
    cr_assert_eq(code, 0);
    cr_assert_eq(scan_held.bytes, touched * 4096);
    cr_assert_eq(scan_held.huge_bytes, 0);
}
