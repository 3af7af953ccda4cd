/* SPDX-License-Identifier: MIT */
/* The assertion of every loader suite: a status together with its message. */
#ifndef MOOR_TESTS_LOADER_EXPECT_H
#define MOOR_TESTS_LOADER_EXPECT_H

#include <criterion/criterion.h>
#include <moorage/error.h>
#include <string.h>

/* On a failure, `part` must be in the text of the last error. `name` names the case. */
static inline void expect(moor_status status, moor_status expected, const char *part, const char *name)
{
    cr_assert(status == expected, "%s: %s, not %s (%s)", name, moor_status_name(status),
              moor_status_name(expected), moor_last_error()->text);
    if (expected == MOOR_OK)
        return;
    const char *text = moor_last_error()->text;
    cr_assert(moor_last_error()->status == expected, "%s: the error record has another status", name);
    cr_assert(strstr(text, part) != NULL, "%s: '%s' does not contain '%s'", name, text, part);
    cr_assert(strchr(text, '\n') == NULL, "%s: '%s' has more than one line", name, text);
}

#endif
