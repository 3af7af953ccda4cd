/* SPDX-License-Identifier: MIT */
/*
 * Benchmarks. Machines are shared and noisy, so what is compared is measured in turns within one run: each
 * round runs every case once, and a ratio is taken round by round. Medians are told, with the spread.
 */
#ifndef MOOR_TOOL_BENCH_H
#define MOOR_TOOL_BENCH_H

#include "tool.h"

#define BENCH_ROUNDS_MAX 1000

struct bench_options {
    struct tool_failure *failure;
    char **names; /* of argv */
    size_t name_count;
    const char *provider; /* given */
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

/* What the provider cannot do, or has no room for. */
struct bench_left_out {
    const char *name;
    const char *param;
    char reason[512];
};

/* Collects results for the report. */
struct bench_report {
    struct bench_result results[96];
    size_t count;
    struct bench_left_out left_out[32];
    size_t left_out_count;
};
void bench_add(struct bench_report *report, struct bench_result result);
void bench_leave_out(struct bench_report *report, const char *name, const char *param, const char *reason);

/* Loads the provider that is measured, with its settings. flags: MOOR_LOAD_*. ret_provider: [out, owned]. */
bool bench_load_provider(const struct bench_options *options, struct moor_runtime *runtime, uint64_t flags,
                         struct moor_provider **ret_provider);
/* Its first device. ret_device: [out, borrowed] until it is unloaded. */
bool bench_get_device(const struct bench_options *options, struct moor_provider *provider,
                      struct moor_device **ret_device);
/* The whole benchmark is not for this provider: a refusal if it was asked for by name, else it is left out. */
bool bench_decline(const struct bench_options *options, struct bench_report *report, const char *name,
                   const char *reason);

/* backing.c: commit, touch and decommit of 2 MiB, beside the raw sequences that do the same. */
bool bench_backing(const struct bench_options *options, struct bench_report *report);
/* device.c: allocations, releases behind fences, commits, maps and copies of any device. */
bool bench_device(const struct bench_options *options, struct bench_report *report);
/* governor.c: reserve, charge and refund, beside an atomic add and a mutex pair. */
bool bench_governor(const struct bench_options *options, struct bench_report *report);
/* load.c: a provider's load and unload, with and without a probe. */
bool bench_load(const struct bench_options *options, struct bench_report *report);

#endif
