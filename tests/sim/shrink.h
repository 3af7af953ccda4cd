/* SPDX-License-Identifier: MIT */
#ifndef MOOR_SIM_SHRINK_H
#define MOOR_SIM_SHRINK_H

#include "run.h"

/* Leaves out of the result's sequence, which fails, what it fails without. The failure is then that of what
 * is left. false: the last world alone does not fail. */
bool sim_shrink(const char *path, struct sim_result *result);

#endif
