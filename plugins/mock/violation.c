/* SPDX-License-Identifier: MIT */
/* Violations, each with the earlier events of its bytes. Events are kept in a ring, which is searched only
 * when there is a violation. */
#include "sim.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HISTORY_LINES 8u

void mock_event(struct moor_mock *mock, enum mock_event_kind kind, uint32_t queue, uint64_t address,
                uint64_t physical, uint64_t size_bytes)
{
    mock->violations.events[mock->violations.event_count++ % MOCK_EVENTS] =
        (struct mock_event){mock_now(mock), kind, queue, address, physical, size_bytes};
}

static bool overlap(uint64_t left, uint64_t left_bytes, uint64_t right, uint64_t right_bytes)
{
    return left < right + right_bytes && right < left + left_bytes;
}

static bool concerns(const struct mock_event *event, const struct mock_bytes *bytes)
{
    return overlap(event->address, event->size_bytes, bytes->address, bytes->size_bytes) ||
           overlap(event->physical, event->size_bytes, bytes->physical, bytes->size_bytes);
}

/* Finds the last events of some bytes, the newest first. */
static uint32_t find_events(const struct moor_mock *mock, const struct mock_bytes *bytes,
                            const struct mock_event **ret_events)
{
    uint32_t count = 0;
    uint64_t oldest =
        mock->violations.event_count > MOCK_EVENTS ? mock->violations.event_count - MOCK_EVENTS : 0;
    for (uint64_t i = mock->violations.event_count; i > oldest && count < HISTORY_LINES; i--) {
        const struct mock_event *event = &mock->violations.events[(i - 1) % MOCK_EVENTS];
        if (concerns(event, bytes))
            ret_events[count++] = event;
    }
    return count;
}

static void write_event(const struct mock_event *event, char *line, size_t line_bytes)
{
    static const char *const words[] = {
        [MOCK_EVENT_ALLOCATED] = "allocated",
        [MOCK_EVENT_COMMITTED] = "committed",
        [MOCK_EVENT_MAPPED] = "mapped",
        [MOCK_EVENT_PROTECTED] = "protected",
        [MOCK_EVENT_RELEASED] = "released",
        [MOCK_EVENT_FREED] = "freed",
        [MOCK_EVENT_READ] = "read",
        [MOCK_EVENT_WRITTEN] = "written",
        [MOCK_EVENT_READING] = "a read submitted",
        [MOCK_EVENT_WRITING] = "a write submitted",
    };
    char who[24] = "";
    if (event->queue)
        (void)snprintf(who, sizeof who, ", stream %" PRIu32, event->queue);
    (void)snprintf(line, line_bytes, "%" PRIu64 " ns: [0x%" PRIx64 ", +%" PRIu64 ") %s%s\n", event->time_ns,
                   event->address, event->size_bytes, words[event->kind], who);
}

static void write_history(const struct moor_mock *mock, const struct mock_bytes *bytes, char *history,
                          size_t history_bytes)
{
    const struct mock_event *events[HISTORY_LINES];
    size_t length = 0;
    for (uint32_t i = find_events(mock, bytes, events); i > 0; i--) {
        char line[160];
        write_event(events[i - 1], line, sizeof line);
        size_t line_length = strlen(line);
        if (length + line_length >= history_bytes)
            break;
        memcpy(history + length, line, line_length + 1);
        length += line_length;
    }
}

_Static_assert(HISTORY_LINES * 120 < sizeof(((struct moor_mock_violation *)0)->history), "the lines fit");

void mock_violate(struct moor_mock *mock, enum moor_mock_violation_kind kind, const struct mock_bytes *bytes,
                  const char *format, ...)
{
    assert(mock->violations.logged <= mock->violations.count && bytes->size_bytes > 0);
    mock->violations.total++;
    if (mock->violations.count == MOCK_VIOLATIONS_KEPT)
        return;
    struct moor_mock_violation *violation = &mock->violations.kept[mock->violations.count++];
    *violation = (struct moor_mock_violation){
        .kind = kind,
        .device = bytes->device,
        .address = bytes->address,
        .size_bytes = bytes->size_bytes,
        .time_ns = mock_now(mock),
    };
    char said[160];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(said, sizeof said, format, arguments); /* a longer text is cut */
    va_end(arguments);
    (void)snprintf(violation->text, sizeof violation->text,
                   "device %" PRIu32 ", [0x%" PRIx64 ", +%" PRIu64 "): %s", bytes->device, bytes->address,
                   bytes->size_bytes, said);
    write_history(mock, bytes, violation->history, sizeof violation->history);
}

/* ---- the lock and the log ---- */

void mock_lock(struct moor_mock *mock)
{
    pthread_mutex_lock(&mock->lock);
}

static void log_line(const struct moor_mock *mock, uint32_t level, const char *message)
{
    mock->host->log(mock->host->user, level, message);
}

/* Logs a violation. Requires no lock: the host's log function may read the violations. */
static void log_violation(const struct moor_mock *mock, struct moor_mock_violation *violation)
{
    log_line(mock, MOOR_ABI_LOG_ERROR, violation->text);
    char *rest = violation->history;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line;)
        log_line(mock, MOOR_ABI_LOG_INFO, line);
    if (mock->settings.violations == MOCK_VIOLATIONS_ABORT)
        abort();
}

void mock_unlock(struct moor_mock *mock)
{
    while (mock->violations.logged < mock->violations.count) {
        struct moor_mock_violation violation = mock->violations.kept[mock->violations.logged++];
        pthread_mutex_unlock(&mock->lock);
        log_violation(mock, &violation);
        pthread_mutex_lock(&mock->lock);
    }
    pthread_mutex_unlock(&mock->lock);
}
