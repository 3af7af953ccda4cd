/* SPDX-License-Identifier: MIT */
/* Helpers of all subcommands: exit statuses, the failure that ends a run, numbers and paths of the command
 * line. */
#ifndef MOOR_TOOL_H
#define MOOR_TOOL_H

#include <argp.h>
#include <moorage/provider.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses are a promise to scripts. */
#define TOOL_DONE 0
#define TOOL_FAILED 1    /* the accounts do not balance, or the run broke off */
#define TOOL_USAGE 2     /* wrong command line */
#define TOOL_REFUSED 3   /* the provider is refused, or lacks a needed capability */
#define TOOL_NO_DEVICE 4 /* the provider works but has no device */
#define TOOL_BAD_INPUT 5 /* wrong trace */

/* The reason why a command failed. The first failure counts: setting a second one does nothing. */
struct tool_failure {
    int exit_status; /* TOOL_*; TOOL_DONE: no failure */
    moor_status status;
    char text[1024]; /* one line */
    bool has_report; /* the command has printed its own JSON object, which contains the failure */
};

/* Both return false, for `return tool_fail(...)`. */
bool tool_fail(struct tool_failure *failure, int exit_status, moor_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Takes status and text from moor_last_error(). `what` names the failed action. */
bool tool_fail_last(struct tool_failure *failure, int exit_status, const char *what);

/* Prints "STATUS_NAME: text" to stderr and, with json, the error object to stdout. Returns the exit status.
 */
int tool_report(const struct tool_failure *failure, bool json);
/* Returns exit_status, or TOOL_FAILED if stdout could not be written, which is reported. */
int tool_end_output(int exit_status);

/* Parses options with argp. Returns false after a usage error; --help prints the help and exits. A parser
 * reports an error with tool_fail() and continues; at ARGP_KEY_ERROR it calls tool_refuse_option(). */
bool tool_parse_options(const struct argp *argp, int argc, char **argv, void *input,
                        struct tool_failure *failure);
void tool_refuse_option(const struct argp_state *state, struct tool_failure *failure);

/* Options of every subcommand. A parser never sees --help. */
#define TOOL_KEY_JSON 0x100
#define TOOL_KEY_HELP 0x101
#define TOOL_KEY_SET 0x102
#define TOOL_KEY_OWN 0x110 /* the first key of a subcommand's own options, which have long names only */
/* clang-format off */
#define TOOL_OPTION_JSON {"json", TOOL_KEY_JSON, NULL, 0, "Print one JSON object", 0}
#define TOOL_OPTION_HELP {"help", TOOL_KEY_HELP, NULL, 0, "Print this text", 0}
#define TOOL_OPTION_SET {"set", TOOL_KEY_SET, "KEY=VALUE", 0, "A setting for the provider; may be repeated", 0}
/* clang-format on */

/* The settings given by --set, for moor_load_options. Zero-initialised. */
struct tool_settings {
    struct moor_setting *list; /* [owned], like the keys; each value lies in its key's string */
    size_t count;
};
void tool_settings_finish(struct tool_settings *settings);
/* Parses --set and --json, and reports unknown options. An argument of --set that is not KEY=VALUE is a usage
 * failure. */
error_t tool_parse_common(int key, const char *argument, const struct argp_state *state,
                          struct tool_failure *failure, struct tool_settings *settings, bool *json);

/* Parses a whole decimal number within the bounds, or sets a usage failure. */
bool tool_take_number(const char *option, const char *argument, uint64_t min, uint64_t max,
                      uint64_t *ret_value, struct tool_failure *failure);
/* Parses a number of bytes, KiB, MiB, GiB or TiB, with or without a space. */
bool tool_parse_size(const char *text, uint64_t *ret_bytes);

/* Reports that the library refused the provider. Its text names the file. Returns false. */
bool tool_refuse_provider(struct tool_failure *failure);
/* Returns "SEGV", in static memory. */
const char *tool_signal_name(int number);

/* Returns the name of the first capability of a set that is not empty: "alloc". NULL if this tool does not
 * know it. */
const char *tool_capability_name(uint64_t capabilities);

/* Finds PROVIDER. A path, with a slash or the suffix .so, is made absolute but not resolved: the library
 * inspects every link. The library looks up a name. ret_path: [out, owned] free(). */
bool tool_find_provider(struct moor_runtime *runtime, const char *provider, char **ret_path,
                        struct tool_failure *failure);
/* Finds and loads PROVIDER. options: may be NULL. ret_provider: [out, owned]. */
bool tool_load_provider(struct moor_runtime *runtime, const char *provider,
                        const struct moor_load_options *options, struct moor_provider **ret_provider,
                        struct tool_failure *failure);

/* Return zeroed memory, or end the tool, which cannot continue without its own lists. */
void *tool_allocate(size_t count, size_t size);
void *tool_reallocate(void *memory, size_t count, size_t size);
_Noreturn void tool_out_of_memory(void);

/* The subcommands. argv[0] is "moor NAME". Each returns the exit status. */
int inspect_command(int argc, char **argv, bool json);
int check_command(int argc, char **argv, bool json);
int replay_command(int argc, char **argv, bool json);
int bench_command(int argc, char **argv, bool json);
int new_provider_command(int argc, char **argv, bool json);

#endif
