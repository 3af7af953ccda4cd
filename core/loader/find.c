/* SPDX-License-Identifier: MIT */
/*
 * Finds a provider's path by its name. The search checks for one file in each of a few directories and reads
 * no directory. The load, not this search, decides whether the file is acceptable. A process with raised
 * privileges ignores the environment, because another user may have set it.
 */
#include "loader/provider.h"

#include "util/error.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_VARIABLE "MOORAGE_PROVIDER_PATH"

/* Sets *ret_path ([out, owned]) to the provider's path in the directory, or to NULL if no file is there. */
static moor_status find_in(const char *directory, int length, const char *name, char **ret_path)
{
    char *path = NULL;
    struct stat info;
    if (asprintf(&path, "%.*s/%s.so", length, directory, name) < 0)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a path");
    bool is_absent = stat(path, &info) != 0 && (errno == ENOENT || errno == ENOTDIR);
    if (is_absent)
        free(path);
    *ret_path = is_absent ? NULL : path;
    return MOOR_OK;
}

static moor_status find_in_each(struct moor_runtime *runtime, const char *directories, const char *name,
                                char **ret_path)
{
    moor_status status = MOOR_OK;
    for (const char *at = directories; *at && !*ret_path && !status;) {
        size_t length = strcspn(at, ":");
        if (at[0] == '/')
            status = find_in(at, (int)length, name, ret_path);
        else if (length > 0)
            moor__log(runtime, MOOR_ABI_LOG_WARNING, PATH_VARIABLE ": %.*s is not absolute and is ignored",
                      (int)length, at);
        at += length;
        at += *at == ':';
    }
    return status;
}

static moor_status find_provider(struct moor_runtime *runtime, const char *name, char **ret_path)
{
    const char *directories = secure_getenv(PATH_VARIABLE);
    if (!directories && getenv(PATH_VARIABLE))
        moor__log(runtime, MOOR_ABI_LOG_WARNING,
                  PATH_VARIABLE " is ignored: this process has raised privileges");
    char *installed = NULL, *path = NULL;
    moor_status status = directories ? find_in_each(runtime, directories, name, &path) : MOOR_OK;
    if (!status && !path)
        status = moor__path_beside("moorage", &installed);
    if (!status && !path)
        status = find_in(installed, (int)strlen(installed), name, &path);
    if (!status && !path)
        status =
            directories
                ? moor__fail(MOOR_REFUSED, "%.128s.so is neither in %.128s (" PATH_VARIABLE ") nor in %.128s",
                             name, directories, installed)
                : moor__fail(MOOR_REFUSED, "%.128s.so is not in %.128s, and " PATH_VARIABLE " is not set",
                             name, installed);
    free(installed);
    assert(!path || !status);
    if (!status)
        *ret_path = path;
    return status;
}

moor_status moor_provider_find(struct moor_runtime *runtime, const char *name, char **ret_path)
{
    moor_status status = moor__enter(runtime);
    if (!status && (!name || !ret_path))
        status = moor__fail(MOOR_INVALID, "name and ret_path must not be NULL");
    if (!status && (name[0] == '\0' || strchr(name, '/')))
        status = moor__fail(MOOR_INVALID, "'%.128s' is not a provider's name", name);
    return moor__leave(status ? status : find_provider(runtime, name, ret_path));
}
