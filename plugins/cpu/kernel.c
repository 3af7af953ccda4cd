/* SPDX-License-Identifier: MIT */
/*
 * The memory that the kernel holds for the provider, by address. Mappings cannot identify it: neighbouring
 * mappings merge, also with mappings of the host, so a line of /proc/self/smaps may be both. There are two
 * exact sources.
 *
 * PAGEMAP_SCAN (Linux 6.7) returns runs of present pages, and which of them are large. The cost follows the
 * runs: a millisecond for thousands of them, at any distance. Before, /proc/self/pagemap has 8 bytes
 * for every page of address space, and does not show large pages.
 *
 * Pages of files (maps of segments) are left out: the segment file reports its own blocks.
 */
#include "cpu.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* From linux/fs.h of Linux 6.7, under other names, because newer headers define those. */
struct scan_region {
    uint64_t start;
    uint64_t end;
    uint64_t categories;
};

struct scan_args {
    uint64_t size;
    uint64_t flags;
    uint64_t start;
    uint64_t end;
    uint64_t walk_end;
    uint64_t regions;
    uint64_t region_count;
    uint64_t pages_max;
    uint64_t category_inverted;
    uint64_t category_mask;
    uint64_t category_anyof_mask;
    uint64_t return_mask;
};

_Static_assert(sizeof(struct scan_args) == 96, "the kernel's struct pm_scan_arg");

#define SCAN_IOCTL _IOWR('f', 16, struct scan_args)
#define SCAN_FILE (UINT64_C(1) << 2)
#define SCAN_PRESENT (UINT64_C(1) << 3)
#define SCAN_SWAPPED (UINT64_C(1) << 4)
#define SCAN_HUGE (UINT64_C(1) << 6)

/* Bits of an entry of /proc/self/pagemap. */
#define PAGE_FILE (UINT64_C(1) << 61)
#define PAGE_SWAPPED (UINT64_C(1) << 62)
#define PAGE_PRESENT (UINT64_C(1) << 63)

#define REGIONS_AT_ONCE 512u
#define PAGES_AT_ONCE 4096u

int cpu_kernel_scan(int pagemap, const struct cpu_interval *interval, struct cpu_held *held)
{
    struct scan_region regions[REGIONS_AT_ONCE];
    uint64_t at = interval->start;
    assert(interval->start <= interval->end);
    while (at < interval->end) {
        struct scan_args args = {
            .size = sizeof args,
            .start = at,
            .end = interval->end,
            .regions = (uint64_t)(uintptr_t)regions,
            .region_count = REGIONS_AT_ONCE,
            .category_inverted = interval->mixed ? SCAN_FILE : 0,
            .category_mask = interval->mixed ? SCAN_FILE : 0,
            .category_anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
            .return_mask = SCAN_HUGE,
        };
        int count = ioctl(pagemap, SCAN_IOCTL, &args);
        if (count < 0)
            return errno;
        for (int i = 0; i < count; i++) {
            uint64_t bytes = regions[i].end - regions[i].start;
            held->bytes += bytes;
            held->huge_bytes += regions[i].categories & SCAN_HUGE ? bytes : 0;
        }
        if ((unsigned int)count < REGIONS_AT_ONCE)
            break;
        at = regions[count - 1].end; /* not walk_end: kernels set it wrongly in the last round */
    }
    return 0;
}

int cpu_kernel_read(int pagemap, const struct cpu_interval *interval, struct cpu_held *held)
{
    uint64_t entries[PAGES_AT_ONCE];
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t end = interval->end / page_bytes;
    for (uint64_t page = interval->start / page_bytes; page < end;) {
        uint64_t count = end - page < PAGES_AT_ONCE ? end - page : PAGES_AT_ONCE;
        ssize_t length = pread(pagemap, entries, count * sizeof *entries, (off_t)(page * sizeof *entries));
        if (length < (ssize_t)sizeof *entries)
            return length < 0 ? errno : EIO;
        count = (uint64_t)length / sizeof *entries;
        for (uint64_t i = 0; i < count; i++) {
            bool there = entries[i] & (PAGE_PRESENT | PAGE_SWAPPED);
            held->bytes += there && !(entries[i] & PAGE_FILE) ? page_bytes : 0;
        }
        page += count;
    }
    held->huge_known = false;
    return 0;
}

static int compare(const void *a, const void *b)
{
    uint64_t left = ((const struct cpu_interval *)a)->start;
    uint64_t right = ((const struct cpu_interval *)b)->start;
    return (left > right) - (left < right);
}

/* Sorts intervals and joins neighbours. The kernel places mappings side by side, so thousands of mappings
 * make few intervals. */
static size_t join(struct cpu_interval *intervals, size_t count)
{
    if (count == 0)
        return 0;
    qsort(intervals, count, sizeof *intervals, compare);
    size_t last = 0;
    for (size_t i = 1; i < count; i++) {
        if (intervals[i].start == intervals[last].end) {
            intervals[last].end = intervals[i].end;
            intervals[last].mixed |= intervals[i].mixed;
        } else {
            assert(intervals[i].start > intervals[last].end); /* records never overlap */
            intervals[++last] = intervals[i];
        }
    }
    return last + 1;
}

int cpu_kernel_held(struct cpu_interval *intervals, size_t count, struct cpu_held *ret_held)
{
    count = join(intervals, count);
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap < 0)
        return errno;
    struct cpu_held held = {.huge_known = true};
    int (*read)(int, const struct cpu_interval *, struct cpu_held *) = cpu_kernel_scan;
    int code = 0;
    for (size_t i = 0; i < count && code == 0; i++) {
        code = read(pagemap, &intervals[i], &held);
        if (code == ENOTTY && read == cpu_kernel_scan) {
            read = cpu_kernel_read;
            code = read(pagemap, &intervals[i], &held);
        }
    }
    (void)close(pagemap); /* read only: nothing is lost */
    if (code == 0)
        *ret_held = held;
    return code;
}
