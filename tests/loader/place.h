/* SPDX-License-Identifier: MIT */
/* The files of a loader test: the built providers, and a folder of the test's own. Any failure here is a
 * fault of the test and aborts it. */
#ifndef MOOR_TESTS_LOADER_PLACE_H
#define MOOR_TESTS_LOADER_PLACE_H

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char test_folder[] = "/tmp/moorage-loader-XXXXXX";

static inline void place_require(int condition, const char *action)
{
    if (condition)
        return;
    perror(action);
    abort();
}

/* Returns the value of an environment variable that the build sets for the suite. */
static inline const char *variable(const char *name)
{
    const char *value = getenv(name);
    place_require(value != NULL, name);
    return value;
}

/* Returns the real path of the file that a variable names; with a module, of NAME.so in the named folder.
 * Static: valid until the next call. */
static inline const char *path_of(const char *name, const char *module)
{
    static char path[PATH_MAX];
    char named[PATH_MAX];
    (void)snprintf(named, sizeof named, "%s%s%s%s", variable(name), module ? "/" : "", module ? module : "",
                   module ? ".so" : "");
    place_require(realpath(named, path) != NULL, named);
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
    place_require(mkdtemp(test_folder) != NULL && chmod(test_folder, 0755) == 0, "mkdtemp");
}

static inline void remove_folder(void)
{
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", test_folder);
    place_require(system(command) == 0, command);
}

static inline void path_in_folder(char *ret_path, size_t capacity, const char *name)
{
    (void)snprintf(ret_path, capacity, "%s/%s", test_folder, name);
}

static inline void copy_file(const char *from, const char *to)
{
    char command[2 * PATH_MAX + 16];
    (void)snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    place_require(system(command) == 0, command);
}

#endif
