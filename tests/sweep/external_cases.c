/* SPDX-License-Identifier: MIT */
/*
 * Cases from the field about external use of a device: other processes, a second device on the same pool, and
 * a limit of the operating system.
 */
#include "host.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(external_cases, .timeout = 90);

/* ---- O19: other users of the device ---- */

static void expect_external(const struct host *host, uint64_t external, uint64_t ours, const char *when)
{
    MUST(moor_authority_refresh(host->authority));
    struct moor_authority_stats stats = host_stats(host);
    struct moor_device_stats device;
    CHECK(stats.external_known && stats.external_bytes == external, "%s %llu MiB are said to be of others",
          when, (unsigned long long)(stats.external_bytes / MIB));
    CHECK(stats.committed_bytes == ours && host_check(host) == ours, "%s %llu MiB are said to be ours", when,
          (unsigned long long)(stats.committed_bytes / MIB));
    CHECK(stats.headroom_bytes == stats.capacity_bytes - external - ours, "%s the headroom is %llu MiB", when,
          (unsigned long long)(stats.headroom_bytes / MIB));
    CHECK(stats.headroom_bytes <= stats.free_bytes && !stats.inconsistent, "%s the figures are odd", when);
    MUST(moor_device_get_stats(host->device, 0, &device));
    CHECK(device.free_bytes <= device.total_bytes && device.held_bytes == ours, "%s the device's are odd",
          when);
}

HOST_CASE(external_cases, O19_external_use_is_not_charged, MOCK,
          SETTINGS({"total_bytes", "1000MiB"}, {"alignment_bytes", "1MiB"}, {"contents", "none"}))
{
    moor_grant grant;
    host_external(host, 100 * MIB);
    moor_buffer ours = host_allocate(host, 50 * MIB);
    expect_external(host, 100 * MIB, 50 * MIB, "at 10 %");
    host_external(host, 600 * MIB);
    expect_external(host, 600 * MIB, 50 * MIB, "at 60 %");
    EXPECT(MOOR_OVER_BUDGET, moor_grant_reserve(host->holder, 351 * MIB, MOOR_NO_WAIT, &grant));
    CHECK(moor_last_error()->bytes == MIB, "%s", moor_last_error()->text);
    MUST(moor_grant_reserve(host->holder, 350 * MIB, MOOR_NO_WAIT, &grant));
    MUST(moor_grant_release(host->runtime, grant));
    host_external(host, 50 * MIB); /* without a refresh, the governor refreshes before it refuses */
    MUST(moor_grant_reserve(host->holder, 900 * MIB, MOOR_NO_WAIT, &grant));
    MUST(moor_grant_release(host->runtime, grant));
    expect_external(host, 50 * MIB, 50 * MIB, "at 5 %");
    host_external(host, 1000 * MIB); /* more than the total, together with this host's memory */
    MUST(moor_authority_refresh(host->authority));
    CHECK(host_stats(host).headroom_bytes == 0 && host_stats(host).external_bytes <= 1000 * MIB,
          "figures wrap");
    CHECK(host_check(host) == 50 * MIB, "the host's own bytes count as external");
    host_external(host, 0);
    MUST(moor_buffer_release(host->runtime, ours));
}

/* Other processes free memory during a provider's start: the free figure at that time is no promise. */
Test(external_cases, O19_others_may_come_and_go_while_a_provider_starts)
{
    static const struct moor_setting settings[] = {
        {"total_bytes", "1000MiB"}, {"alignment_bytes", "1MiB"}, {"contents", "none"}, {NULL, NULL}};
    struct host first, second;
    /* The external use of each is the other one's memory. */
    host_open(&first, MOCK, settings);
    host_open(&second, MOCK, settings);
    host_capacity(&first, 500 * MIB);
    moor_buffer ours = host_allocate(&first, 500 * MIB);
    host_external(&second, 500 * MIB);
    host_capacity(&second, 400 * MIB);
    moor_buffer theirs = host_allocate(&second, 400 * MIB);
    host_external(&first, 400 * MIB);
    MUST(moor_authority_refresh(first.authority));
    MUST(moor_authority_refresh(second.authority));
    CHECK(host_stats(&first).external_bytes == 400 * MIB && host_stats(&second).external_bytes == 500 * MIB,
          "one host is charged for the other's memory");
    CHECK(host_check(&first) == 500 * MIB && host_check(&second) == 400 * MIB,
          "the accounts of the hosts are mixed up");
    MUST(moor_buffer_release(first.runtime, ours));
    MUST(moor_buffer_release(second.runtime, theirs));
    host_close(&first);
    host_close(&second);
}

