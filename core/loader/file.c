/* SPDX-License-Identifier: MIT */
/*
 * Is this file one that may be loaded? Looks at the name, at who can change the file, and at what it is, in
 * an order in which nothing harmful can happen: attributes before opening (a device may act when it is
 * opened, a FIFO would wait), the ELF structure before anything is mapped, and last what the file says of
 * itself in its notes: without one of ours it is no provider, and none of its code runs.
 *
 * Who can change the file: owners other than root and ourselves are not trusted, nor are group and others.
 * That must hold for every directory on the real path too, because who may write to a directory may put
 * another file in place. The one exception is a root-owned sticky directory (/tmp): there only its owner can
 * rename or remove an entry, and each entry on the path is itself checked to be root's or ours.
 *
 * These checks stop accidents and other users; whoever has our uid can do as he likes anyway.
 */
#include "loader/loader.h"
#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Cuts long paths, so that the cause always fits in the error record. */
#define LABEL "%.256s: "

static moor_status fail_system(int errno_value, const char *path, const char *what)
{
    return moor__fail_errno(moor__status_of_errno(errno_value, MOOR_REFUSED), errno_value, LABEL "%s", path,
                            what);
}

/* libltdl reads a .la file as a recipe that names another file to load, and a static library is no provider.
 */
static moor_status check_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot != NULL && (strcmp(dot, ".la") == 0 || strcmp(dot, ".a") == 0))
        return moor__fail(MOOR_REFUSED, LABEL "a libtool or static archive (%s), not a shared library", path,
                          dot);
    return MOOR_OK;
}

static moor_status resolve(const char *path, char **ret_real_path)
{
    char *real_path = realpath(path, NULL);
    if (real_path != NULL) {
        *ret_real_path = real_path;
        return MOOR_OK;
    }
    int reason = errno;
    struct stat status;
    if (reason == ELOOP)
        return moor__fail_errno(MOOR_REFUSED, reason, LABEL "looping symbolic link", path);
    if (reason == ENOENT && lstat(path, &status) == 0 && S_ISLNK(status.st_mode))
        return moor__fail_errno(MOOR_REFUSED, reason, LABEL "dangling symbolic link", path);
    return fail_system(reason, path, "cannot be found");
}

static moor_status check_owner(const struct stat *status, const char *path)
{
    if (status->st_uid != 0 && status->st_uid != geteuid())
        return moor__fail(MOOR_REFUSED, LABEL "owned by user %u, neither root nor the caller", path,
                          (unsigned)status->st_uid);
    int shared_safely = S_ISDIR(status->st_mode) && (status->st_mode & S_ISVTX) != 0 && status->st_uid == 0;
    if ((status->st_mode & (S_IWGRP | S_IWOTH)) != 0 && !shared_safely)
        return moor__fail(MOOR_REFUSED, LABEL "%s%s may write to it (mode %04o)", path,
                          S_ISDIR(status->st_mode) ? "directory: " : "",
                          (status->st_mode & S_IWOTH) != 0 ? "everybody" : "its group",
                          (unsigned)status->st_mode & 07777);
    return MOOR_OK;
}

/* Every directory from the root down. real_path is put back as it was. */
static moor_status check_parents(char *real_path)
{
    moor_status outcome = MOOR_OK;
    for (char *slash = real_path; outcome == MOOR_OK && slash != NULL; slash = strchr(slash + 1, '/')) {
        char *end = slash == real_path ? slash + 1 : slash; /* the root keeps its slash */
        char kept = *end;
        *end = '\0';
        struct stat status;
        if (lstat(real_path, &status) != 0)
            outcome = fail_system(errno, real_path, "cannot be looked at");
        else if (!S_ISDIR(status.st_mode))
            outcome = moor__fail(MOOR_REFUSED, LABEL "changed while it was being checked", real_path);
        else
            outcome = check_owner(&status, real_path);
        *end = kept;
    }
    return outcome;
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
    return "a symbolic link"; /* put there after the path was resolved */
}

static moor_status check_attributes(const struct stat *status, const char *path)
{
    if (!S_ISREG(status->st_mode))
        return moor__fail(MOOR_REFUSED, LABEL "%s, not a regular file", path, kind_name(status->st_mode));
    return check_owner(status, path);
}

static struct moor__file_id id_of(const struct stat *status)
{
    return (struct moor__file_id){
        .device = status->st_dev,
        .inode = status->st_ino,
        .size_bytes = status->st_size,
        /* Compared, and no more: a time beyond 2262 may wrap. */
        .mtime_ns =
            (int64_t)((uint64_t)status->st_mtim.tv_sec * 1000000000u + (uint64_t)status->st_mtim.tv_nsec),
    };
}

/* Looks once by name, so that only a regular file is opened, and again at what was opened: that is what
 * counts. */
static moor_status check_content(const char *real_path, struct moor__file_id *ret_id)
{
    struct stat status;
    if (lstat(real_path, &status) != 0)
        return fail_system(errno, real_path, "cannot be looked at");
    moor_status outcome = check_attributes(&status, real_path);
    if (outcome != MOOR_OK)
        return outcome;

    int fd = open(real_path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return fail_system(errno, real_path, "cannot be opened");
    if (fstat(fd, &status) != 0)
        outcome = fail_system(errno, real_path, "cannot be looked at");
    else
        outcome = check_attributes(&status, real_path);
    struct moor__notes notes;
    if (outcome == MOOR_OK)
        outcome = moor__elf_read(fd, status.st_size, real_path, &notes);
    (void)close(fd); /* it was only read */
    if (outcome == MOOR_OK && moor__notes_check(&notes) != MOOR_OK)
        outcome = moor__fail_for(real_path);
    if (outcome == MOOR_OK) {
        *ret_id = id_of(&status);
        ret_id->notes = notes;
    }
    return outcome;
}

moor_status moor__file_check(const char *path, char **ret_real_path, struct moor__file_id *ret_id)
{
    if (path == NULL || path[0] != '/')
        return moor__fail(MOOR_INVALID, LABEL "not an absolute path", path == NULL ? "NULL" : path);
    if (strnlen(path, PATH_MAX) == PATH_MAX)
        return moor__fail(MOOR_REFUSED, "%.64s...: the path is longer than %d bytes", path, PATH_MAX - 1);
    moor_status outcome = check_name(path);
    if (outcome != MOOR_OK)
        return outcome;

    char *real_path = NULL;
    outcome = resolve(path, &real_path);
    if (outcome != MOOR_OK)
        return outcome;
    outcome = check_name(real_path);
    if (outcome == MOOR_OK)
        outcome = check_parents(real_path);
    if (outcome == MOOR_OK)
        outcome = check_content(real_path, ret_id);
    if (outcome == MOOR_OK)
        *ret_real_path = real_path;
    else
        free(real_path);
    return outcome;
}

moor_status moor__file_check_same(const char *real_path, const struct moor__file_id *id)
{
    struct stat status;
    if (lstat(real_path, &status) != 0)
        return fail_system(errno, real_path, "is gone since it was checked");
    struct moor__file_id now = id_of(&status);
    if (now.device != id->device || now.inode != id->inode || now.size_bytes != id->size_bytes ||
        now.mtime_ns != id->mtime_ns)
        return moor__fail(MOOR_REFUSED, LABEL "changed since it was checked", real_path);
    return MOOR_OK;
}
