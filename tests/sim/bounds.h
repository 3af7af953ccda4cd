/* SPDX-License-Identifier: MIT */
/* The sizes of a simulated host's tables. */
#ifndef MOOR_SIM_BOUNDS_H
#define MOOR_SIM_BOUNDS_H

#include <stdint.h>

#define SIM_DEVICES 3
#define SIM_HOLDERS 6
#define SIM_BINDINGS 6
#define SIM_BUFFERS 24
#define SIM_RANGES 6
#define SIM_GRANULES 16 /* at most, per range */
#define SIM_SEGMENTS 12
#define SIM_SEGMENT_GRANULES 4
#define SIM_GRANTS 10
#define SIM_LEASES 10
#define SIM_TICKETS 4
#define SIM_STREAMS 16 /* destroyed streams included, until their work is done */
#define SIM_FENCES 8
#define SIM_AREAS 4 /* ranges of the host's own memory */
#define SIM_UNITS 4 /* per area, and per buffer that wraps an area */
#define SIM_STEPS 6 /* per transaction */
#define SIM_PARTS 3 /* per request of the host */
#define SIM_RELEASES 512
#define SIM_IN_FLIGHT 48u /* pieces of work on one stream */
#define SIM_STALE 32

#define SIM_NONE (-1)
#define SIM_UNKNOWN (-1) /* no known value */

enum sim_table {
    SIM_TABLE_HOLDERS,
    SIM_TABLE_BINDINGS,
    SIM_TABLE_BUFFERS,
    SIM_TABLE_RANGES,
    SIM_TABLE_SEGMENTS, /* segments with a handle */
    SIM_TABLE_GRANTS,
    SIM_TABLE_LEASES,
    SIM_TABLE_TICKETS,
    SIM_TABLE_STREAMS, /* open streams */
    SIM_TABLE_FENCES,
    SIM_TABLE_COUNT,
};

#endif
