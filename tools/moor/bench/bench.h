/* SPDX-License-Identifier: MIT */
/*
 * Benchmarks. Machines are shared and noisy. Therefore compared cases alternate within one run: each round
 * runs every case once, and a ratio is computed round by round. The report gives medians with their spread.
 */
#ifndef MOOR_TOOL_BENCH_H
#define MOOR_TOOL_BENCH_H

#include "tool.h"

#define BENCH_ROUNDS_MAX 1000

struct bench_options {
    struct tool_failure *failure;
    char **names; /* [borrowed] from argv */
    size_t name_count;
    const char *provider; /* path or name from the command line */
    struct tool_settings settings;
    uint64_t rounds; /* 1..BENCH_ROUNDS_MAX */
    bool json;
};

/* One line of the report. samples: one per round, in `unit`. */
struct bench_result {
    const char *name;
    uint32_t threads;
    const char *param;
    const char *unit;
    size_t runs;
    double median;
    double min;
    double max;
};

/* Sorts the samples. */
struct bench_result bench_summarise(const char *name, const char *param, const char *unit, double *samples,
                                    size_t count);

/* A case that the provider cannot run, or has no memory for. */
struct bench_skipped {
    const char *name;
    const char *param;
    char reason[512];
};

/* Collects results for the report. */
struct bench_report {
    struct bench_result results[96];
    size_t count;
    struct bench_skipped skipped[32];
    size_t skipped_count;
};
void bench_add(struct bench_report *report, struct bench_result result);
void bench_skip(struct bench_report *report, const char *name, const char *param, const char *reason);

/* Loads the measured provider with its settings. flags: MOOR_LOAD_*. ret_provider: [out, owned]. */
bool bench_load_provider(const struct bench_options *options, struct moor_runtime *runtime, uint64_t flags,
                         struct moor_provider **ret_provider);
/* Returns the first device. ret_device: [out, borrowed] until the provider is unloaded. */
bool bench_get_device(const struct bench_options *options, struct moor_provider *provider,
                      struct moor_device **ret_device);
/* Declines the whole benchmark: a refusal if the user named it, else an entry in the list of skipped
 * cases. */
bool bench_decline(const struct bench_options *options, struct bench_report *report, const char *name,
                   const char *reason);

/* backing.c: commit, touch and decommit of 2 MiB, compared with raw system calls of the same effect. */
bool bench_backing(const struct bench_options *options, struct bench_report *report);
/* device.c: allocations, releases behind fences, commits, maps and copies of any device. */
bool bench_device(const struct bench_options *options, struct bench_report *report);
/* governor.c: reserve, charge and refund, compared with an atomic add and a mutex pair. */
bool bench_governor(const struct bench_options *options, struct bench_report *report);
/* load.c: a provider's load and unload, with and without a probe. */
bool bench_load(const struct bench_options *options, struct bench_report *report);

#endif
