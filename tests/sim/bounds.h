/* SPDX-License-Identifier: MIT */
/* How much a simulated host has of everything. */
#ifndef MOOR_SIM_BOUNDS_H
#define MOOR_SIM_BOUNDS_H

#include <stdint.h>

#define SIM_DEVICES 3
#define SIM_HOLDERS 6
#define SIM_BINDINGS 6
#define SIM_BUFFERS 24
#define SIM_RANGES 6
#define SIM_GRANULES 16 /* of a range, at most */
#define SIM_SEGMENTS 12
#define SIM_SEGMENT_GRANULES 4
#define SIM_GRANTS 10
#define SIM_LEASES 10
#define SIM_TICKETS 4
#define SIM_STREAMS 16 /* given-up ones included, until their work is done */
#define SIM_FENCES 8
#define SIM_AREAS 4 /* of the host's own memory */
#define SIM_UNITS 4 /* of an area, or of a buffer that wraps it */
#define SIM_STEPS 6 /* of a transaction */
#define SIM_PARTS 3 /* of a request of the host's own */
#define SIM_RELEASES 512
#define SIM_IN_FLIGHT 48u /* pieces of work on a stream */
#define SIM_STALE 32

#define SIM_NONE (-1)
#define SIM_UNKNOWN (-1) /* a value */

enum sim_table {
    SIM_TABLE_HOLDERS,
    SIM_TABLE_BINDINGS,
    SIM_TABLE_BUFFERS,
    SIM_TABLE_RANGES,
    SIM_TABLE_SEGMENTS, /* with a handle */
    SIM_TABLE_GRANTS,
    SIM_TABLE_LEASES,
    SIM_TABLE_TICKETS,
    SIM_TABLE_STREAMS, /* open */
    SIM_TABLE_FENCES,
    SIM_TABLE_COUNT,
};

#endif