/* Two devices on one pool, as a device that shares the host's memory: both use up one budget. */
static void one_pool(struct host *first, struct host *second, uint64_t total_bytes)
{
    moor_buffer buffer, ours, theirs;
    CHECK(first->authority == second->authority, "there are two budgets for one pool");
    CHECK(host_stats(first).capacity_bytes == total_bytes, "the pool is of %llu MiB",
          (unsigned long long)(host_stats(first).capacity_bytes / MIB));
    host_capacity(first, 64 * MIB);
    MUST(moor_buffer_allocate(first->binding, 40 * MIB, NULL, &ours));
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(second->binding, 40 * MIB, NULL, &buffer));
    MUST(moor_buffer_allocate(second->binding, 24 * MIB, NULL, &theirs));
    struct moor_authority_stats stats = host_stats(first);
    CHECK(stats.committed_bytes == 64 * MIB && stats.free_bytes == 0, "%llu MiB are committed",
          (unsigned long long)(stats.committed_bytes / MIB));
    MUST(moor_authority_refresh(first->authority));
    stats = host_stats(first);
    CHECK(stats.committed_bytes == 64 * MIB && stats.headroom_bytes == 0, "counted otherwise after a look");
    MUST(moor_buffer_release(first->runtime, ours));
    MUST(moor_buffer_release(second->runtime, theirs));
    host_settle(first);
    CHECK(host_stats(first).charged_bytes == 0, "something is left");
}

static void part_both(struct host *first, struct host *second)
{
    MUST(moor_binding_close(second->binding));
    MUST(moor_holder_destroy(second->holder));
    host_close(first);
}

Test(external_cases, O19_two_devices_on_one_pool_share_a_budget)
{
    static const struct moor_setting settings[] = {{"total_bytes", "256MiB"},
                                                   {"devices", "2"},
                                                   {"pool", "unified"},
                                                   {"alignment_bytes", "1MiB"},
                                                   {NULL, NULL}};
    struct host first, second;
    host_open(&first, MOCK, settings);
    second = first;
    MUST(moor_provider_get_device(first.provider, 1, &second.device));
    MUST(moor_device_get_authority(second.device, 0, &second.authority));
    MUST(moor_holder_create(second.authority, NULL, &second.holder));
    MUST(moor_binding_open(second.device, 0, second.holder, &second.binding));
    one_pool(&first, &second, 256 * MIB);
    CHECK(host_stats(&first).external_bytes == 0, "memory of one device counts as external use");
    part_both(&first, &second);
}

Test(external_cases, O19_a_device_that_shares_the_hosts_memory_shares_its_budget)
{
    struct host cpu, unified;
    struct moor_abi_domain_info domain;
    char total[32];
    host_open(&cpu, CPU, NULL);
    MUST(moor_device_get_domain_info(cpu.device, 0, &domain));
    (void)snprintf(total, sizeof total, "%llu", (unsigned long long)domain.total_bytes);
    const struct moor_setting settings[] = {{"total_bytes", total},
                                            {"pool", "host"},
                                            {"alignment_bytes", "1MiB"},
                                            {"contents", "none"},
                                            {NULL, NULL}};
    host_join(&unified, cpu.runtime, MOCK, 0, settings);
    one_pool(&cpu, &unified, domain.total_bytes);
    part_both(&cpu, &unified);
}

