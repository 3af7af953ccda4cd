/* SPDX-License-Identifier: MIT */
/* The code of a released header; tests/abi/renew writes this file. */
#ifndef MOORAGE_ABI_STATUS_H
#define MOORAGE_ABI_STATUS_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef int32_t moor_status;
#define MOOR_OK 0
#define MOOR_INVALID (-1)
#define MOOR_OVERFLOW (-2)
#define MOOR_STALE (-3)
#define MOOR_FOREIGN (-4)
#define MOOR_UNSUPPORTED (-5)
#define MOOR_HOST_NOMEM (-6)
#define MOOR_DEVICE_NOMEM (-7)
#define MOOR_NO_VA (-8)
#define MOOR_LIMIT (-9)
#define MOOR_VERSION (-10)
#define MOOR_REFUSED (-11)
#define MOOR_PROVIDER (-12)
#define MOOR_DEVICE_LOST (-13)
#define MOOR_FORKED (-14)
#define MOOR_CORRUPT (-15)
#define MOOR_PENDING 1
#define MOOR_OVER_BUDGET 2
#define MOOR_NEVER_FITS 3
#define MOOR_NO_VICTIM 4
#define MOOR_TIMEOUT 5
#define MOOR_CANCELLED 6
#define MOOR_BUSY 7
#define MOOR_NOT_RESIDENT 8
struct moor_abi_error {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t native_code;
    char text[240];
};
#ifdef __cplusplus
}
#endif
#endif
