/* SPDX-License-Identifier: MIT */
/* The events of the simulation, taken in order of time, then kind, then insertion. */
#ifndef MOOR_REPLAY_EVENTS_H
#define MOOR_REPLAY_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the order in which events of one time run. */
enum replay_event_kind {
    REPLAY_ARRIVAL,
    REPLAY_PREFILL_DONE,
    REPLAY_GROW,
    REPLAY_FINISH,
    REPLAY_FENCE_PASSED,
};

struct replay_event {
    int64_t time_us;
    enum replay_event_kind kind;
    uint64_t sequence; /* set by push */
    size_t row;        /* of the request */
};

struct replay_events {
    struct replay_event *heap; /* binary, the least first */
    size_t count;
    size_t capacity;
    uint64_t pushed;
};

void replay_events_push(struct replay_events *events, int64_t time_us, enum replay_event_kind kind,
                        size_t row);
/* False if there is none. */
bool replay_events_pop(struct replay_events *events, struct replay_event *ret_event);
void replay_events_finish(struct replay_events *events);

#endif
