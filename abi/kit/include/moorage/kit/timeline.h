/* SPDX-License-Identifier: MIT */
/* A stream's timeline for devices whose progress is seen by host threads: record, signal, read, wait. */
#ifndef MOORAGE_KIT_TIMELINE_H
#define MOORAGE_KIT_TIMELINE_H

#include <moorage/abi/provider.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_kit_timeline;

/* ret_timeline: [out, owned]. host: [borrowed] until destroy. HOST_NOMEM. */
int32_t moor_kit_timeline_create(const struct moor_abi_host *host, struct moor_kit_timeline **ret_timeline);
/* Nobody waits on it: a stream that is destroyed may still be waited for by others (wait_stream), so count who
 * refers to its timeline. NULL is a no-op. */
void moor_kit_timeline_destroy(struct moor_kit_timeline *timeline);

/* The next value: 1, 2, 3, ... Call it in the order of submission (under the lock that orders it). */
uint64_t moor_kit_timeline_record(struct moor_kit_timeline *timeline);
/* All values up to this one are reached. Values never go back. Wakes waiters. */
void moor_kit_timeline_signal(struct moor_kit_timeline *timeline, uint64_t value);
/* The stream can reach nothing more: watermark and wait answer `status` from here on. */
void moor_kit_timeline_fail(struct moor_kit_timeline *timeline, int32_t status);
/* One atomic read. */
int32_t moor_kit_timeline_watermark(struct moor_kit_timeline *timeline, uint64_t *ret_value);
/* Checks that a value was recorded. INVALID: it was not; the message names it. */
int32_t moor_kit_timeline_check_recorded(struct moor_kit_timeline *timeline, uint64_t value,
                                         struct moor_abi_error *error);
/* OK, TIMEOUT at the deadline, INVALID for a value that was never recorded, or the status of fail. */
int32_t moor_kit_timeline_wait(struct moor_kit_timeline *timeline, uint64_t value, uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif
#endif
