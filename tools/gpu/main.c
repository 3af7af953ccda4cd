/* SPDX-License-Identifier: MIT */
/* gpu-driver: measures the CUDA driver's own calls and prints one JSON object. The exit statuses are those of
 * moor: 4 without a driver or a device. */
#include "raw.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_LIBRARY = 0x100, KEY_DEVICE, KEY_ROUNDS, KEY_SECONDS };

struct arguments {
    struct raw *raw;
    unsigned long seconds;
};

static unsigned long number(const char *text, unsigned long min, unsigned long max, struct argp_state *state)
{
    char *rest;
    unsigned long value = strtoul(text, &rest, 10);
    if (*text < '0' || *text > '9' || *rest != '\0' || value < min || value > max)
        argp_error(state, "'%s': expected a number from %lu to %lu", text, min, max);
    return value;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case KEY_LIBRARY:
        arguments->raw->library = argument;
        break;
    case KEY_DEVICE:
        arguments->raw->index = (unsigned)number(argument, 0, 1023, state);
        break;
    case KEY_ROUNDS:
        arguments->raw->rounds = number(argument, 1, RAW_ROUNDS_MAX, state);
        break;
    case KEY_SECONDS:
        arguments->seconds = number(argument, 1, 3600, state);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"driver", KEY_LIBRARY, "FILE", 0, "The driver's library (default libcuda.so.1)", 0},
        {"device", KEY_DEVICE, "N", 0, "Index of the device (default 0)", 0},
        {"rounds", KEY_ROUNDS, "N", 0, "Samples of each case (default 101)", 0},
        {"seconds", KEY_SECONDS, "SECONDS", 0, "Start no round after SECONDS (default 60)", 0},
        {0}};
    static const struct argp argp = {options, parse, NULL, "Measures the CUDA driver's own calls.",
                                     NULL,    NULL,  NULL};
    static struct raw raw = {.library = "libcuda.so.1", .rounds = 101};
    struct arguments arguments = {.raw = &raw, .seconds = 60};
    argp_err_exit_status = 2;
    if (argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return 2;
    raw.deadline_ns = raw_clock_ns() + arguments.seconds * 1000000000u;
    raw.facts = json_object();
    raw.results = json_array();
    raw.skipped = json_array();
    int status = raw_open(&raw);
    if (status != 0) {
        fprintf(stderr, "%s\n", raw.reason);
        return status;
    }
    raw_device(&raw);
    raw_memory(&raw);
    raw_virtual(&raw);
    raw_work(&raw);
    raw_close(&raw);
    json_t *all = json_pack("{s:b, s:o, s:o, s:o}", "simulated", (int)raw.simulated, "facts", raw.facts,
                            "results", raw.results, "skipped", raw.skipped);
    if (all == NULL || json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) != 0)
        return 1;
    putchar('\n');
    json_decref(all);
    return fflush(stdout) == 0 ? 0 : 1;
}
