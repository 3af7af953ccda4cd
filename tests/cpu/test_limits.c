/* SPDX-License-Identifier: MIT */
/* Limits of control groups, from made-up systems; and the two sources of the kernel's figures, compared. */
#include "cpu.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define MEMINFO "MemTotal:        8388608 kB\nMemFree:          500000 kB\nMemAvailable:    6291456 kB\n"

static char root[] = "/tmp/moorage-limits-XXXXXX";

static void make_root(void)
{
    cr_assert_not_null(mkdtemp(root));
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)stat;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_root(void)
{
    (void)nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS); /* a leftover folder does no harm */
}

TestSuite(limits, .init = make_root, .fini = remove_root);

static void put(const char *name, const char *text)
{
    char path[512];
    int length = snprintf(path, sizeof(path), "%s/%s", root, name);
    cr_assert(length > 0 && (size_t)length < sizeof(path));
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* most pages are present */
        *slash = '/';
    }
    FILE *file = fopen(path, "we");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

static struct cpu_reading look(void)
{
    struct cpu_limits limits;
    struct cpu_reading reading = {0, 0};
    cr_assert_eq(cpu_limits_open(&limits, root), 0);
    cr_assert_eq(cpu_limits_read(&limits, &reading), 0);
    cpu_limits_close(&limits);
    return reading;
}

Test(limits, without_groups_the_machine_is_the_limit)
{
    put("proc/meminfo", MEMINFO);
    struct cpu_reading reading = look();
    cr_assert_eq(reading.total_bytes, 8192 * MIB);
    cr_assert_eq(reading.available_bytes, 6144 * MIB);
}

Test(limits, version_2_counts_every_level_and_clean_cache)
{
    put("proc/meminfo", MEMINFO);
    put("proc/self/mountinfo",
        "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    put("proc/self/cgroup", "0::/a.slice/b.service\n");
    put("sys/fs/cgroup/a.slice/memory.max", "1073741824\n");
    put("sys/fs/cgroup/a.slice/memory.high", "max\n");
    put("sys/fs/cgroup/a.slice/memory.current", "838860800\n");
    put("sys/fs/cgroup/a.slice/memory.stat", "anon 1\nfile 9\nfile_dirty 104857600\nfile_writeback "
                                             "0\ninactive_file 314572800\nactive_file 104857600\n");
    put("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
    put("sys/fs/cgroup/a.slice/b.service/memory.current", "838860800\n");
    put("sys/fs/cgroup/a.slice/b.service/memory.stat", "anon 1\n");
    struct cpu_reading reading = look();
    cr_assert_eq(reading.total_bytes, 1024 * MIB);
    /* 1024 - (800 - (300 + 100 - 100 dirty)) */
    cr_assert_eq(reading.available_bytes, 524 * MIB);

    put("sys/fs/cgroup/a.slice/b.service/memory.high", "943718400\n");
    reading = look();
    cr_assert_eq(reading.total_bytes, 900 * MIB);
    cr_assert_eq(reading.available_bytes, 100 * MIB);

    put("sys/fs/cgroup/a.slice/b.service/memory.high", "734003200\n");
    cr_assert_eq(look().available_bytes, 0, "used beyond the limit");
}

Test(limits, version_1_counts_every_level)
{
    put("proc/meminfo", MEMINFO);
    put("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
                               "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
                               "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
    put("proc/self/cgroup", "9:name=systemd:/\n4:memory:/jobs/one\n3:cpuset:/\n0::/\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
    put("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "536870912\n");
    put("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "104857600\n");
    put("sys/fs/cgroup/memory/jobs/memory.stat", "cache 1\ninactive_file 1\ntotal_inactive_file "
                                                 "20971520\ntotal_active_file 20971520\ntotal_dirty 0\n");
    put("sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/jobs/one/memory.usage_in_bytes", "104857600\n");
    struct cpu_reading reading = look();
    cr_assert_eq(reading.total_bytes, 512 * MIB);
    cr_assert_eq(reading.available_bytes, 452 * MIB);
}

Test(limits, a_container_sees_a_part_of_the_hierarchy)
{
    put("proc/meminfo", MEMINFO);
    put("proc/self/mountinfo", "35 31 0:32 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    put("proc/self/cgroup", "4:memory:/docker/x/inner\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "67108864\n");
    put("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "134217728\n");
    put("sys/fs/cgroup/memory/inner/memory.usage_in_bytes", "0\n");
    cr_assert_eq(look().total_bytes, 128 * MIB);
    put("proc/self/cgroup", "4:memory:/../../elsewhere\n");
    struct cpu_reading reading = look();
    cr_assert_eq(reading.total_bytes, 256 * MIB);
    cr_assert_eq(reading.available_bytes, 192 * MIB);
}

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
