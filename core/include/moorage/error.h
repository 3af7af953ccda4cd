/* SPDX-License-Identifier: MIT */
/* Errors: what the last failed call of this thread says beside its status. */
#ifndef MOORAGE_ERROR_H
#define MOORAGE_ERROR_H

#include <moorage/abi/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MOOR_API __attribute__((visibility("default")))
#define MOOR_MUST_USE __attribute__((warn_unused_result))
#else
#define MOOR_API
#define MOOR_MUST_USE
#endif

/* The record of one failure. */
struct moor_error {
    moor_status status;
    int64_t native_code; /* the driver's or system's code, 0 where there is none */
    uint64_t bytes;      /* of a shortage: how many bytes, as the call says; 0: no such figure */
    char text[512];      /* one line of UTF-8: what, which, why */
};

/* The name of a status without its prefix: "OVER_BUDGET". Any thread; never NULL; static. */
MOOR_API const char *moor_status_name(moor_status status);

/* The last call of this thread that did not return MOOR_OK. [borrowed] until the thread's next failing call;
 * never NULL. A call that succeeds leaves it alone. */
MOOR_API const struct moor_error *moor_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
