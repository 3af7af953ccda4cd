/* SPDX-License-Identifier: MIT */
/* moor: the command line. Selects the subcommand; each has its own file or folder. */
#include "tool.h"

#include <fcntl.h>
#include <moorage/runtime.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct command {
    const char *name;
    const char *title; /* argv[0] of the subcommand, for its help */
    int (*run)(int argc, char **argv, bool json);
    const char *synopsis;
} commands[] = {
    {"inspect", "moor inspect", inspect_command, "PROVIDER [--json]"},
    {"check", "moor check", check_command, "PROVIDER [CHECK...] [--list] [--json]"},
    {"replay", "moor replay", replay_command, "TRACE... --provider PROVIDER --capacity SIZE [--json]"},
    {"bench", "moor bench", bench_command, "[NAME...] --provider PROVIDER [--json]"},
    {"new-provider", "moor new-provider", new_provider_command, "DIR --name NAME [--json]"},
};

#define COMMAND_COUNT (sizeof commands / sizeof *commands)

static void print_help(void)
{
    puts("Usage: moor COMMAND [ARGUMENT...]\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        printf("    %s %s\n", commands[i].title, commands[i].synopsis);
    puts("\nRun 'moor COMMAND --help' for its options. SIZE takes KiB, MiB, GiB, TiB.\n"
         "Exit status: 0 success, 1 a check failed or the accounts do not balance, 2 usage,\n"
         "3 provider refused, 4 no device, 5 bad input.");
}

/* Looked up before the options are parsed, so that a usage error is reported as JSON too. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

static int run(int argc, char **argv)
{
    struct tool_failure failure = {0};
    bool json = wants_json(argc, argv);
    if (argc < 2) {
        (void)tool_fail(&failure, TOOL_USAGE, MOOR_INVALID, "no command given: see moor --help");
        return tool_report(&failure, json);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_help();
        return TOOL_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("moor %s\n", moor_version());
        return TOOL_DONE;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        char title[32];
        (void)snprintf(title, sizeof title, "%s", commands[i].title); /* titles are short */
        argv[1] = title;
        return commands[i].run(argc - 1, argv + 1, json);
    }
    (void)tool_fail(&failure, TOOL_USAGE, MOOR_INVALID, "'%s': unknown command: see moor --help", argv[1]);
    return tool_report(&failure, json);
}

/* Opens the standard files that are closed, so that no later file becomes standard input, output or error.
 * Writing to such a file fails, and the failure is reported. */
static void keep_standard_files(void)
{
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        if (fcntl(file, F_GETFD) < 0)
            (void)open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY); /* takes the lowest number */
}

int main(int argc, char **argv)
{
    keep_standard_files();
    /* An inherited SIG_IGN would discard the exit statuses of children. */
    (void)signal(SIGCHLD, SIG_DFL);
    return tool_end_output(run(argc, argv));
}
