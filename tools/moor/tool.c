/* SPDX-License-Identifier: MIT */
/*
 * Helpers of all subcommands. argp's own usage messages take several lines and know neither status names nor
 * JSON. Therefore argp runs silent, and the help option is defined here.
 */
#include "tool.h"
#include "json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool tool_fail(struct tool_failure *failure, int exit_status, moor_status status, const char *format, ...)
{
    if (failure->exit_status != TOOL_DONE)
        return false;
    failure->exit_status = exit_status;
    failure->status = status;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(failure->text, sizeof failure->text, format, arguments); /* cuts a longer text */
    va_end(arguments);
    for (char *at = failure->text; *at != '\0'; at++)
        if ((unsigned char)*at < ' ')
            *at = ' ';
    return false;
}

bool tool_fail_last(struct tool_failure *failure, int exit_status, const char *what)
{
    const struct moor_error *error = moor_last_error();
    return tool_fail(failure, exit_status, error->status, "%s: %s", what, error->text);
}

int tool_report(const struct tool_failure *failure, bool json)
{
    if (failure->exit_status == TOOL_DONE)
        return TOOL_DONE;
    const char *name = moor_status_name(failure->status);
    fprintf(stderr, "%s: %s\n", name, failure->text);
    if (json && !failure->has_report) {
        json_t *message = json_string(failure->text);
        if (message == NULL) /* not UTF-8: a path may hold any bytes */
            message = json_string("(the message is not UTF-8; see standard error)");
        tool_json_print(json_pack("{s:{s:s, s:o}}", "error", "status", name, "message", message));
    }
    return failure->exit_status;
}

const char *tool_signal_name(int number)
{
    const char *name = sigabbrev_np(number);
    return name != NULL ? name : "real-time";
}

int tool_end_output(int exit_status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_status;
    fprintf(stderr, "%s: standard output: cannot be written\n", moor_status_name(MOOR_INVALID));
    return exit_status != TOOL_DONE ? exit_status : TOOL_FAILED;
}

bool tool_parse_options(const struct argp *argp, int argc, char **argv, void *input,
                        struct tool_failure *failure)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            argp_help(argp, stdout, ARGP_HELP_STD_HELP & ~(unsigned)ARGP_HELP_EXIT_OK, argv[0]);
            exit(tool_end_output(TOOL_DONE));
        }
    }
    error_t error = argp_parse(argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP | ARGP_NO_EXIT, NULL, input);
    if (error != 0)
        return tool_fail(failure, TOOL_USAGE, MOOR_INVALID, "%s: %s", argv[0],
                         strerror(error)); /* unless the parser set a failure */
    return failure->exit_status == TOOL_DONE;
}

void tool_refuse_option(const struct argp_state *state, struct tool_failure *failure)
{
    (void)tool_fail(failure, TOOL_USAGE, MOOR_INVALID, "'%s': unknown option or missing value: see %s --help",
                    state->argv[state->next - 1], state->argv[0]);
}

static bool settings_add(struct tool_settings *settings, const char *argument, struct tool_failure *failure)
{
    const char *equals = strchr(argument, '=');
    if (equals == NULL || equals == argument)
        return tool_fail(failure, TOOL_USAGE, MOOR_INVALID, "--set takes KEY=VALUE: '%s'", argument);
    char *key = strdup(argument);
    if (key == NULL)
        tool_out_of_memory();
    char *value = key + (equals - argument) + 1;
    value[-1] = '\0';
    settings->list = tool_reallocate(settings->list, settings->count + 1, sizeof *settings->list);
    settings->list[settings->count++] = (struct moor_setting){.key = key, .value = value};
    return true;
}

error_t tool_parse_common(int key, const char *argument, const struct argp_state *state,
                          struct tool_failure *failure, struct tool_settings *settings, bool *json)
{
    if (key == TOOL_KEY_SET)
        (void)settings_add(settings, argument, failure); /* the failure holds the reason */
    else if (key == TOOL_KEY_JSON)
        *json = true;
    else if (key == ARGP_KEY_ERROR)
        tool_refuse_option(state, failure);
    else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

void tool_settings_finish(struct tool_settings *settings)
{
    for (size_t i = 0; i < settings->count; i++)
        free((void *)(uintptr_t)settings->list[i].key); /* const for the library, owned here */
    free(settings->list);
    *settings = (struct tool_settings){0};
}

/* Accepts digits only: strtoull alone accepts signs and blanks, and reads "-1" as a huge number. */
static bool parse_digits(const char *text, uint64_t *ret_value, const char **ret_rest)
{
    if (*text < '0' || *text > '9')
        return false;
    char *rest = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &rest, 10);
    if (errno != 0)
        return false;
    *ret_value = value;
    *ret_rest = rest;
    return true;
}

