/* SPDX-License-Identifier: MIT */
/* VIRTUAL: addresses without memory, commits that are zero, and maps that do not run out. */
#include "suite.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

TestSuite(virtual, .init = open_default, .fini = close_default);

/* Returns true if an access faults: write(2) returns EFAULT in place of a signal. */
static bool faults(char *address)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    bool fault = write(ends[1], address, 1) != 1 && errno == EFAULT;
    close(ends[0]);
    close(ends[1]);
    return fault;
}

Test(virtual, commits_are_zero_also_after_a_decommit)
{
    static const uint64_t granules[] = {64 * KIB, 2 * MIB};
    for (size_t g = 0; g < 2; g++) {
        uint64_t granule = granules[g];
        struct moor_abi_range range = reserve(8 * granule, granule);
        cr_assert_eq(range.address % granule, 0);
        cr_assert(faults(at(range.address, 0)));
        for (int round = 0; round < 2; round++) {
            cr_assert_eq(fixture_commit(&f, &range, 2 * granule, 3 * granule), MOOR_OK, "%s", f.error.text);
            cr_assert(fixture_balanced(&f));
            for (uint64_t i = 2 * granule; i < 5 * granule; i += 512)
                cr_assert_eq(*at(range.address, i), 0);
            memset(at(range.address, 2 * granule), 7, 3 * granule);
            cr_assert(faults(at(range.address, 2 * granule - 1)));
            cr_assert(faults(at(range.address, 5 * granule)));
            uint64_t committed = 0;
            cr_assert_eq(f.provider->virtual_->committed(f.context, range.handle, 0, 8 * granule, &committed,
                                                         &f.error),
                         MOOR_OK);
            cr_assert_eq(committed, 3 * granule);
            decommit(&range, 3 * granule, granule);
            cr_assert(faults(at(range.address, 3 * granule)));
            cr_assert_eq(*at(range.address, 4 * granule), 7);
            cr_assert(fixture_balanced(&f));
            decommit(&range, 2 * granule, granule);
            decommit(&range, 4 * granule, granule);
        }
        cr_assert(fixture_balanced(&f));
        end_range(&range);
    }
}

Test(virtual, an_access_without_a_commit_faults)
{
    pid_t child = fork();
    if (child == 0) {
        /* The child opens a context of its own: it does not have the parent's memory. */
        signal(SIGSEGV, SIG_DFL);
        struct moor_abi_range range;
        if (fixture_open(&f, NULL, NULL) != MOOR_OK ||
            fixture_reserve(&f, 4 * MIB, 2 * MIB, &range) != MOOR_OK ||
            fixture_commit(&f, &range, 0, 2 * MIB) != MOOR_OK)
            _exit(1);
        *at(range.address, 2 * MIB - 1) = 1;
        *at(range.address, 2 * MIB) = 1;
        _exit(2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "status %x", status);
}

Test(virtual, wrong_arguments_are_refused)
{
    struct moor_abi_range range = {.handle = 77};
    cr_assert_eq(fixture_reserve(&f, 0, 2 * MIB, &range), MOOR_INVALID);
    cr_assert_eq(fixture_reserve(&f, 3 * MIB, 2 * MIB, &range), MOOR_INVALID);
    cr_assert_eq(fixture_reserve(&f, 32 * KIB, 32 * KIB, &range), MOOR_INVALID);
    cr_assert_eq(fixture_reserve(&f, 192 * KIB, 96 * KIB, &range), MOOR_INVALID);
    cr_assert_eq(fixture_reserve(&f, UINT64_MAX - 2 * MIB + 1, 2 * MIB, &range), MOOR_OVERFLOW);
    cr_assert_eq(fixture_reserve(&f, UINT64_C(1) << 62, 2 * MIB, &range), MOOR_NO_VA);
    cr_assert_eq(fixture_reserve(&f, UINT64_C(1) << 47, 2 * MIB, &range), MOOR_NO_VA);
    struct moor_abi_range_args args = {MOOR_ABI_RANGE_ARGS_SIZE, 1, 2 * MIB, 2 * MIB, 2 * MIB, 0};
    range.struct_size = MOOR_ABI_RANGE_SIZE;
    cr_assert_eq(f.provider->virtual_->reserve(f.context, &args, &range, &f.error), MOOR_UNSUPPORTED);
    cr_assert_eq(range.handle, 77);

    range = reserve(8 * MIB, 2 * MIB);
    cr_assert_eq(fixture_commit(&f, &range, 0, 0), MOOR_INVALID);
    cr_assert_eq(fixture_commit(&f, &range, 1 * MIB, 2 * MIB), MOOR_INVALID);
    cr_assert_eq(fixture_commit(&f, &range, 0, 1 * MIB), MOOR_INVALID);
    cr_assert_eq(fixture_commit(&f, &range, 8 * MIB, 2 * MIB), MOOR_INVALID);
    cr_assert_eq(fixture_commit(&f, &range, 2 * MIB, UINT64_MAX - 2 * MIB + 1), MOOR_OVERFLOW);
    cr_assert_eq(fixture_commit(&f, &range, 2 * MIB, 2 * MIB), MOOR_OK);
    cr_assert_eq(fixture_commit(&f, &range, 0, 4 * MIB), MOOR_INVALID, "one of them is committed");
    cr_assert(fixture_balanced(&f));
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 4 * MIB, NULL, 0),
                 MOOR_INVALID);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0, NULL, 0), MOOR_INVALID);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 2 * MIB, 2 * MIB, NULL, 0),
                 MOOR_OK);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 2 * MIB, 2 * MIB, NULL, 0),
                 MOOR_INVALID, "twice");
    cr_assert_eq(fixture_commit(&f, &range, 2 * MIB, 2 * MIB), MOOR_INVALID, "not freed yet");
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0, NULL, 0), MOOR_BUSY);
    cr_assert_eq(fixture_reap(&f, 1), 2 * MIB);
    end_range(&range);
    cr_assert_eq(fixture_commit(&f, &range, 0, 2 * MIB), MOOR_STALE);
}

