/* SPDX-License-Identifier: MIT */
/* What a device says of itself, from the inside. */
#ifndef MOOR_OBSERVE_DEVICE_STATS_H
#define MOOR_OBSERVE_DEVICE_STATS_H

#include "loader/provider.h"

#include <moorage/stats.h>

/* As moor_device_get_stats, of a domain of a device that is open. */
moor_status moor__device_stats(struct moor_device *device, uint32_t domain,
                               struct moor_device_stats *ret_stats);

#endif
