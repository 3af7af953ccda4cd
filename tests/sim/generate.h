/* SPDX-License-Identifier: MIT */
/* Profiles: what a run does much of; and the next operation. */
#ifndef MOOR_SIM_GENERATE_H
#define MOOR_SIM_GENERATE_H

#include "world.h"

struct sim_profile {
    const char *name;
    uint32_t world_steps;    /* operations until the world ends and another begins */
    uint32_t faults_in_1000; /* operations at which the provider fails */
    uint32_t granules;       /* of memory in each pool */
    bool loses_a_device;     /* each world ends with that */
    uint8_t weights[SIM_KIND_COUNT];
};

/* The last one has no name. */
extern const struct sim_profile sim_profiles[];
/* NULL: there is none of that name. */
const struct sim_profile *sim_profile_find(const char *name);

/* What the world of this seed is like. */
struct sim_geometry sim_draw_geometry(const struct sim_profile *profile, uint64_t seed);
struct sim_op sim_draw_op(const struct sim_profile *profile, const struct sim_world *world,
                          struct sim_random *random);

#endif
