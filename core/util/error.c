/* SPDX-License-Identifier: MIT */
/*
 * A thread has two records: the pending one, which each failure inside the core overwrites, and the last one,
 * which hosts read. The last one is thread-local. The pending one is allocated at the thread's first failure,
 * because the library's thread-local storage must stay small: it comes out of the space that the dynamic
 * linker keeps for libraries which are loaded late, and a process may load two copies of this one. A thread
 * that gets no memory for it writes the last record at once.
 */
#include "util/error.h"

#include <assert.h>

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct moor_error last_error = {.status = MOOR_OK, .text = "no error"};
static _Thread_local struct moor_error *pending_error; /* NULL: not allocated */
static _Thread_local struct moor__error_scope *scope;  /* NULL: failures go to pending_error */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_thread_end; /* frees pending_error */
static bool has_key;

static void make_key(void)
{
    has_key = pthread_key_create(&at_thread_end, free) == 0;
}

static struct moor_error *allocate_pending(void)
{
    (void)pthread_once(&once, make_key);
    struct moor_error *record = has_key ? calloc(1, sizeof *record) : NULL;
    if (record && pthread_setspecific(at_thread_end, record)) {
        free(record);
        return NULL;
    }
    return record;
}

static struct moor_error *pending(void)
{
    if (scope)
        return &scope->record;
    if (!pending_error)
        pending_error = allocate_pending();
    return pending_error ? pending_error : &last_error;
}

__attribute__((format(printf, 2, 0))) static void write_record(moor_status status, const char *format,
                                                               va_list args)
{
    struct moor_error *record = pending();
    record->status = status;
    record->native_code = 0;
    record->bytes = 0;
    (void)vsnprintf(record->text, sizeof record->text, format, args); /* a long text is cut */
}

moor_status moor__fail(moor_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_record(status, format, args);
    va_end(args);
    return status;
}

moor_status moor__fail_short(moor_status status, uint64_t bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_record(status, format, args);
    va_end(args);
    pending()->bytes = bytes;
    return status;
}

moor_status moor__fail_errno(moor_status status, int errno_value, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_record(status, format, args);
    va_end(args);
    char reason[128];
    const char *text = strerror_r(errno_value, reason, sizeof reason);
    struct moor_error *record = pending();
    record->native_code = errno_value;
    size_t used = strlen(record->text);
    (void)snprintf(record->text + used, sizeof record->text - used, ": %s", text);
    return status;
}

moor_status moor__status_of_errno(int errno_value, moor_status otherwise)
{
    switch (errno_value) {
    case ENOMEM:
        return MOOR_HOST_NOMEM;
    case EMFILE:
    case ENFILE:
    case EAGAIN:
        return MOOR_LIMIT;
    default:
        return otherwise;
    }
}

moor_status moor__fail_copy(const struct moor_error *record)
{
    *pending() = *record;
    return record->status;
}

moor_status moor__fail_prefix(const char *prefix)
{
    struct moor_error *record = pending();
    size_t shift = strlen(prefix), size = sizeof record->text;
    assert(shift < size);
    memmove(record->text + shift, record->text, size - shift);
    memcpy(record->text, prefix, shift);
    record->text[size - 1] = '\0';
    return record->status;
}

moor_status moor__fail_for(const char *path)
{
    char prefix[300];
    (void)snprintf(prefix, sizeof prefix, "%.256s: ", path);
    return moor__fail_prefix(prefix);
}

const struct moor_error *moor__pending_error(void)
{
    return pending();
}

void moor__error_scope_begin(struct moor__error_scope *inner)
{
    inner->record.status = MOOR_OK;
    inner->outer = scope;
    scope = inner;
}

void moor__error_scope_end(const struct moor__error_scope *inner)
{
    assert(scope == inner);
    scope = inner->outer;
}

void moor__publish_error(moor_status status)
{
    assert(pending()->status == status); /* each failure has written its record */
    if (!scope)                          /* otherwise the core itself called a public function */
        last_error = *pending();
}

static bool is_known(int32_t status)
{
    return status >= MOOR_CORRUPT && status <= MOOR_NOT_RESIDENT;
}

moor_status moor__fail_provider(int32_t status, const struct moor_abi_error *error, const char *provider_name,
                                const char *call)
{
    if (!is_known(status))
        return moor__fail(MOOR_PROVIDER, "%s: %s returned %d, which is not a status", provider_name, call,
                          (int)status);
    /* The text comes from the provider: it may be empty or lack its NUL. */
    int length = (int)strnlen(error->text, sizeof error->text);
    (void)moor__fail(status, "%s: %s: %.*s%s", provider_name, call, length, error->text,
                     length > 0 ? "" : "failed without an error text");
    pending()->native_code = error->native_code;
    return status;
}

const struct moor_error *moor_last_error(void)
{
    return &last_error;
}

const char *moor_status_name(moor_status status)
{
    static const char *const failures[] = {
        "OK",    "INVALID", "OVERFLOW", "STALE",   "FOREIGN",  "UNSUPPORTED", "HOST_NOMEM", "DEVICE_NOMEM",
        "NO_VA", "LIMIT",   "VERSION",  "REFUSED", "PROVIDER", "DEVICE_LOST", "FORKED",     "CORRUPT"};
    static const char *const outcomes[] = {"OK",      "PENDING",   "OVER_BUDGET", "NEVER_FITS",  "NO_VICTIM",
                                           "TIMEOUT", "CANCELLED", "BUSY",        "NOT_RESIDENT"};
    if (!is_known(status))
        return "UNKNOWN";
    return status < 0 ? failures[-status] : outcomes[status];
}
