/* SPDX-License-Identifier: MIT */
/*
 * The dynamic linker knows the path under which this code was loaded. That path is empty for the program
 * itself, and a relative path misleads after a change of the working directory. In both cases the kernel's
 * list of mappings has the real path.
 */
#include "loader/loader.h"
#include "util/error.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char here; /* an address in this file's object */

/* Copies the path from the line of /proc/self/maps that covers `here`. Returns 0 or an errno value. */
static int find_mapping(char path[PATH_MAX])
{
    char line[PATH_MAX + 128]; /* addresses, rights, offset, device, inode, path */
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return errno;
    int reason = ENOENT;
    while (reason && fgets(line, sizeof line, maps)) {
        uintptr_t start = 0, end = 0;
        int path_at = 0;
        (void)sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &start, &end, &path_at);
        if ((uintptr_t)&here < start || (uintptr_t)&here >= end)
            continue;
        (void)snprintf(path, PATH_MAX, "%.*s", (int)strcspn(line + path_at, "\n"), line + path_at);
        reason = 0;
    }
    (void)fclose(maps); /* reading only: nothing to lose */
    return reason;
}

/* Finds the real path of the file that holds this code. Returns 0 or an errno value. */
static int find_own(char path[PATH_MAX])
{
    Dl_info info;
    void *extra = NULL;
    if (dladdr1(&here, &info, &extra, RTLD_DL_LINKMAP) == 0)
        return ENOENT;
    const struct link_map *map = extra;
    if (map->l_name[0] != '/')
        return find_mapping(path);
    return realpath(map->l_name, path) ? 0 : errno;
}

moor_status moor__path_beside(const char *name, char **ret_path)
{
    char own[PATH_MAX];
    int reason = find_own(own);
    if (reason)
        return moor__fail_errno(moor__status_of_errno(reason, MOOR_REFUSED), reason,
                                "the file of this library cannot be found");
    assert(own[0] == '/');
    size_t folder = (size_t)(strrchr(own, '/') - own);
    if (asprintf(ret_path, "%.*s/%s", (int)folder, own, name) < 0)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a path");
    return MOOR_OK;
}
