/* SPDX-License-Identifier: MIT */
/*
 * Errors of a thread. A failure inside the core writes the thread's pending record. A public function ends
 * with `return moor__leave(status)`, which copies that record to the last error if the call fails. A call
 * that succeeds leaves the last error unchanged, even if a step of it failed, and copies nothing.
 */
#ifndef MOOR_UTIL_ERROR_H
#define MOOR_UTIL_ERROR_H

#include <moorage/error.h>

/* Writes the pending record and returns the status: `return moor__fail(MOOR_INVALID, "...", ...)`. */
moor_status moor__fail(moor_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Does the same with a number of bytes (moor_last_error()->bytes). */
moor_status moor__fail_short(moor_status status, uint64_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Does the same with the system's errno value. */
moor_status moor__fail_errno(moor_status status, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Does the same for a failed provider call; `call` is its name. A status outside the frozen list becomes
 * PROVIDER. */
moor_status moor__fail_provider(int32_t status, const struct moor_abi_error *error, const char *provider_name,
                                const char *call);
/* Writes a copy of a record from another thread or process. */
moor_status moor__fail_copy(const struct moor_error *record);
/* Inserts a text before the pending record's text. Returns the record's status. */
moor_status moor__fail_prefix(const char *prefix);
/* Inserts a file's path, cut so that the cause always fits, before the pending record's text. */
moor_status moor__fail_for(const char *path);

/* Returns HOST_NOMEM or LIMIT if a system call failed for that reason, or `otherwise`. */
moor_status moor__status_of_errno(int errno_value, moor_status otherwise);

/* Returns the thread's pending record, for a log line or a copy. */
const struct moor_error *moor__pending_error(void);

/* Directs failures between begin and end to a record of their own: a failure during clean-up must not replace
 * its cause. Scopes nest. */
struct moor__error_scope {
    struct moor_error record;
    struct moor__error_scope *outer;
};
void moor__error_scope_begin(struct moor__error_scope *scope);
void moor__error_scope_end(const struct moor__error_scope *scope);

/* Copies the pending record to the last error. */
void moor__publish_error(moor_status status);

/* Ends a public call: `return moor__leave(status)`. */
static inline moor_status moor__leave(moor_status status)
{
    if (__builtin_expect(status != MOOR_OK, 0))
        moor__publish_error(status);
    return status;
}

#endif
