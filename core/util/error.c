/* SPDX-License-Identifier: MIT */
/*
 * One record per thread, in thread-local storage: a failing call never allocates to say so. A call that
 * succeeds does not touch it, so that clean-up after a failure keeps the first reason only if the clean-up
 * itself succeeds.
 */
#include "util/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct moor_error last_error = {.status = MOOR_OK, .text = "no error"};

__attribute__((format(printf, 3, 0))) static void write_text(moor_status status, int64_t native_code,
                                                             const char *format, va_list args)
{
    last_error.status = status;
    last_error.native_code = native_code;
    last_error.bytes = 0;
    (void)vsnprintf(last_error.text, sizeof last_error.text, format, args); /* cut short is good enough */
}

moor_status moor__fail(moor_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_text(status, 0, format, args);
    va_end(args);
    return status;
}

moor_status moor__fail_short(moor_status status, uint64_t bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_text(status, 0, format, args);
    va_end(args);
    last_error.bytes = bytes;
    return status;
}

moor_status moor__fail_errno(moor_status status, int errno_value, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_text(status, errno_value, format, args);
    va_end(args);
    char reason[128];
    const char *text = strerror_r(errno_value, reason, sizeof reason);
    size_t used = strlen(last_error.text);
    (void)snprintf(last_error.text + used, sizeof last_error.text - used, ": %s", text);
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

moor_status moor__fail_again(const struct moor_error *first, const char *before)
{
    last_error.status = first->status;
    last_error.native_code = first->native_code;
    last_error.bytes = first->bytes;
    (void)snprintf(last_error.text, sizeof last_error.text, "%s%.480s", before, first->text);
    return first->status;
}

void moor__error_restore(const struct moor_error *before)
{
    last_error = *before;
}

static int is_known(int32_t status)
{
    return status >= MOOR_CORRUPT && status <= MOOR_NOT_RESIDENT;
}

moor_status moor__fail_provider(int32_t status, const struct moor_abi_error *error, const char *provider_name,
                                const char *what)
{
    if (!is_known(status))
        return moor__fail(MOOR_PROVIDER, "%s: %s answered %d, which is no status", provider_name, what,
                          (int)status);
    last_error.status = status;
    last_error.native_code = error->native_code;
    last_error.bytes = 0;
    /* The provider's text is data: it may lack its NUL, or be missing. */
    int length = (int)strnlen(error->text, sizeof error->text);
    (void)snprintf(last_error.text, sizeof last_error.text, "%s: %s: %.*s%s", provider_name, what, length,
                   error->text, length > 0 ? "" : "failed, and does not say why");
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
