/* SPDX-License-Identifier: MIT */
/*
 * Statuses: the one list of outcomes, shared by the provider contract and the host API. Frozen: a value
 * keeps its meaning for all majors, new ones are appended.
 */
#ifndef MOORAGE_ABI_STATUS_H
#define MOORAGE_ABI_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 0: done. Negative: a failure, to be forwarded. Positive: an outcome that the caller decides on. */
typedef int32_t moor_status;

#define MOOR_OK 0

#define MOOR_INVALID (-1)      /* an argument breaks a stated rule */
#define MOOR_OVERFLOW (-2)     /* a size, sum or product of sizes does not fit */
#define MOOR_STALE (-3)        /* the handle named something that is gone */
#define MOOR_FOREIGN (-4)      /* the handle or object belongs to another runtime, provider or domain */
#define MOOR_UNSUPPORTED (-5)  /* the provider does not have this capability; never a successful no-op */
#define MOOR_HOST_NOMEM (-6)   /* the host's own memory for bookkeeping is short */
#define MOOR_DEVICE_NOMEM (-7) /* the device's memory is short although the budget had room */
#define MOOR_NO_VA (-8)        /* addresses are short, not memory */
#define MOOR_LIMIT (-9)        /* a stated limit (maps, handles, locked bytes, ...) is reached */
#define MOOR_VERSION (-10)     /* the versions of the two sides do not meet */
#define MOOR_REFUSED (-11)     /* a file or table was looked at and not accepted */
#define MOOR_PROVIDER (-12)    /* the provider failed, or answered against the contract */
#define MOOR_DEVICE_LOST (-13) /* the device is gone or in a sticky error */
#define MOOR_FORKED (-14)      /* called in a child of the process that owns this */
#define MOOR_CORRUPT (-15)     /* bookkeeping or stored data contradicts itself */

#define MOOR_PENDING 1      /* bytes or addresses are on their way, behind fences */
#define MOOR_OVER_BUDGET 2  /* the budget has no room now */
#define MOOR_NEVER_FITS 3   /* larger than the whole budget: waiting is no use */
#define MOOR_NO_VICTIM 4    /* holders were asked and nothing can give way */
#define MOOR_TIMEOUT 5      /* the deadline passed first */
#define MOOR_CANCELLED 6    /* somebody withdrew the request */
#define MOOR_BUSY 7         /* still in use; nothing was changed */
#define MOOR_NOT_RESIDENT 8 /* the data is not in device memory now */

/* What went wrong, in a record that the caller owns. The callee fills it on failure and leaves it alone on
 * success. `text` is UTF-8, always ends in NUL, and holds one line. */
struct moor_abi_error {
    uint32_t struct_size; /* set by the caller: 256 in 1.0 */
    uint32_t reserved;    /* zero */
    int64_t native_code;  /* the device driver's or system's own code; 0 where there is none */
    char text[240];
};

#ifdef __cplusplus
}
#endif
#endif