Test(virtual, four_times_the_memory_is_reserved_and_fork_works)
{
    struct moor_abi_stats stats = fixture_stats(&f, 0);
    uint64_t bytes = stats.total_bytes / (1 * MIB) * (4 * MIB);
    struct moor_abi_range range = reserve(bytes, 2 * MIB);
    cr_assert_eq(fixture_commit(&f, &range, bytes / 2, 64 * MIB), MOOR_OK, "%s", f.error.text);
    memset(at(range.address, bytes / 2), 1, 64 * MIB);
    cr_assert(fixture_balanced(&f));
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) /* in the child the memory is absent, so nothing is copied */
        _exit(faults(at(range.address, bytes / 2)) ? 0 : 1);
    memset(at(range.address, bytes / 2), 2, 64 * MIB);
    cr_assert_eq(exit_status(child), 0);
    cr_assert(fixture_balanced(&f));
    decommit(&range, bytes / 2, 64 * MIB);
    end_range(&range);
}

Test(virtual, used_up_addresses_are_NO_VA)
{
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {4 * GIB, 4 * GIB};
        struct moor_abi_range range;
        struct moor_abi_allocation got;
        if (setrlimit(RLIMIT_AS, &limit) != 0)
            _exit(9);
        bool ok = fixture_reserve(&f, 8 * GIB, 2 * MIB, &range) == MOOR_NO_VA &&
                  f.error.native_code == ENOMEM && fixture_allocate(&f, 0, 5 * GIB, 256, &got) == MOOR_NO_VA;
        _exit(ok ? 0 : 1);
    }
    if (exit_status(child) != 0)
        cr_skip_test(
            "address sanitizer, or no limit can be set"); /* the sanitizer's own maps exceed any limit */
}

