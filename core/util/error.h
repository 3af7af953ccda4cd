/* SPDX-License-Identifier: MIT */
/* The per-thread error record, from the inside. */
#ifndef MOOR_UTIL_ERROR_H
#define MOOR_UTIL_ERROR_H

#include <moorage/error.h>

/* Records a failure of this thread and returns its status: `return moor__fail(MOOR_INVALID, "...", ...)`. */
moor_status moor__fail(moor_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Likewise with a number of bytes (moor_last_error()->bytes). */
moor_status moor__fail_short(moor_status status, uint64_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Likewise with the system's errno value. */
moor_status moor__fail_errno(moor_status status, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What a failed system call is to a caller: HOST_NOMEM or LIMIT if that is the reason, or `otherwise`. */
moor_status moor__status_of_errno(int errno_value, moor_status otherwise);
/* Restores a failure that clean-up may have overwritten, with something put before its text. */
moor_status moor__fail_again(const struct moor_error *first, const char *before);
/* Puts back what a call that succeeds in the end has overwritten. */
void moor__error_restore(const struct moor_error *before);
/* Records what a provider answered. A status outside the frozen list becomes PROVIDER. what: the call's name.
 */
moor_status moor__fail_provider(int32_t status, const struct moor_abi_error *error, const char *provider_name,
                                const char *what);

#endif
