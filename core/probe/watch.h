/* SPDX-License-Identifier: MIT */
/* Detects effects of a provider on the process that a load must not have. */
#ifndef MOOR_PROBE_WATCH_H
#define MOOR_PROBE_WATCH_H

#include "loader/probe.h"

/* Adds a line to the answer's warnings. Lines beyond MOOR__PROBE_WARNINGS are dropped. */
void warn(struct moor__probe_answer *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* watch.c: records the state of the process. */
void watch_begin(void);
/* watch.c: warns of each difference from the recorded state. */
void watch_end(struct moor__probe_answer *answer);

/* symbols.c: warns of symbols that other objects can see. Requires a loaded file: the linker would otherwise
 * open it. */
void check_symbols(const char *path, struct moor__probe_answer *answer);

#endif
