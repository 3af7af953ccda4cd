/* SPDX-License-Identifier: MIT */
/* A constructor that leaves a mark, the file that ZOO_MARK names: proof that code of this animal has run. */
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
