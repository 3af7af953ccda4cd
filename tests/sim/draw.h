/* SPDX-License-Identifier: MIT */
/* Choosing what an operation is about: mostly something that makes sense. */
#ifndef MOOR_SIM_DRAW_H
#define MOOR_SIM_DRAW_H

#include "world.h"

bool sim_is_live(const struct sim_world *world, enum sim_table table, uint64_t index);
/* The place can be used for a new one. */
bool sim_is_free(const struct sim_world *world, enum sim_table table, uint64_t index);

/* Puts the place of a live one, or of a free one, into *ret_arg; false: there is none. */
bool sim_draw_live(const struct sim_world *world, struct sim_random *random, enum sim_table table,
                   uint64_t *ret_arg);
bool sim_draw_free(const struct sim_world *world, struct sim_random *random, enum sim_table table,
                   uint64_t *ret_arg);
/* For kinds without arguments. */
bool sim_draw_nothing(const struct sim_world *world, struct sim_random *random, struct sim_op *op);
/* 0, or now and then 1 + the place of a grant, mostly of the binding's holder. */
uint64_t sim_draw_grant(const struct sim_world *world, struct sim_random *random, uint64_t binding);
/* A live thing, and a part of it. */
bool sim_draw_thing(const struct sim_world *world, struct sim_random *random, uint64_t *ret_thing,
                    uint64_t *ret_first, uint64_t *ret_count);
/* A run of granules of a range that are mostly in that state. */
bool sim_draw_granules(const struct sim_world *world, struct sim_random *random, enum sim_granule_state state,
                       uint32_t longest, uint64_t *ret_range, uint64_t *ret_first, uint64_t *ret_count);

#endif
