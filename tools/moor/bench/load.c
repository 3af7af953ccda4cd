/* SPDX-License-Identifier: MIT */
/*
 * load: the time from a path to a usable provider and back, with and without a probe in a child process. The
 * code stays mapped after unloading, so the first load, which maps the file, is reported separately.
 */
#include "bench/bench.h"

#include <moorage/moorage.h>

static const struct {
    const char *name;
    uint64_t flags;
} cases[] = {
    {"load/load + unload", 0},
    {"load/probe + load + unload", MOOR_LOAD_PROBE},
};

#define CASE_COUNT (sizeof cases / sizeof *cases)

static bool sample(const struct bench_options *options, struct moor_runtime *runtime, uint64_t flags,
                   double *ret_us)
{
    struct moor_provider *provider = NULL;
    uint64_t start_ns = moor_clock_ns();
    if (!bench_load_provider(options, runtime, flags, &provider))
        return false;
    if (moor_provider_unload(provider))
        return tool_fail_last(options->failure, TOOL_FAILED, "unloading");
    *ret_us = (double)(moor_clock_ns() - start_ns) / 1000.0;
    return true;
}

bool bench_load(const struct bench_options *options, struct bench_report *report)
{
    static double samples[CASE_COUNT][BENCH_ROUNDS_MAX];
    struct moor_runtime *runtime = NULL;
    double first_us = 0;
    if (moor_runtime_create(NULL, &runtime))
        return tool_fail_last(options->failure, TOOL_FAILED, "runtime");
    bool good = sample(options, runtime, 0, &first_us);
    for (size_t round = 0; round < options->rounds && good; round++)
        for (size_t i = 0; i < CASE_COUNT && good; i++)
            good = sample(options, runtime, cases[i].flags, &samples[i][round]);
    (void)moor_runtime_destroy(runtime); /* nothing is loaded any more */
    if (!good)
        return false;
    bench_add(report, bench_summarise("load/first in the process", "-", "us", &first_us, 1));
    for (size_t i = 0; i < CASE_COUNT; i++)
        bench_add(report, bench_summarise(cases[i].name, "-", "us", samples[i], options->rounds));
    return true;
}