bool tool_take_number(const char *option, const char *argument, uint64_t min, uint64_t max,
                      uint64_t *ret_value, struct tool_failure *failure)
{
    uint64_t value = 0;
    const char *rest = NULL;
    if (!parse_digits(argument, &value, &rest) || *rest != '\0' || value < min || value > max)
        return tool_fail(failure, TOOL_USAGE, MOOR_INVALID,
                         "%s takes a whole number from %" PRIu64 " to %" PRIu64 ", not '%s'", option, min,
                         max, argument);
    *ret_value = value;
    return true;
}

bool tool_parse_size(const char *text, uint64_t *ret_bytes)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"KiB", UINT64_C(1) << 10},
                 {"MiB", UINT64_C(1) << 20},
                 {"GiB", UINT64_C(1) << 30},
                 {"TiB", UINT64_C(1) << 40}};
    uint64_t value = 0;
    const char *rest = NULL;
    if (!parse_digits(text, &value, &rest))
        return false;
    if (*rest == ' ')
        rest++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        uint64_t bytes = 0;
        if (strcmp(rest, units[i].name) != 0)
            continue;
        if (__builtin_mul_overflow(value, units[i].bytes, &bytes))
            return false;
        *ret_bytes = bytes;
        return true;
    }
    return false;
}

const char *tool_capability_name(uint64_t capabilities)
{
    static const char *const names[] = {"alloc",  "stream", "release", "copy", "virtual",
                                        "shared", "pinned", "stats"}; /* in the order of their bits */
    size_t index = (size_t)__builtin_ctzll(capabilities);
    return index < sizeof names / sizeof *names ? names[index] : NULL;
}

static char *absolute_path(const char *path)
{
    char *absolute = NULL;
    if (*path == '/')
        absolute = strdup(path);
    else {
        char *directory = getcwd(NULL, 0);
        if (directory == NULL || asprintf(&absolute, "%s/%s", directory, path) < 0)
            absolute = NULL;
        free(directory);
    }
    if (absolute == NULL)
        tool_out_of_memory();
    return absolute;
}

/* A text with a slash, or with the suffix of a file name, is a path. */
static bool is_path(const char *provider)
{
    size_t length = strlen(provider);
    return strchr(provider, '/') != NULL || (length > 3 && strcmp(provider + length - 3, ".so") == 0);
}

bool tool_refuse_provider(struct tool_failure *failure)
{
    return tool_fail(failure, TOOL_REFUSED, moor_last_error()->status, "%s", moor_last_error()->text);
}

bool tool_find_provider(struct moor_runtime *runtime, const char *provider, char **ret_path,
                        struct tool_failure *failure)
{
    if (!is_path(provider))
        return moor_provider_find(runtime, provider, ret_path) == MOOR_OK || tool_refuse_provider(failure);
    *ret_path = absolute_path(provider);
    return true;
}

bool tool_load_provider(struct moor_runtime *runtime, const char *provider,
                        const struct moor_load_options *options, struct moor_provider **ret_provider,
                        struct tool_failure *failure)
{
    char *path = NULL;
    if (!tool_find_provider(runtime, provider, &path, failure))
        return false;
    moor_status status = moor_provider_load(runtime, path, options, ret_provider);
    free(path);
    return status == MOOR_OK || tool_refuse_provider(failure);
}

void tool_out_of_memory(void)
{
    fprintf(stderr, "%s: no host memory for the tool itself\n", moor_status_name(MOOR_HOST_NOMEM));
    exit(TOOL_FAILED);
}

void *tool_allocate(size_t count, size_t size)
{
    void *memory = calloc(count != 0 ? count : 1, size);
    if (memory == NULL)
        tool_out_of_memory();
    return memory;
}

void *tool_reallocate(void *memory, size_t count, size_t size)
{
    memory = reallocarray(memory, count, size);
    if (memory == NULL)
        tool_out_of_memory();
    return memory;
}
