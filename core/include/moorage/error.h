/* SPDX-License-Identifier: MIT */
/*
 * Errors: the details behind the status of a thread's last failed call.
 *
 *     if (moor_buffer_allocate(binding, size, NULL, &buffer) == MOOR_OVER_BUDGET)
 *         fprintf(stderr, "%s\n", moor_last_error()->text);
 */
#ifndef MOORAGE_ERROR_H
#define MOORAGE_ERROR_H

#include <moorage/abi/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* MOOR_API marks every function of the library. MOOR_MUST_USE marks a function with an [owned]
 * result: an ignored failure would go unnoticed. */
#if defined(__GNUC__)
#define MOOR_API __attribute__((visibility("default")))
#define MOOR_MUST_USE __attribute__((warn_unused_result))
#else
#define MOOR_API
#define MOOR_MUST_USE
#endif

/* The record of one failed call. */
struct moor_error {
    moor_status status;
    /* The driver's or the system's own code (CUresult, errno); 0 if the failure has none. */
    int64_t native_code;
    /* For a shortage, the number of bytes that the failed function describes; 0 for any other failure. */
    uint64_t bytes;
    /* A line of UTF-8, NUL-terminated: the object, the failure, the reason. For people; the wording may
     * change. */
    char text[512];
};

/* Returns the name of a status without its prefix, for example "OVER_BUDGET", or "UNKNOWN" for a value that
 * is not in moorage/abi/status.h. The string is static. */
MOOR_API const char *moor_status_name(moor_status status);

/* Returns the record of the calling thread's last call that did not return MOOR_OK. The record is never NULL
 * and [borrowed] until the thread's next failing call; copy it to keep it longer. A call that succeeds leaves
 * it unchanged, so read it only after a failure. Before the first failure its status is MOOR_OK. */
MOOR_API const struct moor_error *moor_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
