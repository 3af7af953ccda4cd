/* SPDX-License-Identifier: MIT */
#ifndef MOOR_SIM_SHRINK_H
#define MOOR_SIM_SHRINK_H

#include "run.h"

/* Removes the operations from the result's failing sequence that the failure does not need, and sets the
 * failure to that of the shorter sequence. Returns false if the last world alone does not fail. */
bool sim_shrink(const char *path, struct sim_result *result);

#endif
