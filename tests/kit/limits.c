/* SPDX-License-Identifier: MIT */
/* Limits of control groups, on made-up systems. */
#include <criterion/criterion.h>
#include <errno.h>
#include <ftw.h>
#include <moorage/kit/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    return remove(path);
}

static void remove_root(void)
{
    (void)nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS); /* a leftover folder does no harm */
}

TestSuite(limits, .init = make_root, .fini = remove_root, .timeout = 20);

static void write_file(const char *name, const char *text)
{
    char path[512];
    int length = snprintf(path, sizeof(path), "%s/%s", root, name);
    cr_assert(length > 0 && (size_t)length < sizeof(path));
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* most folders exist already */
        *slash = '/';
    }
    FILE *file = fopen(path, "we");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

static struct moor_kit_reading read_limits(void)
{
    struct moor_kit_limits limits;
    struct moor_kit_reading reading = {0, 0};
    cr_assert_eq(moor_kit_limits_open(&limits, root), 0);
    errno = EINTR; /* a success leaves the value of an earlier call */
    cr_assert_eq(moor_kit_limits_read(&limits, &reading), 0);
    moor_kit_limits_close(&limits);
    return reading;
}

Test(limits, without_meminfo_there_is_no_reading)
{
    struct moor_kit_limits limits;
    cr_assert_eq(moor_kit_limits_open(&limits, root), ENOENT);
    write_file("proc/meminfo", "MemFree: 1 kB\n");
    struct moor_kit_reading reading;
    cr_assert_eq(moor_kit_limits_open(&limits, root), 0);
    cr_assert_eq(moor_kit_limits_read(&limits, &reading), EBADMSG);
    moor_kit_limits_close(&limits);
}

Test(limits, without_groups_the_machine_is_the_limit)
{
    write_file("proc/meminfo", MEMINFO);
    struct moor_kit_reading reading = read_limits();
    cr_assert_eq(reading.total_bytes, 8192 * MIB);
    cr_assert_eq(reading.available_bytes, 6144 * MIB);
}

Test(limits, descriptor_0_is_a_file)
{
    write_file("proc/meminfo", MEMINFO);
    (void)close(STDIN_FILENO); /* the next file becomes descriptor 0 */
    cr_assert_eq(read_limits().total_bytes, 8192 * MIB);
}

Test(limits, version_2_counts_every_level_and_clean_cache)
{
    write_file("proc/meminfo", MEMINFO);
    write_file("proc/self/mountinfo",
               "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    write_file("proc/self/cgroup", "0::/a.slice/b.service\n");
    write_file("sys/fs/cgroup/a.slice/memory.max", "1073741824\n");
    write_file("sys/fs/cgroup/a.slice/memory.high", "max\n");
    write_file("sys/fs/cgroup/a.slice/memory.current", "838860800\n");
    write_file("sys/fs/cgroup/a.slice/memory.stat", "anon 1\nfile 9\nfile_dirty 104857600\nfile_writeback "
                                                    "0\ninactive_file 314572800\nactive_file 104857600\n");
    write_file("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
    write_file("sys/fs/cgroup/a.slice/b.service/memory.current", "838860800\n");
    write_file("sys/fs/cgroup/a.slice/b.service/memory.stat", "anon 1\n");
    struct moor_kit_reading reading = read_limits();
    cr_assert_eq(reading.total_bytes, 1024 * MIB);
    /* 1024 - (800 - (300 + 100 - 100 dirty)) */
    cr_assert_eq(reading.available_bytes, 524 * MIB);

    write_file("sys/fs/cgroup/a.slice/b.service/memory.high", "943718400\n");
    reading = read_limits();
    cr_assert_eq(reading.total_bytes, 900 * MIB);
    cr_assert_eq(reading.available_bytes, 100 * MIB);

    write_file("sys/fs/cgroup/a.slice/b.service/memory.high", "734003200\n");
    cr_assert_eq(read_limits().available_bytes, 0, "used beyond the limit");
}

Test(limits, version_1_counts_every_level)
{
    write_file("proc/meminfo", MEMINFO);
    write_file("proc/self/mountinfo",
               "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
               "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
               "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
    write_file("proc/self/cgroup", "9:name=systemd:/\n4:memory:/jobs/one\n3:cpuset:/\n0::/\n");
    write_file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    write_file("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
    write_file("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "536870912\n");
    write_file("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "104857600\n");
    write_file("sys/fs/cgroup/memory/jobs/memory.stat",
               "cache 1\ninactive_file 1\ntotal_inactive_file "
               "20971520\ntotal_active_file 20971520\ntotal_dirty 0\n");
    write_file("sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes", "9223372036854771712\n");
    write_file("sys/fs/cgroup/memory/jobs/one/memory.usage_in_bytes", "104857600\n");
    struct moor_kit_reading reading = read_limits();
    cr_assert_eq(reading.total_bytes, 512 * MIB);
    cr_assert_eq(reading.available_bytes, 452 * MIB);
}

Test(limits, a_container_sees_a_part_of_the_hierarchy)
{
    write_file("proc/meminfo", MEMINFO);
    write_file("proc/self/mountinfo",
               "35 31 0:32 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,cpu,memory,hugetlb\n");
    write_file("proc/self/cgroup", "4:cpu,memory,hugetlb:/docker/x/inner\n");
    write_file("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
    write_file("sys/fs/cgroup/memory/memory.usage_in_bytes", "67108864\n");
    write_file("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "134217728\n");
    write_file("sys/fs/cgroup/memory/inner/memory.usage_in_bytes", "0\n");
    cr_assert_eq(read_limits().total_bytes, 128 * MIB);
    write_file("proc/self/cgroup", "4:memory:/../../elsewhere\n");
    struct moor_kit_reading reading = read_limits();
    cr_assert_eq(reading.total_bytes, 256 * MIB);
    cr_assert_eq(reading.available_bytes, 192 * MIB);
}
