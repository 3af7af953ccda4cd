/* SPDX-License-Identifier: MIT */
/* The checks before a file is read: its path, its kind, and the users that could have changed it. */
#include "expect_internal.h"
#include "loader/loader.h"
#include "place.h"
#include "privilege.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

static void enter_folder(void)
{
    (void)umask(022);
    make_folder();
    cr_assert(chdir(test_folder) == 0);
}

TestSuite(file, .init = enter_folder, .fini = remove_folder);

static char *file_path(const char *name)
{
    static char path[PATH_MAX];
    path_in_folder(path, sizeof path, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    (void)close(fd);
}

static void copy_sound(const char *name)
{
    copy_file(zoo_path("good"), name);
    cr_assert(chmod(name, 0755) == 0);
}

static void expect_path(const char *path, moor_status expected, const char *message)
{
    char untouched;
    char *real_path = &untouched;
    struct moor__file_id id = {.size_bytes = -7};
    expect_step(moor__file_check(path, &real_path, &id), expected, message, path == NULL ? "NULL" : path);
    if (expected == MOOR_OK) {
        free(real_path);
        return;
    }
    cr_assert(real_path == &untouched && id.size_bytes == -7, "%s: output written on failure", path);
}

static void expect_refused(const char *name, const char *message)
{
    expect_path(file_path(name), MOOR_REFUSED, message);
}

Test(file, sound_file_is_accepted)
{
    copy_sound("good.so");
    cr_assert(symlink("good.so", "link.so") == 0);
    char *real_path;
    struct moor__file_id id;
    expect_step(moor__file_check(file_path("./link.so"), &real_path, &id), MOOR_OK, "", "by a link");
    cr_assert_str_eq(real_path, file_path("good.so"));
    struct stat status;
    cr_assert(stat("good.so", &status) == 0);
    cr_assert(id.device == status.st_dev && id.inode == status.st_ino && id.size_bytes == status.st_size);
    cr_assert(id.mtime_ns == (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec);
    free(real_path);
}

Test(file, paths)
{
    expect_path(NULL, MOOR_INVALID, "not an absolute path");
    expect_path("", MOOR_INVALID, "not an absolute path");
    expect_path("good.so", MOOR_INVALID, "good.so: not an absolute path");
    expect_path("./good.so", MOOR_INVALID, "./good.so: not an absolute path");
    char *path = malloc(2 * PATH_MAX);
    cr_assert(path != NULL);
    memset(path, '/', 2 * PATH_MAX);
    path[PATH_MAX] = '\0';
    expect_path(path, MOOR_REFUSED, "the path is longer than 4095 bytes");
    path[PATH_MAX - 1] = '\0'; /* the longest path that is allowed; all slashes name the root */
    expect_path(path, MOOR_REFUSED, "a directory, not a regular file");
    free(path);
}

Test(file, archives)
{
    expect_refused("x.la", "a libtool or static archive (.la), not a shared library");
    expect_refused("x.a", "a libtool or static archive (.a), not a shared library");
    write_file("recipe.la", "dlname='good.so'\n");
    cr_assert(symlink("recipe.la", "innocent.so") == 0);
    expect_refused("innocent.so", "recipe.la: a libtool or static archive (.la), not a shared library");
}

Test(file, missing_files)
{
    expect_refused("missing.so", "missing.so: cannot be found: No such file or directory");
    write_file("plain", "");
    expect_refused("plain/x.so", "cannot be found: Not a directory");
    cr_assert(symlink("nowhere.so", "dangling.so") == 0);
    expect_refused("dangling.so", "dangling.so: dangling symbolic link");
    cr_assert(symlink("a.so", "b.so") == 0 && symlink("b.so", "a.so") == 0);
    expect_refused("a.so", "a.so: looping symbolic link");
}

Test(file, other_kinds_of_file, .timeout = 10)
{
    cr_assert(mkdir("folder.so", 0755) == 0);
    expect_refused("folder.so", "a directory, not a regular file");
    cr_assert(mkfifo("fifo.so", 0644) == 0);
    expect_refused("fifo.so", "a FIFO, not a regular file");
    expect_path("/dev/null", MOOR_REFUSED, "a device, not a regular file");
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket.so"};
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    expect_refused("socket.so", "a socket, not a regular file");
    (void)close(fd);
}

Test(file, regular_files_that_are_no_library)
{
    write_file("empty.so", "");
    expect_refused("empty.so", "empty.so: empty");
    write_file("text.so", "INPUT ( libc.so.6 )\n");
    expect_refused("text.so", "text.so: not an ELF file");
    expect_path("/proc/self/exe", MOOR_REFUSED, "an executable (position-independent), not a shared library");
}

Test(file, others_may_write_to_the_file)
{
    copy_sound("good.so");
    cr_assert(chmod("good.so", 0775) == 0);
    expect_refused("good.so", "good.so: its group may write to it (mode 0775)");
    cr_assert(chmod("good.so", 0757) == 0);
    expect_refused("good.so", "good.so: every user may write to it (mode 0757)");
    cr_assert(chmod("good.so", 01757) == 0); /* the sticky bit does not protect a file */
    expect_refused("good.so", "good.so: every user may write to it (mode 1757)");
    cr_assert(chmod("good.so", 0444) == 0);
    expect_path(file_path("good.so"), MOOR_OK, "");
}

Test(file, others_may_write_to_a_parent)
{
    cr_assert(mkdir("outer", 0755) == 0 && mkdir("outer/inner", 0755) == 0);
    copy_sound("outer/inner/good.so");
    expect_path(file_path("outer/inner/good.so"), MOOR_OK, "");
    cr_assert(chmod("outer", 0775) == 0);
    expect_refused("outer/inner/good.so", "outer: directory: its group may write to it (mode 0775)");
    cr_assert(chmod("outer", 0777) == 0);
    expect_refused("outer/inner/good.so", "outer: directory: every user may write to it (mode 0777)");
    cr_assert(chmod("outer", 0755) == 0 && chmod("outer/inner", 0722) == 0);
    expect_refused("outer/inner/good.so", "outer/inner: directory: every user may write to it (mode 0722)");
}

/* In a sticky directory only its owner can replace another user's file. The check accepts root as that owner,
 * and no other user. */
Test(file, sticky_parents)
{
    if (geteuid() != 0)
        cr_skip_test("only root may change the owner of a directory");
    cr_assert(mkdir("shared", 0755) == 0);
    copy_sound("shared/good.so");
    cr_assert(chmod("shared", 01777) == 0);
    expect_path(file_path("shared/good.so"), MOOR_OK, "");
    cr_assert(chown("shared", NOBODY, NOBODY) == 0);
    expect_refused("shared/good.so", "shared: owned by user 65534, neither root nor the caller");
    cr_assert(seteuid(NOBODY) == 0);
    expect_refused("shared/good.so", "shared: directory: every user may write to it (mode 1777)");
    cr_assert(seteuid(0) == 0);
}

Test(file, owners)
{
    if (geteuid() != 0)
        cr_skip_test("only root may change the owner of a file");
    copy_sound("good.so");
    cr_assert(chown("good.so", NOBODY, NOBODY) == 0);
    expect_refused("good.so", "good.so: owned by user 65534, neither root nor the caller");
    cr_assert(seteuid(NOBODY) == 0);
    expect_path(file_path("good.so"), MOOR_OK, ""); /* the caller's file in root's directories */
    cr_assert(seteuid(0) == 0 && chown("good.so", 0, 0) == 0 && seteuid(NOBODY) == 0);
    expect_path(file_path("good.so"), MOOR_OK, ""); /* root's file */
    cr_assert(seteuid(0) == 0 && chown(test_folder, NOBODY - 1, 0) == 0 && seteuid(NOBODY) == 0);
    expect_refused("good.so", "owned by user 65533, neither root nor the caller");
    cr_assert(seteuid(0) == 0);
}

Test(file, unreadable)
{
    copy_sound("good.so");
    cr_assert(chmod("good.so", 0300) == 0);
    if (!obey_file_modes())
        cr_skip_test("root may not drop its privileges here");
    expect_refused("good.so", "good.so: cannot be opened: Permission denied");
}

/* The error record holds the cause even if the path alone would fill it. */
Test(file, long_path_leaves_room_for_the_cause)
{
    char name[256];
    char path[PATH_MAX];
    memset(name, 'n', sizeof name);
    name[255] = '\0';
    cr_assert(mkdir(name, 0755) == 0);
    (void)snprintf(path, sizeof path, "%s/%s/%s", test_folder, name, name);
    write_file(path, "text");
    expect_path(path, MOOR_REFUSED, ": not an ELF file");
}

Test(file, same_file)
{
    copy_sound("good.so");
    char *real_path;
    struct moor__file_id id;
    expect_step(moor__file_check(file_path("good.so"), &real_path, &id), MOOR_OK, "", "good.so");
    expect_step(moor__file_check_same(real_path, &id), MOOR_OK, "", "unchanged");

    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1, .tv_nsec = 1}};
    cr_assert(utimensat(AT_FDCWD, "good.so", times, 0) == 0);
    expect_step(moor__file_check_same(real_path, &id), MOOR_REFUSED, "changed since it was checked",
                "touched");
    free(real_path);

    expect_step(moor__file_check(file_path("good.so"), &real_path, &id), MOOR_OK, "", "good.so");
    copy_sound("other.so");
    cr_assert(utimensat(AT_FDCWD, "other.so", times, 0) == 0 && rename("other.so", "good.so") == 0);
    expect_step(moor__file_check_same(real_path, &id), MOOR_REFUSED, "changed since it was checked",
                "replaced");
    cr_assert(unlink("good.so") == 0);
    expect_step(moor__file_check_same(real_path, &id), MOOR_REFUSED, "is gone since it was checked",
                "removed");
    free(real_path);
}
