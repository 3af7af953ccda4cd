/* SPDX-License-Identifier: MIT */
/*
 * The state of each granule of a range: VIRTUAL and SHARED, for a provider that can put memory behind
 * addresses and map segments at them.
 *
 *     FREE -> BUSY -> COMMITTED -> DECOMMITTING -> FREE
 *                  -> MAPPED    -> UNMAPPING    ->
 *
 * A granule has one owner at a time: nothing is committed, mapped or freed twice. BUSY belongs to a call,
 * DECOMMITTING and UNMAPPING to a queued release. All others are refused, so the owner calls the device
 * without the lock, and several threads work on different granules at once.
 *
 *     commit     get, claim, the device, settle(COMMITTED), or settle(FREE) after a failure; put
 *     map        get, and get of the segment; claim, the device, settle(MAPPED); put. The mapping keeps the
 *                segment borrowed, so the segment's release is BUSY; the UNMAP puts it
 *     protect    get; under the lock: mapping, a check of the segment, the device; put
 *     release    of a part (moor_kit_release_is_part): take, submit to the queue; when due, the device, then
 *                done. If submit fails, and in the queue's give_up: give_up
 *     release    of the range: moor_kit_handles_claim, check_empty, submit; when due, the addresses, then
 *                moor_kit_handles_remove, finish. After a failure: moor_kit_handles_unclaim
 *
 * moorage/kit/release.h does both kinds of release. If the device fails a release, the host may release
 * again, and the provider continues from the state that the failure has left. Granules that a failed commit
 * or map cannot undo are STUCK.
 *
 * The provider's record of a range begins with struct moor_kit_range, and a table of handles holds it. Any
 * thread may call any function at any time, except init and finish. The last two functions require
 * range->lock; all others require no lock.
 */
#ifndef MOORAGE_KIT_RANGE_H
#define MOORAGE_KIT_RANGE_H

#include <moorage/kit/handles.h>
#include <pthread.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum moor_kit_granule {
    MOOR_KIT_GRANULE_FREE = 0,
    /* The commit or map has failed, so the granule counts as empty; but the device still has something there.
     * While stuck_count is not 0, the provider searches `states` before a claim and before the range is
     * freed, tries to undo again, and sets undone granules FREE. */
    MOOR_KIT_GRANULE_STUCK,
    MOOR_KIT_GRANULE_BUSY,
    MOOR_KIT_GRANULE_COMMITTED,
    MOOR_KIT_GRANULE_DECOMMITTING,
    MOOR_KIT_GRANULE_MAPPED,    /* the first one of a mapping */
    MOOR_KIT_GRANULE_MAPPED_ON, /* each further one */
    MOOR_KIT_GRANULE_UNMAPPING,
};

struct moor_kit_range {
    uint64_t handle;  /* set by the provider; 0 after init */
    uint64_t address; /* set by the provider */
    uint64_t size_bytes;
    uint64_t granule_bytes;
    pthread_mutex_t lock; /* guards the next three */
    uint8_t *states;      /* enum moor_kit_granule, of each granule */
    uint64_t used_count;  /* granules that are neither FREE nor STUCK */
    uint64_t stuck_count; /* granules that are STUCK */
};

/* ---- life ---- */

/* Initialises a range with all granules FREE. args: [in] checked by moor_kit_check_range. HOST_NOMEM:
 * nothing is there to finish. */
int32_t moor_kit_range_init(struct moor_kit_range *range, const struct moor_abi_range_args *args,
                            struct moor_abi_error *error);

/* Frees the states of a range that no thread uses. */
void moor_kit_range_finish(struct moor_kit_range *range);

/* ---- calls; first, count: granules by number ---- */

/* Borrows a range until moor_kit_handles_put, if the span is whole granules inside it. kind: of ranges, in
 * the table. ret_range: [out, borrowed]. Statuses: those of moor_kit_handles_get and moor_kit_check_span. */
int32_t moor_kit_range_get(struct moor_kit_handles *handles, uint64_t handle, uint32_t kind,
                           uint64_t offset_bytes, uint64_t length_bytes, struct moor_kit_range **ret_range,
                           struct moor_abi_error *error);

/* Claims granules: FREE to BUSY, all or none. Claim before you allocate memory for them: then INVALID comes
 * before DEVICE_NOMEM. INVALID: one of them is not FREE. */
int32_t moor_kit_range_claim(struct moor_kit_range *range, uint64_t first, uint64_t count,
                             struct moor_abi_error *error);

/* Ends a claim: BUSY to COMMITTED, to MAPPED as one mapping, to FREE or to STUCK. */
void moor_kit_range_settle(struct moor_kit_range *range, uint64_t first, uint64_t count,
                           enum moor_kit_granule state);

/* Returns the bytes that `committed` of the VIRTUAL table reports: DECOMMITTING granules still count. The
 * span is whole granules inside the range. */
uint64_t moor_kit_range_committed(struct moor_kit_range *range, uint64_t offset_bytes, uint64_t length_bytes);

/* ---- releases ---- */

/* Takes the granules of a DECOMMIT or UNMAP over, and borrows the range, until done or give_up. Statuses:
 * those of get; INVALID: the granules are not all committed, not exactly one mapping, or leaving. */
int32_t moor_kit_range_take(struct moor_kit_handles *handles, uint32_t kind,
                            const struct moor_abi_release *release, struct moor_abi_error *error);

/* Ends a release that has succeeded: the granules are FREE, and the range is put. The range may be freed
 * before this function returns. */
void moor_kit_range_done(struct moor_kit_handles *handles, const struct moor_abi_release *release);

/* Ends a release that has failed: the granules have their state from before take, and the range is put. */
void moor_kit_range_give_up(struct moor_kit_handles *handles, const struct moor_abi_release *release);

/* Checks that no granule is in use. INVALID: the message says how many are. */
int32_t moor_kit_range_check_empty(struct moor_kit_range *range, struct moor_abi_error *error);

/* ---- for callers with range->lock ---- */

/* Returns the number of granules of the mapping that begins here; 0: no mapping does, or it is leaving.
 * Requires range->lock. */
uint64_t moor_kit_range_mapping(const struct moor_kit_range *range, uint64_t first);

/* Sets the state of BUSY or STUCK granules, or of one whole mapping: MAPPED to BUSY. Requires range->lock. */
void moor_kit_range_set(struct moor_kit_range *range, uint64_t first, uint64_t count,
                        enum moor_kit_granule state);

#ifdef __cplusplus
}
#endif
#endif
