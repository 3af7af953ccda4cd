/* SPDX-License-Identifier: MIT */
/*
 * Ranges and segments, counted in granules, for the checks of VIRTUAL, SHARED, PINNED and STATS. Calls must
 * succeed unless their name says otherwise; a failure ends the check.
 */
#ifndef MOOR_CHECK_BACKING_H
#define MOOR_CHECK_BACKING_H

#include "check/check.h"

/* Converts an address of the contract, an integer, to a pointer. */
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

/* Returns arguments for a range of the domain's smallest granules. */
struct moor_abi_range_args check_range_args(const struct check_place *place, uint64_t granule_count);
struct check_range check_reserve_args(struct check_place *place, const struct moor_abi_range_args *args);
struct check_range check_reserve(struct check_place *place, uint64_t granule_count);
void check_range_release(struct check_place *place, const struct check_range *range);

uint64_t check_granule_at(const struct check_range *range, uint64_t granule); /* returns its address */
/* Write, and compare, every byte of some granules. */
void check_granules_fill(struct check_place *place, const struct check_range *range, uint64_t first,
                         uint64_t count, uint8_t value);
void check_granules_bytes(struct check_place *place, const struct check_range *range, uint64_t first,
                          uint64_t count, uint8_t value, const char *what);

/* End the check as failed unless the actual bytes are exactly those of the granules. */
void check_commit(struct check_place *place, const struct check_range *range, uint64_t first, uint64_t count);
void check_decommit(struct check_place *place, const struct check_range *range, uint64_t first,
                    uint64_t count);
/* Ends the check as failed unless `expected` granules of the span are committed. */
void check_committed(struct check_place *place, const struct check_range *range, uint64_t first,
                     uint64_t count, uint64_t expected, const char *when);

/* Returns the arguments of a DECOMMIT or UNMAP release. points: NULL if point_count is 0. */
struct moor_abi_release check_part_args(uint32_t kind, const struct check_range *range, uint64_t first,
                                        uint64_t count, const struct moor_abi_fence_point *points,
                                        uint32_t point_count);

/* ---- segments, for ranges of check_reserve ---- */

struct moor_abi_segment_args check_segment_args(const struct check_place *place, uint64_t granule_count);
struct moor_abi_segment check_segment_create(struct check_place *place, uint64_t granule_count);
void check_segment_release(struct check_place *place, const struct moor_abi_segment *segment);

struct moor_abi_map_args check_map_args(const struct check_range *range, uint64_t first, uint64_t segment,
                                        uint32_t access);
void check_map(struct check_place *place, const struct check_range *range, uint64_t first, uint64_t segment,
               uint32_t access);
void check_unmap(struct check_place *place, const struct check_range *range, uint64_t first, uint64_t count);

/* ---- refusals ---- */

/* Requires INVALID or BUSY, from a call on an object in use or with a queued release. */
void check_refused_in_use(int32_t actual, const char *what);
/* The same for a release; nothing may be queued. */
void check_release_in_use(struct check_place *place, const struct moor_abi_release *release,
                          const char *what);

/* Releases a range or segment, on which nothing else depends, behind unfinished work. */
void check_release_waits(struct check_place *place, uint32_t kind, uint64_t handle);

/* A call on a handle. user: passed through. */
typedef int32_t (*check_handle_call)(struct check_place *place, uint64_t handle, uint64_t user);
/* Calls with handles that name no object of the right kind, while none exists: zero, handles never returned,
 * and an allocation's. Each call must be refused and must queue no release. */
void check_wrong_handles(struct check_place *place, check_handle_call call, uint64_t user, const char *what);
/* The same with the handle of a released object. */
void check_stale_handle(struct check_place *place, check_handle_call call, uint64_t user, uint64_t handle,
                        const char *what);

/* ---- held bytes ---- */

struct moor_abi_stats check_stats_now(struct check_place *place);
/* Returns true if the place reports held_bytes. */
bool check_reports_held(struct check_place *place);
/* Ends the check as failed unless held_bytes is `expected`. Does nothing where the place does not report
 * it. */
void check_held(struct check_place *place, uint64_t expected, const char *when);

#endif
