/* SPDX-License-Identifier: MIT */
/* Counts the traces that a load may leave in the process. */
#ifndef MOOR_TESTS_LOADER_PROCESS_H
#define MOOR_TESTS_LOADER_PROCESS_H

#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

static inline unsigned count_entries(const char *directory)
{
    unsigned count = 0;
    DIR *entries = opendir(directory);
    place_require(entries != NULL, directory);
    while (readdir(entries) != NULL)
        count++;
    (void)closedir(entries);
    return count;
}

static inline unsigned count_open_files(void)
{
    return count_entries("/proc/self/fd");
}

/* Counts the maps with a text in their line; "": all maps. */
static inline unsigned count_maps(const char *text)
{
    char line[PATH_MAX + 128];
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    place_require(maps != NULL, "/proc/self/maps");
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, text) != NULL;
    (void)fclose(maps);
    return count;
}

static inline bool has_no_child(void)
{
    return waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD;
}

#endif
