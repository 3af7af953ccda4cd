/* SPDX-License-Identifier: MIT */
/* One Criterion suite over an open CPU provider, and calls that must succeed. */
#ifndef MOORAGE_TESTS_CPU_SUITE_H
#define MOORAGE_TESTS_CPU_SUITE_H

#include "fixture.h"
#include <criterion/criterion.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fixture f;

static inline void open_default(void)
{
    cr_assert_eq(fixture_open(&f, NULL, NULL), MOOR_OK, "%s", f.error.text);
}

static inline void close_default(void)
{
    cr_assert_eq(fixture_close(&f), MOOR_OK, "%s", f.error.text);
}

static inline struct moor_abi_range reserve(uint64_t bytes, uint64_t granule)
{
    struct moor_abi_range range;
    cr_assert_eq(fixture_reserve(&f, bytes, granule, &range), MOOR_OK, "%s", f.error.text);
    return range;
}

static inline void decommit(const struct moor_abi_range *range, uint64_t offset, uint64_t length)
{
    cr_assert_eq(fixture_free(&f, MOOR_ABI_RELEASE_DECOMMIT, range->handle, offset, length), length, "%s",
                 f.error.text);
}

static inline void end_range(const struct moor_abi_range *range)
{
    cr_assert_eq(fixture_free(&f, MOOR_ABI_RELEASE_RANGE, range->handle, 0, 0), 0, "%s", f.error.text);
}

static inline uint64_t free_allocation(const struct moor_abi_allocation *allocation)
{
    return fixture_free(&f, MOOR_ABI_RELEASE_ALLOCATION, allocation->handle, 0, 0);
}

/* Waits for a child that must exit, and returns its exit status. */
static inline int exit_status(pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status), "status %x", status);
    return WEXITSTATUS(status);
}

#endif
