/* SPDX-License-Identifier: MIT */
/* Effects of calls on granules and segments in the model, and the statuses that those calls may return. */
#ifndef MOOR_SIM_MEMORY_H
#define MOOR_SIM_MEMORY_H

#include "world.h"

/* Returns true if the granules belong to a live range. */
bool sim_are_inside(const struct sim_world *world, uint64_t range, uint64_t first, uint64_t count);
void sim_set_blocks(struct sim_block *blocks, uint32_t count, int16_t value);

/* Adds the statuses of a call that needs free granules. */
void sim_judge_free(const struct sim_world *world, int range, uint32_t first, uint32_t count,
                    struct sim_verdict *verdict);
/* Adds the statuses of a call that needs granules in `state` and does not reap. */
void sim_judge_state(const struct sim_world *world, int range, uint32_t first, uint32_t count,
                     enum sim_granule_state state, struct sim_verdict *verdict);
/* Adds the statuses of a call that maps the segment READ_WRITE or READ. */
void sim_judge_map(const struct sim_world *world, int segment, int range, uint32_t first, bool writable,
                   struct sim_verdict *verdict);
/* Returns true if a mapping of the segment is quarantined. */
bool sim_has_stuck_mapping(const struct sim_world *world, int segment);
/* Adds the statuses of a call that waits for the segment's pending mappings, which still own it. */
void sim_judge_last_mappings(const struct sim_world *world, int segment, struct sim_verdict *verdict);

/* Record that the call has succeeded. */
void sim_commit_done(struct sim_world *world, int range, uint32_t first, uint32_t count, int grant);
void sim_create_done(struct sim_world *world, int segment, moor_segment handle, int binding,
                     uint64_t granule_bytes, uint32_t count, int grant);
void sim_map_done(struct sim_world *world, int segment, int range, uint32_t first, bool writable);
/* Starts the release of committed granules or of one mapping. */
struct sim_release *sim_release_granules(struct sim_world *world, int range, uint32_t first, uint32_t count);
/* Records that a mapping of the segment has started its release. */
void sim_unmapped(struct sim_world *world, int segment);
/* Records that the host has released its handle. */
void sim_handle_released(struct sim_world *world, int segment);

#endif
