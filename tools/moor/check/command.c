/* SPDX-License-Identifier: MIT */
/* moor check: selects the checks, runs them, prints the report. */
#include "check/check.h"
#include "json.h"
#include "tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_S_DEFAULT 20
#define TIMEOUT_S_MAX 3600

static const struct check *const tables[] = {
    check_base,    check_alloc,   check_stream,      check_release,   check_copy,
    check_virtual, check_shared,  check_shared_maps, check_pinned,    check_stats,
    check_life,    check_threads, check_host_memory, check_host_life,
};

#define TABLE_COUNT (sizeof tables / sizeof *tables)

struct check_options {
    struct tool_failure *failure;
    char *provider;
    char **names; /* [borrowed] from argv */
    size_t name_count;
    struct tool_settings settings;
    uint64_t timeout_s;
    bool list;
    bool verbose;
    bool json;
};

/* ---- selection ---- */

/* A name selects one check, or all checks below it: "release" selects "release.at_once". */
static bool is_meant(const char *name, const struct check *check)
{
    size_t length = strlen(name);
    return strncmp(check->name, name, length) == 0 &&
           (check->name[length] == '\0' || check->name[length] == '.');
}

static bool is_wanted(const struct check_options *options, const struct check *check)
{
    bool wanted = options->name_count == 0;
    for (size_t i = 0; i < options->name_count && !wanted; i++)
        wanted = is_meant(options->names[i], check);
    return wanted;
}

/* Returns a report for each selected check. [owned] */
static struct check_report *pick_checks(const struct check_options *options, size_t *ret_count)
{
    struct check_report *reports = NULL;
    size_t count = 0;
    for (size_t t = 0; t < TABLE_COUNT; t++) {
        for (const struct check *check = tables[t]; check->name != NULL; check++) {
            if (!is_wanted(options, check))
                continue;
            reports = tool_reallocate(reports, count + 1, sizeof *reports);
            reports[count++] = (struct check_report){.check = check};
        }
    }
    *ret_count = count;
    return reports;
}

static bool check_names(const struct check_options *options)
{
    for (size_t i = 0; i < options->name_count; i++) {
        bool known = false;
        for (size_t t = 0; t < TABLE_COUNT; t++)
            for (const struct check *check = tables[t]; check->name != NULL; check++)
                known |= is_meant(options->names[i], check);
        if (!known)
            return tool_fail(options->failure, TOOL_USAGE, MOOR_INVALID,
                             "'%s': unknown check: see moor check --list", options->names[i]);
    }
    return true;
}

/* ---- output ---- */

static const char *const result_names[] = {
    [CHECK_PASSED] = "passed", [CHECK_FAILED] = "failed", [CHECK_SKIPPED] = "skipped"};

#define RESULT_COUNT (sizeof result_names / sizeof *result_names)

static void print_list(const struct check_report *reports, size_t count)
{
    for (size_t i = 0; i < count; i++)
        printf("%-36s %s\n", reports[i].check->name, reports[i].check->rule);
}

static void print_list_json(const struct check_report *reports, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        tool_json_append(
            list, json_pack("{s:s, s:s}", "name", reports[i].check->name, "rule", reports[i].check->rule));
    tool_json_print(json_pack("{s:o}", "checks", list));
}

static void print_line(const struct check_report *report)
{
    static const char *const words[] = {
        [CHECK_PASSED] = "ok ", [CHECK_FAILED] = "FAIL", [CHECK_SKIPPED] = "skip"};
    const char *separator = report->reason[0] != '\0' ? ": " : "";
    printf("%s %s%s%s\n", words[report->result], report->check->name, separator, report->reason);
    (void)fflush(stdout); /* one line per finished check; main tests stdout at the end */
}

static void print_nothing(const struct check_report *report)
{
    (void)report;
}

static void print_json(const struct check_report *reports, size_t count, const size_t totals[RESULT_COUNT])
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        tool_json_append(list, json_pack("{s:s, s:s, s:s}", "name", reports[i].check->name, "result",
                                         result_names[reports[i].result], "reason", reports[i].reason));
    tool_json_print(json_pack("{s:I, s:I, s:I, s:o}", "passed", (json_int_t)totals[CHECK_PASSED], "failed",
                              (json_int_t)totals[CHECK_FAILED], "skipped", (json_int_t)totals[CHECK_SKIPPED],
                              "checks", list));
}

/* ---- the run ---- */

