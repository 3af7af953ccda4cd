/* SPDX-License-Identifier: MIT */
/* A binary heap. The insertion number makes the order total, so that two runs are equal. */
#include "replay/events.h"
#include "tool.h"

#include <stdlib.h>

static bool is_before(const struct replay_event *a, const struct replay_event *b)
{
    if (a->time_us != b->time_us)
        return a->time_us < b->time_us;
    if (a->kind != b->kind)
        return a->kind < b->kind;
    return a->order < b->order;
}

void replay_events_push(struct replay_events *events, int64_t time_us, enum replay_event_kind kind,
                        size_t row)
{
    if (events->count == events->capacity) {
        events->capacity = 2 * events->capacity + 1024;
        events->heap = tool_reallocate(events->heap, events->capacity, sizeof *events->heap);
    }
    struct replay_event event = {.time_us = time_us, .kind = kind, .order = events->pushed++, .row = row};
    size_t at = events->count++;
    while (at > 0 && is_before(&event, &events->heap[(at - 1) / 2])) {
        events->heap[at] = events->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    events->heap[at] = event;
}

bool replay_events_pop(struct replay_events *events, struct replay_event *ret_event)
{
    if (events->count == 0)
        return false;
    *ret_event = events->heap[0];
    struct replay_event last = events->heap[--events->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= events->count)
            break;
        if (child + 1 < events->count && is_before(&events->heap[child + 1], &events->heap[child]))
            child++;
        if (!is_before(&events->heap[child], &last))
            break;
        events->heap[at] = events->heap[child];
        at = child;
    }
    events->heap[at] = last;
    return true;
}

void replay_events_finish(struct replay_events *events)
{
    free(events->heap);
    *events = (struct replay_events){0};
}
