/* SPDX-License-Identifier: MIT */
/*
 * From a provider's name to its path. A short list of directories is asked for one file each, none of them is
 * read; whether the file may be loaded is for the load to say. In a process with raised privileges the
 * environment is somebody else's, and is not listened to.
 */
#include "loader/beside.h"
#include "loader/provider.h"

#include "util/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_VARIABLE "MOORAGE_PROVIDER_PATH"

/* ret_path: NULL if there is no such file. */
static moor_status look_in(const char *directory, int length, const char *name, char **ret_path)
{
    char *path = NULL;
    struct stat status;
    if (asprintf(&path, "%.*s/%s.so", length, directory, name) < 0)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a path");
    bool is_there = stat(path, &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
    if (!is_there) {
        free(path);
        path = NULL;
    }
    *ret_path = path;
    return MOOR_OK;
}

static moor_status look_in_each(struct moor_runtime *runtime, const char *directories, const char *name,
                                char **ret_path)
{
    moor_status status = MOOR_OK;
    for (const char *at = directories; *at && !*ret_path && !status;) {
        size_t length = strcspn(at, ":");
        if (at[0] == '/')
            status = look_in(at, (int)length, name, ret_path);
        else if (length > 0)
            moor__log(runtime, MOOR_ABI_LOG_WARNING, PATH_VARIABLE ": %.*s is not absolute, and is ignored",
                      (int)length, at);
        at += length;
        at += *at == ':';
    }
    return status;
}

/* What the host's user says; NULL if he says nothing, or is not to be listened to. */
static const char *searched_directories(struct moor_runtime *runtime)
{
    const char *directories = secure_getenv(PATH_VARIABLE);
    if (!directories && getenv(PATH_VARIABLE))
        moor__log(runtime, MOOR_ABI_LOG_WARNING,
                  PATH_VARIABLE " is ignored: this process has raised privileges");
    return directories;
}

moor_status moor_provider_find(struct moor_runtime *runtime, const char *name, char **ret_path)
{
    moor_status status = moor__enter(runtime);
    if (status)
        return moor__leave(status);
    if (!name || !ret_path)
        return moor__leave(moor__fail(MOOR_INVALID, "name and ret_path must not be NULL"));
    if (name[0] == '\0' || strchr(name, '/'))
        return moor__leave(moor__fail(MOOR_INVALID, "'%.128s' is not the name of a provider", name));
    const char *directories = searched_directories(runtime);
    char *installed = NULL;
    char *path = NULL;
    if (directories)
        status = look_in_each(runtime, directories, name, &path);
    if (!status && !path)
        status = moor__path_beside("moorage", &installed);
    if (!status && !path)
        status = look_in(installed, (int)strlen(installed), name, &path);
    if (!status && !path)
        status =
            directories
                ? moor__fail(MOOR_REFUSED, "%.128s.so is neither in %.128s (" PATH_VARIABLE ") nor in %.128s",
                             name, directories, installed)
                : moor__fail(MOOR_REFUSED, "%.128s.so is not in %.128s, and " PATH_VARIABLE " is not set",
                             name, installed);
    free(installed);
    if (!status)
        *ret_path = path;
    return moor__leave(status);
}
