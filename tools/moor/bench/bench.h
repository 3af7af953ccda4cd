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
    uint64_t rounds;      /* 1..BENCH_ROUNDS_MAX */
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

/* Collects results for the report. */
struct bench_report {
    struct bench_result results[64];
    size_t count;
};
void bench_add(struct bench_report *report, struct bench_result result);

/* backing.c: commit, touch and decommit of 2 MiB, beside the raw sequences that do the same. */
bool bench_backing(const struct bench_options *options, struct bench_report *report);
/* governor.c: reserve, charge and refund, beside an atomic add and a mutex pair. */
bool bench_governor(const struct bench_options *options, struct bench_report *report);
/* load.c: a provider's load and unload, with and without a probe. */
bool bench_load(const struct bench_options *options, struct bench_report *report);

#endif
