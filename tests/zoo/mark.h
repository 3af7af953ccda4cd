/* SPDX-License-Identifier: MIT */
/* A constructor that creates the file named by ZOO_MARK. The file proves that code of this animal ran. */
#ifndef MOOR_TESTS_ZOO_MARK_H
#define MOOR_TESTS_ZOO_MARK_H

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void zoo_leave_mark(void)
{
    const char *path = getenv("ZOO_MARK");
    if (path != NULL)
        (void)close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

#endif
