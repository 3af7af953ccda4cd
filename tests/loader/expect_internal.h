/* SPDX-License-Identifier: MIT */
/* The assertion of the suites that call the steps of the loader one by one. */
#ifndef MOOR_TESTS_LOADER_EXPECT_INTERNAL_H
#define MOOR_TESTS_LOADER_EXPECT_INTERNAL_H

#include "expect.h"

#include "util/error.h"

/* Publishes the pending error of a step, as a public function does at its end, and expects its status and
 * text. */
static inline void expect_step(moor_status status, moor_status expected, const char *part, const char *name)
{
    expect(moor__leave(status), expected, part, name);
}

#endif
