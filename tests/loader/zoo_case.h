/* SPDX-License-Identifier: MIT */
/*
 * One case of the zoo: a file, what comes of loading it, and that it leaves nothing behind. Each case runs in
 * a process of its own, under an alarm, with an empty folder as its working directory.
 */
#ifndef MOOR_TESTS_LOADER_ZOO_CASE_H
#define MOOR_TESTS_LOADER_ZOO_CASE_H

#include <moorage/moorage.h>
#include <stddef.h>

/* No code of the file may run: it is never mapped, by a probe neither. */
#define ZOO_UNTOUCHED (1u << 0)
/* Its constructor leaves the mark. */
#define ZOO_MARKS (1u << 1)
/* It is tried in a process of its own (moor_provider_probe). */
#define ZOO_PROBED (1u << 2)
/* It does not come to an end: the deadline is short. */
#define ZOO_HANGS (1u << 3)
/* Each attempt takes long, or leaves something by its nature: few are made. */
#define ZOO_SLOW (1u << 4)
/* What is said names the provider or nothing, not the file. */
#define ZOO_NAMELESS (1u << 5)

struct zoo_case {
    const char *name;
    const char *(*place)(
        void); /* puts the file in place and returns its path; NULL: it is name.so of the zoo */
    moor_status status;
    const char *message; /* must be in the error's text; where the status is OK, in the log; NULL: nothing */
    unsigned traits;
};

/* What LOADER.md calls a class of cases. */
struct zoo_section {
    const char *name;
    const struct zoo_case *cases;
    size_t count;
    unsigned traits; /* of all its cases */
};

/* Runs all, and prints one TAP line for each. Returns the exit status of the program. only: NULL, or the name
 * of the one case to run. */
int zoo_run(const struct zoo_section *sections, size_t count, const char *only);

/* Ends the case as failed, with a reason. */
_Noreturn void zoo_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the case as skipped: it cannot be tried here. */
_Noreturn void zoo_skip(const char *reason);
void zoo_require(int condition, const char *what);

#endif
