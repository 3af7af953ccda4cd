/* SPDX-License-Identifier: MIT */
/*
 * backing: the cost of committing 2 MiB, touching every page and returning the memory to the system. The
 * provider's private ranges and shared segments, through the public API, are compared with raw system calls
 * of the same effect. The main ratio is provider to best raw sequence, which is the raw sequence with the
 * lowest median.
 */
#include "bench/bench.h"

#include <fcntl.h>
#include <moorage/moorage.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)2 << 20)
#define PAGE_BYTES 4096u
#define PIECES 16u /* parts of the area; each round uses the next one */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct host {
    struct moor_runtime *runtime;
    struct moor_holder *holder;
    struct moor_binding *binding;
    moor_range range; /* for commits */
    char *range_address;
    moor_range frame; /* for segments */
    char *frame_address;
};

/* Areas of the raw sequences, reserved once. */
struct raw {
    char *huge;  /* huge pages advised, no access */
    char *open;  /* huge pages advised, read and write */
    char *small; /* no huge pages, no access */
    char *file;  /* a memfd, mapped */
    int fd;
};

struct area {
    struct moor_device *device;
    struct host host;
    struct raw raw;
};

typedef bool (*sequence)(struct area *area, size_t piece);

static void touch(char *piece)
{
    for (size_t at = 0; at < PIECE_BYTES; at += PAGE_BYTES)
        ((volatile char *)piece)[at] = 1;
}

/* ---- raw sequences ---- */

static bool run_protected(char *piece)
{
    if (mprotect(piece, PIECE_BYTES, PROT_READ | PROT_WRITE) ||
        madvise(piece, PIECE_BYTES, MADV_POPULATE_WRITE))
        return false;
    touch(piece);
    return !madvise(piece, PIECE_BYTES, MADV_DONTNEED) && !mprotect(piece, PIECE_BYTES, PROT_NONE);
}

static bool huge_protect_populate(struct area *area, size_t piece)
{
    return run_protected(area->raw.huge + piece * PIECE_BYTES);
}

static bool small_protect_populate(struct area *area, size_t piece)
{
    return run_protected(area->raw.small + piece * PIECE_BYTES);
}

static bool huge_populate(struct area *area, size_t piece)
{
    char *memory = area->raw.open + piece * PIECE_BYTES;
    if (madvise(memory, PIECE_BYTES, MADV_POPULATE_WRITE))
        return false;
    touch(memory);
    return !madvise(memory, PIECE_BYTES, MADV_DONTNEED);
}

static bool huge_touch(struct area *area, size_t piece)
{
    char *memory = area->raw.open + piece * PIECE_BYTES;
    touch(memory);
    return !madvise(memory, PIECE_BYTES, MADV_DONTNEED);
}

static bool file_populate_punch(struct area *area, size_t piece)
{
    char *memory = area->raw.file + piece * PIECE_BYTES;
    if (madvise(memory, PIECE_BYTES, MADV_POPULATE_WRITE))
        return false;
    touch(memory);
    return !fallocate(area->raw.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(piece * PIECE_BYTES),
                      (off_t)PIECE_BYTES);
}

/* ---- through the library ---- */

static bool range_commit(struct area *area, size_t piece)
{
    struct host *host = &area->host;
    uint64_t offset = piece * PIECE_BYTES;
    if (moor_range_commit(host->runtime, host->range, offset, PIECE_BYTES, 0))
        return false;
    touch(host->range_address + offset);
    return !moor_range_decommit(host->runtime, host->range, offset, PIECE_BYTES) &&
           !moor_runtime_reap(host->runtime, MOOR_NO_WAIT);
}

static bool segment_map(struct area *area, size_t piece)
{
    struct host *host = &area->host;
    uint64_t offset = piece * PIECE_BYTES;
    struct moor_step step = {.kind = MOOR_STEP_CREATE,
                             .binding = host->binding,
                             .range = host->frame,
                             .offset_bytes = offset,
                             .length_bytes = PIECE_BYTES};
    if (moor_transact(host->runtime, &step, 1, NULL))
        return false;
    touch(host->frame_address + offset);
    return !moor_segment_release(host->runtime, step.segment) &&
           !moor_range_unmap(host->runtime, host->frame, offset, PIECE_BYTES) &&
           !moor_runtime_reap(host->runtime, MOOR_NO_WAIT);
}

