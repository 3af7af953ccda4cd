/* SPDX-License-Identifier: MIT */
/* Device figures from the inside. */
#ifndef MOOR_LOADER_DEVICE_STATS_H
#define MOOR_LOADER_DEVICE_STATS_H

#include "loader/provider.h"

#include <moorage/stats.h>

/* Does the same as moor_device_get_stats, for a domain of an open device. */
moor_status moor__device_stats(struct moor_device *device, uint32_t domain,
                               struct moor_device_stats *ret_stats);

/* Reads the open devices of a pool and reports their sum to its authority (moor_authority_refresh). Requires
 * no lock. */
moor_status moor__external_refresh(struct moor_authority *authority);

#endif
