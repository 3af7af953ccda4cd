/* SPDX-License-Identifier: MIT */
/* Assertions for all fuzz targets. A broken rule aborts the process, and libFuzzer keeps the input. */
#ifndef MOOR_TESTS_FUZZ_H
#define MOOR_TESTS_FUZZ_H

#include "util/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The interface of libFuzzer: the target, an optional mutator, and the default mutator that it may call. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t capacity);

static inline void must(bool holds, const char *rule)
{
    if (holds)
        return;
    (void)fprintf(stderr, "fuzz: %s (last error: %s)\n", rule, moor__pending_error()->text);
    abort();
}

/* Puts a marker into the error record: a call that fails without a text leaves the marker. */
static inline void forget_error(void)
{
    (void)moor__fail(MOOR_OK, "no text");
}

/* Aborts unless the error record has the status and one line of text. */
static inline void must_explain(moor_status status)
{
    const struct moor_error *error = moor__pending_error();
    size_t length = strnlen(error->text, sizeof error->text);
    must(error->status == status, "the error record has another status");
    must(length > 0 && length < sizeof error->text && strcmp(error->text, "no text") != 0,
         "the error text is empty");
    for (size_t i = 0; i < length; i++)
        must((unsigned char)error->text[i] >= 0x20, "the error text has more than one line");
}

#endif
