/* SPDX-License-Identifier: MIT */
/* Sequences as text: a line for the profile, one for the world's seed, and one for each operation. */
#ifndef MOOR_SIM_TEXT_H
#define MOOR_SIM_TEXT_H

#include "sim/run.h"
#include "tool.h"

#include <stdio.h>

void sim_text_print(FILE *file, const struct sim_sequence *sequence);
/* Into a file; a failure if that cannot be written. */
bool sim_text_write(const char *path, const struct sim_sequence *sequence, struct tool_failure *failure);
/* Bad input, with the file and line named, if it is none. */
bool sim_text_read(const char *path, struct sim_sequence *ret_sequence, struct tool_failure *failure);

#endif
