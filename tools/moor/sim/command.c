/* SPDX-License-Identifier: MIT */
/* moor sim: options, run, report. */
#include "json.h"
#include "sim/run.h"
#include "sim/shrink.h"
#include "sim/text.h"
#include "tool.h"

#include <inttypes.h>
#include <moorage/runtime.h>
#include <stdlib.h>
#include <unistd.h>

#define STEPS_MAX UINT64_C(1000000000000)

struct options {
    struct tool_failure *failure;
    const char *provider;
    const char *profile;
    uint64_t seed;
    uint64_t steps;
    uint64_t untold_step;
    const char *replay;
    const char *out;
    bool shrinks;
    bool json;
};

enum {
    KEY_SEED = TOOL_KEY_OWN,
    KEY_STEPS,
    KEY_PROFILE,
    KEY_PROVIDER,
    KEY_SHRINK,
    KEY_REPLAY,
    KEY_OUT,
    KEY_UNTOLD
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct options *options = state->input;
    switch (key) {
    case KEY_SEED:
        (void)tool_take_number("--seed", argument, 0, UINT64_MAX, &options->seed,
                               options->failure); /* told in failure, as below */
        break;
    case KEY_STEPS:
        (void)tool_take_number("--steps", argument, 1, STEPS_MAX, &options->steps, options->failure);
        break;
    case KEY_UNTOLD:
        (void)tool_take_number("--untold", argument, 1, STEPS_MAX, &options->untold_step, options->failure);
        break;
    case KEY_PROFILE:
        options->profile = argument;
        break;
    case KEY_PROVIDER:
        options->provider = argument;
        break;
    case KEY_REPLAY:
        options->replay = argument;
        break;
    case KEY_OUT:
        options->out = argument;
        break;
    case KEY_SHRINK:
        options->shrinks = true;
        break;
    case TOOL_KEY_JSON:
        options->json = true;
        break;
    case ARGP_KEY_ARG:
        (void)tool_fail(options->failure, TOOL_USAGE, MOOR_INVALID, "'%s': moor sim takes options alone",
                        argument);
        break;
    case ARGP_KEY_ERROR:
        tool_refuse_option(state, options->failure);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp_option option_list[] = {
    {"seed", KEY_SEED, "S", 0, "Draw everything from this number (default 1)", 0},
    {"steps", KEY_STEPS, "N", 0, "So many operations (default 100000)", 0},
    {"profile", KEY_PROFILE, "NAME", 0,
     "What to do much of: mixed (default), memory, sharing, streams, pressure, governor, faults, lifecycle, "
     "loss",
     0},
    {"provider", KEY_PROVIDER, "PROVIDER", 0,
     "The simulated device: a path, or a name to look up (default mock)", 0},
    {"shrink", KEY_SHRINK, NULL, 0, "On failure look for a short sequence that fails", 0},
    {"replay", KEY_REPLAY, "FILE", 0, "Run the sequence of a file instead", 0},
    {"out", KEY_OUT, "FILE", 0, "On failure write the sequence there, and not to standard output", 0},
    {"untold", KEY_UNTOLD, "STEP", OPTION_HIDDEN, "At this step do something that the model is not told", 0},
    TOOL_OPTION_JSON,
    TOOL_OPTION_HELP,
    {0}};

static const struct argp argp = {option_list,
                                 parse,
                                 "",
                                 "A host that does everything at random, beside a model that knows what it "
                                 "should see: holders, requests that wait, bindings, buffers, "
                                 "ranges, segments, transactions, streams, faults, on a simulated device in "
                                 "virtual time. After each step the "
                                 "promises are checked. One seed, one run: the digest at the end says so.",
                                 NULL,
                                 NULL,
                                 NULL};

/* ---- the provider ---- */

static bool has_hands(struct moor_runtime *runtime, const char *path, struct tool_failure *failure)
{
    static const struct moor_setting setting = {"clock", "virtual"};
    const struct moor_load_options load = {.settings = &setting, .setting_count = 1};
    struct moor_provider *provider = NULL;
    const void *control = NULL;
    if (moor_provider_load(runtime, path, &load, &provider) != MOOR_OK)
        return tool_refuse_provider(failure);
    moor_status status =
        moor_provider_get_extension(provider, MOOR_MOCK_CONTROL, MOOR_MOCK_CONTROL_VERSION, &control);
    if (status != MOOR_OK)
        return tool_fail(failure, TOOL_REFUSED, status, "%s is no simulated device: it has no %s", path,
                         MOOR_MOCK_CONTROL);
    return moor_provider_unload(provider) == MOOR_OK || tool_fail_last(failure, TOOL_FAILED, path);
}

/* Looked at before a run, so that it is refused like any other provider. ret_path: [out, owned] free(). */
static bool find_device(const struct options *options, char **ret_path, struct tool_failure *failure)
{
    struct moor_runtime *runtime = NULL;
    if (moor_runtime_create(NULL, &runtime) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "a runtime");
    bool good = tool_find_provider(runtime, options->provider, ret_path, failure) &&
                has_hands(runtime, *ret_path, failure);
    (void)moor_runtime_destroy(runtime); /* it unloads what may be left */
    return good;
}

/* ---- report ---- */

/* [begun, of them effective] */
static json_t *count_kinds(const struct sim_totals *totals)
{
    json_t *kinds = json_object();
    for (int i = 0; i < SIM_KIND_COUNT; i++)
        if (totals->kinds[i])
            tool_json_set(
                kinds, sim_kinds[i]->name,
                json_pack("[I, I]", (json_int_t)totals->kinds[i], (json_int_t)totals->effective[i]));
    return kinds;
}

static void print_report(const struct sim_result *result, bool json)
{
    const struct sim_totals *totals = &result->totals;
    json_t *kinds = count_kinds(totals);
    char digest[20];
    (void)snprintf(digest, sizeof digest, "%016" PRIx64, totals->digest); /* it fits */
    if (json) {
        tool_json_print(json_pack("{s:s, s:I, s:I, s:I, s:o, s:s, s:s?}", "profile",
                                  result->sequence.profile->name, "steps", (json_int_t)totals->steps,
                                  "worlds", (json_int_t)totals->worlds, "checks", (json_int_t)totals->checks,
                                  "ops", kinds, "digest", digest, "failure",
                                  result->failed ? result->failure : NULL));
        return;
    }
    printf("%" PRIu64 " steps in %" PRIu64 " worlds, %" PRIu64 " checks, digest %s, ops ", totals->steps,
           totals->worlds, totals->checks, digest);
    (void)json_dumpf(kinds, stdout, JSON_COMPACT); /* main looks at the stream at the end */
    putchar('\n');
    json_decref(kinds);
}

/* The sequence goes where it was asked for, or to standard output, where JSON has no room for it. */
static void tell_failure(const struct options *options, const struct sim_result *result,
                         struct tool_failure *failure)
{
    const struct sim_sequence *sequence = &result->sequence;
    if (options->out && !sim_text_write(options->out, sequence, failure))
        return;
    if (!options->out && !options->json)
        sim_text_print(stdout, sequence);
    if (options->replay)
        (void)tool_fail(failure, TOOL_FAILED, MOOR_CORRUPT, "%s, step %" PRIu64 ": %s", options->replay,
                        result->totals.steps, result->failure);
    else
        (void)tool_fail(failure, TOOL_FAILED, MOOR_CORRUPT,
                        "profile %s, seed %" PRIu64 ", step %" PRIu64 ": %s (%" PRIu32
                        " operations in a world of "
                        "seed %" PRIu64 ")",
                        sequence->profile->name, options->seed, result->totals.steps, result->failure,
                        sequence->count, sequence->seed);
}

static bool run(const struct options *options, const char *path, struct sim_result *result,
                struct tool_failure *failure)
{
    const struct sim_run drawn = {.path = path,
                                  .profile = sim_profile_find(options->profile),
                                  .seed = options->seed,
                                  .steps = options->steps,
                                  .untold_step = options->untold_step,
                                  .shows_progress = isatty(STDERR_FILENO) == 1};
    if (options->replay && !sim_text_read(options->replay, &result->sequence, failure))
        return false;
    if (options->replay)
        sim_run_again(path, result);
    else
        sim_run(&drawn, result);
    if (result->failed && options->shrinks && !sim_shrink(path, result))
        fputs("the last world alone does not fail; its sequence is not shrunk\n", stderr);
    if (result->failed)
        tell_failure(options, result, failure);
    print_report(result, options->json);
    failure->has_report = true;
    return !result->failed;
}

static bool check_options(const struct options *options, struct tool_failure *failure)
{
    if (sim_profile_find(options->profile) == NULL)
        return tool_fail(failure, TOOL_USAGE, MOOR_INVALID, "'%s' is no profile (see moor sim --help)",
                         options->profile);
    return true;
}

int sim_command(int argc, char **argv, bool json)
{
    struct tool_failure failure = {0};
    struct options options = {.failure = &failure,
                              .provider = "mock",
                              .profile = "mixed",
                              .seed = 1,
                              .steps = 100000,
                              .json = json};
    char *path = NULL;
    struct sim_result *result = NULL;
    if (tool_parse_options(&argp, argc, argv, &options, &failure) && check_options(&options, &failure) &&
        find_device(&options, &path, &failure)) {
        result = sim_result_create();
        if (result == NULL)
            tool_out_of_memory();
        (void)run(&options, path, result, &failure);
        sim_result_destroy(result);
    }
    free(path);
    return tool_report(&failure, options.json);
}
