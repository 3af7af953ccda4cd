/* SPDX-License-Identifier: MIT */
/* The way out of all objects: submission to the provider's queue, completion, quarantine. */
#ifndef MOOR_MEMORY_RELEASE_H
#define MOOR_MEMORY_RELEASE_H

#include "memory/object.h"
#include "memory/stream.h"

/* Submits a LIVE object's release behind the points, which it covers as needed. `release` names the part of
 * the provider's memory: kind, handle, offset and length. The object is LEAVING then and its bytes are
 * pending. On failure nothing is queued and the object is as before. Drops the points' references in either
 * case. */
moor_status moor__release_submit(struct moor__object *object, struct moor_abi_release release,
                                 const struct moor__point *points, uint32_t point_count);
/* Does the same for an object that nothing names any more. A refused release puts the object into
 * quarantine. */
void moor__release_or_quarantine(struct moor__object *object, struct moor_abi_release release,
                                 const struct moor__point *points, uint32_t point_count);
/* Puts a LIVE object into quarantine after its release was refused. The pending error record has the
 * reason. */
void moor__release_refused(struct moor__object *object);

/* Retires a handle of a kind, as the public release functions do. Handle 0 is a no-op. */
moor_status moor__release_handle(struct moor_runtime *runtime, enum moor__kind kind, uint64_t handle);
/* Drops the pin of a public release function. Reaps once in MOOR_REAP_EVERY releases, for hosts that only
 * release. */
void moor__release_unpin(struct moor__object *object);
/* Submits the releases in the device's quarantine again. */
void moor__quarantine_retry(struct moor_device *device);

/* Takes the device's completions until none is due. deadline_ns: for the first of them. Requires no lock. */
void moor__device_reap(struct moor_device *device, uint64_t deadline_ns);
/* Reaps all devices without waiting. Returns true if some release has completed. */
bool moor__poll(struct moor_runtime *runtime);
/* Does the same, and if none has completed waits a little for the first, at most to the deadline. Returns the
 * number of releases and streams that are still pending. */
uint64_t moor__poll_until(struct moor_runtime *runtime, uint64_t deadline_ns, bool *ret_gone);

#endif
