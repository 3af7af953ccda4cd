/* SPDX-License-Identifier: MIT */
/* A folder of a test's own, with copies of providers in it. */
#ifndef MOOR_TESTS_LOADER_PLACE_H
#define MOOR_TESTS_LOADER_PLACE_H

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/moorage-loader-XXXXXX";

/* What an environment variable of the suite says. */
static inline const char *variable(const char *name)
{
    const char *value = getenv(name);
    cr_assert(value != NULL, "%s is not set", name);
    return value;
}

/* The real path of a file that a variable names, or of a module in the folder that it names. */
static inline const char *path_of(const char *name, const char *module)
{
    static char path[PATH_MAX];
    char named[PATH_MAX];
    (void)snprintf(named, sizeof named, "%s%s%s%s", variable(name), module ? "/" : "", module ? module : "",
                   module ? ".so" : "");
    cr_assert(realpath(named, path) != NULL, "no %s", named);
    return path;
}

static inline const char *mock_path(void)
{
    return path_of("MOOR_MOCK_PROVIDER", NULL);
}

static inline const char *zoo_path(const char *animal)
{
    return path_of("MOOR_ZOO_DIR", animal);
}

static inline void make_folder(void)
{
    cr_assert(mkdtemp(folder) != NULL);
}

static inline void remove_folder(void)
{
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert(system(command) == 0);
}

static inline void path_in_folder(char *ret_path, size_t capacity, const char *name)
{
    (void)snprintf(ret_path, capacity, "%s/%s", folder, name);
}

static inline void copy_file(const char *from, const char *to)
{
    char command[2 * PATH_MAX + 16];
    (void)snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    cr_assert(system(command) == 0);
}

#endif
