/* SPDX-License-Identifier: MIT */
/* For suites that call the steps of the loader, which write the pending record, one by one. */
#ifndef MOOR_TESTS_LOADER_EXPECT_INTERNAL_H
#define MOOR_TESTS_LOADER_EXPECT_INTERNAL_H

#include "expect.h"

#include "util/error.h"

/* Ends the call as a public function does, then expects its status and text. */
static inline void expect_step(moor_status status, moor_status expected, const char *part, const char *what)
{
    expect(moor__leave(status), expected, part, what);
}

#endif
