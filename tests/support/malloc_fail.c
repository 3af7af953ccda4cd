/* SPDX-License-Identifier: MIT */
#include "malloc_fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

static _Atomic uint64_t seen;
static _Atomic uint64_t first, last; /* numbers of the allocations that fail; 0: none */

/* The linker gives these names: --wrap=malloc sends malloc to __wrap_malloc, and __real_malloc to malloc. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t items, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
char *__real_strdup(const char *text);
char *__real_realpath(const char *path, char *resolved);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t items, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_realpath(const char *path, char *resolved);
int __wrap_asprintf(char **ret_text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void fail(uint64_t from, uint64_t to)
{
    atomic_store(&seen, 0);
    atomic_store(&first, from);
    atomic_store(&last, to);
}

void malloc_fail_at(uint64_t n)
{
    fail(n, n);
}

void malloc_fail_all(void)
{
    fail(1, UINT64_MAX);
}

uint64_t malloc_fail_count(void)
{
    return atomic_load(&seen);
}

static bool fails_now(void)
{
    uint64_t number = atomic_fetch_add(&seen, 1) + 1;
    bool fails = number >= atomic_load(&first) && number <= atomic_load(&last);
    if (fails)
        errno = ENOMEM;
    return fails;
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

char *__wrap_strdup(const char *text)
{
    return fails_now() ? NULL : __real_strdup(text);
}

char *__wrap_realpath(const char *path, char *resolved)
{
    return !resolved && fails_now() ? NULL : __real_realpath(path, resolved);
}

int __wrap_asprintf(char **ret_text, const char *format, ...)
{
    if (fails_now())
        return -1;
    va_list args;
    va_start(args, format);
    int length = vasprintf(ret_text, format, args);
    va_end(args);
    return length;
}
