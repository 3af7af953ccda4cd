/* SPDX-License-Identifier: MIT */
/* Violations of the host's, and the events that lead to them. */
#ifndef MOOR_MOCK_VIOLATION_H
#define MOOR_MOCK_VIOLATION_H

#include "include/moorage/mock.h"
#include <moorage/kit/check.h>

#define MOCK_VIOLATIONS_KEPT 64u
#define MOCK_EVENTS (UINT32_C(1) << 14) /* kept for histories */

enum mock_event_kind {
    MOCK_EVENT_ALLOCATED,
    MOCK_EVENT_COMMITTED,
    MOCK_EVENT_MAPPED,
    MOCK_EVENT_PROTECTED,
    MOCK_EVENT_RELEASED,
    MOCK_EVENT_FREED,
    MOCK_EVENT_READ,
    MOCK_EVENT_WRITTEN,
    MOCK_EVENT_READING,
    MOCK_EVENT_WRITING,
};

struct mock_event {
    uint64_t time_ns;
    uint32_t kind;
    uint32_t queue; /* the number of the queue; 0: the host itself */
    uint64_t address;
    uint64_t physical;
    uint64_t size_bytes;
};

/* Part of struct moor_mock, under its lock. */
struct mock_violations {
    struct moor_mock_violation kept[MOCK_VIOLATIONS_KEPT];
    uint32_t count;            /* in `kept` */
    uint32_t logged;           /* logged ones among them */
    uint64_t total;            /* all that were found */
    struct mock_event *events; /* a ring of MOCK_EVENTS */
    uint64_t event_count;
};

/* The bytes that a violation is about. */
struct mock_bytes {
    uint32_t device;
    uint64_t address;
    uint64_t physical;
    uint64_t size_bytes;
};

/* Adds an event to the history. Requires mock->lock. */
void mock_event(struct moor_mock *mock, enum mock_event_kind kind, uint32_t queue, uint64_t address,
                uint64_t physical, uint64_t size_bytes);

/* Records a violation with the history of its bytes; mock_unlock logs it. Requires mock->lock. */
void mock_violate(struct moor_mock *mock, enum moor_mock_violation_kind kind, const struct mock_bytes *bytes,
                  const char *format, ...) MOOR_KIT_PRINTF(4, 5);

/* Takes the instance's lock. */
void mock_lock(struct moor_mock *mock);

/* Returns the instance's lock, and logs the violations that were recorded under it. */
void mock_unlock(struct moor_mock *mock);

#endif
