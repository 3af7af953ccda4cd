/* SPDX-License-Identifier: MIT */
/*
 * The timeline of a stream, for devices that show their progress to host threads: record, signal, read, wait.
 * Any thread may call any function at any time, except create and destroy.
 */
#ifndef MOORAGE_KIT_TIMELINE_H
#define MOORAGE_KIT_TIMELINE_H

#include <moorage/abi/provider.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_kit_timeline;

/* Creates a timeline. host: [borrowed] until destroy. ret_timeline: [out, owned]. HOST_NOMEM. */
int32_t moor_kit_timeline_create(const struct moor_abi_host *host, struct moor_kit_timeline **ret_timeline);

/* Destroys a timeline that no thread waits for. Another stream may wait for a destroyed stream (wait_stream),
 * so a provider counts the references to a timeline. NULL is a no-op. */
void moor_kit_timeline_destroy(struct moor_kit_timeline *timeline);

/* Returns the next value: 1, 2, 3 ... The caller holds the lock that orders the stream's submissions. */
uint64_t moor_kit_timeline_record(struct moor_kit_timeline *timeline);

/* Signals that all values up to this one are reached, and wakes waiters. A lower value than before changes
 * nothing. */
void moor_kit_timeline_signal(struct moor_kit_timeline *timeline, uint64_t value);

/* Ends the timeline: no further value is reached, and watermark and wait return `status`, which is
 * negative. */
void moor_kit_timeline_fail(struct moor_kit_timeline *timeline, int32_t status);

/* Reads the highest value reached: one atomic load. Else the status of fail. */
int32_t moor_kit_timeline_watermark(struct moor_kit_timeline *timeline, uint64_t *ret_value);

/* Checks that a value was recorded. INVALID: it was not; the message names the value and the last one. */
int32_t moor_kit_timeline_check_recorded(struct moor_kit_timeline *timeline, uint64_t value,
                                         struct moor_abi_error *error);

/* Waits until a value is reached. deadline_ns: on the host's clock; 0: no wait; UINT64_MAX: no end. TIMEOUT:
 * the deadline has passed. INVALID: the value was never recorded. Else the status of fail. */
int32_t moor_kit_timeline_wait(struct moor_kit_timeline *timeline, uint64_t value, uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif
#endif
