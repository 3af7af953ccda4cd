/* SPDX-License-Identifier: MIT */
/* What every suite of the loader does: assert a status together with the message that goes with it. */
#ifndef MOOR_TESTS_LOADER_EXPECT_H
#define MOOR_TESTS_LOADER_EXPECT_H

#include <criterion/criterion.h>
#include <moorage/error.h>
#include <string.h>

/* `part` must be in the text of the last error; `what` names the case. */
static inline void expect(moor_status status, moor_status expected, const char *part, const char *what)
{
    cr_assert(status == expected, "%s: %s, not %s (%s)", what, moor_status_name(status),
              moor_status_name(expected), moor_last_error()->text);
    if (expected == MOOR_OK)
        return;
    const char *text = moor_last_error()->text;
    cr_assert(moor_last_error()->status == expected, "%s: the record has another status", what);
    cr_assert(strstr(text, part) != NULL, "%s: '%s' does not say '%s'", what, text, part);
    cr_assert(strchr(text, '\n') == NULL, "%s: '%s' is more than a line", what, text);
}

#endif