/* A device with its own memory beside a larger host: neither one's figures affect the other's. */
Test(external_cases, O19_a_device_is_never_larger_than_itself)
{
    static const struct moor_setting settings[] = {
        {"total_bytes", "64MiB"}, {"alignment_bytes", "1MiB"}, {NULL, NULL}};
    struct host cpu, device;
    struct moor_device_stats stats;
    host_open(&cpu, CPU, NULL);
    host_join(&device, cpu.runtime, MOCK, 0, settings);
    CHECK(cpu.authority != device.authority, "one budget for two pools");
    moor_buffer host_side = host_allocate(&cpu, 128 * MIB), device_side = host_allocate(&device, 16 * MIB);
    for (uint64_t external = 0; external <= 64; external += 16) {
        host_external(&device, external * MIB);
        MUST(moor_authority_refresh(device.authority));
        MUST(moor_device_get_stats(device.device, 0, &stats));
        CHECK(stats.total_bytes == 64 * MIB && stats.free_bytes <= stats.total_bytes &&
                  stats.held_bytes == 16 * MIB,
              "%llu MiB are free of %llu", (unsigned long long)(stats.free_bytes / MIB),
              (unsigned long long)(stats.total_bytes / MIB));
        CHECK(host_stats(&device).headroom_bytes <= 48 * MIB, "more headroom than the device has");
        CHECK(host_stats(&device).committed_bytes == 16 * MIB, "the committed bytes are wrong");
    }
    MUST(moor_authority_refresh(cpu.authority));
    MUST(moor_device_get_stats(cpu.device, 0, &stats));
    CHECK(stats.free_bytes <= stats.total_bytes && host_stats(&cpu).committed_bytes == 128 * MIB,
          "the host's are odd");
    MUST(moor_buffer_release(cpu.runtime, host_side));
    MUST(moor_buffer_release(cpu.runtime, device_side));
    host_part(&device);
    host_close(&cpu);
}

/* ---- O19 under a limit of the operating system ---- */

#define GROUP_BYTES (512 * MIB)

/* Finds the directory of this process's memory control group and the name of its limit file. Returns false if
 * there is none. */
static bool find_group(char path[512], const char **ret_limit)
{
    char line[512], name[256];
    bool found = false;
    FILE *groups = fopen("/proc/self/cgroup", "re");
    CHECK(groups, "/proc/self/cgroup cannot be read");
    while (!found && fgets(line, sizeof line, groups)) {
        bool v1 = sscanf(line, "%*u:memory:%255s", name) == 1;
        bool v2 = !v1 && sscanf(line, "0::%255s", name) == 1;
        if (!v1 && !v2)
            continue;
        (void)snprintf(path, 512, "/sys/fs/cgroup%s%s", v1 ? "/memory" : "", strcmp(name, "/") ? name : "");
        *ret_limit = v1 ? "memory.limit_in_bytes" : "memory.max";
        found = v1 || access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
    }
    (void)fclose(groups); /* read only */
    return found;
}

static bool write_to(const char *directory, const char *name, const char *text)
{
    char path[800];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "we");
    if (!file)
        return false;
    bool written = fputs(text, file) >= 0;
    return fclose(file) == 0 && written;
}

/* Runs in a process of its own inside the group. */
static void look_from_inside(void)
{
    struct host host;
    moor_grant grant;
    struct moor_device_stats stats;
    host_open(&host, CPU, NULL);
    MUST(moor_device_get_stats(host.device, 0, &stats));
    CHECK(stats.total_bytes <= GROUP_BYTES && stats.free_bytes <= stats.total_bytes, "the total is %llu MiB",
          (unsigned long long)(stats.total_bytes / MIB));
    CHECK(host_stats(&host).capacity_bytes == stats.total_bytes, "the budget is another");
    EXPECT(MOOR_NEVER_FITS, moor_grant_reserve(host.holder, GROUP_BYTES + 1, MOOR_NO_WAIT, &grant));
    MUST(moor_buffer_release(host.runtime, host_allocate(&host, 64 * MIB)));
    host_close(&host);
}

Test(external_cases, O19_a_control_group_is_the_size_of_the_host)
{
    char group[512], own[600], number[32];
    const char *limit;
    int ended = -1;
    if (!find_group(group, &limit))
        cr_skip_test("this process is in no memory control group");
    (void)snprintf(own, sizeof own, "%s/moorage-%ld", group, (long)getpid());
    if (mkdir(own, 0755) != 0)
        cr_skip_test("no control group can be made in %s", group);
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)GROUP_BYTES);
    bool limited = write_to(own, limit, number);
    pid_t child = limited ? fork() : -1;
    if (child == 0) {
        if (!write_to(own, "cgroup.procs", "0"))
            _exit(77);
        look_from_inside();
        _exit(0);
    }
    if (child > 0)
        CHECK(waitpid(child, &ended, 0) == child, "the child is lost");
    CHECK(rmdir(own) == 0, "%s cannot be removed", own);
    if (!limited || (WIFEXITED(ended) && WEXITSTATUS(ended) == 77))
        cr_skip_test("%s can be made, but not used", own);
    CHECK(WIFEXITED(ended) && WEXITSTATUS(ended) == 0, "the process in the group has failed");
}
