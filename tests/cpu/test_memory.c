/* SPDX-License-Identifier: MIT */
/* ALLOC, PINNED and STATS: granted memory exists, is aligned, and equals the kernel's figures. */
#include "suite.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

TestSuite(memory, .init = open_default, .fini = close_default);

Test(memory, the_device_describes_itself)
{
    const struct moor_abi_base_table *base = f.provider->base;
    struct moor_abi_device_info device = {.struct_size = MOOR_ABI_DEVICE_INFO_SIZE};
    cr_assert_eq(base->device_info(f.instance, 0, &device, &f.error), MOOR_OK);
    cr_assert_eq(device.domain_count, 2);
    cr_assert_str_not_empty(device.key);
    cr_assert_str_not_empty(device.name);
    struct moor_abi_domain_info domains[2];
    for (uint32_t i = 0; i < 2; i++) {
        domains[i].struct_size = MOOR_ABI_DOMAIN_INFO_SIZE;
        cr_assert_eq(base->domain_info(f.instance, 0, i, &domains[i], &f.error), MOOR_OK);
        cr_assert_eq(domains[i].capabilities & ~device.capabilities, 0);
        cr_assert_gt(domains[i].total_bytes, 0);
    }
    cr_assert_eq(domains[0].kind, MOOR_ABI_DOMAIN_DEVICE);
    cr_assert_eq(domains[1].kind, MOOR_ABI_DOMAIN_PINNED);
    cr_assert_str_eq(domains[0].pool_key, domains[1].pool_key);
    cr_assert_eq(domains[0].granule_min_bytes, 64 * KIB);
    cr_assert_eq(domains[0].granule_recommended_bytes, 2 * MIB);
    cr_assert_eq(domains[1].granule_min_bytes, 0);
    cr_assert_eq(base->domain_info(f.instance, 0, 2, &domains[0], &f.error), MOOR_INVALID);
    cr_assert_eq(base->device_info(f.instance, 1, &device, &f.error), MOOR_INVALID);
    const void *table = NULL;
    cr_assert_eq(base->get_extension(f.instance, "x.y", 1, &table, &f.error), MOOR_UNSUPPORTED);
}

Test(memory, allocations_are_zero_aligned_and_exact)
{
    static const uint64_t sizes[] = {1, 4096, 65537, 2 * MIB, 5 * MIB + 1};
    static const uint64_t alignments[] = {256, 4096, 64 * KIB, 16 * MIB};
    for (uint32_t domain = 0; domain < 2; domain++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            for (size_t a = 0; a < sizeof(alignments) / sizeof(alignments[0]); a++) {
                struct moor_abi_allocation got;
                cr_assert_eq(fixture_allocate(&f, domain, sizes[s], alignments[a], &got), MOOR_OK, "%s",
                             f.error.text);
                cr_assert_eq(got.address % alignments[a], 0);
                cr_assert(sizes[s] < 2 * MIB || got.address % (2 * MIB) == 0);
                cr_assert_eq(got.actual_bytes, (sizes[s] + 4095) / 4096 * 4096);
                struct moor_abi_alloc_args args = {MOOR_ABI_ALLOC_ARGS_SIZE, domain, sizes[s], alignments[a],
                                                   0};
                uint64_t footprint = 0;
                f.provider->alloc->footprint(f.context, &args, &footprint, &f.error);
                cr_assert_eq(footprint, got.actual_bytes);
                for (uint64_t i = 0; i < sizes[s]; i += 511)
                    cr_assert_eq(*at(got.address, i), 0);
                memset(at(got.address, 0), 1, sizes[s]);
                cr_assert(fixture_balanced(&f));
                cr_assert_eq(free_allocation(&got), got.actual_bytes);
                cr_assert(fixture_balanced(&f));
            }
        }
    }
}

