/* SPDX-License-Identifier: MIT */
/* The events of the simulation, in order of time, kind and insertion. */
#ifndef MOOR_REPLAY_EVENTS_H
#define MOOR_REPLAY_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Events of one time run in this order. */
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
    uint64_t order; /* set by push */
    size_t row;     /* the request */
};

struct replay_events {
    struct replay_event *heap; /* binary heap, the earliest event first */
    size_t count;
    size_t capacity;
    uint64_t pushed;
};

void replay_events_push(struct replay_events *events, int64_t time_us, enum replay_event_kind kind,
                        size_t row);
/* Returns false if there is no event. */
bool replay_events_pop(struct replay_events *events, struct replay_event *ret_event);
void replay_events_finish(struct replay_events *events);

#endif
