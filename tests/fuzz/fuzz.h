/* SPDX-License-Identifier: MIT */
/* What every fuzz target asserts with. A rule that is broken ends the process, and libFuzzer keeps the input. */
#ifndef MOOR_TESTS_FUZZ_H
#define MOOR_TESTS_FUZZ_H

#include "util/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libFuzzer's names: what a target must have, what it may have, and what that may call. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t capacity);

static inline void must(bool holds, const char *rule)
{
    if (holds)
        return;
    (void)fprintf(stderr, "fuzz: %s (last error: %s)\n", rule, moor_last_error()->text);
    abort();
}

/* Before a call: what a call that fails without saying why would leave. */
static inline void forget_error(void)
{
    (void)moor__fail(MOOR_OK, "not a word");
}

/* After one that failed: its record has the status, and one line that says why. */
static inline void must_explain(moor_status status)
{
    const struct moor_error *error = moor_last_error();
    size_t length = strnlen(error->text, sizeof error->text);
    must(error->status == status, "the record has another status");
    must(length > 0 && length < sizeof error->text && strcmp(error->text, "not a word") != 0,
         "it says nothing");
    for (size_t i = 0; i < length; i++)
        must((unsigned char)error->text[i] >= 0x20, "it says more than a line");
}

#endif