static const struct {
    const char *name;
    sequence run;
    bool raw;
} sequences[] = {
    {"backing/range commit + touch + decommit", range_commit, false},
    {"backing/segment create + touch + release", segment_map, false},
    {"backing/raw: huge, protect, populate, dontneed", huge_protect_populate, true},
    {"backing/raw: huge, populate, dontneed", huge_populate, true},
    {"backing/raw: huge, touch, dontneed", huge_touch, true},
    {"backing/raw: 4 KiB, protect, populate, dontneed", small_protect_populate, true},
    {"backing/raw: memfd, populate, punch", file_populate_punch, true},
};

#define SEQUENCE_COUNT (sizeof sequences / sizeof *sequences)

/* ---- set-up ---- */

static char *reserve(int protection, int advice)
{
    size_t bytes = (PIECES + 1) * PIECE_BYTES;
    char *memory = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    memory = (char *)(((uintptr_t)memory + PIECE_BYTES - 1) & ~(uintptr_t)(PIECE_BYTES - 1));
    (void)madvise(memory, PIECES * PIECE_BYTES, advice); /* without huge pages the figures differ visibly */
    return memory;
}

static bool open_raw(struct raw *raw)
{
    size_t bytes = PIECES * PIECE_BYTES;
    raw->huge = reserve(PROT_NONE, MADV_HUGEPAGE);
    raw->open = reserve(PROT_READ | PROT_WRITE, MADV_HUGEPAGE);
    raw->small = reserve(PROT_NONE, MADV_NOHUGEPAGE);
    raw->fd = memfd_create("moor-bench", MFD_CLOEXEC);
    if (!raw->huge || !raw->open || !raw->small || raw->fd < 0 || ftruncate(raw->fd, (off_t)bytes))
        return false;
    raw->file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, raw->fd, 0);
    return raw->file != MAP_FAILED;
}

static bool open_device(const struct bench_options *options, struct area *area)
{
    struct moor_provider *provider;
    if (moor_runtime_create(NULL, &area->host.runtime))
        return tool_fail_last(options->failure, TOOL_FAILED, "runtime");
    return bench_load_provider(options, area->host.runtime, 0, &provider) &&
           bench_get_device(options, provider, &area->device);
}

static bool reserve_range(struct host *host, moor_range *ret_range, char **ret_address)
{
    struct moor_view view;
    if (moor_range_reserve(host->binding, PIECES * PIECE_BYTES,
                           &(struct moor_range_options){.granule_bytes = PIECE_BYTES}, ret_range) ||
        moor_range_get_view(host->runtime, *ret_range, &view))
        return false;
    *ret_address = (char *)(uintptr_t)view.address;
    return true;
}

static bool open_ranges(struct host *host, struct moor_device *device)
{
    struct moor_authority *authority;
    uint32_t domain;
    return !moor_device_find_domain(device, MOOR_ABI_DOMAIN_DEVICE, &domain) &&
           !moor_device_get_authority(device, domain, &authority) &&
           !moor_holder_create(authority, &(struct moor_holder_options){.name = "bench"}, &host->holder) &&
           !moor_binding_open(device, domain, host->holder, &host->binding) &&
           reserve_range(host, &host->range, &host->range_address) &&
           reserve_range(host, &host->frame, &host->frame_address);
}

/* The benchmark touches pages by address. Returns NULL, or the reason why it cannot. */
static const char *lack_of(struct moor_device *device)
{
    const uint64_t needed = MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED;
    struct moor_abi_domain_info info;
    uint32_t domain;
    if (moor_device_find_domain(device, MOOR_ABI_DOMAIN_DEVICE, &domain) ||
        moor_device_get_domain_info(device, domain, &info))
        return "the device has no domain of its own";
    if (!(info.flags & MOOR_ABI_DOMAIN_HOST_ACCESS))
        return "the device's memory lacks HOST_ACCESS";
    return (info.capabilities & needed) == needed ? NULL : "the device's memory lacks VIRTUAL or SHARED";
}