Test(memory, wrong_arguments_are_refused)
{
    struct moor_abi_allocation got = {.handle = 77};
    cr_assert_eq(fixture_allocate(&f, 0, 0, 256, &got), MOOR_INVALID);
    cr_assert_eq(fixture_allocate(&f, 2, 1, 256, &got), MOOR_INVALID);
    cr_assert_eq(fixture_allocate(&f, 0, 1, 128, &got), MOOR_INVALID);
    cr_assert_eq(fixture_allocate(&f, 0, 1, 384, &got), MOOR_INVALID);
    cr_assert_eq(fixture_allocate(&f, 0, UINT64_MAX - 100, 256, &got), MOOR_OVERFLOW);
    cr_assert_eq(fixture_allocate(&f, 0, UINT64_MAX - 8191, 8192, &got), MOOR_OVERFLOW);
    cr_assert_eq(got.handle, 77);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_ALLOCATION, 0, 0, 0, NULL, 0), MOOR_INVALID);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_ALLOCATION, 0x100000001, 0, 0, NULL, 0), MOOR_INVALID);
    cr_assert_eq(fixture_release(&f, 9, 1, 0, 0, NULL, 0), MOOR_INVALID);
    cr_assert_eq(fixture_allocate(&f, 0, 1, 256, &got), MOOR_OK);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_RANGE, got.handle, 0, 0, NULL, 0), MOOR_INVALID);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_ALLOCATION, got.handle, 0, 0, NULL, 0), MOOR_OK);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_ALLOCATION, got.handle, 0, 0, NULL, 0), MOOR_INVALID);
    cr_assert_eq(fixture_reap(&f, 1), 4096);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_ALLOCATION, got.handle, 0, 0, NULL, 0), MOOR_STALE);
}

Test(memory, more_than_the_machine_has_is_refused_not_killed)
{
    struct moor_abi_stats stats = fixture_stats(&f, 0);
    struct moor_abi_allocation got;
    cr_assert_leq(stats.free_bytes, stats.total_bytes);
    cr_assert_eq(fixture_allocate(&f, 0, stats.total_bytes + 1, 256, &got), MOOR_DEVICE_NOMEM);
    cr_assert_eq(fixture_allocate(&f, 0, stats.free_bytes + 512 * MIB, 256, &got), MOOR_DEVICE_NOMEM);
    cr_assert_eq(fixture_allocate(&f, 1, stats.free_bytes + 512 * MIB, 256, &got), MOOR_DEVICE_NOMEM);
    cr_assert(fixture_balanced(&f));
}

Test(memory, close_is_busy_while_an_object_is_left)
{
    struct moor_abi_allocation got;
    cr_assert_eq(fixture_allocate(&f, 0, 1, 256, &got), MOOR_OK);
    cr_assert_eq(fixture_close(&f), MOOR_BUSY);
    cr_assert_eq(f.provider->base->shutdown(f.instance, &f.error), MOOR_BUSY);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_ALLOCATION, got.handle, 0, 0, NULL, 0), MOOR_OK);
    cr_assert_eq(fixture_close(&f), MOOR_BUSY);
    cr_assert_eq(fixture_reap(&f, 1), 4096);
}

Test(memory, large_allocations_are_in_large_pages)
{
    struct moor_abi_allocation got;
    cr_assert_eq(fixture_allocate(&f, 0, 16 * MIB, 256, &got), MOOR_OK);
    struct moor_abi_stats stats = fixture_stats(&f, 0);
    if (!(stats.valid & MOOR_ABI_STAT_HUGE) || !system_gives_large_pages())
        cr_skip_test("the system gives no large pages, or does not tell");
    cr_assert_eq(stats.huge_bytes, 16 * MIB);
    cr_assert_eq(free_allocation(&got), 16 * MIB);
    cr_assert_eq(fixture_stats(&f, 0).huge_bytes, 0);
}

static unsigned long long locked_kib(void)
{
    FILE *status = fopen("/proc/self/status", "re");
    char line[256];
    unsigned long long kib = 0;
    while (fgets(line, sizeof(line), status))
        (void)sscanf(line, "VmLck: %llu", &kib);
    fclose(status);
    return kib;
}

/* Sanitizers turn mlock into a no-op. */
static bool mlock_works(void)
{
    static char page[4096] __attribute__((aligned(4096)));
    bool works = mlock(page, sizeof(page)) == 0 && locked_kib() == 4;
    munlock(page, sizeof(page));
    return works;
}

static int32_t pin(const char *address, uint64_t bytes, uint64_t *ret_handle)
{
    struct moor_abi_pin_args args = {MOOR_ABI_PIN_ARGS_SIZE, 0, (uintptr_t)address, bytes, 0};
    return f.provider->pinned->pin(f.context, &args, ret_handle, &f.error);
}

