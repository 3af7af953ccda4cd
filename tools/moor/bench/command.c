/* SPDX-License-Identifier: MIT */
/* moor bench: selects the benchmarks, runs them, prints the report. */
#include "bench/bench.h"
#include "json.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    bool (*run)(const struct bench_options *options, struct bench_report *report);
} benchmarks[] = {
    {"backing", bench_backing},
    {"device", bench_device},
    {"governor", bench_governor},
    {"load", bench_load},
};

#define BENCHMARK_COUNT (sizeof benchmarks / sizeof *benchmarks)

static void print_json(const struct bench_report *report)
{
    json_t *results = json_array();
    for (size_t i = 0; i < report->count; i++) {
        const struct bench_result *result = &report->results[i];
        tool_json_append(results, json_pack("{s:s, s:i, s:s, s:s, s:i, s:f, s:f, s:f}", "name", result->name,
                                            "threads", (int)result->threads, "param", result->param, "unit",
                                            result->unit, "runs", (int)result->runs, "median", result->median,
                                            "min", result->min, "max", result->max));
    }
    json_t *skipped = json_array();
    for (size_t i = 0; i < report->skipped_count; i++) {
        json_t *line =
            json_pack("{s:s, s:s}", "name", report->skipped[i].name, "param", report->skipped[i].param);
        tool_json_append(skipped, line);
        tool_json_set(line, "reason", tool_json_text(report->skipped[i].reason));
    }
    tool_json_print(json_pack("{s:o, s:o}", "results", results, "skipped", skipped));
}

static void print_text(const struct bench_report *report)
{
    printf("%-46s %8s %-12s %5s %5s %10s %10s %10s\n", "name", "threads", "param", "unit", "runs", "median",
           "min", "max");
    for (size_t i = 0; i < report->count; i++) {
        const struct bench_result *result = &report->results[i];
        printf("%-46s %8u %-12s %5s %5zu %10.2f %10.2f %10.2f\n", result->name, result->threads,
               result->param, result->unit, result->runs, result->median, result->min, result->max);
    }
    for (size_t i = 0; i < report->skipped_count; i++)
        printf("skipped: %s, %s: %s\n", report->skipped[i].name, report->skipped[i].param,
               report->skipped[i].reason);
}

/* ---- the command line ---- */

enum { KEY_PROVIDER = TOOL_KEY_OWN, KEY_ROUNDS };

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct bench_options *options = state->input;
    switch (key) {
    case KEY_PROVIDER:
        options->provider = argument;
        break;
    case KEY_ROUNDS:
        (void)tool_take_number("--rounds", argument, 1, BENCH_ROUNDS_MAX, &options->rounds,
                               options->failure); /* the failure holds the reason */
        break;
    case ARGP_KEY_ARGS:
        options->names = &state->argv[state->next];
        options->name_count = (size_t)(state->argc - state->next);
        break;
    default:
        return tool_parse_common(key, argument, state, options->failure, &options->settings, &options->json);
    }
    return 0;
}

static bool wanted(const struct bench_options *options, const char *name)
{
    bool found = options->name_count == 0;
    for (size_t i = 0; i < options->name_count; i++)
        found |= strcmp(options->names[i], name) == 0;
    return found;
}

static bool check_options(const struct bench_options *options)
{
    if (options->provider == NULL)
        return tool_fail(options->failure, TOOL_USAGE, MOOR_INVALID, "--provider is missing");
    for (size_t i = 0; i < options->name_count; i++) {
        bool known = false;
        for (size_t b = 0; b < BENCHMARK_COUNT; b++)
            known |= strcmp(options->names[i], benchmarks[b].name) == 0;
        if (!known)
            return tool_fail(options->failure, TOOL_USAGE, MOOR_INVALID,
                             "'%s': unknown benchmark: see moor bench --help", options->names[i]);
    }
    return true;
}

int bench_command(int argc, char **argv, bool json)
{
    static const struct argp_option option_list[] = {
        {"provider", KEY_PROVIDER, "PROVIDER", 0, "The measured provider: a path, or a name to look up", 0},
        {"rounds", KEY_ROUNDS, "N", 0, "Take N samples of each case (default 101)", 0},
        TOOL_OPTION_SET,
        TOOL_OPTION_JSON,
        TOOL_OPTION_HELP,
        {0}};
    static const struct argp argp = {
        option_list,
        parse,
        "[NAME...] --provider PROVIDER",
        "Measures a provider. NAME is backing (commit, touch and decommit 2 MiB, compared with raw system "
        "calls), device (allocations, releases behind fences, commits, maps and copies of the first device), "
        "governor (reserve, charge and refund, compared with an atomic add and a mutex pair) or load (from a "
        "path to a usable provider and back, with and without a probe in a child process). Runs all "
        "benchmarks without NAME.",
        NULL,
        NULL,
        NULL};
    struct tool_failure failure = {0};
    struct bench_options options = {.failure = &failure, .rounds = 101, .json = json};
    static struct bench_report report;
    bool good = tool_parse_options(&argp, argc, argv, &options, &failure) && check_options(&options);
    for (size_t i = 0; i < BENCHMARK_COUNT && good; i++)
        if (wanted(&options, benchmarks[i].name))
            good = benchmarks[i].run(&options, &report);
    if (good && options.json)
        print_json(&report);
    else if (good)
        print_text(&report);
    tool_settings_finish(&options.settings);
    return tool_report(&failure, options.json);
}