static bool open_area(const struct bench_options *options, struct area *area)
{
    struct tool_failure *failure = options->failure;
    if (!open_ranges(&area->host, area->device))
        return tool_fail_last(failure, TOOL_REFUSED, options->provider);
    if (!open_raw(&area->raw))
        return tool_fail(failure, TOOL_FAILED, MOOR_HOST_NOMEM, "no memory for the raw sequences");
    return true;
}

static void close_area(struct area *area)
{
    struct host *host = &area->host;
    /* The process ends next: a failure of these releases would not change a figure. */
    (void)moor_range_release(host->runtime, host->range);
    (void)moor_range_release(host->runtime, host->frame);
    (void)moor_runtime_reap(host->runtime, MOOR_FOREVER);
    (void)moor_binding_close(host->binding);
    (void)moor_holder_destroy(host->holder);
    (void)moor_runtime_destroy(host->runtime);
}

/* ---- measuring ---- */

/* One sample is the mean of a few runs after an uncounted one, so that a case inherits neither the caches nor
 * the free page of the case before. */
#define RUNS_PER_SAMPLE 4u

static bool sample(struct area *area, sequence run, size_t piece, double *ret_us)
{
    if (!run(area, piece))
        return false;
    uint64_t start_ns = moor_clock_ns();
    for (unsigned i = 0; i < RUNS_PER_SAMPLE; i++)
        if (!run(area, piece))
            return false;
    *ret_us = (double)(moor_clock_ns() - start_ns) / 1000.0 / RUNS_PER_SAMPLE;
    return true;
}

/* Pins the thread, so that the cases share the caches and free pages of one processor. If pinning fails, the
 * spread grows. ret_before: [out] the affinity to restore. */
static void stay_on_this_processor(cpu_set_t *ret_before)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof *ret_before, ret_before);
    CPU_SET((size_t)sched_getcpu(), &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

static bool measure(const struct bench_options *options, struct area *area,
                    double (*samples)[BENCH_ROUNDS_MAX])
{
    for (size_t round = 0; round < options->rounds; round++)
        for (size_t i = 0; i < SEQUENCE_COUNT; i++) {
            if (sample(area, sequences[i].run, round % PIECES, &samples[i][round]))
                continue;
            if (!sequences[i].raw)
                return tool_fail_last(options->failure, TOOL_FAILED, sequences[i].name);
            return tool_fail(options->failure, TOOL_FAILED, MOOR_UNSUPPORTED, "%s: failed here",
                             sequences[i].name);
        }
    return true;
}

static void report_all(const struct bench_options *options, double (*samples)[BENCH_ROUNDS_MAX],
                       struct bench_report *report)
{
    size_t rounds = options->rounds, best = 0;
    double sorted[BENCH_ROUNDS_MAX], ratios[BENCH_ROUNDS_MAX], least = 0;
    for (size_t i = 0; i < SEQUENCE_COUNT; i++) {
        memcpy(sorted, samples[i], rounds * sizeof *sorted);
        struct bench_result result = bench_summarise(sequences[i].name, "2 MiB", "us", sorted, rounds);
        if (sequences[i].raw && (best == 0 || result.median < least)) {
            best = i;
            least = result.median;
        }
        bench_add(report, result);
    }
    static const char *const names[] = {"backing/ratio: range to best raw",
                                        "backing/ratio: segment to best raw"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t round = 0; round < rounds; round++)
            ratios[round] = samples[i][round] / samples[best][round];
        bench_add(report, bench_summarise(names[i], "2 MiB", "x", ratios, rounds));
    }
}

bool bench_backing(const struct bench_options *options, struct bench_report *report)
{
    static double samples[SEQUENCE_COUNT][BENCH_ROUNDS_MAX];
    struct area area = {0};
    cpu_set_t before = {0};
    bool good = open_device(options, &area);
    const char *lack = good ? lack_of(area.device) : NULL;
    if (lack != NULL) {
        (void)moor_runtime_destroy(area.host.runtime); /* the runtime has no objects yet */
        return bench_decline(options, report, "backing", lack);
    }
    good = good && open_area(options, &area);
    if (good) {
        stay_on_this_processor(&before);
        good = measure(options, &area, samples);
        (void)sched_setaffinity(0, sizeof before, &before);
    }
    if (good)
        report_all(options, samples, report);
    close_area(&area);
    return good;
}
