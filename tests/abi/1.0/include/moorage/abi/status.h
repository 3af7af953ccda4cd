/* SPDX-License-Identifier: MIT */
/*
 * Statuses: the single list of outcomes, shared by the provider contract and the host API. The list is
 * frozen: a value keeps its meaning for all majors, and new values are appended.
 *
 *     status == 0    success
 *     status < 0     a failure, to be forwarded to the caller
 *     status > 0     an outcome on which the caller decides: wait, evict, try a smaller request
 *
 * A provider returns 0, a negative status, or one of the positive statuses that its function documents.
 */
#ifndef MOORAGE_ABI_STATUS_H
#define MOORAGE_ABI_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The type of every status. */
typedef int32_t moor_status;

#define MOOR_OK 0

#define MOOR_INVALID (-1)      /* an argument breaks a stated rule */
#define MOOR_OVERFLOW (-2)     /* a size, sum or product of sizes does not fit */
#define MOOR_STALE (-3)        /* the handle's object was released */
#define MOOR_FOREIGN (-4)      /* the handle or object belongs to another runtime, provider or domain */
#define MOOR_UNSUPPORTED (-5)  /* the provider lacks this capability; never a successful no-op */
#define MOOR_HOST_NOMEM (-6)   /* host memory for bookkeeping is short */
#define MOOR_DEVICE_NOMEM (-7) /* device memory is short although the budget had room */
#define MOOR_NO_VA (-8)        /* addresses are short; memory may be available */
#define MOOR_LIMIT (-9)        /* a stated limit (maps, handles, locked bytes, ...) is reached */
#define MOOR_VERSION (-10)     /* the two sides have no common version */
#define MOOR_REFUSED (-11)     /* a file or table was checked and not accepted */
#define MOOR_PROVIDER (-12)    /* the provider failed, or broke the contract */
#define MOOR_DEVICE_LOST (-13) /* the device is gone or in a permanent error */
#define MOOR_FORKED (-14)      /* called in a child of the process that owns the object */
#define MOOR_CORRUPT (-15)     /* bookkeeping or stored data contradicts itself */

#define MOOR_PENDING 1      /* enough bytes or addresses are behind fences and will come */
#define MOOR_OVER_BUDGET 2  /* the budget has no room now */
#define MOOR_NEVER_FITS 3   /* larger than the whole budget: waiting does not help */
#define MOOR_NO_VICTIM 4    /* holders were asked and could not evict enough */
#define MOOR_TIMEOUT 5      /* the deadline passed first */
#define MOOR_CANCELLED 6    /* another thread withdrew the request */
#define MOOR_BUSY 7         /* in use; nothing was changed */
#define MOOR_NOT_RESIDENT 8 /* the data is not in device memory now */

/* The details of a failure, in a record that the caller owns. The callee
 * fills it on failure and leaves it alone on success. For a record longer than it knows, the callee fills the
 * fields that it knows. */
struct moor_abi_error {
    uint32_t struct_size; /* set by the caller: 256 in 1.0 */
    uint32_t reserved;    /* zero */
    int64_t native_code;  /* the driver's or system's own code; 0 if there is none */
    char text[240];
};

#ifdef __cplusplus
}
#endif
#endif
