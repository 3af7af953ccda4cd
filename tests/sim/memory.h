/* SPDX-License-Identifier: MIT */
/* What becomes of granules and segments in the model, and what calls on them may answer. */
#ifndef MOOR_SIM_MEMORY_H
#define MOOR_SIM_MEMORY_H

#include "world.h"

/* Granules that a live range has. */
bool sim_are_inside(const struct sim_world *world, uint64_t range, uint64_t first, uint64_t count);
void sim_set_blocks(struct sim_block *blocks, uint32_t count, int16_t value);

/* Adds what a call may answer that needs free granules. */
void sim_judge_free(const struct sim_world *world, int range, uint32_t first, uint32_t count,
                    struct sim_verdict *verdict);
/* Likewise one that needs them in `state`, and does not look at what has completed. */
void sim_judge_state(const struct sim_world *world, int range, uint32_t first, uint32_t count,
                     enum sim_granule_state state, struct sim_verdict *verdict);
/* Likewise one that maps the segment, as READ_WRITE or READ. */
void sim_judge_map(const struct sim_world *world, int segment, int range, uint32_t first, bool writable,
                   struct sim_verdict *verdict);
/* A mapping of the segment is in quarantine. */
bool sim_has_stuck_mapping(const struct sim_world *world, int segment);
/* Adds what a call may answer that waits for the segment's mappings on their way out, which still own it. */
void sim_judge_last_mappings(const struct sim_world *world, int segment, struct sim_verdict *verdict);

/* The call has succeeded. */
void sim_commit_done(struct sim_world *world, int range, uint32_t first, uint32_t count, int grant);
void sim_create_done(struct sim_world *world, int segment, moor_segment handle, int binding,
                     uint64_t granule_bytes, uint32_t count, int grant);
void sim_map_done(struct sim_world *world, int segment, int range, uint32_t first, bool writable);
/* Committed granules, or one mapping, are on their way out. */
struct sim_release *sim_take_away(struct sim_world *world, int range, uint32_t first, uint32_t count);
/* The segment has a mapping fewer that is not on its way out. */
void sim_unmapped(struct sim_world *world, int segment);
/* The host has given up its handle. */
void sim_handle_gone(struct sim_world *world, int segment);

#endif
