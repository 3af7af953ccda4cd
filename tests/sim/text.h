/* SPDX-License-Identifier: MIT */
/* Sequences as text: a title, the profile, the world's seed, then one line for each operation. */
#ifndef MOOR_SIM_TEXT_H
#define MOOR_SIM_TEXT_H

#include "run.h"

#include <stdio.h>

void sim_text_print(FILE *file, const struct sim_sequence *sequence);
/* Return false after printing the reason to standard error. */
bool sim_text_write(const char *path, const struct sim_sequence *sequence);
bool sim_text_read(const char *path, struct sim_sequence *ret_sequence);

#endif