Test(memory, overlapping_pins_keep_each_others_pages_locked)
{
    if (!mlock_works())
        cr_skip_test("mlock does nothing here");
    char *host = mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t pins[4] = {0};
    cr_assert_eq(pin(host, 32 * KIB, &pins[0]), MOOR_OK, "%s", f.error.text);
    cr_assert_eq(pin(host + 16 * KIB, 32 * KIB, &pins[1]), MOOR_OK);
    cr_assert_eq(pin(host + 20 * KIB, 4 * KIB, &pins[2]), MOOR_OK);
    cr_assert_eq(pin(host, 64 * KIB, &pins[3]), MOOR_OK);
    cr_assert_eq(locked_kib(), 64);
    cr_assert_eq(fixture_free(&f, MOOR_ABI_RELEASE_PIN, pins[3], 0, 0), 0);
    cr_assert_eq(locked_kib(), 48);
    cr_assert_eq(fixture_free(&f, MOOR_ABI_RELEASE_PIN, pins[1], 0, 0), 0);
    cr_assert_eq(locked_kib(), 32);
    cr_assert_eq(fixture_free(&f, MOOR_ABI_RELEASE_PIN, pins[0], 0, 0), 0);
    cr_assert_eq(locked_kib(), 4);
    cr_assert_eq(fixture_free(&f, MOOR_ABI_RELEASE_PIN, pins[2], 0, 0), 0);
    cr_assert_eq(locked_kib(), 0);
    uint64_t handle = 5;
    cr_assert_eq(pin(host + 1, 4096, &handle), MOOR_INVALID);
    cr_assert_eq(pin(host, 0, &handle), MOOR_INVALID);
    cr_assert_eq(pin((char *)(uintptr_t)(UINT64_MAX - 4095), 8192, &handle), MOOR_OVERFLOW);
    munmap(host + 32 * KIB, 32 * KIB);
    cr_assert_eq(pin(host, 64 * KIB, &handle), MOOR_INVALID);
    cr_assert_eq(handle, 5);
    cr_assert_eq(locked_kib(), 0);
    munmap(host, 32 * KIB);
}

Test(memory, pinned_memory_is_locked)
{
    if (!mlock_works())
        cr_skip_test("mlock does nothing here");
    struct moor_abi_allocation got;
    cr_assert_eq(fixture_allocate(&f, 1, 1 * MIB, 256, &got), MOOR_OK, "%s", f.error.text);
    cr_assert_eq(locked_kib(), 1024);
    cr_assert_eq(free_allocation(&got), 1 * MIB);
    cr_assert_eq(locked_kib(), 0);
}

Test(memory, locked_bytes_end_at_the_limit)
{
    if (!mlock_works())
        cr_skip_test("mlock does nothing here");
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {128 * KIB, 128 * KIB};
        /* The superuser has no limit on locked memory. */
        if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (getuid() == 0 && setuid(65534) != 0))
            _exit(9);
        (void)prctl(PR_SET_DUMPABLE, 1); /* otherwise the superuser owns /proc/self, and it cannot be read */
        struct moor_abi_allocation got;
        uint64_t handle = 0;
        static char host[512 * KIB] __attribute__((aligned(4096)));
        bool ok = fixture_allocate(&f, 1, 1 * MIB, 256, &got) == MOOR_LIMIT &&
                  strstr(f.error.text, "RLIMIT_MEMLOCK") && f.error.native_code != 0 &&
                  fixture_balanced(&f) && pin(host, sizeof(host), &handle) == MOOR_LIMIT && locked_kib() == 0;
        _exit(ok ? 0 : 1);
    }
    int status = exit_status(child);
    if (status == 9)
        cr_skip_test("cannot lower the limit here");
    cr_assert_eq(status, 0);
}

static bool put(const char *folder, const char *name, const char *text)
{
    char path[600];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    if (!file)
        return false;
    bool put = fputs(text, file) >= 0;
    return fclose(file) == 0 && put;
}

/* Makes a control group below this process's own, of either version. Returns false if that is not permitted.
 * */
static bool make_group(char folder[static 512])
{
    FILE *cgroup = fopen("/proc/self/cgroup", "re");
    char line[512];
    bool made = false;
    while (cgroup && !made && fgets(line, sizeof(line), cgroup)) {
        char *memory = strstr(line, ":memory:/");
        line[strcspn(line, "\n")] = '\0';
        if (memory)
            (void)snprintf(folder, 512, "/sys/fs/cgroup/memory%.400s/moorage-%d", memory + 8, getpid());
        else if (strncmp(line, "0::/", 4) == 0)
            (void)snprintf(folder, 512, "/sys/fs/cgroup%.400s/moorage-%d", line + 3, getpid());
        else
            continue;
        made = mkdir(folder, 0755) == 0;
        if (made && !put(folder, "memory.limit_in_bytes", "256M") && !put(folder, "memory.max", "256M")) {
            rmdir(folder);
            made = false;
        }
    }
    if (cgroup)
        fclose(cgroup);
    return made;
}

