/* SPDX-License-Identifier: MIT */
/* What a provider does to the process that loads it, and should not. */
#ifndef MOOR_PROBE_WATCH_H
#define MOOR_PROBE_WATCH_H

#include "loader/probe.h"

/* Adds a line to the answer's warnings; what is beyond their number is left out. */
void warn(struct moor__probe_answer *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* watch.c: remembers how the process is. */
void watch_begin(void);
/* watch.c: warns of what has become different since. */
void watch_end(struct moor__probe_answer *answer);

/* symbols.c: warns of symbols that others can see. The file has been loaded: asking the linker for one that
 * it does not have would open it. */
void check_symbols(const char *path, struct moor__probe_answer *answer);

#endif
