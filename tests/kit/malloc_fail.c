/* SPDX-License-Identifier: MIT */
#include "malloc_fail.h"
#include <stdbool.h>
#include <stddef.h>

static _Thread_local uint64_t count;
static _Thread_local uint64_t failing;

/* The names are the linker's: --wrap=malloc sends malloc to __wrap_malloc, and __real_malloc to malloc. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t items, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t items, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

void malloc_fail_at(uint64_t n)
{
    count = 0;
    failing = n;
}

uint64_t malloc_fail_count(void)
{
    return count;
}

static bool fails_now(void)
{
    return ++count == failing;
}

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t items, size_t bytes)
{
    return fails_now() ? NULL : __real_calloc(items, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    return fails_now() ? NULL : __real_realloc(memory, bytes);
}