Test(memory, the_limit_of_a_control_group_is_kept)
{
    char group[512];
    if (!make_group(group))
        cr_skip_test("no control group can be made here");
    pid_t child = fork();
    if (child == 0) {
        struct fixture own;
        char pid[16];
        (void)snprintf(pid, sizeof(pid), "%d", getpid());
        if (!put(group, "cgroup.procs", pid))
            _exit(9);
        if (fixture_open(&own, NULL, NULL) != MOOR_OK)
            _exit(1);
        struct moor_abi_stats stats = fixture_stats(&own, 0);
        if (stats.total_bytes != 256 * MIB || stats.free_bytes >= 256 * MIB)
            _exit(2);
        /* The child takes memory up to the limit, and is not killed. */
        struct moor_abi_range range;
        if (fixture_reserve(&own, 1 * GIB, 2 * MIB, &range) != MOOR_OK)
            _exit(3);
        uint64_t got = 0;
        int32_t status = MOOR_OK;
        while (status == MOOR_OK) {
            status = fixture_commit(&own, &range, got, 2 * MIB);
            if (status == MOOR_OK)
                got += 2 * MIB;
        }
        bool ok =
            status == MOOR_DEVICE_NOMEM && got >= 192 * MIB && got < 256 * MIB && fixture_balanced(&own);
        _exit(ok ? 0 : 4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    rmdir(group);
    cr_assert(WIFEXITED(status), "killed");
    if (WEXITSTATUS(status) == 9)
        cr_skip_test("the control group cannot be entered");
    cr_assert_eq(WEXITSTATUS(status), 0);
}

Test(memory, contexts_are_independent)
{
    struct moor_abi_context *own = f.context;
    struct moor_abi_context *other = NULL;
    struct moor_abi_allocation got;
    cr_assert_eq(fixture_allocate(&f, 0, 1 * MIB, 256, &got), MOOR_OK);
    cr_assert_eq(f.provider->base->context_open(f.instance, 0, &other, &f.error), MOOR_OK);
    f.context = other;
    cr_assert_eq(fixture_stats(&f, 0).held_bytes, 0);
    cr_assert_eq(fixture_stats(&f, 0).system_held_bytes, 0);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_ALLOCATION, got.handle, 0, 0, NULL, 0), MOOR_INVALID);
    f.context = own;
    cr_assert_eq(f.provider->base->context_close(other, &f.error), MOOR_OK);
    cr_assert_eq(free_allocation(&got), 1 * MIB);
}

Test(settings, are_used_and_checked)
{
    static const char *const bad[] = {"32KiB", "96KiB", "2GiB", "0", "many"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_eq(fixture_open(&f, bad[i], NULL), MOOR_INVALID);
        cr_assert_not_null(strstr(f.error.text, "granule_bytes"));
    }
    cr_assert_eq(fixture_open(&f, NULL, "0"), MOOR_INVALID);
    cr_assert_eq(fixture_open(&f, "64KiB", "10MiB"), MOOR_OK);
    struct moor_abi_domain_info domain = {.struct_size = MOOR_ABI_DOMAIN_INFO_SIZE};
    cr_assert_eq(f.provider->base->domain_info(f.instance, 0, 0, &domain, &f.error), MOOR_OK);
    cr_assert_eq(domain.granule_recommended_bytes, 64 * KIB);
    cr_assert_eq(domain.total_bytes, 10 * MIB);
    cr_assert_neq(domain.flags & MOOR_ABI_DOMAIN_ENFORCED, 0);

    struct moor_abi_allocation got;
    struct moor_abi_allocation more;
    cr_assert_eq(fixture_allocate(&f, 0, 6 * MIB, 256, &got), MOOR_OK);
    cr_assert_eq(fixture_allocate(&f, 1, 5 * MIB, 256, &more), MOOR_DEVICE_NOMEM,
                 "the domains share one pool");
    cr_assert_eq(fixture_stats(&f, 1).free_bytes, 4 * MIB);
    cr_assert_eq(fixture_allocate(&f, 1, 4 * MIB, 256, &more), MOOR_OK);
    cr_assert_eq(free_allocation(&got), 6 * MIB);
    cr_assert_eq(free_allocation(&more), 4 * MIB);
    cr_assert_eq(fixture_close(&f), MOOR_OK);
}
