/* SPDX-License-Identifier: MIT */
/* Draws the arguments of operations: mostly meaningful ones. */
#ifndef MOOR_SIM_DRAW_H
#define MOOR_SIM_DRAW_H

#include "world.h"

bool sim_is_live(const struct sim_world *world, enum sim_table table, uint64_t index);
/* Returns true if the place of the table is free. */
bool sim_is_free(const struct sim_world *world, enum sim_table table, uint64_t index);

/* Draw the place of a live, or free, entry. Return false if there is none. */
bool sim_draw_live(const struct sim_world *world, struct sim_random *random, enum sim_table table,
                   uint64_t *ret_arg);
bool sim_draw_free(const struct sim_world *world, struct sim_random *random, enum sim_table table,
                   uint64_t *ret_arg);
/* Draws nothing, for kinds without arguments. */
bool sim_draw_nothing(const struct sim_world *world, struct sim_random *random, struct sim_op *op);
/* Draws 0, or sometimes 1 + the place of a grant, mostly one of the binding's holder. */
uint64_t sim_draw_grant(const struct sim_world *world, struct sim_random *random, uint64_t binding);
/* Draws a live thing and a part of it. */
bool sim_draw_thing(const struct sim_world *world, struct sim_random *random, uint64_t *ret_thing,
                    uint64_t *ret_first, uint64_t *ret_count);
/* Draws a run of granules, mostly in the given state. */
bool sim_draw_granules(const struct sim_world *world, struct sim_random *random, enum sim_granule_state state,
                       uint32_t longest, uint64_t *ret_range, uint64_t *ret_first, uint64_t *ret_count);

#endif