/* The core probes the file and its tables in a child process. ret_path: [owned] path of PROVIDER. */
static bool probe(const struct check_options *options, const struct moor_load_options *load, char **ret_path)
{
    struct moor_runtime *runtime = NULL;
    if (moor_runtime_create(NULL, &runtime) != MOOR_OK)
        return tool_fail_last(options->failure, TOOL_FAILED, "runtime");
    bool good = tool_find_provider(runtime, options->provider, ret_path, options->failure);
    if (good && moor_provider_probe(runtime, *ret_path, load) != MOOR_OK)
        good = tool_refuse_provider(options->failure);
    (void)moor_runtime_destroy(runtime); /* the runtime holds nothing */
    return good;
}

/* Returns the exit status, or sets the failure. */
static int run_checks(const struct check_options *options, const char *path,
                      const struct moor_load_options *load, struct check_report *reports, size_t count)
{
    struct check_plan plan = {.path = path,
                              .options = load,
                              .timeout_ns = options->timeout_s * UINT64_C(1000000000),
                              .verbose = options->verbose};
    int64_t device_count = -1;
    if (!check_run_all(&plan, reports, count, options->json ? print_nothing : print_line, &device_count)) {
        (void)tool_fail(options->failure, TOOL_FAILED, MOOR_LIMIT, "checks: no process could be made: %s",
                        strerror(errno));
        return TOOL_FAILED;
    }
    size_t totals[RESULT_COUNT] = {0};
    for (size_t i = 0; i < count; i++)
        totals[reports[i].result]++;
    if (options->json)
        print_json(reports, count, totals);
    else
        printf("%zu passed, %zu failed, %zu skipped\n", totals[CHECK_PASSED], totals[CHECK_FAILED],
               totals[CHECK_SKIPPED]);
    if (totals[CHECK_FAILED] > 0)
        return TOOL_FAILED;
    return device_count == 0 ? TOOL_NO_DEVICE : TOOL_DONE;
}

/* ---- the command line ---- */

enum { KEY_LIST = TOOL_KEY_OWN, KEY_TIMEOUT, KEY_VERBOSE };

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct check_options *options = state->input;
    switch (key) {
    case KEY_LIST:
        options->list = true;
        break;
    case KEY_TIMEOUT:
        (void)tool_take_number("--timeout", argument, 1, TIMEOUT_S_MAX, &options->timeout_s,
                               options->failure); /* the failure holds the reason */
        break;
    case KEY_VERBOSE:
        options->verbose = true;
        break;
    case ARGP_KEY_ARGS:
        options->provider = state->argv[state->next];
        options->names = &state->argv[state->next + 1];
        options->name_count = (size_t)(state->argc - state->next - 1);
        break;
    case ARGP_KEY_NO_ARGS:
        if (!options->list)
            (void)tool_fail(options->failure, TOOL_USAGE, MOOR_INVALID, "PROVIDER is missing");
        break;
    default:
        return tool_parse_common(key, argument, state, options->failure, &options->settings, &options->json);
    }
    return 0;
}

int check_command(int argc, char **argv, bool json)
{
    static const struct argp_option option_list[] = {
        TOOL_OPTION_SET,
        {"list", KEY_LIST, NULL, 0, "Print the checks and their rules without running them", 0},
        {"timeout", KEY_TIMEOUT, "SECONDS", 0, "Limit each check to SECONDS (default 20)", 0},
        {"verbose", KEY_VERBOSE, NULL, 0, "Print the provider's log to standard error", 0},
        TOOL_OPTION_JSON,
        TOOL_OPTION_HELP,
        {0}};
    static const struct argp argp = {
        .options = option_list,
        .parser = parse,
        .args_doc = "PROVIDER [CHECK...]",
        .doc =
            "Checks that a provider keeps the contract. PROVIDER is the path of a shared object, or a name "
            "to look up. CHECK is the name of a check (release.waits_for_points) or of a group (release); "
            "all checks run without one. Every check runs in a child process, so a crash is reported.",
    };
    struct tool_failure failure = {0};
    struct check_options options = {.failure = &failure, .timeout_s = TIMEOUT_S_DEFAULT, .json = json};
    int exit_status = TOOL_DONE;
    if (tool_parse_options(&argp, argc, argv, &options, &failure) && check_names(&options)) {
        struct moor_load_options load = {.settings = options.settings.list,
                                         .setting_count = options.settings.count};
        size_t count = 0;
        char *path = NULL;
        struct check_report *reports = pick_checks(&options, &count);
        if (options.list && options.json)
            print_list_json(reports, count);
        else if (options.list)
            print_list(reports, count);
        else if (probe(&options, &load, &path))
            exit_status = run_checks(&options, path, &load, reports, count);
        free(path);
        free(reports);
    }
    tool_settings_finish(&options.settings);
    return failure.exit_status != TOOL_DONE ? tool_report(&failure, options.json) : exit_status;
}
