/* SPDX-License-Identifier: MIT */
/*
 * The limits of control groups. A group's limit holds for all groups below it, so init walks from the
 * process's own group up to the root once, and keeps the files open: a reading is then a few preads. Both
 * versions of control groups are read, because either one may have the memory controller.
 *
 * Under a limit, clean file cache counts as available, because the kernel drops it before it kills. Dirty
 * file cache does not.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <moorage/kit/limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES 8192u
#define PATH_BYTES 4096u

/* The mount of a hierarchy, and the process's group in it. */
struct hierarchy {
    char mount[PATH_BYTES]; /* "": not mounted */
    char root[PATH_BYTES];  /* the group that the mount shows */
    char group[PATH_BYTES]; /* the process's group, from the hierarchy's root */
};

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int read_text(int file, char text[TEXT_BYTES])
{
    ssize_t length;
    do
        length = pread(file, text, TEXT_BYTES - 1, 0);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        return errno;
    text[length] = '\0';
    return 0;
}

/* Returns the number after `key` at the start of a line; 0: no such line. */
static uint64_t find_number(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && (line[length] == ' ' || line[length] == ':'))
            return strtoull(line + length + 1, NULL, 10);
    }
    return 0;
}

/* Reads a file that is one number. UINT64_MAX, no limit: "max", or the file cannot be read. */
static uint64_t read_number(int file)
{
    char text[TEXT_BYTES];
    if (file < 0 || read_text(file, text) != 0)
        return UINT64_MAX;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    return end == text || errno != 0 ? UINT64_MAX : number;
}

static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(list, word); at; at = strstr(at + 1, word)) {
        bool starts = at == list || at[-1] == ',';
        if (starts && (at[length] == '\0' || at[length] == ',' || at[length] == '\n'))
            return true;
    }
    return false;
}

/* mountinfo: "id parent major:minor root mount options [tags] - type source superoptions". */
static void find_mounts(FILE *mountinfo, struct hierarchy *v1, struct hierarchy *v2)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, mountinfo) >= 0) {
        char *tail = strstr(line, " - ");
        char root[PATH_BYTES];
        char mount[PATH_BYTES];
        char type[64];
        char options[PATH_BYTES];
        if (!tail || sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) != 2 ||
            sscanf(tail + 3, "%63s %*s %4095s", type, options) != 2)
            continue;
        struct hierarchy *found = NULL;
        if (strcmp(type, "cgroup") == 0 && has_word(options, "memory"))
            found = v1;
        else if (strcmp(type, "cgroup2") == 0)
            found = v2;
        if (!found || found->mount[0])
            continue;
        memcpy(found->mount, mount, sizeof mount);
        memcpy(found->root, root, sizeof root);
    }
    free(line);
}

/* /proc/self/cgroup: "id:controllers:path"; version 2 is "0::path". */
static void find_groups(FILE *cgroup, struct hierarchy *v1, struct hierarchy *v2)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, cgroup) >= 0) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        struct hierarchy *found = NULL;
        if (strcmp(line, "0:") == 0)
            found = v2;
        else if (has_word(controllers + 1, "memory"))
            found = v1;
        if (found && strlen(path) < sizeof found->group)
            strcpy(found->group, path);
    }
    free(line);
}

static int open_in(const char *folder, const char *name)
{
    char path[2 * PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

static void close_level(const struct moor_kit_level *level)
{
    const int files[] = {level->limit, level->high, level->usage, level->stat};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i] >= 0)
            (void)close(files[i]); /* read only: nothing is lost */
    }
}

static void open_level(struct moor_kit_limits *limits, const char *folder, bool v2)
{
    assert(limits->level_count < MOOR_KIT_LEVELS_MAX);
    struct moor_kit_level level = {
        .limit = open_in(folder, v2 ? "memory.max" : "memory.limit_in_bytes"),
        .high = v2 ? open_in(folder, "memory.high") : -1,
        .usage = open_in(folder, v2 ? "memory.current" : "memory.usage_in_bytes"),
        .stat = open_in(folder, "memory.stat"),
    };
    if (level.limit < 0 || level.usage < 0)
        close_level(&level); /* the root group, or no memory controller here */
    else
        limits->levels[limits->level_count++] = level;
}

