/* SPDX-License-Identifier: MIT */
/*
 * Decides whether a file may be loaded. It checks the name, the users that can change the file, the kind of
 * file and its ELF structure, in an order that is always safe: attributes before opening (opening a device
 * may have effects, opening a FIFO would wait), the ELF structure before anything is mapped, and the notes
 * last. A file without a Moorage note is not a provider, and none of its code runs.
 *
 * Only root and the caller's own user may own the file, and neither its group nor others may write to it. The
 * same holds for every directory on the real path, because any user with write access to a directory can put
 * another file in place. The one exception is a sticky directory of root (/tmp): there only its owner can
 * rename or remove an entry, and each entry on the path is itself checked to belong to root or the caller.
 *
 * These checks stop accidents and other users. An attacker with the caller's user id is outside their reach.
 */
#include "loader/loader.h"
#include "util/error.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static moor_status fail_system(int errno_value, const char *path, const char *what)
{
    return moor__fail_errno(moor__status_of_errno(errno_value, MOOR_REFUSED), errno_value, MOOR__LABEL "%s",
                            path, what);
}

/* Refuses archives: libltdl reads a .la file as a recipe that names another file to load, and a static
 * library is not a provider. */
static moor_status check_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot && (strcmp(dot, ".la") == 0 || strcmp(dot, ".a") == 0))
        return moor__fail(MOOR_REFUSED, MOOR__LABEL "a libtool or static archive (%s), not a shared library",
                          path, dot);
    return MOOR_OK;
}

static moor_status resolve(const char *path, char **ret_real_path)
{
    struct stat info;
    *ret_real_path = realpath(path, NULL);
    if (*ret_real_path)
        return MOOR_OK;
    int reason = errno;
    if (reason == ELOOP)
        return moor__fail_errno(MOOR_REFUSED, reason, MOOR__LABEL "looping symbolic link", path);
    if (reason == ENOENT && lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        return moor__fail_errno(MOOR_REFUSED, reason, MOOR__LABEL "dangling symbolic link", path);
    return fail_system(reason, path, "cannot be found");
}

static moor_status check_owner(const struct stat *info, const char *path)
{
    if (info->st_uid != 0 && info->st_uid != geteuid())
        return moor__fail(MOOR_REFUSED, MOOR__LABEL "owned by user %u, neither root nor the caller", path,
                          (unsigned)info->st_uid);
    bool shared_safely = S_ISDIR(info->st_mode) && (info->st_mode & S_ISVTX) != 0 && info->st_uid == 0;
    if ((info->st_mode & (S_IWGRP | S_IWOTH)) != 0 && !shared_safely)
        return moor__fail(MOOR_REFUSED, MOOR__LABEL "%s%s may write to it (mode %04o)", path,
                          S_ISDIR(info->st_mode) ? "directory: " : "",
                          (info->st_mode & S_IWOTH) != 0 ? "every user" : "its group",
                          (unsigned)info->st_mode & 07777);
    return MOOR_OK;
}

/* Checks every directory from the root down. Cuts real_path at each slash and restores it. */
static moor_status check_parents(char *real_path)
{
    assert(real_path[0] == '/');
    moor_status status = MOOR_OK;
    for (char *slash = real_path; !status && slash; slash = strchr(slash + 1, '/')) {
        char *end = slash == real_path ? slash + 1 : slash; /* the root keeps its slash */
        char kept = *end;
        *end = '\0';
        struct stat info;
        if (lstat(real_path, &info) != 0)
            status = fail_system(errno, real_path, "cannot be examined");
        else if (!S_ISDIR(info.st_mode))
            status = moor__fail(MOOR_REFUSED, MOOR__LABEL "changed while it was being checked", real_path);
        else
            status = check_owner(&info, real_path);
        *end = kept;
    }
    return status;
}

static const char *kind_name(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a FIFO";
    if (S_ISSOCK(mode))
        return "a socket";
    if (S_ISCHR(mode) || S_ISBLK(mode))
        return "a device";
    return "a symbolic link";
}

static moor_status check_attributes(const struct stat *info, const char *path)
{
    if (!S_ISREG(info->st_mode))
        return moor__fail(MOOR_REFUSED, MOOR__LABEL "%s, not a regular file", path, kind_name(info->st_mode));
    return check_owner(info, path);
}

static struct moor__file_id id_of(const struct stat *info)
{
    return (struct moor__file_id){
        .device = info->st_dev,
        .inode = info->st_ino,
        .size_bytes = info->st_size,
        /* The time is only compared, so a time beyond the year 2262 may wrap. */
        .mtime_ns = (int64_t)((uint64_t)info->st_mtim.tv_sec * 1000000000u + (uint64_t)info->st_mtim.tv_nsec),
    };
}

/* Examines the file by name first, so that only a regular file is opened, and again through the descriptor.
 * The second examination decides. */
static moor_status check_content(const char *real_path, struct moor__file_id *ret_id)
{
    struct stat info;
    if (lstat(real_path, &info) != 0)
        return fail_system(errno, real_path, "cannot be examined");
    moor_status status = check_attributes(&info, real_path);
    if (status)
        return status;

    int fd = open(real_path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return fail_system(errno, real_path, "cannot be opened");
    if (fstat(fd, &info) != 0)
        status = fail_system(errno, real_path, "cannot be examined");
    else
        status = check_attributes(&info, real_path);
    struct moor__notes notes;
    if (!status && (moor__elf_check(fd, info.st_size, &notes) || moor__notes_check(&notes)))
        status = moor__fail_for(real_path);
    (void)close(fd); /* reading only: nothing to lose */
    if (!status) {
        *ret_id = id_of(&info);
        ret_id->notes = notes;
    }
    return status;
}

moor_status moor__file_check(const char *path, char **ret_real_path, struct moor__file_id *ret_id)
{
    if (!path || path[0] != '/')
        return moor__fail(MOOR_INVALID, MOOR__LABEL "not an absolute path", path ? path : "NULL");
    if (strnlen(path, PATH_MAX) == PATH_MAX)
        return moor__fail(MOOR_REFUSED, "%.64s...: the path is longer than %d bytes", path, PATH_MAX - 1);
    char *real_path = NULL;
    moor_status status = check_name(path);
    if (!status)
        status = resolve(path, &real_path);
    if (!status)
        status = check_name(real_path);
    if (!status)
        status = check_parents(real_path);
    if (!status)
        status = check_content(real_path, ret_id);
    if (!status)
        *ret_real_path = real_path;
    else
        free(real_path);
    return status;
}

moor_status moor__file_check_same(const char *real_path, const struct moor__file_id *id)
{
    struct stat info;
    if (lstat(real_path, &info) != 0)
        return fail_system(errno, real_path, "is gone since it was checked");
    struct moor__file_id now = id_of(&info);
    if (now.device != id->device || now.inode != id->inode || now.size_bytes != id->size_bytes ||
        now.mtime_ns != id->mtime_ns)
        return moor__fail(MOOR_REFUSED, MOOR__LABEL "changed since it was checked", real_path);
    return MOOR_OK;
}
