/* SPDX-License-Identifier: MIT */
/* The dynamic linker knows where this code came from; the program itself has no name there, but the system
 * knows it. */
#include "loader/beside.h"

#include "util/error.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char here; /* an address in this file's object */

moor_status moor__path_beside(const char *name, char **ret_path)
{
    Dl_info info;
    void *extra = NULL;
    char own[PATH_MAX];
    if (dladdr1(&here, &info, &extra, RTLD_DL_LINKMAP) == 0)
        return moor__fail(MOOR_REFUSED, "the dynamic linker does not know this library");
    const struct link_map *map = extra;
    const char *file = map->l_name[0] ? map->l_name : "/proc/self/exe";
    if (!realpath(file, own))
        return moor__fail_errno(MOOR_REFUSED, errno, "%.256s, this library, cannot be found", file);
    strrchr(own, '/')[1] = '\0'; /* a real path has one */
    if (asprintf(ret_path, "%s%s", own, name) < 0)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a path");
    return MOOR_OK;
}
