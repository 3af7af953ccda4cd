/* SPDX-License-Identifier: MIT */
/* The effect of each trace event on its holder's bytes (moorage/trace.h): +1 adds the event's bytes, -1
 * takes them. */
#ifndef MOOR_TESTS_EVENTS_H
#define MOOR_TESTS_EVENTS_H

#include <moorage/moorage.h>

static const struct event_effect {
    int reserved, charged, pending, quarantined; /* leases are refunded without having been pending */
} event_effects[] = {
    [MOOR_TRACE_RESERVE] = {.reserved = 1},
    [MOOR_TRACE_RETURN] = {.reserved = -1},
    [MOOR_TRACE_COMMIT] = {.reserved = -1, .charged = 1},
    [MOOR_TRACE_EXCEED] = {.charged = 1},
    [MOOR_TRACE_RELEASE] = {.pending = 1},
    [MOOR_TRACE_RECALL] = {.pending = -1},
    [MOOR_TRACE_REFUND] = {.charged = -1, .pending = -1},
    [MOOR_TRACE_RESTORE] = {.reserved = 1, .charged = -1, .pending = -1},
    [MOOR_TRACE_QUARANTINE] = {.pending = -1, .quarantined = 1},
    [MOOR_TRACE_RETRY] = {.pending = 1, .quarantined = -1},
};

#endif
