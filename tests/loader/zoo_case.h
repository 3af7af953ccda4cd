/* SPDX-License-Identifier: MIT */
/*
 * A case of the zoo: a file, and the expected result of its load. No load may leave a trace in the process.
 * Each case runs in a process of its own, under an alarm, with an empty folder as its working directory.
 */
#ifndef MOOR_TESTS_LOADER_ZOO_CASE_H
#define MOOR_TESTS_LOADER_ZOO_CASE_H

#include <moorage/moorage.h>
#include <stddef.h>

/* No code of the file may run. Neither a load nor a probe maps the file. */
#define ZOO_UNTOUCHED (1u << 0)
/* The constructor of the file leaves the mark. */
#define ZOO_MARKS (1u << 1)
/* The case probes the file (moor_provider_probe) instead of loading it. */
#define ZOO_PROBED (1u << 2)
/* The load hangs, so its deadline is short. */
#define ZOO_HANGS (1u << 3)
/* Each load takes long, so the case makes only two. */
#define ZOO_SLOW (1u << 4)
/* The text need not name the file. */
#define ZOO_NAMELESS (1u << 5)

struct zoo_case {
    const char *name;
    /* Makes the file and returns its path. NULL: the file is NAME.so of the zoo. */
    const char *(*place)(void);
    moor_status status;
    const char *message; /* part of the error text, or of the log if the status is OK; NULL: any text */
    unsigned traits;
};

/* A class of cases. */
struct zoo_section {
    const char *name;
    const struct zoo_case *cases;
    size_t count;
    unsigned traits; /* traits of all cases */
};

/* Runs all cases and prints a TAP line for each. Returns the exit status of the program. only: the name of
 * the one case to run; NULL: all. */
int zoo_run(const struct zoo_section *sections, size_t count, const char *only);

/* Ends the case as failed. */
_Noreturn void zoo_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the case as skipped, because it cannot run here. */
_Noreturn void zoo_skip(const char *reason);
/* Fails the case with strerror(errno) unless the condition holds. */
void zoo_require(int condition, const char *action);

#endif
