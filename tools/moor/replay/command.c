/* SPDX-License-Identifier: MIT */
/* moor replay: options, trace, run, report. The trace is read and checked before the provider is loaded. */
#include "replay/report.h"
#include "tool.h"

#include <moorage/runtime.h>

static bool get_trace(const struct replay_config *config, struct replay_trace *ret_trace,
                      struct tool_failure *failure)
{
    if (!config->generate)
        return replay_trace_read(config, ret_trace, failure);
    replay_trace_generate(config, ret_trace);
    if (config->generate_out != NULL && !replay_trace_write(ret_trace, config->generate_out, failure))
        return false;
    return true;
}

/* Replays the trace, from loading the provider to unloading it. A run that broke off prints no report. */
static void run(const struct replay_config *config, const struct replay_trace *trace,
                struct tool_failure *failure)
{
    struct replay_memory *memory = NULL;
    struct replay_counts counts;
    struct replay_accounts accounts;
    uint64_t start_ns = moor_clock_ns();
    if (!replay_memory_open(config, &memory, failure))
        return;
    struct replay_terms terms = replay_memory_get_terms(memory);
    bool done = replay_model_run(config, trace, memory, &counts, &accounts, failure);
    done = replay_memory_close(memory, failure) && done;
    if (!done)
        return;
    replay_report(config, &terms, &counts, &accounts, (double)(moor_clock_ns() - start_ns) / 1e9);
    failure->has_report = true;
    if (!accounts.balanced)
        (void)tool_fail(failure, TOOL_FAILED, MOOR_CORRUPT, "accounts: do not balance: %s",
                        accounts.mismatch);
}

int replay_command(int argc, char **argv, bool json)
{
    struct tool_failure failure = {0};
    struct replay_config config;
    struct replay_trace trace = {0};
    if (replay_config_parse(argc, argv, json, &config, &failure) && get_trace(&config, &trace, &failure) &&
        config.provider != NULL)
        run(&config, &trace, &failure);
    replay_trace_finish(&trace);
    replay_config_finish(&config);
    return tool_report(&failure, config.json);
}
