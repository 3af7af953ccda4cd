/* SPDX-License-Identifier: MIT */
/* The samples, results and providers of benchmarks: see bench/bench.h. */
#include "bench/bench.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

struct bench_result bench_summarise(const char *name, const char *param, const char *unit, double *samples,
                                    size_t count)
{
    qsort(samples, count, sizeof *samples, compare);
    double middle = count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
    return (struct bench_result){name, 1, param, unit, count, middle, samples[0], samples[count - 1]};
}

void bench_add(struct bench_report *report, struct bench_result result)
{
    assert(report->count < sizeof report->results / sizeof *report->results);
    report->results[report->count++] = result;
}

void bench_skip(struct bench_report *report, const char *name, const char *param, const char *reason)
{
    assert(report->skipped_count < sizeof report->skipped / sizeof *report->skipped);
    struct bench_skipped *skipped = &report->skipped[report->skipped_count++];
    skipped->name = name;
    skipped->param = param;
    (void)snprintf(skipped->reason, sizeof skipped->reason, "%s", reason); /* cuts a longer text */
}

bool bench_load_provider(const struct bench_options *options, struct moor_runtime *runtime, uint64_t flags,
                         struct moor_provider **ret_provider)
{
    struct moor_load_options load = {
        .settings = options->settings.list, .setting_count = options->settings.count, .flags = flags};
    return tool_load_provider(runtime, options->provider, &load, ret_provider, options->failure);
}

bool bench_get_device(const struct bench_options *options, struct moor_provider *provider,
                      struct moor_device **ret_device)
{
    struct moor_provider_info info;
    if (moor_provider_get_info(provider, &info) == MOOR_OK && info.device_count == 0)
        return tool_fail(options->failure, TOOL_NO_DEVICE, MOOR_UNSUPPORTED, "%s: no device", info.path);
    return moor_provider_get_device(provider, 0, ret_device) == MOOR_OK ||
           tool_fail_last(options->failure, TOOL_REFUSED, options->provider);
}

bool bench_decline(const struct bench_options *options, struct bench_report *report, const char *name,
                   const char *reason)
{
    if (options->name_count > 0)
        return tool_fail(options->failure, TOOL_REFUSED, MOOR_UNSUPPORTED, "%s: %s", name, reason);
    bench_skip(report, name, "-", reason);
    return true;
}