/* A deterministic generator, independent of libc. */
static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static void shuffle(uint32_t *order, uint32_t count, uint32_t *state)
{
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = next_random(state) % i;
        uint32_t kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

Test(virtual, commits_in_random_order_merge_into_one_map)
{
    enum { COUNT = 4000 };
    static uint32_t order[COUNT];
    uint32_t state = 1;
    struct moor_abi_range range = reserve(COUNT * 64 * KIB, 64 * KIB);
    uint64_t before = count_maps();
    for (int round = 0; round < 2; round++) {
        shuffle(order, COUNT, &state);
        for (uint32_t i = 0; i < COUNT; i++)
            cr_assert_eq(fixture_commit(&f, &range, order[i] * 64 * KIB, 64 * KIB), MOOR_OK, "%s",
                         f.error.text);
        cr_assert_leq(count_maps(), before + 2);
        cr_assert(fixture_balanced(&f));
        shuffle(order, COUNT, &state);
        for (uint32_t i = 0; i < COUNT; i++)
            decommit(&range, order[i] * 64 * KIB, 64 * KIB);
        cr_assert_leq(count_maps(), before + 2);
        cr_assert(fixture_balanced(&f));
    }
    end_range(&range);
}

Test(virtual, map_count_used_up_is_limit)
{
    /* A child uses up the maps, because that would break the other tests. */
    pid_t child = fork();
    if (child == 0) {
        struct moor_abi_range range;
        if (fixture_open(&f, NULL, NULL) != MOOR_OK ||
            fixture_reserve(&f, 16 * GIB, 64 * KIB, &range) != MOOR_OK)
            _exit(1);
        uint64_t pages = 150000;
        char *own = mmap(NULL, pages * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        uint64_t i = 1;
        while (i < pages && mprotect(own + i * 4096, 4096, PROT_READ) == 0)
            i += 2;
        if (i >= pages)
            _exit(9);
        struct moor_abi_range other;
        int32_t commit = fixture_commit(&f, &range, 64 * KIB, 64 * KIB);
        if (commit != MOOR_LIMIT || !strstr(f.error.text, "max_map_count"))
            _exit(2);
        int32_t reserve = fixture_reserve(&f, 64 * KIB, 64 * KIB, &other);
        _exit(reserve == MOOR_LIMIT || reserve == MOOR_OK ? 0 : 3);
    }
    int status = exit_status(child);
    if (status == 9)
        cr_skip_test("the system has no such limit");
    cr_assert_eq(status, 0);
}

Test(virtual, granules_of_2_mib_are_large_pages)
{
    struct moor_abi_range range = reserve(16 * MIB, 2 * MIB);
    cr_assert_eq(fixture_commit(&f, &range, 4 * MIB, 8 * MIB), MOOR_OK);
    struct moor_abi_stats stats = fixture_stats(&f, 0);
    cr_assert_eq(stats.held_bytes, 8 * MIB);
    decommit(&range, 4 * MIB, 8 * MIB);
    end_range(&range);
    if (!(stats.valid & MOOR_ABI_STAT_HUGE) || !system_gives_large_pages())
        cr_skip_test("the system gives no large pages, or does not tell");
    cr_assert_eq(stats.huge_bytes, 8 * MIB);
}

/* A decommit of a part of a large page would free nothing. */
Test(virtual, smaller_granules_are_never_in_large_pages)
{
    struct moor_abi_range range = reserve(8 * MIB, 64 * KIB);
    cr_assert_eq(fixture_commit(&f, &range, 0, 8 * MIB), MOOR_OK);
    cr_assert_eq(fixture_stats(&f, 0).huge_bytes, 0);
    decommit(&range, 0, 8 * MIB);
    end_range(&range);
}

Test(virtual, commit_beyond_memory_changes_nothing)
{
    struct moor_abi_stats stats = fixture_stats(&f, 0);
    uint64_t bytes = 2 * stats.total_bytes / (2 * MIB) * (2 * MIB);
    struct moor_abi_range range = reserve(bytes, 2 * MIB);
    cr_assert_eq(fixture_commit(&f, &range, 0, bytes), MOOR_DEVICE_NOMEM);
    cr_assert(fixture_balanced(&f));
    cr_assert(faults(at(range.address, 0)));
    cr_assert_eq(fixture_commit(&f, &range, 0, 2 * MIB), MOOR_OK);
    cr_assert_eq(*at(range.address, 0), 0);
    decommit(&range, 0, 2 * MIB);
    end_range(&range);
}

enum { THREADS = 8, ROUNDS = 200 };

static struct moor_abi_range shared_range;

static void *commit_and_decommit(void *argument)
{
    uint64_t index = (uintptr_t)argument;
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    uint64_t offset = index * 64 * KIB;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t actual = 0;
        if (f.provider->virtual_->commit(f.context, shared_range.handle, offset, 64 * KIB, &actual, &error) !=
            MOOR_OK)
            return argument;
        memset(at(shared_range.address, offset), (int)index + 1, 64 * KIB);
        struct moor_abi_release release = {.struct_size = MOOR_ABI_RELEASE_SIZE,
                                           .kind = MOOR_ABI_RELEASE_DECOMMIT,
                                           .handle = shared_range.handle,
                                           .offset_bytes = offset,
                                           .length_bytes = 64 * KIB};
        if (f.provider->release->release(f.context, &release, &error) != MOOR_OK)
            return argument;
        /* Any thread may reap the releases of others: wait until the own granule is free again. */
        for (uint64_t left = 1; left;) {
            struct moor_abi_completion completions[4];
            uint32_t count = 0;
            if (f.provider->release->reap(f.context, completions, sizeof(completions[0]), 4, 0, &count,
                                          &error) != MOOR_OK)
                return argument;
            for (uint32_t c = 0; c < count; c++) {
                if (completions[c].status != MOOR_OK)
                    return argument;
            }
            (void)f.provider->virtual_->committed(f.context, shared_range.handle, offset, 64 * KIB, &left,
                                                  &error);
        }
    }
    return NULL;
}

Test(virtual, eight_threads_commit_and_decommit)
{
    shared_range = reserve(THREADS * 64 * KIB, 64 * KIB);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, commit_and_decommit, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        cr_expect(i == 0 || !failed);
    }
    /* Reaps completions that are left when all threads have ended. */
    uint32_t count = 1;
    while (count) {
        struct moor_abi_completion completion;
        cr_assert_eq(
            f.provider->release->reap(f.context, &completion, sizeof(completion), 1, 0, &count, &f.error),
            MOOR_OK);
    }
    cr_assert(fixture_balanced(&f));
    cr_assert_eq(fixture_stats(&f, 0).held_bytes, 0);
    end_range(&shared_range);
}
