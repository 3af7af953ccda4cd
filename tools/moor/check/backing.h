/* SPDX-License-Identifier: MIT */
/*
 * What the checks of VIRTUAL, SHARED, PINNED and STATS share: ranges and segments, counted in granules. Calls
 * must succeed, unless their name says otherwise: each ends the check if it does not.
 */
#ifndef MOOR_CHECK_BACKING_H
#define MOOR_CHECK_BACKING_H

#include "check/check.h"

/* Addresses travel as integers. */
static inline void *check_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* ---- ranges ---- */

struct check_range {
    uint64_t handle;
    uint64_t address;
    uint64_t granule_bytes;
    uint64_t granule_count;
};

/* A range in the domain's smallest granules. */
struct moor_abi_range_args check_range_args(const struct check_place *place, uint64_t granule_count);
struct check_range check_reserve_args(struct check_run *run, struct check_place *place,
                                      const struct moor_abi_range_args *args);
struct check_range check_reserve(struct check_run *run, struct check_place *place, uint64_t granule_count);
void check_range_release(struct check_run *run, struct check_place *place, const struct check_range *range);

uint64_t check_granule_at(const struct check_range *range, uint64_t granule); /* its address */
/* Writes and compares every byte of some granules. */
void check_granules_fill(struct check_run *run, struct check_place *place, const struct check_range *range,
                         uint64_t first, uint64_t count, uint8_t value);
void check_granules_bytes(struct check_run *run, struct check_place *place, const struct check_range *range,
                          uint64_t first, uint64_t count, uint8_t value, const char *what);

/* All bytes of the granules must be taken, and given back. */
void check_commit(struct check_run *run, struct check_place *place, const struct check_range *range,
                  uint64_t first, uint64_t count);
void check_decommit(struct check_run *run, struct check_place *place, const struct check_range *range,
                    uint64_t first, uint64_t count);
/* The bytes committed among some granules must be those of `expected` granules. */
void check_committed(struct check_run *run, struct check_place *place, const struct check_range *range,
                     uint64_t first, uint64_t count, uint64_t expected, const char *when);

/* The release of a part: DECOMMIT or UNMAP. points: NULL with 0. */
struct moor_abi_release check_part_args(uint32_t kind, const struct check_range *range, uint64_t first,
                                        uint64_t count, const struct moor_abi_fence_point *points,
                                        uint32_t point_count);

/* ---- segments, for ranges of check_reserve ---- */

struct moor_abi_segment_args check_segment_args(const struct check_place *place, uint64_t granule_count);
struct moor_abi_segment check_segment_create(struct check_run *run, struct check_place *place,
                                             uint64_t granule_count);
void check_segment_release(struct check_run *run, struct check_place *place,
                           const struct moor_abi_segment *segment);

struct moor_abi_map_args check_map_args(const struct check_range *range, uint64_t first, uint64_t segment,
                                        uint32_t access);
void check_map(struct check_run *run, struct check_place *place, const struct check_range *range,
               uint64_t first, uint64_t segment, uint32_t access);
void check_unmap(struct check_run *run, struct check_place *place, const struct check_range *range,
                 uint64_t first, uint64_t count);

/* ---- what must be refused ---- */

/* A call on what is in use, or is on its way out: INVALID or BUSY. */
void check_refused_in_use(struct check_run *run, int32_t actual, const char *what);
/* The same of a release: nothing may have been queued. */
void check_release_in_use(struct check_run *run, struct check_place *place,
                          const struct moor_abi_release *release, const char *what);

/* Gives a range or segment that nothing else is in back, behind work that is not done. */
void check_release_waits(struct check_run *run, struct check_place *place, uint32_t kind, uint64_t handle);

/* A call that names something by a handle. user: passed on. */
typedef int32_t (*check_handle_call)(struct check_run *run, struct check_place *place, uint64_t handle,
                                     uint64_t user);
/* Handles that name nothing that the call takes, while there is nothing that it takes: zero, never given
 * ones, and that of an allocation. Each must be refused; no release may have been queued. */
void check_wrong_handles(struct check_run *run, struct check_place *place, check_handle_call call,
                         uint64_t user, const char *what);
/* The same of the handle of something that is gone. */
void check_stale_handle(struct check_run *run, struct check_place *place, check_handle_call call,
                        uint64_t user, uint64_t handle, const char *what);

/* ---- what is held ---- */

struct moor_abi_stats check_stats_now(struct check_run *run, struct check_place *place);
/* Whether the place says how much it holds. */
bool check_tells_held(struct check_run *run, struct check_place *place);
/* held_bytes must be what is expected; nothing is looked at where the place does not tell. */
void check_held(struct check_run *run, struct check_place *place, uint64_t expected, const char *when);

#endif
