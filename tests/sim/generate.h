/* SPDX-License-Identifier: MIT */
/* Profiles, which say how often a run does each operation, and the choice of the next operation. */
#ifndef MOOR_SIM_GENERATE_H
#define MOOR_SIM_GENERATE_H

#include "world.h"

struct sim_profile {
    const char *name;
    uint32_t world_steps;    /* operations per world */
    uint32_t faults_in_1000; /* operations in which the provider fails */
    uint32_t granules;       /* granules of memory per pool */
    bool loses_a_device;     /* at the end of each world */
    uint8_t weights[SIM_KIND_COUNT];
};

/* A profile without a name ends the list. */
extern const struct sim_profile sim_profiles[];
/* Returns NULL if no profile has the name. */
const struct sim_profile *sim_profile_find(const char *name);

/* Returns the geometry of the world of this seed. */
struct sim_geometry sim_draw_geometry(const struct sim_profile *profile, uint64_t seed);
struct sim_op sim_draw_op(const struct sim_profile *profile, const struct sim_world *world,
                          struct sim_random *random);

#endif
