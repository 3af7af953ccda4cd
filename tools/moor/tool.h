/* SPDX-License-Identifier: MIT */
/* What the subcommands share: exit statuses, the one failure a run ends with, numbers and paths from the
 * command line. */
#ifndef MOOR_TOOL_H
#define MOOR_TOOL_H

#include <argp.h>
#include <moorage/provider.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses: a promise to scripts. */
#define TOOL_DONE 0
#define TOOL_FAILED 1    /* the books do not balance, or the run broke off */
#define TOOL_USAGE 2     /* the command line */
#define TOOL_REFUSED 3   /* the provider was not accepted, or lacks what is needed */
#define TOOL_NO_DEVICE 4 /* the provider is fine and has no device */
#define TOOL_BAD_INPUT 5 /* a trace */

/* Why a command did not do what it was asked. The first failure counts: setting a second is a no-op. */
struct tool_failure {
    int exit_status; /* TOOL_*; TOOL_DONE: no failure */
    moor_status status;
    char text[1024]; /* one line */
    bool has_report; /* the command's own JSON object is printed, and says what failed: no second one */
};

/* Both return false, so that a caller can say `return tool_fail(...)`. */
bool tool_fail(struct tool_failure *failure, int exit_status, moor_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The library said no: status and text from moor_last_error(), after `what` was tried. */
bool tool_fail_last(struct tool_failure *failure, int exit_status, const char *what);

/* Prints "STATUS_NAME: text" to stderr and, with json, the error object to stdout. Returns the exit status.
 */
int tool_report(const struct tool_failure *failure, bool json);
/* What was printed to stdout has arrived, or that is told and the exit status is not TOOL_DONE. Returns it.
 */
int tool_end_output(int exit_status);

/* Parses options with argp. False on a usage error (told in failure); --help prints and exits 0. A
 * parser tells what is wrong with tool_fail() and goes on; at ARGP_KEY_ERROR it calls tool_refuse_option().
 */
bool tool_parse_options(const struct argp *argp, int argc, char **argv, void *input,
                        struct tool_failure *failure);
void tool_refuse_option(const struct argp_state *state, struct tool_failure *failure);

/* Options that every subcommand has. --help never reaches a parser. */
#define TOOL_KEY_JSON 0x100
#define TOOL_KEY_HELP 0x101
#define TOOL_KEY_SET 0x102
#define TOOL_KEY_OWN 0x110 /* a subcommand's own keys start here: long names only */
#define TOOL_OPTION_JSON                                                                                     \
    {                                                                                                        \
        "json", TOOL_KEY_JSON, NULL, 0, "Print one JSON object", 0                                           \
    }
#define TOOL_OPTION_HELP                                                                                     \
    {                                                                                                        \
        "help", TOOL_KEY_HELP, NULL, 0, "Print this text", 0                                                 \
    }

#define TOOL_OPTION_SET                                                                                      \
    {                                                                                                        \
        "set", TOOL_KEY_SET, "KEY=VALUE", 0, "A setting for the provider; may be repeated", 0                \
    }

/* What --set gave, for moor_load_options. Starts as zero. */
struct tool_settings {
    struct moor_setting *list; /* [owned], and so are the keys; values lie in the same string */
    size_t count;
};
/* Adds one; a usage failure if it is no KEY=VALUE. */
bool tool_settings_add(struct tool_settings *settings, const char *argument, struct tool_failure *failure);
void tool_settings_finish(struct tool_settings *settings);

/* The argument of an option that takes a whole decimal number; a usage failure if it is none, or out of
 * bounds. */
bool tool_take_number(const char *option, const char *argument, uint64_t min, uint64_t max,
                      uint64_t *ret_value, struct tool_failure *failure);
/* Bytes, or KiB, MiB, GiB or TiB, with or without a space. */
bool tool_parse_size(const char *text, uint64_t *ret_bytes);

/* A provider was not accepted: the library's text, which names the file already. Returns false. */
bool tool_refuse_provider(struct tool_failure *failure);
/* "SEGV"; static. */
const char *tool_signal_name(int number);

/* The first of a set of MOOR_ABI_CAP_*, which is not empty: "alloc". NULL: this tool does not know it. */
const char *tool_capability_name(uint64_t capabilities);

/* PROVIDER of the command line. A path (it has a slash, or ends in .so) is made absolute, without resolving
 * it: the library looks at every link itself. A name is looked up by the library. ret_path: [out, owned]
 * free(). */
bool tool_find_provider(struct moor_runtime *runtime, const char *provider, char **ret_path,
                        struct tool_failure *failure);
/* Finds and loads it. options: may be NULL. ret_provider: [out, owned]. */
bool tool_load_provider(struct moor_runtime *runtime, const char *provider,
                        const struct moor_load_options *options, struct moor_provider **ret_provider,
                        struct tool_failure *failure);

/* Zeroed memory, or the end: a tool that cannot keep its own lists has nothing useful left to do. */
void *tool_allocate(size_t count, size_t size);
void *tool_reallocate(void *memory, size_t count, size_t size);
_Noreturn void tool_out_of_memory(void);

/* The subcommands. argv[0] is "moor NAME". They return the exit status. */
int inspect_command(int argc, char **argv, bool json);
int check_command(int argc, char **argv, bool json);
int replay_command(int argc, char **argv, bool json);
int bench_command(int argc, char **argv, bool json);
int new_provider_command(int argc, char **argv, bool json);

#endif
