/* SPDX-License-Identifier: MIT */
/* SHARED: one segment at many addresses, read-only maps that cannot be written, and ranges that return to one
 * mapping. */
#include "suite.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

TestSuite(shared, .init = open_default, .fini = close_default);

static struct moor_abi_segment create(uint64_t bytes, uint64_t granule)
{
    struct moor_abi_segment segment;
    cr_assert_eq(fixture_segment(&f, bytes, granule, &segment), MOOR_OK, "%s", f.error.text);
    cr_assert_eq(segment.actual_bytes, bytes);
    return segment;
}

static void map(const struct moor_abi_range *range, uint64_t offset, const struct moor_abi_segment *segment,
                uint32_t access)
{
    cr_assert_eq(fixture_map(&f, range, offset, segment, access), MOOR_OK, "%s", f.error.text);
}

static void unmap(const struct moor_abi_range *range, uint64_t offset, uint64_t length)
{
    cr_assert_eq(fixture_free(&f, MOOR_ABI_RELEASE_UNMAP, range->handle, offset, length), 0, "%s",
                 f.error.text);
}

static void end_segment(const struct moor_abi_segment *segment)
{
    cr_assert_eq(fixture_free(&f, MOOR_ABI_RELEASE_SEGMENT, segment->handle, 0, 0), segment->actual_bytes,
                 "%s", f.error.text);
}

Test(shared, one_memory_at_many_addresses)
{
    static const uint64_t granules[] = {64 * KIB, 2 * MIB};
    for (size_t g = 0; g < 2; g++) {
        uint64_t granule = granules[g];
        struct moor_abi_range range = reserve(8 * granule, granule);
        struct moor_abi_segment segment = create(2 * granule, granule);
        cr_assert(fixture_balanced(&f));
        cr_assert_eq(fixture_stats(&f, 0).held_bytes, 2 * granule);
        map(&range, granule, &segment, MOOR_ABI_ACCESS_READ_WRITE);
        map(&range, 4 * granule, &segment, MOOR_ABI_ACCESS_READ);
        for (uint64_t i = 0; i < 2 * granule; i += 512)
            cr_assert_eq(*at(range.address, granule + i), 0);
        memset(at(range.address, granule), 3, 2 * granule);
        cr_assert_eq(memcmp(at(range.address, granule), at(range.address, 4 * granule), 2 * granule), 0);
        cr_assert(fixture_balanced(&f));
        uint64_t committed = 1;
        cr_assert_eq(
            f.provider->virtual_->committed(f.context, range.handle, 0, 8 * granule, &committed, &f.error),
            MOOR_OK);
        cr_assert_eq(committed, 0);
        unmap(&range, granule, 2 * granule);
        cr_assert_eq(*at(range.address, 6 * granule - 1), 3);
        cr_assert_eq(fixture_commit(&f, &range, granule, 3 * granule), MOOR_OK);
        cr_assert_eq(*at(range.address, granule), 0);
        cr_assert(fixture_balanced(&f));
        decommit(&range, granule, 3 * granule);
        unmap(&range, 4 * granule, 2 * granule);
        cr_assert(fixture_balanced(&f));
        end_segment(&segment);
        cr_assert_eq(fixture_stats(&f, 0).held_bytes, 0);
        cr_assert(fixture_balanced(&f));
        end_range(&range);
    }
}

/* Returns true if a write through a map faults, after a change to another access if that is not 0. */
static int write_through(uint32_t access, uint32_t later)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        struct moor_abi_range range;
        struct moor_abi_segment segment;
        if (fixture_open(&f, NULL, NULL) != MOOR_OK ||
            fixture_reserve(&f, 2 * MIB, 64 * KIB, &range) != MOOR_OK ||
            fixture_segment(&f, 64 * KIB, 64 * KIB, &segment) != MOOR_OK ||
            fixture_map(&f, &range, 0, &segment, access) != MOOR_OK)
            _exit(1);
        struct moor_abi_map_args args = {MOOR_ABI_MAP_ARGS_SIZE, later, range.handle, 0, segment.handle};
        if (later && f.provider->shared->protect(f.context, &args, &f.error) != MOOR_OK)
            _exit(1);
        if (*at(range.address, 0) != 0)
            _exit(1);
        *at(range.address, 0) = 1;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

Test(shared, read_maps_cannot_be_written)
{
    cr_assert_eq(write_through(MOOR_ABI_ACCESS_READ_WRITE, 0), 0);
    cr_assert_eq(write_through(MOOR_ABI_ACCESS_READ, 0), SIGSEGV);
    cr_assert_eq(write_through(MOOR_ABI_ACCESS_READ_WRITE, MOOR_ABI_ACCESS_READ), SIGSEGV);
    cr_assert_eq(write_through(MOOR_ABI_ACCESS_READ, MOOR_ABI_ACCESS_READ_WRITE), 0);
}

