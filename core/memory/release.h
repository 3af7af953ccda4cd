/* SPDX-License-Identifier: MIT */
/*
 * Release: submission to the provider's queue, completion, and quarantine. Every byte that leaves goes
 * through here.
 */
#ifndef MOOR_MEMORY_RELEASE_H
#define MOOR_MEMORY_RELEASE_H

#include "memory/object.h"
#include "memory/stream.h"

/* What is given back: the provider's name for it, and where. */
struct moor__release {
    uint32_t kind; /* MOOR_ABI_RELEASE_* */
    uint64_t handle;
    uint64_t offset_bytes;
    uint64_t length_bytes;
};

/* Hands the object's memory to the provider's queue, behind the points (which are covered as needed and whose
 * references are dropped in any case). cookie: the object's handle. The object's bytes become pending. On
 * failure nothing was queued and they are not. */
moor_status moor__release_submit(struct moor__object *object, uint64_t cookie,
                                 const struct moor__release *release, const struct moor__point *points,
                                 uint32_t point_count);

/* For an object that nobody names any more: like submit, but what is refused goes to quarantine. */
void moor__release_or_quarantine(struct moor__object *object, uint64_t cookie,
                                 const struct moor__release *release, const struct moor__point *points,
                                 uint32_t point_count);

/* Its release was not accepted, as the last error says, and nobody names it any more: into quarantine. */
void moor__object_refused(struct moor__object *object);

/* Takes completions of one device until none is due. deadline_ns: how long to wait for the first. */
void moor__device_reap(struct moor_device *device, uint64_t deadline_ns);
/* Once in a while, so that a host that only releases gets its memory back too. */
void moor__device_reap_sometimes(struct moor_device *device);
/* Releases of which nobody has heard yet. */
uint64_t moor__device_pending(struct moor_device *device);
/* moor__device_reap on all devices, without waiting. True: something has come back. */
bool moor__poll(struct moor_runtime *runtime);
/* The same, and waits a little for the first to come, at most to the deadline. Returns what is still pending. */
uint64_t moor__poll_until(struct moor_runtime *runtime, uint64_t deadline_ns, bool *ret_gone);
/* After a provider's call that makes memory, with what it said: a device that is full may be so of what was
 * released and only waited to be taken back, or of what holders would let go. True: some was, and the call is
 * worth another try. tries: 0 at first; it goes from the one to the other. */
bool moor__made_room(const struct moor_binding *binding, uint64_t bytes, moor_status status, unsigned *tries);

/* Tries the releases again that failed. */
void moor__quarantine_retry(struct moor_device *device);

/* What the owners of the objects do about completions. The object's bytes have been accounted for. */
void moor__buffer_gone(struct moor__object *object);
void moor__range_gone(struct moor__object *object);
void moor__segment_gone(struct moor__object *object);
void moor__range_part_gone(struct moor__object *object);
/* A part has come into quarantine. */
void moor__range_part_stuck(struct moor__object *object);

/* Submits once more what is in quarantine. */
void moor__buffer_retry(struct moor__object *object);
void moor__range_retry(struct moor__object *object);
void moor__segment_retry(struct moor__object *object);
void moor__range_part_retry(struct moor__object *object);

#endif
