/* SPDX-License-Identifier: MIT */
/* sim: options, run, report. */
#include "run.h"
#include "shrink.h"
#include "text.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <moorage/runtime.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define STEPS_MAX UINT64_C(1000000000000)

enum { EXIT_BROKEN = 1, EXIT_USAGE = 2, EXIT_REFUSED = 3, EXIT_BAD_INPUT = 5 };

struct options {
    const char *provider;
    uint64_t seed;
    uint64_t steps;
    const struct sim_profile *profile;
    uint64_t bypass_step;
    const char *replay;
    const char *out;
    bool shrinks;
};

enum { KEY_SEED = 0x100, KEY_STEPS, KEY_PROFILE, KEY_PROVIDER, KEY_SHRINK, KEY_REPLAY, KEY_OUT, KEY_BYPASS };

static uint64_t take_number(const char *argument, uint64_t min, uint64_t max, struct argp_state *state)
{
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(argument, &end, 10);
    if (*argument < '0' || *argument > '9' || *end != '\0' || errno != 0 || value < min || value > max)
        argp_error(state, "'%s': expected a whole number from %" PRIu64 " to %" PRIu64, argument, min, max);
    return value;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct options *options = state->input;
    switch (key) {
    case KEY_SEED:
        options->seed = take_number(argument, 0, UINT64_MAX, state);
        break;
    case KEY_STEPS:
        options->steps = take_number(argument, 1, STEPS_MAX, state);
        break;
    case KEY_BYPASS:
        options->bypass_step = take_number(argument, 1, STEPS_MAX, state);
        break;
    case KEY_PROFILE:
        options->profile = sim_profile_find(argument);
        if (!options->profile)
            argp_error(state, "'%s': unknown profile", argument);
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
    case ARGP_KEY_END:
        if (!options->provider)
            argp_error(state, "--provider is missing");
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp_option option_list[] = {
    {"provider", KEY_PROVIDER, "FILE", 0, "The mock provider", 0},
    {"seed", KEY_SEED, "S", 0, "Derive every choice from this number (default 1)", 0},
    {"steps", KEY_STEPS, "N", 0, "Run N operations (default 100000)", 0},
    {"profile", KEY_PROFILE, "NAME", 0,
     "Prefer these operations: mixed (default), memory, sharing, streams, pressure, governor, faults, "
     "lifecycle, loss",
     0},
    {"shrink", KEY_SHRINK, NULL, 0, "After a failure search for a shorter sequence that fails", 0},
    {"replay", KEY_REPLAY, "FILE", 0, "Run the sequence in this file instead", 0},
    {"out", KEY_OUT, "FILE", 0, "After a failure write the sequence to FILE instead of standard output", 0},
    {"bypass", KEY_BYPASS, "STEP", OPTION_HIDDEN, "At this step bypass the model, so that the run fails", 0},
    {0}};

static const struct argp argp = {
    .options = option_list,
    .parser = parse,
    .doc =
        "Runs random host operations on the mock provider in virtual time, beside a model of the state that "
        "the host must see. Checks the promises after each operation. Equal options give equal runs: the "
        "digest in the report is the proof.\v"
        "Exit status: 0 all promises kept, 1 a promise broken, 2 usage, 3 provider refused, 5 bad input."};

/* ---- the provider ---- */

static bool has_control(struct moor_runtime *runtime, const char *path)
{
    static const struct moor_setting setting = {"clock", "virtual"};
    const struct moor_load_options load = {.settings = &setting, .setting_count = 1};
    struct moor_provider *provider = NULL;
    const void *control = NULL;
    moor_status status = moor_provider_load(runtime, path, &load, &provider);
    if (!status)
        status =
            moor_provider_get_extension(provider, MOOR_MOCK_CONTROL, MOOR_MOCK_CONTROL_VERSION, &control);
    if (status)
        fprintf(stderr, "%s: %s: cannot serve as the mock provider: %s\n", moor_status_name(status), path,
                moor_last_error()->text);
    return status == MOOR_OK;
}

/* Loads the file once before the run, so that a wrong file is refused and not reported as a broken promise. */
static bool check_provider(const char *path)
{
    struct moor_runtime *runtime = NULL;
    if (moor_runtime_create(NULL, &runtime) != MOOR_OK)
        return false;
    bool good = has_control(runtime, path);
    (void)moor_runtime_destroy(runtime); /* unloads the provider */
    return good;
}

/* ---- report ---- */

/* Prints "kind":[begun, effective] for each kind of operation that the run began. */
static void print_kinds(const struct sim_totals *totals)
{
    const char *separator = "{";
    for (int i = 0; i < SIM_KIND_COUNT; i++) {
        if (!totals->kinds[i])
            continue;
        printf("%s\"%s\":[%" PRIu64 ",%" PRIu64 "]", separator, sim_kinds[i]->name, totals->kinds[i],
               totals->effective[i]);
        separator = ",";
    }
    puts("}");
}

static void print_report(const struct sim_totals *totals)
{
    printf("%" PRIu64 " steps in %" PRIu64 " worlds, %" PRIu64 " checks, digest %016" PRIx64 ", ops ",
           totals->steps, totals->worlds, totals->checks, totals->digest);
    print_kinds(totals);
}

static int report_failure(const struct options *options, const struct sim_result *result)
{
    const struct sim_sequence *sequence = &result->sequence;
    if (!options->out)
        sim_text_print(stdout, sequence);
    else if (!sim_text_write(options->out, sequence))
        return EXIT_USAGE;
    if (options->replay)
        fprintf(stderr, "CORRUPT: %s, step %" PRIu64 ": %s\n", options->replay, result->totals.steps,
                result->failure);
    else
        fprintf(stderr,
                "CORRUPT: profile %s, seed %" PRIu64 ", step %" PRIu64 ": %s (%" PRIu32
                " operations in a world of seed %" PRIu64 ")\n",
                sequence->profile->name, options->seed, result->totals.steps, result->failure,
                sequence->count, sequence->seed);
    return EXIT_BROKEN;
}

static int run(const struct options *options, const char *path, struct sim_result *result)
{
    const struct sim_run drawn = {.path = path,
                                  .profile = options->profile,
                                  .seed = options->seed,
                                  .steps = options->steps,
                                  .bypass_step = options->bypass_step,
                                  .shows_progress = isatty(STDERR_FILENO) == 1};
    if (options->replay && !sim_text_read(options->replay, &result->sequence))
        return EXIT_BAD_INPUT;
    if (options->replay)
        sim_run_again(path, result);
    else
        sim_run(&drawn, result);
    if (result->failed && options->shrinks && !sim_shrink(path, result))
        fputs("shrink: the last world alone does not fail: its sequence is printed whole\n", stderr);
    int status = result->failed ? report_failure(options, result) : EXIT_SUCCESS;
    print_report(&result->totals);
    return status;
}

int main(int argc, char **argv)
{
    struct options options = {.profile = sim_profile_find("mixed"), .seed = 1, .steps = 100000};
    struct sim_result *result = sim_result_create();
    if (!result)
        return EXIT_BROKEN;
    (void)signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would discard the child's exit status */
    argp_err_exit_status = EXIT_USAGE;
    (void)argp_parse(&argp, argc, argv, 0, NULL, &options); /* ends the program itself */
    char *path = realpath(options.provider, NULL);          /* NULL: loading the given name fails */
    int status = check_provider(path ? path : options.provider) ? run(&options, path, result) : EXIT_REFUSED;
    free(path);
    sim_result_destroy(result);
    return status;
}
