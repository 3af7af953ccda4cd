/* SPDX-License-Identifier: MIT */
/* The report is one JSON object. The text is printed from it, so that both carry the same figures. */
#include "replay/report.h"
#include "json.h"
#include "tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the names of the traces in one string, as given. [owned] */
static char *name_traces(const struct replay_config *config)
{
    char *name = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&name, &size);
    if (stream == NULL)
        tool_out_of_memory();
    if (config->generate)
        fprintf(stream, "mooncake-conversation requests=%ju seed=%ju", (uintmax_t)config->generate_rows,
                (uintmax_t)config->generate_seed);
    for (size_t i = 0; i < config->trace_count; i++)
        fprintf(stream, "%s%s", i > 0 ? "," : "", config->traces[i]);
    if (fclose(stream) != 0)
        tool_out_of_memory();
    return name;
}

static json_t *describe_accounts(const struct replay_accounts *accounts)
{
    return json_pack("{s:I, s:o, s:o, s:I, s:b}", "ledger_bytes", (json_int_t)accounts->ledger_bytes,
                     "provider_bytes", tool_json_number(accounts->has_provider, accounts->provider_bytes),
                     "kernel_bytes", tool_json_number(accounts->has_kernel, accounts->kernel_bytes),
                     "samples", (json_int_t)accounts->samples, "balanced", accounts->balanced);
}

static json_t *describe(const struct replay_config *config, const struct replay_terms *terms,
                        const struct replay_counts *counts, const struct replay_accounts *accounts,
                        double wall_s)
{
    char *traces = name_traces(config);
    json_t *report = json_pack("{s:o, s:o, s:s, s:s, s:f}", "trace", tool_json_text(traces), "provider",
                               tool_json_text(config->provider), "mode", terms->mode, "policy",
                               replay_policy_name(config->policy), "scale", config->scale);
    free(traces);
    if (report == NULL)
        tool_out_of_memory();
    tool_json_set(report, "capacity_blocks", tool_json_number(true, terms->capacity_blocks));
    tool_json_set(report, "block_bytes", tool_json_number(true, config->block_bytes));
    tool_json_set(report, "footprint_bytes", tool_json_number(true, terms->footprint_bytes));
    tool_json_set(report, "rows", tool_json_number(true, counts->rows));
    tool_json_set(report, "done", tool_json_number(true, counts->done));
    tool_json_set(report, "reject", tool_json_number(true, counts->reject));
    tool_json_set(report, "share", tool_json_number(true, counts->share));
    tool_json_set(report, "new_blocks", tool_json_number(true, counts->new_blocks));
    tool_json_set(report, "evict", tool_json_number(true, counts->evict));
    tool_json_set(report, "grow", tool_json_number(true, counts->grow));
    tool_json_set(report, "freed", tool_json_number(true, counts->freed));
    tool_json_set(report, "resident_end", tool_json_number(true, counts->resident_end));
    tool_json_set(report, "peak_used_blocks", tool_json_number(true, counts->peak_used));
    tool_json_set(report, "peak_active_blocks", tool_json_number(true, counts->peak_active));
    tool_json_set(report, "peak_commit_blocks", tool_json_number(true, counts->peak_commit));
    tool_json_set(report, "peak_pending_blocks", tool_json_number(true, counts->peak_pending));
    tool_json_set(report, "max_live", tool_json_number(true, counts->max_live));
    tool_json_set(report, "wait_mean_s", json_real(counts->wait_mean_s));
    tool_json_set(report, "wait_p99_s", json_real(counts->wait_p99_s));
    tool_json_set(report, "makespan_s", json_real(counts->makespan_s));
    tool_json_set(report, "wall_s", json_real(wall_s));
    tool_json_set(report, "books", describe_accounts(accounts));
    return report;
}

static void print_value(const json_t *value, const char *unit)
{
    if (json_is_string(value))
        printf("%s", json_string_value(value));
    else if (json_is_integer(value))
        printf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        printf("%.12g", json_real_value(value));
    else if (json_is_boolean(value))
        printf("%s", json_is_true(value) ? "yes" : "no");
    else
        printf("unknown");
    printf("%s\n", json_is_null(value) ? "" : unit);
}

static void print_text(const json_t *report)
{
    static const struct {
        const char *label;
        const char *key;
        const char *unit;
    } lines[] = {
        {"trace", "trace", ""},
        {"provider", "provider", ""},
        {"mode", "mode", ""},
        {"policy", "policy", ""},
        {"time scale", "scale", ""},
        {"capacity", "capacity_blocks", " blocks"},
        {"block", "block_bytes", " bytes"},
        {"  of device memory", "footprint_bytes", " bytes"},
        {NULL, NULL, NULL},
        {"requests", "rows", ""},
        {"  done", "done", ""},
        {"  rejected", "reject", " (larger than the capacity)"},
        {"blocks made", "new_blocks", ""},
        {"  by growth", "grow", ""},
        {"  evicted", "evict", ""},
        {"  freed", "freed", ""},
        {"  resident at the end", "resident_end", ""},
        {"blocks shared", "share", ""},
        {NULL, NULL, NULL},
        {"peak used", "peak_used_blocks", " blocks"},
        {"peak active", "peak_active_blocks", " blocks"},
        {"peak committed", "peak_commit_blocks", " blocks"},
        {"peak pending", "peak_pending_blocks", " blocks"},
        {"most live requests", "max_live", ""},
        {"wait, mean", "wait_mean_s", " s"},
        {"wait, 99th percentile", "wait_p99_s", " s"},
        {"makespan", "makespan_s", " s"},
        {"took", "wall_s", " s"},
        {NULL, NULL, NULL},
    };
    static const char *const account_lines[][3] = {{"ledger", "ledger_bytes", " bytes"},
                                                   {"provider", "provider_bytes", " bytes"},
                                                   {"kernel", "kernel_bytes", " bytes"},
                                                   {"samples", "samples", ""},
                                                   {"accounts balanced", "balanced", ""}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (lines[i].label == NULL) {
            putchar('\n');
            continue;
        }
        printf("%-23s ", lines[i].label);
        print_value(json_object_get(report, lines[i].key), lines[i].unit);
    }
    const json_t *accounts = json_object_get(report, "books");
    for (size_t i = 0; i < sizeof account_lines / sizeof *account_lines; i++) {
        printf("%-23s ", account_lines[i][0]);
        print_value(json_object_get(accounts, account_lines[i][1]), account_lines[i][2]);
    }
}

void replay_report(const struct replay_config *config, const struct replay_terms *terms,
                   const struct replay_counts *counts, const struct replay_accounts *accounts, double wall_s)
{
    json_t *report = describe(config, terms, counts, accounts, wall_s);
    if (config->json) {
        tool_json_print(report);
    } else {
        print_text(report);
        json_decref(report);
    }
}