/* Opens the process's group and every group above it that the mount shows. */
static void open_levels(struct moor_kit_limits *limits, const char *root, const struct hierarchy *hierarchy,
                        bool v2)
{
    if (!hierarchy->mount[0])
        return;
    /* A mount may show only a part of the hierarchy (containers): its root is then a prefix of the process's
     * group. A group outside that part ("/../x") cannot be seen, and the top of the mount is the nearest
     * visible group. */
    const char *below = hierarchy->group;
    size_t shown = strcmp(hierarchy->root, "/") == 0 ? 0 : strlen(hierarchy->root);
    if (strncmp(below, hierarchy->root, shown) == 0 && (below[shown] == '/' || below[shown] == '\0'))
        below += shown;
    else
        below = "";
    if (strncmp(below, "/..", 3) == 0)
        below = "";

    char folder[3 * PATH_BYTES];
    size_t top = (size_t)snprintf(folder, sizeof folder, "%s%s", root, hierarchy->mount);
    if (top + strlen(below) >= sizeof folder)
        return;
    strcpy(folder + top, below);
    while (limits->level_count < MOOR_KIT_LEVELS_MAX) {
        open_level(limits, folder, v2);
        char *slash = strrchr(folder + top, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
}

int moor_kit_limits_open(struct moor_kit_limits *limits, const char *root)
{
    *limits = (struct moor_kit_limits){.meminfo = -1};
    char folder[PATH_BYTES];
    if ((size_t)snprintf(folder, sizeof folder, "%s/proc", root) >= sizeof folder)
        return ENAMETOOLONG;
    limits->meminfo = open_in(folder, "meminfo");
    if (limits->meminfo < 0)
        return errno;

    struct hierarchy *both = calloc(2, sizeof *both);
    if (!both) {
        moor_kit_limits_close(limits);
        return ENOMEM;
    }
    /* Without these two files the process has no control groups. */
    FILE *files[2] = {NULL, NULL};
    static const char *const names[2] = {"self/mountinfo", "self/cgroup"};
    static void (*const find[2])(FILE *, struct hierarchy *, struct hierarchy *) = {find_mounts, find_groups};
    for (int i = 0; i < 2; i++) {
        int file = open_in(folder, names[i]);
        files[i] = file >= 0 ? fdopen(file, "r") : NULL;
        if (files[i]) {
            find[i](files[i], &both[0], &both[1]);
            (void)fclose(files[i]); /* read only: nothing is lost */
        } else if (file >= 0) {
            (void)close(file);
        }
    }
    open_levels(limits, root, &both[0], false);
    open_levels(limits, root, &both[1], true);
    free(both);
    return 0;
}

void moor_kit_limits_close(struct moor_kit_limits *limits)
{
    for (uint32_t i = 0; i < limits->level_count; i++)
        close_level(&limits->levels[i]);
    limits->level_count = 0;
    if (limits->meminfo >= 0)
        (void)close(limits->meminfo); /* read only: nothing is lost */
    limits->meminfo = -1;
}

/* Returns the clean file cache, with that of the groups below: memory that the kernel reclaims at no cost. */
static uint64_t read_reclaimable(const struct moor_kit_level *level)
{
    char text[TEXT_BYTES];
    if (level->stat < 0 || read_text(level->stat, text) != 0)
        return 0;
    bool v2 = !strstr(text, "\ntotal_inactive_file ");
    static const char *const names[2][5] = {
        {"total_inactive_file", "total_active_file", "total_dirty", "total_writeback", "slab_reclaimable"},
        {"inactive_file", "active_file", "file_dirty", "file_writeback", "slab_reclaimable"},
    };
    const char *const *name = names[v2];
    uint64_t clean = find_number(text, name[0]) + find_number(text, name[1]);
    uint64_t dirty = find_number(text, name[2]) + find_number(text, name[3]);
    return (clean > dirty ? clean - dirty : 0) + find_number(text, name[4]) / 2;
}

int moor_kit_limits_read(const struct moor_kit_limits *limits, struct moor_kit_reading *ret_reading)
{
    char text[TEXT_BYTES];
    int code = read_text(limits->meminfo, text);
    if (code != 0)
        return code;
    uint64_t machine = find_number(text, "MemTotal") * 1024;
    if (machine == 0)
        return EBADMSG;
    struct moor_kit_reading reading = {machine, min64(machine, find_number(text, "MemAvailable") * 1024)};
    for (uint32_t i = 0; i < limits->level_count; i++) {
        const struct moor_kit_level *level = &limits->levels[i];
        /* Beyond `high` the kernel kills nothing, but throttles the group until it stands still: a limit in
         * effect. */
        uint64_t limit = min64(read_number(level->limit), read_number(level->high));
        if (limit >= machine)
            continue;
        uint64_t usage = read_number(level->usage);
        uint64_t taken = usage - min64(usage, read_reclaimable(level));
        reading.total_bytes = min64(reading.total_bytes, limit);
        reading.available_bytes = min64(reading.available_bytes, limit - min64(limit, taken));
    }
    *ret_reading = reading;
    return 0;
}