Test(shared, wrong_arguments_are_refused)
{
    struct moor_abi_segment segment;
    cr_assert_eq(fixture_segment(&f, 0, 64 * KIB, &segment), MOOR_INVALID);
    cr_assert_eq(fixture_segment(&f, 100 * KIB, 64 * KIB, &segment), MOOR_INVALID);
    cr_assert_eq(fixture_segment(&f, 4 * KIB, 4 * KIB, &segment), MOOR_INVALID);
    cr_assert_eq(fixture_segment(&f, UINT64_C(1) << 60, 64 * KIB, &segment), MOOR_DEVICE_NOMEM);
    struct moor_abi_range range = reserve(1 * MIB, 64 * KIB);
    segment = create(128 * KIB, 64 * KIB);
    cr_assert_eq(fixture_map(&f, &range, 0, &segment, 2), MOOR_INVALID);
    cr_assert_eq(fixture_map(&f, &range, 4096, &segment, MOOR_ABI_ACCESS_READ), MOOR_INVALID);
    cr_assert_eq(fixture_map(&f, &range, 960 * KIB, &segment, MOOR_ABI_ACCESS_READ), MOOR_INVALID);
    cr_assert_eq(fixture_commit(&f, &range, 64 * KIB, 64 * KIB), MOOR_OK);
    cr_assert_eq(fixture_map(&f, &range, 0, &segment, MOOR_ABI_ACCESS_READ), MOOR_INVALID);
    map(&range, 512 * KIB, &segment, MOOR_ABI_ACCESS_READ);
    cr_assert_eq(fixture_commit(&f, &range, 512 * KIB, 64 * KIB), MOOR_INVALID);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_SEGMENT, segment.handle, 0, 0, NULL, 0), MOOR_BUSY);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_UNMAP, range.handle, 512 * KIB, 64 * KIB, NULL, 0),
                 MOOR_INVALID);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_UNMAP, range.handle, 576 * KIB, 64 * KIB, NULL, 0),
                 MOOR_INVALID);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 512 * KIB, 128 * KIB, NULL, 0),
                 MOOR_INVALID);
    unmap(&range, 512 * KIB, 128 * KIB);
    struct moor_abi_map_args args = {MOOR_ABI_MAP_ARGS_SIZE, 1, range.handle, 512 * KIB, segment.handle};
    cr_assert_eq(f.provider->shared->protect(f.context, &args, &f.error), MOOR_INVALID);
    decommit(&range, 64 * KIB, 64 * KIB);
    end_segment(&segment);
    end_range(&range);
}

Test(shared, granules_of_2_mib_are_large_pages_if_the_system_grants_them)
{
    struct moor_abi_range range = reserve(16 * MIB, 2 * MIB);
    struct moor_abi_segment segment = create(6 * MIB, 2 * MIB);
    struct moor_abi_stats stats = fixture_stats(&f, 0);
    cr_assert_eq(stats.huge_bytes % (2 * MIB), 0);
    cr_assert_leq(stats.huge_bytes, 6 * MIB);
    map(&range, 4 * MIB, &segment, MOOR_ABI_ACCESS_READ_WRITE);
    memset(at(range.address, 4 * MIB), 1, 6 * MIB);
    /* The page tables show whether large pages are used. */
    FILE *smaps = fopen("/proc/self/smaps", "re");
    char line[256];
    unsigned long long mapped_kib = 0;
    while (fgets(line, sizeof(line), smaps)) {
        unsigned long long kib = 0;
        if (sscanf(line, "ShmemPmdMapped: %llu", &kib) == 1)
            mapped_kib += kib;
    }
    fclose(smaps);
    if (stats.valid & MOOR_ABI_STAT_HUGE)
        cr_assert_eq(mapped_kib * 1024, stats.huge_bytes);
    unmap(&range, 4 * MIB, 6 * MIB);
    end_segment(&segment);
    end_range(&range);
    cr_assert_eq(fixture_stats(&f, 0).huge_bytes, 0);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* Maps, commits and releases at random; afterwards the empty range is a few maps. */
Test(shared, cycles_of_maps_and_commits_leave_nothing_behind)
{
    enum { COUNT = 512, SEGMENTS = 16 };
    static uint8_t states[COUNT]; /* 0 free, 1 committed, 2 mapped */
    struct moor_abi_segment segments[SEGMENTS];
    for (int i = 0; i < SEGMENTS; i++)
        segments[i] = create(64 * KIB, 64 * KIB);
    struct moor_abi_range range = reserve(COUNT * 64 * KIB, 64 * KIB);
    uint64_t before = count_maps();
    uint32_t state = 7;
    for (int step = 0; step < 20000; step++) {
        uint32_t i = next_random(&state) % COUNT;
        uint64_t offset = i * 64 * KIB;
        if (states[i] == 2) {
            unmap(&range, offset, 64 * KIB);
            states[i] = 0;
        } else if (states[i] == 1) {
            decommit(&range, offset, 64 * KIB);
            states[i] = 0;
        } else if (next_random(&state) % 2) {
            map(&range, offset, &segments[next_random(&state) % SEGMENTS], MOOR_ABI_ACCESS_READ);
            states[i] = 2;
        } else {
            cr_assert_eq(fixture_commit(&f, &range, offset, 64 * KIB), MOOR_OK, "%s", f.error.text);
            memset(at(range.address, offset), 1, 64 * KIB);
            states[i] = 1;
        }
        if (step % 1000 == 0) {
            cr_assert(fixture_balanced(&f));
            cr_assert_leq(count_maps(), before + COUNT);
        }
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        if (states[i] == 2)
            unmap(&range, i * 64 * KIB, 64 * KIB);
        else if (states[i] == 1)
            decommit(&range, i * 64 * KIB, 64 * KIB);
    }
    cr_assert_leq(count_maps(), before + 2);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t offset = (i * 197 % COUNT) * 64 * KIB; /* 197 is odd: every granule once */
        cr_assert_eq(fixture_commit(&f, &range, offset, 64 * KIB), MOOR_OK);
        cr_assert_eq(*at(range.address, offset), 0);
    }
    cr_assert_leq(count_maps(), before + 2);
    cr_assert(fixture_balanced(&f));
    decommit(&range, 0, COUNT * 64 * KIB);
    end_range(&range);
    for (int i = 0; i < SEGMENTS; i++)
        end_segment(&segments[i]);
    cr_assert(fixture_balanced(&f));
}
