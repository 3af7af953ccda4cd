/* SPDX-License-Identifier: MIT */
/*
 * What each granule of a range is: VIRTUAL and SHARED, for a provider that can back addresses with memory and
 * map segments at them.
 *
 *     FREE -> BUSY -> COMMITTED -> DECOMMITTING -> FREE
 *                  -> MAPPED    -> UNMAPPING    ->
 *
 * Nothing is committed, mapped or given back twice, whoever asks at the same time. BUSY is a call's that is at
 * work, DECOMMITTING and UNMAPPING a release's that is queued: nobody else can have the granule then, so the
 * device is called without the lock, for different granules by several threads at once.
 *
 *     commit     get, claim, the device, settle(COMMITTED), or FREE where that failed; put
 *     map        get, and get of the segment; claim, the device, settle(MAPPED); put. The segment stays
 *                borrowed by its mapping, so its release is BUSY; it is put when the UNMAP is done
 *     protect    get; with the lock: mapping, is it this segment's, the device; put
 *     release    of a part (moor_kit_release_is_part): take, submit to the queue; when it is due the device,
 *                then done. Where submit fails, and where the queue calls give_up: give_up
 *     release    of the range: moor_kit_handles_claim, check_empty, submit; when it is due the addresses, then
 *                moor_kit_handles_remove, finish. Else, as above: moor_kit_handles_unclaim
 *
 * Where the device failed a release, the release may come again: it goes on from where it was. What a commit or
 * map has left that cannot be undone is STUCK.
 *
 * The provider's record of a range begins with this struct, and the table of handles holds it. Any thread may
 * call anything at any time, but for init and finish. Everything takes the lock where it needs it, but for the
 * last two, which are called with it held.
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
    /* Who asked for it was told of a failure, so it counts as empty; but something is in it. While stuck_count is not
     * 0, the provider looks through `states` before it claims, and before the range goes, tries again, and sets what
     * it could undo FREE. */
    MOOR_KIT_GRANULE_STUCK,
    MOOR_KIT_GRANULE_BUSY,
    MOOR_KIT_GRANULE_COMMITTED,
    MOOR_KIT_GRANULE_DECOMMITTING,
    MOOR_KIT_GRANULE_MAPPED,    /* the first one of a mapping */
    MOOR_KIT_GRANULE_MAPPED_ON, /* each further one */
    MOOR_KIT_GRANULE_UNMAPPING,
};

struct moor_kit_range {
    uint64_t handle; /* the provider's, as the next; 0 after init */
    uint64_t address;
    uint64_t size_bytes;
    uint64_t granule_bytes;
    pthread_mutex_t lock;
    uint8_t *states;      /* enum moor_kit_granule, of each; by `lock`, as the next two */
    uint64_t used_count;  /* granules that are neither FREE nor STUCK */
    uint64_t stuck_count; /* granules that are STUCK */
};

/* All granules are FREE. args: [in] checked by moor_kit_check_range. HOST_NOMEM: nothing is there to finish. */
int32_t moor_kit_range_init(struct moor_kit_range *range, const struct moor_abi_range_args *args,
                            struct moor_abi_error *error);
/* Nobody else has it any more. */
void moor_kit_range_finish(struct moor_kit_range *range);

/* ---- calls ---- */

/* Borrows a range until moor_kit_handles_put, if the span is whole granules inside it. kind: of ranges, in the
 * table. Fails as moor_kit_handles_get and moor_kit_check_span do. */
int32_t moor_kit_range_get(struct moor_kit_handles *handles, uint64_t handle, uint32_t kind,
                           uint64_t offset_bytes, uint64_t length_bytes, struct moor_kit_range **ret_range,
                           struct moor_abi_error *error);

/* From FREE to BUSY, all of them; by their number, as everywhere here. INVALID: one is something else. Before
 * memory is taken for them, so that what is there already does not count as a device that is full. */
int32_t moor_kit_range_claim(struct moor_kit_range *range, uint64_t first, uint64_t count,
                             struct moor_abi_error *error);
/* From BUSY, by who has claimed them: COMMITTED, MAPPED as one mapping, FREE or STUCK. */
void moor_kit_range_settle(struct moor_kit_range *range, uint64_t first, uint64_t count,
                           enum moor_kit_granule state);

/* What `committed` of the table answers: what is queued for DECOMMIT is still there. Whole granules inside. */
uint64_t moor_kit_range_committed(struct moor_kit_range *range, uint64_t offset_bytes, uint64_t length_bytes);

/* ---- releases ---- */

/* Of DECOMMIT and UNMAP: borrows the range and marks its granules as on their way out, until done or give_up.
 * As get; and INVALID for what is not committed throughout, or not exactly one mapping, or is leaving already. */
int32_t moor_kit_range_take(struct moor_kit_handles *handles, uint32_t kind,
                            const struct moor_abi_release *release, struct moor_abi_error *error);
/* They are FREE, and the range is put: it may be gone when this returns. The release has succeeded. */
void moor_kit_range_done(struct moor_kit_handles *handles, const struct moor_abi_release *release);
/* They are what they were, and the range is put. */
void moor_kit_range_give_up(struct moor_kit_handles *handles, const struct moor_abi_release *release);

/* INVALID, and how many, while granules are in use. */
int32_t moor_kit_range_check_empty(struct moor_kit_range *range, struct moor_abi_error *error);

/* ---- range->lock is held ---- */

/* Of how many granules is the mapping that begins here? 0: none does, or it is on its way out. */
uint64_t moor_kit_range_mapping(const struct moor_kit_range *range, uint64_t first);
/* As settle; also from STUCK, and from MAPPED to BUSY and back, a whole mapping. */
void moor_kit_range_set(struct moor_kit_range *range, uint64_t first, uint64_t count,
                        enum moor_kit_granule state);

#ifdef __cplusplus
}
#endif
#endif
